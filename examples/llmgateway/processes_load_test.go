package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

const (
	keys    = 8 // API keys, each of which 8 of the 64 clients use
	clients = 64
	atOnce  = 4

	day = 24 * time.Hour // after which one unit comes back: after the end of the test

	long  = keys - 3 // the key whose answers take longer than Per, if the test is long
	heavy = keys - 2 // the key whose answers use so many tokens that it comes to have none left
	quick = keys - 1 // the key whose answers are so short that it comes to have no requests left
)

// A load is 64 clients of the processes, and the model that answers the processes.
type load struct {
	t     *testing.T
	long  time.Duration // how long an answer to the key long takes
	total counts
	now   [keys]atomic.Int64 // how many answers are arriving, by the clients' own count
	most  [keys]atomic.Int64
	last  atomic.Int64 // the last number of a request

	mu        sync.Mutex
	processes []*process        // those that clients may ask; guarded by mu
	answers   map[string]*reply // guarded by mu
	hurry     chan struct{}     // closed if the model is to end all answers at once; guarded by mu
}

// counts has what the clients have seen.
type counts struct {
	requests, granted, complete, cut, broken, lost atomic.Int64
	denied                                         [3]atomic.Int64 // by rule
	other                                          atomic.Int64
}

// rules are the names of the rules, in order.
var rules = [3]string{"requests", "tokens", "at once"}

// A reply is what the model answers to a request.
type reply struct {
	pieces, tokens int           // how many pieces, and the tokens of each
	pause          time.Duration // between two pieces
	cut            int           // the piece at which the client leaves, or 0
	got            int           // the tokens that the client has got; -1 if it did not get all
	read           chan struct{} // closed when the client has read the last piece, and no longer counts the answer
}

// startLoad starts a model and so many processes for a load, whose clients are not started. It also returns a gateway in
// this process with the same limits, and completes s.
func startLoad(t *testing.T, s *setup, processes int, length time.Duration) (*load, *gateway) {
	l := &load{t: t, long: length, answers: make(map[string]*reply)}
	server := httptest.NewServer(http.HandlerFunc(l.model))
	t.Cleanup(server.Close)
	s.Model = server.URL
	patient := *s
	patient.Timeout = 30 * time.Second
	own, err := patient.gateway(nil)
	require.NoError(t, err)
	for range processes {
		l.processes = append(l.processes, startProcess(t, *s))
	}
	return l, own
}

