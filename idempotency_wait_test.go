package ratelimit_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// inBubblesWherever runs test in a bubble, with the state in this process and in a store.
func inBubblesWherever(t *testing.T, rules []ratelimit.Rule, test func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock)) {
	t.Helper()
	for _, place := range []string{"memory", "store"} {
		t.Run(place, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(epoch)
				opts := []ratelimit.Option{ratelimit.WithClock(clock), ids()}
				if place == "store" {
					opts = append(opts, ratelimit.WithStore(newFaultyStore(t, clock)))
				}
				test(t, newRules(t, rules, nil, opts...), clock)
			})
		})
	}
}

// aMinute is one rule that grants a request a minute.
var aMinute = []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}

// request returns a request of alice with this ID.
func request(id string) ratelimit.Request {
	return ratelimit.Request{Client: "alice", Endpoint: "/", ID: id}
}

// TestTwoWaitForTheSame has two callers wait in line with one ID, and a third behind them.
func TestTwoWaitForTheSame(t *testing.T) {
	inBubblesWherever(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		check(t, l, request(""))
		var ws []*waiter
		for _, id := range []string{"1", "1", "2"} {
			ws = append(ws, startRuleWait(t.Context(), l, request(id)))
			synctest.Wait()
		}
		clock.Advance(mins)
		synctest.Wait()
		require.Equal(t, ws[0].served(t), ws[1].served(t))
		require.False(t, ws[2].over(), "the second took nothing, and it is the next one's turn in a minute")
		clock.Advance(mins)
		synctest.Wait()
		ws[2].served(t)
		stats := l.Stats()[0]
		assert.EqualValues(t, 3, stats.Allowed)
		assert.EqualValues(t, 1, stats.Replayed)
		assert.Zero(t, l.InLine())
	})
}

// TestARetryDoesNotWait proves that a request with a record is answered although others wait.
func TestARetryDoesNotWait(t *testing.T) {
	inBubblesWherever(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		first := check(t, l, request("1"))
		other := startRuleWait(t.Context(), l, request("2"))
		synctest.Wait()
		require.False(t, check(t, l, request("")).Allowed, "nobody overtakes")
		require.False(t, check(t, l, request("3")).Allowed, "and an ID does not help")
		require.Equal(t, first, check(t, l, request("1")))
		retry := startRuleWait(t.Context(), l, request("1"))
		synctest.Wait()
		require.Equal(t, first, retry.served(t))
		require.False(t, other.over())
		require.False(t, check(t, l, request("2")).Allowed, "a request that waits is not granted yet")
		clock.Advance(mins)
		synctest.Wait()
		require.Equal(t, other.served(t), check(t, l, request("2")), "now it is")
		assert.Equal(t, ratelimit.RuleStats{Rule: "/", Allowed: 2, Denied: 3, Replayed: 3, LiveKeys: 1, Degraded: 0}, l.Stats()[0])
	})
}

// TestARetryServesThoseWhoWait comes at the instant at which the first of two in line is due, and
// with its ID.
func TestARetryServesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, aMinute, nil, ratelimit.WithClock(clock), ids())
		check(t, l, request(""))
		ws := []*waiter{startRuleWait(t.Context(), l, request("1")), nil}
		synctest.Wait()
		ws[1] = startRuleWait(t.Context(), l, request("2"))
		synctest.Wait()
		clock.Advance(mins)
		require.Equal(t, by("/", yes(1, 0, mins)), check(t, l, request("1")), "either the waiter has come before, or it is served by this call")
		synctest.Wait()
		ws[0].served(t)
		require.False(t, ws[1].over())
		require.EqualValues(t, 1, l.Stats()[0].Replayed)
		require.Zero(t, l.Stats()[0].Denied)
		clock.Advance(mins)
		synctest.Wait()
		ws[1].served(t)
	})
}

// TestWaitOutlastsTheDelayThatIsLeft replays the grant of a leaky bucket by Wait.
func TestWaitOutlastsTheDelayThatIsLeft(t *testing.T) {
	rules := []ratelimit.Rule{{Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerMinute(1).WithBurst(3)}}
	inBubblesWherever(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		check(t, l, request(""))
		require.Equal(t, mins, check(t, l, request("1")).Delay)
		clock.Advance(40 * sec)
		w := startRuleWait(t.Context(), l, request("1"))
		synctest.Wait()
		clock.Advance(20*sec - 1)
		synctest.Wait()
		require.False(t, w.over())
		clock.Advance(1)
		synctest.Wait()
		require.Zero(t, w.served(t).Delay)
		w.served(t)
		require.EqualValues(t, 1, l.Stats()[0].Replayed)
		ctx, cancel := context.WithDeadline(t.Context(), clock.Now().Add(time.Second))
		defer cancel()
		check(t, l, request(""))
		require.Equal(t, by("/", yes(3, 1, mins)), checked(l.Wait(ctx, request("1"))), "its time is over, though a new request would wait for longer than until the deadline")
	})
}

