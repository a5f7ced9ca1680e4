// Package traffic simulates the requests of clients: their times, clients, addresses and endpoints. The same
// [Config] gives the same requests, as long as the limiter answers them in the same way.
package traffic

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// A Request is one simulated request.
type Request struct {
	At       time.Duration // time since the start; never before the time of the previous request
	Client   string        // name of the client that sends the request
	IP       string        // address of the client; each client has one address
	Endpoint string        // endpoint to which the request is sent
	Cost     int           // how many units of a limit the request uses up, at least 1
	Attack   bool          // whether the attacker sends the request
	First    time.Duration // time at which the client sent the request for the first time
	Try      int           // how often the client has sent the request before
}

// A Stream is a sequence of requests.
type Stream interface {
	// Next returns the next request, or false if there are no more requests.
	Next() (Request, bool)

	// Answer tells the Stream how the last request was answered. If the request was denied, retryAfter is the time
	// after which the client may send this request again. If retryAfter is negative, the client may never send it
	// again.
	Answer(allowed bool, retryAfter time.Duration)
}

// A Shape says how the requests of a client are spread over time.
type Shape string

// The shapes of traffic. The names Requests, Per and Burst stand for the fields of a Config. With Edge, a client
// sends 2·Burst requests every Per. With every other shape, a client sends Requests requests every Per on average.
const (
	Steady  Shape = "steady"  // single requests at equal distances
	Poisson Shape = "poisson" // single requests at random, independent of each other
	Bursts  Shape = "bursts"  // Burst requests at once, then no request until the next burst
	OnOff   Shape = "onoff"   // twice the average rate for a tenth of Config.Duration, then no requests for as long, and so on
	Ramp    Shape = "ramp"    // a rate that grows from 0 to twice the average
	Attack  Shape = "attack"  // like Poisson; in addition, an attacker sends many requests, each with a new client name
	Edge    Shape = "edge"    // at each multiple of Per: Burst requests one nanosecond before this instant, and Burst requests at it
)

// Shapes returns all shapes, in the order of the constants above.
func Shapes() []Shape { return []Shape{Steady, Poisson, Bursts, OnOff, Ramp, Attack, Edge} }

// A Retry says what a client does after a denial.
type Retry string

// The ways to retry after a denial.
const (
	None   Retry = "none"   // the client gives up the request
	Obey   Retry = "obey"   // the client sends the request again after the RetryAfter of the denial
	Ignore Retry = "ignore" // the client sends the request again after RetryEvery, whatever the RetryAfter
	Mixed  Retry = "mixed"  // every second client behaves as with Obey, and the others as with Ignore
)

// Retries returns all ways to retry, in the order of the constants above.
func Retries() []Retry { return []Retry{None, Obey, Ignore, Mixed} }

// A Config describes the traffic that clients send.
type Config struct {
	Shape      Shape         // how the requests of each client are spread over time
	Requests   int           // number of requests that each client sends every Per
	Per        time.Duration // each client sends Requests requests in this time; longer than zero
	Burst      int           // number of requests that a client sends at once; used only by the shapes Bursts and Edge
	Clients    int           // number of clients, without the attacker
	Endpoints  []string      // names of the endpoints; each request is sent to one of them, chosen at random
	Cost       int           // how many units of a limit each request uses up
	Duration   time.Duration // length of the traffic; all requests are sent before its end
	Retry      Retry         // what clients do after a denial
	RetryEvery time.Duration // time after which a client sends a denied request again; only for Ignore and Mixed
	Seed       uint64        // number from which the generator of random numbers starts
}

// The attacker of the shape Attack sends attackFactor times as many requests as each client.
const attackFactor = 10

// MaxDuration is the largest value of Config.Duration.
const MaxDuration = 366 * 24 * time.Hour

// MaxClients is the largest value of Config.Clients.
const MaxClients = 100_000

