package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"

	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A waitingLimiter is what TestWaitModel drives: a limiter by itself, or a RateLimiter of one rule.
type waitingLimiter interface {
	Take(ctx context.Context, key string, n int) (ratelimit.Result, error)
	Wait(ctx context.Context, key string, n int) (ratelimit.Result, error)
	Reset(key string) error
	SetRate(r ratelimit.Rate) error
}

// oneRule is a RateLimiter of one rule as a waitingLimiter.
type oneRule struct{ l *ratelimit.RateLimiter }

func (o oneRule) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	req := ratelimit.Request{Client: key, Endpoint: "/e", Cost: n}
	ask := o.l.Check
	if n == 0 {
		ask = o.l.Peek
	}
	res, err := ask(ctx, req)
	res.Rule = ""
	return res, err
}

func (o oneRule) Wait(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	res, err := o.l.Wait(ctx, ratelimit.Request{Client: key, Endpoint: "/e", Cost: n})
	res.Rule = ""
	return res, err
}

func (o oneRule) Reset(key string) error         { return resetWaited(o.l, key) }
func (o oneRule) SetRate(r ratelimit.Rate) error { return o.l.UpdateRate("one", r) }

// resetWaited resets the keys of client for the endpoint of the rules of these tests.
func resetWaited(l *ratelimit.RateLimiter, client string) error {
	return l.Reset(context.Background(), ratelimit.Request{Client: client, Endpoint: "/e"})
}

// newWaiting makes a waitingLimiter of the algorithm a.
func newWaiting(t *testing.T, a ratelimit.Algorithm, rule bool, r ratelimit.Rate, clock ratelimit.Clock) waitingLimiter {
	var opts []ratelimit.Option
	if clock != nil {
		opts = append(opts, ratelimit.WithClock(clock))
	}
	if rule {
		l, err := ratelimit.New([]ratelimit.Rule{{Name: "one", Endpoint: "/e", Algorithm: a, Rate: r}}, nil, opts...)
		require.NoError(t, err)
		return oneRule{l}
	}
	var l waitingLimiter
	var err error
	switch a {
	case ratelimit.AlgorithmTokenBucket:
		l, err = ratelimit.NewTokenBucket(r, opts...)
	case ratelimit.AlgorithmFixedWindow:
		l, err = ratelimit.NewFixedWindow(r, opts...)
	case ratelimit.AlgorithmSlidingWindowLog:
		l, err = ratelimit.NewSlidingWindowLog(r, opts...)
	case ratelimit.AlgorithmSlidingWindowCounter:
		l, err = ratelimit.NewSlidingWindowCounter(r, opts...)
	default:
		l, err = ratelimit.NewLeakyBucket(r, opts...)
	}
	require.NoError(t, err)
	return l
}

// waitAlgorithms are the algorithms that are waited for.
var waitAlgorithms = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
}

// A waitModel says what callers of Wait for one key, and those who come behind them, must get.
// It answers every question by replaying what has happened on a fresh limiter.
type waitModel struct {
	t       *testing.T
	a       ratelimit.Algorithm
	first   ratelimit.Rate // of the constructor
	start   time.Time
	history []waitEvent
	line    []*modelWaiter
}

// A waitEvent is a charge, a change of the rate or a reset.
type waitEvent struct {
	at    time.Time
	n     int             // units charged
	rate  *ratelimit.Rate // the new rate, if it changed
	reset bool
}

// A modelWaiter is a caller of Wait, of which the model knows whether and how it ends.
type modelWaiter struct {
	n      int
	cancel context.CancelFunc
	until  time.Time // its deadline, or zero

	over bool
	res  ratelimit.Result
	err  error

	done   chan struct{}
	gotRes ratelimit.Result
	gotErr error
}

// replay returns a fresh limiter on which everything has happened, and its clock.
func (m *waitModel) replay() (waitingLimiter, *ratelimit.FakeClock) {
	clock := ratelimit.NewFakeClock(m.start)
	l := newWaiting(m.t, m.a, false, m.first, clock)
	for _, e := range m.history {
		clock.Set(e.at)
		switch {
		case e.reset:
			require.NoError(m.t, l.Reset("key"))
		case e.rate != nil:
			require.NoError(m.t, l.SetRate(*e.rate))
		default:
			res, err := l.Take(context.Background(), "key", e.n)
			require.NoError(m.t, err)
			require.True(m.t, res.Allowed, "the model charges what is there")
		}
	}
	return l, clock
}