// reply returns the reply to a new request for the key who, and its ID.
func (l *load) reply(who int) (id string, a *reply) {
	a = &reply{pieces: 3 + rand.IntN(8), tokens: 1 + rand.IntN(40), pause: time.Duration(20+rand.IntN(40)) * time.Millisecond,
		got: -1, read: make(chan struct{})}
	switch who {
	case long:
		a.pause = l.long / time.Duration(a.pieces)
	case heavy:
		a.tokens = 1000 // sometimes more than the estimate
	case quick:
		a.pieces = 1
	}
	if rand.IntN(5) == 0 {
		a.cut = 1 + rand.IntN(a.pieces)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id = fmt.Sprintf("%d-%d", who, l.last.Add(1))
	l.answers[id] = a
	return id, a
}

// model is the language model. It ends an answer only after the client has counted it as ended, so that the clients
// never count more answers than there are.
func (l *load) model(w http.ResponseWriter, r *http.Request) {
	id, err := io.ReadAll(r.Body)
	if !assert.NoError(l.t, err) {
		return
	}
	l.mu.Lock()
	a, hurry := l.answers[string(id)], l.hurry
	l.mu.Unlock()
	out := http.NewResponseController(w)
	for i := range a.pieces {
		if i > 0 {
			select {
			case <-time.After(a.pause):
			case <-hurry:
			case <-r.Context().Done():
				return
			}
		}
		if _, err := fmt.Fprintf(w, "%d word %d\n", a.tokens, i+1); err != nil || out.Flush() != nil {
			return
		}
	}
	select {
	case <-a.read:
	case <-r.Context().Done():
	}
}

// one sends one request for the key who to one of the processes.
func (l *load) one(c *http.Client, who int) {
	l.mu.Lock()
	p := l.processes[rand.IntN(len(l.processes))]
	l.mu.Unlock()
	id, a := l.reply(who)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/chat", strings.NewReader(id))
	if !assert.NoError(l.t, err) {
		return
	}
	r.Header.Set("X-Client", strconv.Itoa(who))
	r.Header.Set("X-Id", id)
	l.total.requests.Add(1)
	resp, err := c.Do(r)
	if err != nil {
		l.total.lost.Add(1)
		pass(20 * time.Millisecond)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		l.deny(resp)
		pass(time.Duration(50+rand.IntN(50)) * time.Millisecond)
		return
	}
	l.read(resp.Body, a, who)
}

// deny counts a denial.
func (l *load) deny(resp *http.Response) {
	var problem struct {
		Violated []string `json:"violated-policies"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&problem); err != nil || resp.StatusCode != http.StatusTooManyRequests {
		l.total.other.Add(1)
		return
	}
	for i, name := range rules {
		for _, violated := range problem.Violated {
			if violated == name {
				l.total.denied[i].Add(1)
			}
		}
	}
}

// read reads the answer a to the key who, and counts that it is arriving until shortly before it ends.
func (l *load) read(body io.Reader, a *reply, who int) {
	l.total.granted.Add(1)
	n := l.now[who].Add(1)
	for m := l.most[who].Load(); n > m && !l.most[who].CompareAndSwap(m, n); m = l.most[who].Load() {
	}
	defer close(a.read)
	defer l.now[who].Add(-1)
	lines := bufio.NewReader(body)
	got := 0
	for i := 1; i <= a.pieces; i++ {
		line, err := lines.ReadString('\n')
		if err != nil {
			l.total.broken.Add(1)
			return
		}
		assert.Equal(l.t, fmt.Sprintf("%d word %d\n", a.tokens, i), line)
		got += a.tokens
		if i == a.cut {
			l.total.cut.Add(1)
			return
		}
	}
	l.total.complete.Add(1)
	a.got = got
}

// run lets all clients send requests for d, and then for as long as the function then takes. After that it ends the
// answers that are arriving, and returns when the processes that still run have settled them.
func (l *load) run(d time.Duration, then func()) {
	l.mu.Lock()
	l.hurry = make(chan struct{})
	l.mu.Unlock()
	end := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for {
				select {
				case <-end:
					return
				default:
					l.one(c, i%keys)
				}
			}
		})
	}
	pass(d)
	then()
	close(end)
	close(l.hurry)
	all.Wait()
	for _, p := range l.processes {
		until(l.t, p.idle)
	}
}

// A key has what the store says about an API key.
type key struct {
	requests, tokens int // how many were charged
	held             int // how many requests are in flight
}

// stored returns what the store says about each key.
func (l *load) stored(g *gateway, s *setup) (each [keys]key) {
	for who := range each {
		r, err := g.limiter.Reserve(l.t.Context(), ratelimit.Request{
			Client: strconv.Itoa(who), Endpoint: "/v1/chat", Cost: 1000, Costs: []ratelimit.Cost{{Unit: "tokens", N: 0}},
		}, time.Minute)
		require.NoError(l.t, err)
		require.False(l.t, r.Result().Allowed, "1,000 never run at once, so nothing is charged")
		left := r.Results()
		k := key{s.Rates["requests"].Burst - left[0].Remaining, s.Rates["tokens"].Burst - left[1].Remaining, atOnce - left[2].Remaining}
		if owed := left[1].RetryAfter; owed > 0 { // a token comes back each day, and one more than the key owes is missing
			k.tokens += int((owed - 1) / day)
		}
		each[who] = k
	}
	return each
}

// mostOf returns how many answers to one key were arriving at the same time, at most.
func (l *load) mostOf() (most int64) {
	for who := range l.most {
		most = max(most, l.most[who].Load())
	}
	return most
}

// untilFree waits until nothing is in flight.
func (l *load) untilFree(g *gateway, s *setup) {
	until(l.t, func() bool {
		for _, k := range l.stored(g, s) {
			if k.held > 0 {
				return false
			}
		}
		return true
	})
}

// used returns the requests and tokens of each key that the processes have settled.
func (l *load) used(all []*process) (each [keys]key) {
	for _, p := range all {
		p.mu.Lock()
		for id, r := range p.requests {
			if !r.done {
				continue
			}
			if got := l.answers[id].got; got >= 0 {
				assert.Equal(l.t, got, r.used, "the client got what was counted")
			}
			who := int(id[0] - '0')
			each[who].requests++
			each[who].tokens += r.used
		}
		p.mu.Unlock()
	}
	return each
}

// TestLoadOfProcesses has 64 clients of three processes that share one Redis server, and kills one of them. Never more
// than 4 requests of a key are answered at the same time. Exactly what was used is charged, but for what the killed
// process held: its tokens stay charged as reserved, and its slots are free after Per. With RATELIMIT_SOAK=1, the load
// takes 30 seconds, and otherwise three.
func TestLoadOfProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	whole, per, length, requests, tokens := 2*time.Second, 2*time.Second, 300*time.Millisecond, 60, 30_000
	if os.Getenv("RATELIMIT_SOAK") == "1" {
		whole, per, length, requests, tokens = 30*time.Second, 5*time.Second, 8*time.Second, 700, 200_000
	}
	s := setup{Redis: startRedis(t).url(), Timeout: 30 * time.Second, Rates: map[string]ratelimit.Rate{
		"requests": {Requests: 1, Per: day, Burst: requests},
		"tokens":   {Requests: 1, Per: day, Burst: tokens},
		"at once":  {Requests: atOnce, Per: per},
	}}
	l, own := startLoad(t, &s, 3, length)
	killed, all := l.processes[0], l.processes[:3:3]

	var began time.Time
	l.run(whole/2, func() {
		killed.kill()
		began = time.Now()
		l.mu.Lock()
		l.processes = l.processes[1:]
		l.mu.Unlock()
	})
	crashed := l.afterCrash(l.stored(own, &s), l.used(all), killed)
	l.untilFree(own, &s)
	t.Logf("the slots of the killed process were free %v after its end; Per is %v", time.Since(began).Round(10*time.Millisecond), per)

	l.processes = append(l.processes, startProcess(t, s))
	all = append(all, l.processes[2])
	l.run(whole/2, func() {})
	stored, used := l.stored(own, &s), l.used(all)
	require.LessOrEqual(t, l.mostOf(), int64(atOnce))
	var sum, sumUsed key
	for who := range stored {
		used[who].requests += crashed[who].requests
		used[who].tokens += crashed[who].tokens
		require.Equal(t, used[who], stored[who], "key %d: what was used and what the killed process held is charged", who)
		sum.requests, sum.tokens, sum.held = sum.requests+stored[who].requests, sum.tokens+stored[who].tokens, sum.held+stored[who].held
	}
	for _, k := range l.used(all) {
		sumUsed.requests, sumUsed.tokens = sumUsed.requests+k.requests, sumUsed.tokens+k.tokens
	}
	for _, p := range all {
		p.kill()
		assert.NotContains(t, p.errs.String(), "ratelimit", "nothing has failed but what the clients have broken off")
	}
	l.report(sum, sumUsed)
}

// afterCrash compares what is stored with what was settled, and returns for each key what the killed process held.
func (l *load) afterCrash(stored, used [keys]key, killed *process) (crashed [keys]key) {
	var open [keys][]*printed // the requests that it has started, but has not settled as far as it has printed
	for id, r := range killed.requests {
		if who := int(id[0] - '0'); !r.done {
			open[who] = append(open[who], r)
		}
	}
	var requests, tokens, held, ended int
	for who := range crashed {
		c := key{requests: stored[who].requests - used[who].requests, tokens: stored[who].tokens - used[who].tokens}
		possible := map[int]bool{c.requests * estimate: true}
		for _, r := range open[who] {
			if r.ended { // perhaps it was killed between the settlement and the next line
				ended++
				for sum := range possible {
					possible[sum-estimate+r.used] = true
				}
			}
		}
		assert.Contains(l.t, possible, c.tokens, "key %d: what the killed process held stays charged as reserved", who)
		assert.GreaterOrEqual(l.t, c.requests, len(open[who]), "key %d", who)
		assert.LessOrEqual(l.t, stored[who].held, c.requests, "key %d", who)
		requests, tokens, held = requests+c.requests, tokens+c.tokens, held+stored[who].held
		crashed[who] = c
	}
	assert.Positive(l.t, requests, "it was killed while it answered")
	l.t.Logf("the killed process held %d requests with %d tokens, %d slots of them still when all others were done; "+
		"%d were killed between the end of the model and the line that says so", requests, tokens, held, ended)
	return crashed
}

// report prints what the clients have seen and what is charged.
func (l *load) report(stored, used key) {
	c := &l.total
	for i, name := range rules {
		assert.Positive(l.t, c.denied[i].Load(), "the rule %s has denied", name)
	}
	assert.Positive(l.t, c.cut.Load())
	assert.Zero(l.t, c.other.Load(), "answers that are neither 200 nor 429")
	l.t.Logf("%d requests by %d clients with %d keys: %d granted, denied by requests %d, tokens %d, at once %d; "+
		"of the granted, %d complete, %d cut off by the client, %d broken off by the end of the process; %d got no answer from it",
		c.requests.Load(), clients, keys, c.granted.Load(), c.denied[0].Load(), c.denied[1].Load(), c.denied[2].Load(),
		c.complete.Load(), c.cut.Load(), c.broken.Load(), c.lost.Load())
	l.t.Logf("at most %d of a key in flight by the clients' own count; %d requests settled for %d tokens used; "+
		"charged %d requests and %d tokens; held at the end %d",
		l.mostOf(), used.requests, used.tokens, stored.requests, stored.tokens, stored.held)
}
