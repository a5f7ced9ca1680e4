package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	connections = 64
	identities  = 16 // the last of them has the API key of a customer who pays

	loginLimit = 5 // in an hour
	burst      = 20
	paidBurst  = 40
	loadFile   = `{
  "rules": [
    {"endpoint": "/login", "key": "ip", "algorithm": "SlidingWindowLog", "limit": 5, "windowSeconds": 3600, "onStoreError": "closed"},
    {"name": "everybody", "endpoint": "*", "additional": true, "key": "global", "algorithm": "TokenBucket", "rate": "1000000/s"}
  ],
  "default": {"name": "per-client", "algorithm": "TokenBucket", "rate": "%d/m burst 20", "tiers": {"paid": "%d/m burst 40"}}
}`
)

// perMinute are the rates of the two files that take turns; customers who pay have twice as much.
var perMinute = [2]int{600, 1200}

// TestLoad runs the program under load by a real client: 64 connections, a reload all the time, and
// a Redis server that is killed and started again without its data. With RATELIMIT_SOAK=1 it takes 30
// seconds, with a reload in each and three outages, and otherwise two.
func TestLoad(t *testing.T) {
	whole, outages, pause := 2*time.Second, 1, 200*time.Millisecond
	if os.Getenv("RATELIMIT_SOAK") == "1" {
		whole, outages, pause = 30*time.Second, 3, time.Second
	}
	before := goleak.IgnoreCurrent()
	srv := startRedis(t)
	path := filepath.Join(t.TempDir(), "limits.json")
	save(t, path, rules(0))
	a := start(t, []string{"-limits", path, "-store", srv.url()})

	l := &load{url: a.url, window: none}
	began := time.Now()
	l.start(t)
	reloads := l.every(pause, func(i int) {
		save(t, path, rules(i))
		hangUp(t)
	})
	third := whole / time.Duration(3*outages)
	var down time.Duration // the longest outage
	pass(third)
	early := heap()
	for i := range outages {
		gone := time.Now()
		srv.kill(t)
		l.outage(i)
		pass(third)
		l.outage(unknown) // until the server answers
		down = max(down, time.Since(gone))
		srv.run(t)
		l.outage(none)
		pass(third)
		if i < outages-1 {
			pass(third)
		}
	}
	late := heap()
	l.stop()
	lasted := time.Since(began)
	reloaded := reloads()

	require.NoError(t, a.stop())
	assert.Equal(t, 1, srv.connections(t), "the program has closed its connections to Redis")
	srv.kill(t)
	until(t, func() bool { return goleak.Find(before) == nil })

	sum := l.check(t, outages, lasted, down)
	assert.Less(t, late-early, int64(8<<20), "memory is flat")
	t.Logf(
		"%d requests by %d connections in %v, %d reloads, %d outages of at most %v: %s; "+
			"heap %d KB after a third, %d KB at the end; no goroutine left",
		sum.all(), l.dials.Load(), lasted.Round(time.Millisecond), reloaded, outages, down.Round(time.Millisecond), sum, early>>10, late>>10)
}

// rules returns the text of the i-th file.
func rules(i int) string {
	rate := perMinute[i%2]
	return fmt.Sprintf(loadFile, rate, 2*rate)
}

// pass waits for d.
func pass(d time.Duration) { <-time.After(d) }

// heap returns the bytes of the objects that are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A tally counts answers.
type tally struct {
	byStore, denied  int         // 200 and 429 by the store
	byPolicy, unsure int         // 200 and 429 by the local share
	closed           int         // 503 by the closed rule
	loginByStore     int         // those of byStore for /login
	within           map[int]int // those of byPolicy that began and ended while the server was gone, by outage
	slow             int         // answers by a policy while the server was there
	seen             [2]int      // answers by the rules of each file
}

func (s *tally) all() int { return s.byStore + s.denied + s.byPolicy + s.unsure + s.closed }

func (s *tally) String() string {
	return fmt.Sprintf("by Redis %d 200 and %d 429; by the share of the process %d 200 and %d 429; 503 for a login %d; "+
		"%d by a policy while Redis was there; by the rules of each file %v", s.byStore, s.denied, s.byPolicy, s.unsure, s.closed, s.slow, s.seen)
}

// A load is many clients of the program.
type load struct {
	url   string
	dials atomic.Int64
	stop  func() // ends the clients when their last requests are answered

	mu      sync.Mutex
	window  int // the number of the outage that is now, none or unknown; guarded by mu
	changed int // how often window has changed; guarded by mu
	tallies [identities]tally
}

// none and unknown stand for the number of an outage.
const (
	none    = -1 // the server is there
	unknown = -2 // perhaps it is
)

// outage says which outage is now.
func (l *load) outage(i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.window = i
	l.changed++
}

// now returns the outage that is now, and how often that has changed.
func (l *load) now() (window, changed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window, l.changed
}

// every calls f with 1, 2, 3 and so on, every d, until the function that it returns is called, which
// returns how often f was called.
func (l *load) every(d time.Duration, f func(i int)) (stop func() int) {
	end, ended := make(chan struct{}), make(chan int)
	go func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for i := 1; ; i++ {
			select {
			case <-tick.C:
				f(i)
			case <-end:
				ended <- i - 1
				return
			}
		}
	}()
	return func() int {
		close(end)
		return <-ended
	}
}