// due returns when n units are there, not before now, if everybody in line is served before.
// res is the answer to a request at that instant.
func (m *waitModel) foretell(line []*modelWaiter, n int, now time.Time) (due time.Time, res ratelimit.Result) {
	l, clock := m.replay()
	clock.Set(now)
	serve := func(n int) ratelimit.Result {
		for range 3 {
			res, err := l.Take(context.Background(), "key", n)
			require.NoError(m.t, err)
			if res.Allowed || res.RetryAfter == ratelimit.Never {
				return res
			}
			clock.Advance(res.RetryAfter)
		}
		m.t.Fatal("a RetryAfter is too short")
		return ratelimit.Result{}
	}
	for _, w := range line {
		serve(w.n)
	}
	behind := clock.Now()
	res, err := l.Take(context.Background(), "key", 0)
	require.NoError(m.t, err)
	reset := res.ResetAfter + behind.Sub(now)
	res = serve(n)
	due = clock.Now()
	if !res.Allowed {
		return time.Time{}, ratelimit.Result{Limit: res.Limit, RetryAfter: ratelimit.Never, ResetAfter: reset, Reason: ratelimit.ReasonLimit}
	}
	if len(line) > 0 {
		res.ResetAfter = reset
	}
	return due, res
}

// settle serves everybody who is due at now.
func (m *waitModel) settle(now time.Time) {
	for len(m.line) > 0 {
		w := m.line[0]
		last := m.start
		if len(m.history) > 0 {
			last = m.history[len(m.history)-1].at
		}
		due, res := m.foretell(nil, w.n, last)
		if due.After(now) {
			return
		}
		m.line = m.line[1:]
		w.over, w.res = true, res
		m.history = append(m.history, waitEvent{at: due, n: w.n})
	}
}

// take returns the answer to Take of n units at now, and charges them if they are granted.
func (m *waitModel) take(n int, now time.Time) ratelimit.Result {
	m.settle(now)
	if len(m.line) == 0 {
		l, clock := m.replay()
		clock.Set(now)
		res, err := l.Take(context.Background(), "key", n)
		require.NoError(m.t, err)
		if res.Allowed && n > 0 {
			m.history = append(m.history, waitEvent{at: now, n: n})
		}
		return res
	}
	due, res := m.foretell(m.line, max(n, 1), now)
	if due.IsZero() {
		return res
	}
	return ratelimit.Result{Limit: res.Limit, RetryAfter: due.Sub(now), ResetAfter: res.ResetAfter, Reason: ratelimit.ReasonLimit}
}

// change notes e, which changes the rate or resets the key, and refuses whom that concerns.
func (m *waitModel) change(e waitEvent) {
	m.settle(e.at)
	m.history = append(m.history, e)
	line := m.line
	m.line = nil
	for _, w := range line {
		m.join(w, e.at)
	}
}

// join puts w in line at now, unless it is served or refused.
func (m *waitModel) join(w *modelWaiter, now time.Time) {
	m.settle(now)
	due, res := m.foretell(m.line, w.n, now)
	switch {
	case due.IsZero():
		w.over, w.err = true, ratelimit.ErrExceedsLimit
	case !w.until.IsZero() && !due.Add(res.Delay).Before(w.until) && (due.After(now) || res.Delay > 0):
		w.over, w.err = true, context.DeadlineExceeded
	case due.Equal(now) && len(m.line) == 0:
		w.over, w.res = true, res
		m.history = append(m.history, waitEvent{at: now, n: w.n})
	default:
		m.line = append(m.line, w)
	}
}

// waitSchedules returns how many random schedules of waiters a test plays: few with -short or under the race detector,
// and many with RATELIMIT_SOAK=1.
func waitSchedules(few, usual, many int) int {
	switch {
	case os.Getenv("RATELIMIT_SOAK") == "1":
		return many
	case raceEnabled || testing.Short():
		return few
	}
	return usual
}

// TestWaitModel proves that callers of Wait for one key, and everybody who comes behind them,
// get at every step of random schedules what a replay of the history says.
func TestWaitModel(t *testing.T) {
	schedules := waitSchedules(60, 300, 10_000) // 60 are enough for every mutant
	for _, a := range waitAlgorithms {
		for _, rule := range []bool{false, true} {
			for _, fake := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/rule=%t/fake=%t", a, rule, fake), func(t *testing.T) {
					for seed := range uint64(schedules) {
						synctest.Test(t, func(t *testing.T) { runWaitModel(t, a, rule, fake, seed) })
					}
				})
			}
		}
	}
	t.Logf("%d schedules: 0 differences", 4*len(waitAlgorithms)*schedules)
}