// Validate returns everything that is wrong with c as one joined error, or nil.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, field string, value any, good string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: must be %s", field, value, good))
		}
	}
	check(c.pattern() != nil, "Shape", c.Shape, "one of Shapes")
	check(c.Requests >= 1, "Requests", c.Requests, "at least 1")
	check(c.Per > 0, "Per", c.Per, "longer than zero")
	check(c.Burst >= 1, "Burst", c.Burst, "at least 1")
	check(c.Clients >= 1 && c.Clients <= MaxClients, "Clients", c.Clients, "from 1 to "+strconv.Itoa(MaxClients))
	check(len(c.Endpoints) >= 1, "Endpoints", c.Endpoints, "at least one")
	check(c.Cost >= 1, "Cost", c.Cost, "at least 1")
	check(c.Duration > 0 && c.Duration <= MaxDuration, "Duration", c.Duration, "from 1ns to "+MaxDuration.String())
	check(c.Retry == None || c.Retry == Obey || c.Retry == Ignore || c.Retry == Mixed, "Retry", c.Retry, "one of Retries")
	check(c.RetryEvery > 0 || c.Retry == None || c.Retry == Obey, "RetryEvery", c.RetryEvery, "longer than zero")
	return errors.Join(errs...)
}

// Expected returns the approximate number of requests. Requests that are sent again after a denial are not counted.
func (c *Config) Expected() float64 {
	each := float64(c.Duration) / float64(c.Per) * float64(c.Requests)
	switch c.Shape {
	case Edge:
		each = 2 * float64(c.Burst) * (float64(c.Duration)/float64(c.Per) + 1)
	case Attack:
		return each * float64(c.Clients+attackFactor)
	}
	return each * float64(c.Clients)
}

// New returns the traffic that c describes. The Config c must be valid.
func New(c Config) Stream {
	t := &traffic{config: c}
	clients := c.Clients
	if c.Shape == Attack {
		clients++
	}
	for i := range clients {
		s := &source{random: rand.New(rand.NewPCG(c.Seed, uint64(i)))}
		s.Client, s.IP = "client-"+strconv.Itoa(i+1), fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		if s.Attack = i == c.Clients; s.Attack {
			s.IP = "203.0.113.7"
		}
		s.obeys = c.Retry == Obey || c.Retry == Mixed && i%2 == 0
		s.next = c.pattern()(&c, s)
		t.push(s)
	}
	return t
}

// A source makes the requests of one client, one after the other. The embedded Request holds the client's name and
// address.
type source struct {
	Request
	random *rand.Rand
	next   func() time.Duration // returns the time of the client's next new request; a request that is sent again is not new
	obeys  bool
}

// The type pending is a request that has not been sent yet.
type pending struct {
	Request
	from  *source
	order uint64 // if two requests have the same time, the request with the smaller order is sent first
}

// The type traffic is the Stream that the function New returns.
type traffic struct {
	config Config
	queue  queue
	orders uint64
	last   pending
}

// push adds the next request of the client s to the queue. If this request would come after the end of the traffic,
// push adds nothing.
func (t *traffic) push(s *source) {
	r := s.Request
	if r.At = s.next(); r.At >= t.config.Duration || r.At < 0 {
		return
	}
	r.First, r.Cost, r.Endpoint = r.At, t.config.Cost, t.config.Endpoints[0]
	if n := len(t.config.Endpoints); n > 1 {
		r.Endpoint = t.config.Endpoints[s.random.IntN(n)]
	}
	if s.Attack {
		r.Client = fmt.Sprintf("%016x", s.random.Uint64())
	}
	t.add(r, s)
}

func (t *traffic) add(r Request, from *source) {
	t.orders++
	heap.Push(&t.queue, pending{r, from, t.orders})
}

// Next returns the next request of the traffic, or false if there are no more requests.
func (t *traffic) Next() (Request, bool) {
	if len(t.queue) == 0 {
		return Request{}, false
	}
	t.last = heap.Pop(&t.queue).(pending)
	if t.last.Try == 0 {
		t.push(t.last.from)
	}
	return t.last.Request, true
}

// Answer tells the traffic whether the last request was allowed. If it was denied, the client may send it again
// later. The attacker never sends a denied request again.
func (t *traffic) Answer(allowed bool, retryAfter time.Duration) {
	if allowed || t.config.Retry == None || t.last.Attack {
		return
	}
	wait := t.config.RetryEvery
	if t.last.from.obeys {
		wait = retryAfter
	}
	if wait < 0 || wait >= t.config.Duration-t.last.At {
		return
	}
	r := t.last.Request
	r.At, r.Try = r.At+wait, r.Try+1
	t.add(r, t.last.from)
}

// A queue is a heap of requests to be sent. The request to send next comes first. The queue implements
// heap.Interface.
type queue []pending

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	return q[i].At < q[j].At || q[i].At == q[j].At && q[i].order < q[j].order
}

// Push implements heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(pending)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