// TestARetryAfterTheRulesHaveChanged changes the rules under a caller that waits.
func TestARetryAfterTheRulesHaveChanged(t *testing.T) {
	inBubblesWherever(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		check(t, l, request(""))
		w := startRuleWait(t.Context(), l, request("1"))
		synctest.Wait()
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true, Rate: ratelimit.PerMinute(10)}))
		synctest.Wait()
		clock.Advance(mins)
		synctest.Wait()
		res := w.served(t)
		require.Equal(t, res, check(t, l, request("1")), "it is recorded under the rules that have charged it")
		require.Equal(t, 9, peekAt(t, l, "all", "alice").Remaining)
	})
}

// A gate is a custom limiter whose answer each caller waits for.
type gate struct {
	calls   atomic.Int32
	answers chan func() (ratelimit.Result, error)
}

func newGate() *gate { return &gate{answers: make(chan func() (ratelimit.Result, error))} }

func (g *gate) Allow(string) ratelimit.Result { return ratelimit.Result{} }

func (g *gate) Take(ctx context.Context, _ string, _ int) (ratelimit.Result, error) {
	g.calls.Add(1)
	select {
	case answer := <-g.answers:
		return answer()
	case <-ctx.Done():
		return ratelimit.Result{}, ctx.Err()
	}
}

// answer answers one caller with res and err.
func (g *gate) answer(res ratelimit.Result, err error) {
	g.answers <- func() (ratelimit.Result, error) { return res, err }
}

// besideAGate returns a limiter of a rule for 10 an hour and one with a gate.
func besideAGate(t *testing.T, g *gate, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	return newRules(t, []ratelimit.Rule{
		{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(10)},
		{Name: "gate", Endpoint: "/", Limiter: g, OnStoreError: ratelimit.FailOpen},
	}, nil, append(opts, ids())...)
}

// startCheck calls Check in a goroutine.
func startCheck(ctx context.Context, l *ratelimit.RateLimiter, req ratelimit.Request) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer func() {
			if recover() != nil {
				w.err = errPanicked
			}
		}()
		w.res, w.err = l.Check(ctx, req)
	}()
	return w
}

var errPanicked = errors.New("it panicked")

// TestARetryWaitsForTheFirst sends a request again while a custom limiter decides on it.
func TestARetryWaitsForTheFirst(t *testing.T) {
	granted := ratelimit.Result{Allowed: true, Limit: 5, Remaining: 4}
	begin := func(t *testing.T) (g *gate, l *ratelimit.RateLimiter, first, retry *waiter) {
		g = newGate()
		l = besideAGate(t, g)
		first = startCheck(t.Context(), l, request("1"))
		synctest.Wait()
		retry = startCheck(t.Context(), l, request("1"))
		synctest.Wait()
		require.EqualValues(t, 1, g.calls.Load(), "the retry waits")
		require.False(t, retry.over())
		return g, l, first, retry
	}
	t.Run("granted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g, l, first, retry := begin(t)
			ctx, cancel := context.WithCancel(t.Context())
			leaves, other := startCheck(ctx, l, request("1")), startCheck(t.Context(), l, request("2"))
			synctest.Wait()
			require.EqualValues(t, 2, g.calls.Load(), "another request does not wait")
			cancel()
			<-leaves.done
			require.ErrorIs(t, leaves.err, context.Canceled)
			g.answer(granted, nil)
			g.answer(granted, nil)
			require.Equal(t, first.served(t), retry.served(t))
			other.served(t)
			require.EqualValues(t, 2, g.calls.Load())
			require.Equal(t, 8, checked(l.Peek(t.Context(), ratelimit.Request{Client: "alice", Rules: []string{"own"}})).Remaining)
			for _, stats := range l.Stats() {
				assert.EqualValues(t, 2, stats.Allowed, stats.Rule)
				assert.EqualValues(t, 1, stats.Replayed, stats.Rule)
			}
		})
	})
	for name, answer := range map[string]func() (ratelimit.Result, error){
		"denied":   func() (ratelimit.Result, error) { return ratelimit.Result{Limit: 5, RetryAfter: sec}, nil },
		"failed":   func() (ratelimit.Result, error) { return ratelimit.Result{}, errors.New("down") },
		"refused":  func() (ratelimit.Result, error) { return ratelimit.Result{}, ratelimit.ErrExceedsLimit },
		"panicked": func() (ratelimit.Result, error) { panic("down") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, l, first, retry := begin(t)
				g.answers <- answer
				<-first.done
				synctest.Wait()
				require.EqualValues(t, 2, g.calls.Load(), "the retry is decided anew")
				g.answer(granted, nil)
				retry.served(t)
				require.Equal(t, retry.res, check(t, l, request("1")), "and is recorded")
				require.EqualValues(t, 2, g.calls.Load())
			})
		})
	}
}