// runWaitModel runs one schedule of TestWaitModel.
func runWaitModel(t *testing.T, a ratelimit.Algorithm, rule, fake bool, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	unit := time.Second
	if seed%2 == 1 {
		unit = time.Millisecond // those in line set their alarms when they come
	}
	rates := []ratelimit.Rate{{Requests: 1, Per: unit}, {Requests: 3, Per: unit}, {Requests: 5, Per: unit}, {Requests: 4, Per: 3 * unit}}
	first := rates[r.IntN(len(rates))]
	var clock *ratelimit.FakeClock
	start, now, advance := time.Now(), time.Now, func(d time.Duration) { <-time.After(d) }
	var limiterClock ratelimit.Clock
	if fake {
		clock = ratelimit.NewFakeClock(start)
		limiterClock, now, advance = clock, clock.Now, clock.Advance
	}
	l := newWaiting(t, a, rule, first, limiterClock)
	m := &waitModel{t: t, a: a, first: first, start: start}
	all, inDelay := []*modelWaiter(nil), 0
	for step := range 40 {
		why := fmt.Sprintf("seed %d, step %d", seed, step)
		switch do := r.IntN(12); {
		case do < 4:
			w := &modelWaiter{n: 1 + r.IntN(3), done: make(chan struct{})}
			ctx, cancel := context.WithCancel(context.Background())
			if !fake && r.IntN(2) == 0 {
				w.until = now().Add(time.Duration(r.Int64N(int64(6*unit))) + 1)
				ctx, cancel = context.WithDeadline(context.Background(), w.until)
			}
			w.cancel = cancel
			m.join(w, now())
			go func() {
				defer close(w.done)
				w.gotRes, w.gotErr = l.Wait(ctx, "key", w.n)
			}()
			synctest.Wait()
			all = append(all, w)
		case do < 6:
			n := r.IntN(3)
			want := m.take(n, now())
			res, err := l.Take(context.Background(), "key", n)
			require.NoError(t, err, why)
			require.Equal(t, want, res, why)
		case do < 10:
			d := time.Duration(r.Int64N(int64(2 * unit)))
			if r.IntN(3) == 0 { // exactly to the next grant
				if n := len(m.line); n > 0 {
					due, _ := m.foretell(nil, m.line[0].n, now())
					d = due.Sub(now()) - time.Duration(r.IntN(2))
				}
			}
			advance(max(d, 0))
			if r.IntN(2) == 0 { // before anybody has woken up
				want := m.take(1, now())
				res, err := l.Take(context.Background(), "key", 1)
				require.NoError(t, err, why)
				require.Equal(t, want, res, why)
			}
		case do < 11 && len(all) > 0:
			w := all[r.IntN(len(all))]
			m.settle(now())
			if !w.over {
				w.over, w.err = true, context.Canceled
				for i := range m.line {
					if m.line[i] == w {
						m.line = append(m.line[:i:i], m.line[i+1:]...)
						break
					}
				}
				w.cancel()
				synctest.Wait()
				// The next may be served at once.
				line := m.line
				m.line = nil
				for _, w := range line {
					m.rejoin(w, now())
				}
			}
		case r.IntN(2) == 0:
			m.change(waitEvent{at: now(), reset: true})
			require.NoError(t, l.Reset("key"), why)
		default:
			rate := rates[r.IntN(len(rates))]
			m.change(waitEvent{at: now(), rate: &rate})
			require.NoError(t, l.SetRate(rate), why)
		}
		synctest.Wait()
		m.settle(now())
		inDelay = 0
		for i, w := range all {
			select {
			case <-w.done:
				require.True(t, w.over, "%s: waiter %d has ended with %v", why, i, w.gotErr)
			default:
				if w.over && w.res.Delay > 0 {
					inDelay++
					continue
				}
				require.False(t, w.over, "%s: waiter %d is forgotten", why, i)
			}
		}
	}
	m.finish(now, advance)
	for i, w := range all {
		<-w.done
		if w.err != nil {
			require.ErrorIs(t, w.gotErr, w.err, "seed %d, waiter %d", seed, i)
		} else {
			require.NoError(t, w.gotErr, "seed %d, waiter %d", seed, i)
			w.res.Delay = 0
			require.Equal(t, w.res, w.gotRes, "seed %d, waiter %d", seed, i)
		}
		w.cancel()
	}
}

// rejoin puts w, who waits already, in line again after somebody ahead has left.
func (m *waitModel) rejoin(w *modelWaiter, now time.Time) {
	due, res := m.foretell(m.line, w.n, now)
	if due.Equal(now) && len(m.line) == 0 {
		w.over, w.res = true, res
		m.history = append(m.history, waitEvent{at: now, n: w.n})
		return
	}
	m.line = append(m.line, w)
}

// finish moves the clock on until everybody is served.
func (m *waitModel) finish(now func() time.Time, advance func(time.Duration)) {
	for range 200 {
		advance(time.Second)
		synctest.Wait()
		m.settle(now())
	}
	require.Empty(m.t, m.line)
}
