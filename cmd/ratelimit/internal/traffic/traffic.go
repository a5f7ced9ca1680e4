// Package traffic makes requests up: when they come, from whom, and what for. The same [Config] gives
// the same requests, as long as they get the same answers.
package traffic

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// A Request is one request.
type Request struct {
	At       time.Duration // since the beginning; never before that of the request before
	Client   string        // who sends it
	IP       string        // from where: each client has one address
	Endpoint string        // what for
	Cost     int           // its units, at least 1
	Attack   bool          // whether the attacker sends it
	First    time.Duration // when it was sent for the first time
	Try      int           // 0 at first, and 1 more for each time it is sent again
}

// A Stream is some traffic.
type Stream interface {
	// Next returns the next request, or false if there are no more.
	Next() (Request, bool)

	// Answer says how the last request was answered: it was granted, or the client was told to
	// come again after retryAfter, or never if that is negative.
	Answer(allowed bool, retryAfter time.Duration)
}

// A Shape is a way in which the requests of a client are spread over the time.
type Shape string

// The shapes. Each sends Rate on average, but for Edge.
const (
	Steady  Shape = "steady"  // one after the other, at equal distances
	Poisson Shape = "poisson" // independently of each other, at random
	Bursts  Shape = "bursts"  // Burst at once, then none until the next
	OnOff   Shape = "onoff"   // twice the rate for a tenth of the time, then nothing for as long
	Ramp    Shape = "ramp"    // from none to twice the rate
	Attack  Shape = "attack"  // as Poisson, beside an attacker with a new name for each request
	Edge    Shape = "edge"    // Burst just before each multiple of Per, and Burst at it
)

// Shapes returns all shapes, in the order in which they are listed.
func Shapes() []Shape { return []Shape{Steady, Poisson, Bursts, OnOff, Ramp, Attack, Edge} }

// A Retry says what a client does that is denied.
type Retry string

// The ways to retry.
const (
	None   Retry = "none"   // it gives up
	Obey   Retry = "obey"   // it comes again when it was told to
	Ignore Retry = "ignore" // it comes again after RetryEvery, whatever it was told
	Mixed  Retry = "mixed"  // every second client obeys, and the others ignore
)

// Retries returns all ways to retry, in the order in which they are listed.
func Retries() []Retry { return []Retry{None, Obey, Ignore, Mixed} }

// A Config says what traffic to make.
type Config struct {
	Shape      Shape         // of the requests of each client
	Requests   int           // sent every Per, by each client
	Per        time.Duration // see Requests
	Burst      int           // requests at once, for Bursts and Edge
	Clients    int           // how many there are
	Endpoints  []string      // each request is for one of them, at random
	Cost       int           // units of each request
	Duration   time.Duration // of all of it
	Retry      Retry         // what is done by clients that are denied
	RetryEvery time.Duration // see Ignore
	Seed       uint64        // of all that is random
}

// attackFactor is how many times what a client sends the attacker sends.
const attackFactor = 10

// MaxDuration is the longest Duration.
const MaxDuration = 366 * 24 * time.Hour

// MaxClients is the largest number of clients.
const MaxClients = 100_000

// Validate returns everything that is wrong with c, joined, or nil.
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

// Expected returns how many requests there are about, without those that are sent again.
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

// New returns the traffic of c, which must be valid.
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

// A source is one client.
type source struct {
	Request
	random *rand.Rand
	next   func() time.Duration // of its next request that is no retry
	obeys  bool
}

// A pending request is to be sent.
type pending struct {
	Request
	from  *source
	order uint64 // of those at one instant, the smaller is first
}

// traffic is the Stream of a Config.
type traffic struct {
	config Config
	queue  queue
	orders uint64
	last   pending
}

// push puts the next request of s, if it is within the duration, in the queue.
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

// Next is that of Stream.
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

// Answer is that of Stream. The attacker does not send a request again: it has other names.
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

// A queue is a heap of pending requests.
type queue []pending

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	return q[i].At < q[j].At || q[i].At == q[j].At && q[i].order < q[j].order
}

// Push is that of heap.Interface.
func (q *queue) Push(x any) { *q = append(*q, x.(pending)) }

// Pop is that of heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}
