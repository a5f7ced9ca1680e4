package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A waitMachine drives a RateLimiter whose rules change while requests wait.
type waitMachine struct {
	t     *testing.T
	why   string
	r     *rand.Rand
	clock *ratelimit.FakeClock
	l     *ratelimit.RateLimiter
	all   []*machineWaiter
	burst int         // the largest burst of the global rule so far
	rate  int         // its highest rate per second so far
	leaky bool        // whether rules may be leaky buckets: who is in its Delay cannot be told from who waits
	extra bool        // whether there is a rule for /b
	fixed bool        // whether no rule is added, removed or replaced
	gate  *everyThird // decides for /c, where it is not nil

	mu     sync.Mutex
	before time.Time // what the clock read before the last step
	grants []machineGrant
}

// A machineWaiter is one call of Wait.
type machineWaiter struct {
	req    ratelimit.Request
	cancel context.CancelFunc
	gone   bool // cancelled
	done   chan struct{}
	res    ratelimit.Result
	err    error
}

func (w *machineWaiter) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// A machineGrant is what the observer has seen of a grant.
type machineGrant struct {
	from, to time.Time // it was charged in this time: between two steps
	n        int
}

func (m *waitMachine) Observe(_ context.Context, d ratelimit.Decision) {
	if d.Result.Allowed && d.Mode == ratelimit.ModeEnforce {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.grants = append(m.grants, machineGrant{m.before, m.clock.Now(), d.Cost})
	}
}

// TestWaitMachine runs random schedules of Wait, Allow, cancel, Reset, and all changes of rates
// and rules. Requests of one client for one endpoint must be served in order of arrival, and
// no Allow before them; the global rule must never grant more than its bound; and nobody may
// be forgotten.
func TestWaitMachine(t *testing.T) {
	schedules := waitSchedules(150, 2000, 60_000)
	for seed := range uint64(schedules) {
		synctest.Test(t, func(t *testing.T) { runWaitMachine(t, seed) })
	}
	t.Logf("%d schedules", schedules)
}

// TestWaitMachineOverAStore does what TestWaitMachine does, for rules whose state is in a store. Only
// their rates change.
func TestWaitMachineOverAStore(t *testing.T) {
	schedules := waitSchedules(100, 1000, 20_000)
	for seed := range uint64(schedules) {
		synctest.Test(t, func(t *testing.T) {
			runWaitMachine(t, seed, func(m *waitMachine) ratelimit.Option {
				m.fixed = true
				store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(m.clock))
				require.NoError(t, err)
				return ratelimit.WithStore(store)
			})
		})
	}
}

// globalRule is the rule that all requests of the machine meet.
func globalRule(rate, burst int) ratelimit.Rule {
	return ratelimit.Rule{Name: "global", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(rate).WithBurst(burst)}
}

// An everyThird is a custom limiter that denies every third time.
type everyThird struct{ asked atomic.Int32 }

func (e *everyThird) Allow(key string) ratelimit.Result {
	res, _ := e.Take(context.Background(), key, 1)
	return res
}

func (e *everyThird) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	if n > 0 && e.asked.Add(1)%3 == 0 {
		return ratelimit.Result{Limit: 9, RetryAfter: 300 * time.Millisecond}, nil
	}
	return ratelimit.Result{Allowed: true, Limit: 9, Remaining: 9}, nil
}

// rules returns the rules of the machine, with own for all endpoints that have no rule.
func (m *waitMachine) rules(own ratelimit.Rule) []ratelimit.Rule {
	all := []ratelimit.Rule{own, globalRule(3, 4)}
	if m.gate != nil {
		all = append(all, ratelimit.Rule{Name: "gate", Endpoint: "/c", Limiter: m.gate})
	}
	return all
}

// runWaitMachine runs one schedule, with a limiter with these options.
func runWaitMachine(t *testing.T, seed uint64, opts ...func(*waitMachine) ratelimit.Option) {
	r := rand.New(rand.NewPCG(seed, 11))
	clock := ratelimit.NewFakeClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	m := &waitMachine{t: t, r: r, clock: clock, rate: 3, burst: 4, leaky: seed%4 == 0, before: clock.Now()}
	own := ratelimit.Rule{
		Name: "own", Endpoint: "/*", Algorithm: m.algorithm(), Rate: ratelimit.PerSecond(2),
	}
	if seed%3 == 0 {
		m.gate = new(everyThird)
	}
	all := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithObserver(m), ratelimit.WithName("machine")}
	for _, opt := range opts {
		all = append(all, opt(m))
	}
	l, err := ratelimit.New(m.rules(own), nil, all...)
	require.NoError(t, err)
	m.l = l
	for step := range 60 {
		m.why = fmt.Sprintf("seed %d, step %d", seed, step)
		m.step()
		synctest.Wait()
		m.check()
		m.before = clock.Now()
	}
	m.why = fmt.Sprintf("seed %d, in the end", seed)
	for range 300 {
		clock.Advance(time.Second)
		synctest.Wait()
		m.check()
		m.before = clock.Now()
	}
	for i, w := range m.all {
		require.True(t, w.over(), "%s: waiter %d is forgotten: %v", m.why, i, w.req)
		w.cancel()
	}
	m.bound()
}