// TestWaitForACustomLimiterWithAnID has two callers wait with one ID for a rule beside a custom
// limiter.
func TestWaitForACustomLimiterWithAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, calls := ratelimit.NewFakeClock(epoch), 0
		l := newRules(t, []ratelimit.Rule{
			{Name: "own", Endpoint: "/", Rate: ratelimit.PerMinute(1)},
			{Name: "custom", Endpoint: "/", Limiter: custom(func(_ context.Context, _ string, n int) (ratelimit.Result, error) {
				if n > 0 {
					calls++
				}
				return ratelimit.Result{Allowed: true, Limit: 5, Remaining: 4}, nil
			})},
		}, nil, ratelimit.WithClock(clock), ids())
		first := check(t, l, request("0"))
		var ws []*waiter
		for _, id := range []string{"1", "1", "2"} {
			ws = append(ws, startRuleWait(t.Context(), l, request(id)))
			synctest.Wait()
		}
		require.Equal(t, first, check(t, l, request("0")), "a retry does not wait")
		retry := startRuleWait(t.Context(), l, request("0"))
		synctest.Wait()
		retry.served(t)
		require.False(t, check(t, l, request("1")).Allowed, "it is not granted yet")
		clock.Advance(mins)
		synctest.Wait()
		require.Equal(t, ws[0].served(t), ws[1].served(t))
		require.False(t, ws[2].over())
		require.Equal(t, 2, calls, "once for each")
		clock.Advance(mins)
		synctest.Wait()
		ws[2].served(t)
		require.Equal(t, 3, calls)
		require.EqualValues(t, 3, l.Stats()[0].Allowed)
		require.EqualValues(t, 3, l.Stats()[0].Replayed)
	})
}

// TestIDsBesideACustomLimiterAndAStore proves that a request is refused that would have to be kept
// in two places.
func TestIDsBesideACustomLimiterAndAStore(t *testing.T) {
	g := newGate()
	st := newSettlingStore(t, ratelimit.NewFakeClock(epoch))
	l := besideAGate(t, g, ratelimit.WithStore(st))
	const want = `ratelimit: id is "1": must be empty: one of the rules has a limiter of its own, and others are in a store`
	_, err := l.Check(t.Context(), request("1"))
	require.EqualError(t, err, want)
	_, err = l.Wait(t.Context(), request("1"))
	require.EqualError(t, err, want)
	require.Zero(t, g.calls.Load())
	require.Empty(t, st.calls, "nothing was asked")
}

// TestALostReply loses the answers of a store that has charged, and sends the request again.
func TestALostReply(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	st := newFaultyStore(t, clock)
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil, ratelimit.WithClock(clock),
		ratelimit.WithStore(st), ratelimit.WithFailurePolicy(ratelimit.FailClosed), ids())
	st.do(errsAfter, errsAfter)
	for range 2 {
		res, err := l.Check(t.Context(), request("1"))
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.False(t, res.Allowed)
	}
	require.Equal(t, by("/", yes(10, 9, 6*mins)), check(t, l, request("1")), "it was charged once")
	require.Equal(t, 9, peek(t, l, request("")).Remaining)
}

// TestADenialThatTheStoreKnowsHidesNoRecord has a store that would answer without a call.
func TestADenialThatTheStoreKnowsHidesNoRecord(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	st := &denyingStore{MemoryStore: memory, denies: func(ratelimit.Ask) bool { return true }}
	l := newRules(t, aMinute, nil, ratelimit.WithStore(st), ids())
	require.False(t, check(t, l, request("")).Allowed)
	for range 2 {
		require.True(t, check(t, l, request("1")).Allowed)
	}
	require.EqualValues(t, 1, l.Stats()[0].Replayed)
}

// TestAClockThatIsSetLaterForgetsRecords makes limiters on a clock that was not set yet.
func TestAClockThatIsSetLaterForgetsRecords(t *testing.T) {
	clock := new(ratelimit.FakeClock)
	st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithStore(st)}} {
		clock.Set(time.Time{})
		l := newRules(t, aMinute, nil, append(opts, ratelimit.WithClock(clock), ids())...)
		check(t, l, request("1"))
		clock.Set(epoch)
		require.True(t, check(t, l, request("1")).Allowed)
		require.Zero(t, l.Stats()[0].Replayed, "the instants before cannot be compared with those after")
	}
}