// start starts the clients, each with one connection.
func (l *load) start(t *testing.T) {
	end := make(chan struct{})
	var running sync.WaitGroup
	for i := range connections {
		running.Go(func() {
			transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				l.dials.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}
			defer transport.CloseIdleConnections()
			c := &http.Client{Transport: transport, Timeout: 30 * time.Second}
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-tick.C:
					l.one(t, c, i%identities, fmt.Sprintf("%d-%d", i, n))
				case <-end:
					return
				}
			}
		})
	}
	l.stop = func() {
		close(end)
		running.Wait()
	}
}

// one sends one request, and counts its answer.
func (l *load) one(t *testing.T, c *http.Client, who int, nonce string) {
	method, path := http.MethodGet, "/items/7"
	if rand.IntN(10) == 0 {
		method, path = http.MethodPost, "/login"
	}
	req, err := http.NewRequestWithContext(context.Background(), method, l.url+path+"?"+nonce, nil)
	if !assert.NoError(t, err) {
		return
	}
	req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", who+1))
	if who == identities-1 {
		req.Header.Set("X-API-Key", "k-123")
	}
	window, changed := l.now()
	res, err := c.Do(req)
	if !assert.NoError(t, err, "a request is lost") {
		return
	}
	body, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if !assert.NoError(t, err, "an answer is lost") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != changed {
		window = unknown
	}
	l.tallies[who].count(t, res, string(body), path, nonce, who == identities-1, window)
}

// count counts one answer, and checks it.
func (s *tally) count(t *testing.T, res *http.Response, body, path, nonce string, paid bool, window int) {
	policy, login := res.Header.Get("RateLimit-Policy"), path == "/login"
	byStore := res.Header.Get("RateLimit") != ""
	switch res.StatusCode {
	case http.StatusOK:
		var got struct{ Path, Query string }
		assert.NoError(t, json.Unmarshal([]byte(body), &got), body)
		assert.Equal(t, struct{ Path, Query string }{path, nonce}, got, "the answer is that to another request")
		assert.False(t, login && !byStore, "a login while the server is gone")
	case http.StatusTooManyRequests:
		assert.NotEmpty(t, res.Header.Get("Retry-After"))
		assert.Contains(t, body, "quota-exceeded")
		assert.False(t, login && !byStore, "it is not the client's fault")
	case http.StatusServiceUnavailable:
		assert.True(t, login && !byStore, "only logins are closed, and only while the server is gone")
		assert.Equal(t, "1", res.Header.Get("Retry-After"))
	default:
		assert.Fail(t, "a wrong status", "%s: %s", res.Status, body)
	}
	if byStore && !login {
		most := burst
		if paid {
			most = paidBurst
		}
		i := slices.IndexFunc(perMinute[:], func(rate int) bool {
			return policy == fmt.Sprintf(`"per-client";q=%d;w=%d`, most, burst*60/rate)
		})
		if assert.GreaterOrEqual(t, i, 0, policy) {
			s.seen[i]++
		}
	}
	granted := res.StatusCode == http.StatusOK
	switch {
	case byStore && granted && login:
		s.loginByStore++
		s.byStore++
	case byStore && granted:
		s.byStore++
	case byStore:
		s.denied++
	case granted:
		s.byPolicy++
	case res.StatusCode == http.StatusServiceUnavailable:
		s.closed++
	default:
		s.unsure++
	}
	if byStore {
		return
	}
	if window == none {
		s.slow++
	}
	if granted && window >= 0 {
		if s.within == nil {
			s.within = make(map[int]int)
		}
		s.within[window]++
	}
}

// check compares what each client was granted with the most that the rules allow, and returns the sum.
func (l *load) check(t *testing.T, outages int, lasted, down time.Duration) *tally {
	var sum tally
	for who := range l.tallies {
		s := &l.tallies[who]
		most, rate := burst, float64(perMinute[1])
		if who == identities-1 {
			most, rate = paidBurst, 2*rate
		}
		earned := func(d time.Duration) int { return int(rate*d.Minutes()) + 1 }
		assert.Positive(t, s.byStore, "client %d was served", who)
		assert.LessOrEqual(t, s.byStore-s.loginByStore, most*(1+outages)+earned(lasted),
			"client %d: the server starts without data after each outage", who)
		assert.LessOrEqual(t, s.loginByStore, loginLimit*(1+outages), "client %d", who)
		for i, n := range s.within {
			assert.LessOrEqual(t, n, most+earned(down), "client %d in outage %d", who, i)
		}
		sum.byStore += s.byStore
		sum.denied += s.denied
		sum.byPolicy += s.byPolicy
		sum.unsure += s.unsure
		sum.closed += s.closed
		sum.slow += s.slow
		for i := range s.seen {
			sum.seen[i] += s.seen[i]
		}
	}
	assert.Positive(t, sum.denied, "the clients ask for more than there is")
	assert.Positive(t, sum.closed, "logins were closed")
	assert.Positive(t, sum.byPolicy, "the share of the process was granted")
	assert.Positive(t, sum.seen[0]*sum.seen[1], "both files were applied")
	assert.Less(t, l.dials.Load(), int64(2*connections), "the program closes no connection")
	return &sum
}