// request returns a request of one of a few clients for one of a few endpoints.
func (m *waitMachine) request() ratelimit.Request {
	endpoints := []string{"/a", "/b", "/c"}
	if m.gate == nil {
		endpoints = endpoints[:2]
	}
	return ratelimit.Request{
		Client:   []string{"alice", "bob", "carol"}[m.r.IntN(3)],
		Endpoint: endpoints[m.r.IntN(len(endpoints))],
		Cost:     1 + m.r.IntN(2),
	}
}

// algorithm returns a random algorithm.
func (m *waitMachine) algorithm() ratelimit.Algorithm {
	if m.leaky {
		return waitAlgorithms[m.r.IntN(len(waitAlgorithms))]
	}
	return waitAlgorithms[m.r.IntN(len(waitAlgorithms)-1)]
}

// step does one random thing.
func (m *waitMachine) step() {
	switch do := m.r.IntN(20); {
	case do < 8:
		w := &machineWaiter{req: m.request(), done: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		w.cancel = cancel
		go func() {
			defer close(w.done)
			w.res, w.err = m.l.Wait(ctx, w.req)
		}()
		synctest.Wait()
		m.all = append(m.all, w)
	case do < 10:
		m.allow()
	case do < 14:
		m.clock.Advance(time.Duration(m.r.Int64N(int64(800 * time.Millisecond))))
		if m.r.IntN(2) == 0 { // before anybody has woken up
			m.allow()
		}
	case do < 16:
		if len(m.all) > 0 {
			w := m.all[m.r.IntN(len(m.all))]
			w.gone = true
			w.cancel()
		}
	case do < 17:
		m.rate, m.burst = max(m.rate, 2), max(m.burst, 2)
		rate, burst := 2+m.r.IntN(3), 4 // a key that is full counts as unseen: another burst would refill it
		m.rate, m.burst = max(m.rate, rate), max(m.burst, burst)
		require.NoError(m.t, m.l.UpdateRate("global", ratelimit.PerSecond(rate).WithBurst(burst)), m.why)
	case do < 18 || m.fixed:
		require.NoError(m.t, resetWaited(m.l, m.request().Client), m.why)
	case do < 19:
		rule := ratelimit.Rule{Name: "b", Endpoint: "/b", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerSecond(2),
			Algorithm: m.algorithm()}
		if m.extra = !m.extra; m.extra {
			require.NoError(m.t, m.l.AddRule(rule), m.why)
		} else {
			require.NoError(m.t, m.l.RemoveRule("b"), m.why)
		}
	default:
		own := ratelimit.Rule{Name: "own", Endpoint: "/*", Rate: ratelimit.PerSecond(2 + m.r.IntN(2)),
			Algorithm: m.algorithm()}
		m.extra = false
		m.rate, m.burst = max(m.rate, 3), max(m.burst, 4)
		require.NoError(m.t, m.l.Replace(m.rules(own), nil), m.why)
	}
}

// allow takes units at once. If they are granted, nobody waits any more for the same.
func (m *waitMachine) allow() {
	req := m.request()
	res, err := m.l.Check(context.Background(), req)
	require.NoError(m.t, err, m.why)
	require.Equal(m.t, res.Allowed, res.RetryAfter == 0, m.why)
	if !res.Allowed {
		return
	}
	synctest.Wait()
	for i, w := range m.all {
		if !m.leaky && sameKeys(w.req, req) && !w.over() {
			require.Fail(m.t, "overtaken", "%s: waiter %d", m.why, i)
		}
	}
}

func sameKeys(a, b ratelimit.Request) bool { return a.Client == b.Client && a.Endpoint == b.Endpoint }

// check checks the order in which callers with the same keys were served.
func (m *waitMachine) check() {
	waiting := make(map[[2]string]int) // the first that has not been served
	for i, w := range m.all {
		key := [2]string{w.req.Client, w.req.Endpoint}
		first, ok := waiting[key]
		switch {
		case !w.over():
			if !ok {
				waiting[key] = i
			}
		case w.err == nil && ok && !m.leaky:
			require.Fail(m.t, "out of order", "%s: waiter %d was served before waiter %d", m.why, i, first)
		case w.err != nil && !w.gone:
			require.ErrorIs(m.t, w.err, ratelimit.ErrExceedsLimit, "%s: waiter %d: %v", m.why, i, w.err)
		}
	}
}

// bound checks that the global rule has granted in no interval more than its bound.
func (m *waitMachine) bound() {
	for i, first := range m.grants {
		sum := 0
		for _, g := range m.grants[i:] {
			sum += g.n
			most := float64(m.burst) + float64(m.rate)*g.to.Sub(first.from).Seconds()
			require.LessOrEqual(m.t, float64(sum), most+1e-6, "%s: from %v to %v", m.why, first.from, g.to)
		}
	}
}
