package ratelimit_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// inBubblesWithIDs runs test in a synctest bubble with a RateLimiter with request IDs, whose state
// is in this process or in a store.
func inBubblesWithIDs(t *testing.T, rules []ratelimit.Rule, test func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock)) {
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

// aMinute is one rule that grants one request a minute.
var aMinute = []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerMinute(1)}}

// request returns a request of alice with this ID.
func request(id string) ratelimit.Request {
	return ratelimit.Request{Client: "alice", Endpoint: "/", ID: id}
}

// TestTwoWaitersWithOneID proves that of two waiters with one ID only one is charged, and that a
// third with another ID is served after them.
func TestTwoWaitersWithOneID(t *testing.T) {
	inBubblesWithIDs(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		check(t, l, request(""))
		var ws []*waiter
		for _, id := range []string{"1", "1", "2"} {
			ws = append(ws, startRuleWait(t.Context(), l, request(id)))
			synctest.Wait()
		}
		clock.Advance(minute)
		synctest.Wait()
		require.Equal(t, ws[0].served(t), ws[1].served(t))
		require.False(t, ws[2].returned(), "the second took nothing, and it is the next one's turn in a minute")
		clock.Advance(minute)
		synctest.Wait()
		ws[2].served(t)
		stats := l.Stats()[0]
		assert.EqualValues(t, 3, stats.Allowed)
		assert.EqualValues(t, 1, stats.Replayed)
		assert.Zero(t, l.InLine())
	})
}

// TestRetryBehindOthersIsAnsweredWithTheFirst has a retry wait behind another request. It proves that
// the retry returns when its first attempt is granted, even if its context ends then, and that new
// requests do not count it. If the first attempt gives up, the retry is served in its own turn.
func TestRetryBehindOthersIsAnsweredWithTheFirst(t *testing.T) {
	for _, row := range []struct {
		givesUp int // the index of a caller whose context ends, or -1
		served  [3]int
		why     string
	}{
		{-1, [3]int{1, 2, 1}, "the retry has the answer of the first"},
		{0, [3]int{0, 1, 2}, "the retry takes a unit in its own turn"},
		{1, [3]int{1, 0, 1}, "nobody is between them any more"},
		{2, [3]int{1, 2, 0}, "the first waits on"},
	} {
		inBubblesWithIDs(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
			check(t, l, request(""))
			var ws []*waiter
			var cancels []context.CancelFunc
			for i, id := range []string{"1", "2", "1"} {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if cancels = append(cancels, cancel); i == 2 { // behind both, it would be too late
					ctx, cancel = context.WithDeadline(ctx, clock.Now().Add(150*sec))
					defer cancel()
				}
				ws = append(ws, startRuleWait(ctx, l, request(id)))
				synctest.Wait()
			}
			require.Equal(t, 3*minute, check(t, l, request("")).RetryAfter, "two units are waited for")
			require.Equal(t, 3, l.InLine())
			if row.givesUp >= 0 {
				cancels[row.givesUp]()
				synctest.Wait()
				require.Equal(t, context.Canceled, ws[row.givesUp].err)
			}
			for m := 1; m <= 2; m++ {
				clock.Advance(minute)
				if row.served[2] == m && strings.Contains(t.Name(), "memory") {
					cancels[2]()
				}
				synctest.Wait()
				for i, w := range ws {
					want := row.served[i] != 0 && row.served[i] <= m || i == row.givesUp
					require.Equal(t, want, w.returned(), "%s: waiter %d after %d minutes", row.why, i, m)
				}
			}
		})
	}
}

// TestRecordedRequestDoesNotWait proves that a request with a record is answered at once while
// others wait.
func TestRecordedRequestDoesNotWait(t *testing.T) {
	inBubblesWithIDs(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		first := check(t, l, request("1"))
		other := startRuleWait(t.Context(), l, request("2"))
		synctest.Wait()
		require.False(t, check(t, l, request("")).Allowed, "nobody overtakes")
		require.False(t, check(t, l, request("3")).Allowed, "and an ID does not help")
		require.Equal(t, first, check(t, l, request("1")))
		retry := startRuleWait(t.Context(), l, request("1"))
		synctest.Wait()
		require.Equal(t, first, retry.served(t))
		require.False(t, other.returned())
		require.False(t, check(t, l, request("2")).Allowed, "a request that waits is not granted yet")
		clock.Advance(minute)
		synctest.Wait()
		require.Equal(t, other.served(t), check(t, l, request("2")), "now it is")
		assert.Equal(t, ratelimit.RuleStats{Rule: "/", Allowed: 2, Denied: 3, Replayed: 3, LiveKeys: 1, Degraded: 0}, l.Stats()[0])
	})
}

// TestRetryServesDueWaiters retries the request of the first of two waiters at the instant at which
// that waiter is due. The two must be served one after the other.
func TestRetryServesDueWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := newRules(t, aMinute, nil, ratelimit.WithClock(clock), ids())
		check(t, l, request(""))
		ws := []*waiter{startRuleWait(t.Context(), l, request("1")), nil}
		synctest.Wait()
		ws[1] = startRuleWait(t.Context(), l, request("2"))
		synctest.Wait()
		clock.Advance(minute)
		require.Equal(t, by("/", yes(1, 0, minute)), check(t, l, request("1")), "either the waiter has come before, or it is served by this call")
		synctest.Wait()
		ws[0].served(t)
		require.False(t, ws[1].returned())
		require.EqualValues(t, 1, l.Stats()[0].Replayed)
		require.Zero(t, l.Stats()[0].Denied)
		clock.Advance(minute)
		synctest.Wait()
		ws[1].served(t)
	})
}

// TestReplayedWaitWaitsOutTheRestOfTheDelay proves that Wait for a recorded grant of a leaky bucket
// waits for the rest of the Delay.
func TestReplayedWaitWaitsOutTheRestOfTheDelay(t *testing.T) {
	rules := []ratelimit.Rule{{Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerMinute(1).WithBurst(3)}}
	inBubblesWithIDs(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		check(t, l, request(""))
		require.Equal(t, minute, check(t, l, request("1")).Delay)
		clock.Advance(40 * sec)
		w := startRuleWait(t.Context(), l, request("1"))
		synctest.Wait()
		clock.Advance(20*sec - 1)
		synctest.Wait()
		require.False(t, w.returned())
		clock.Advance(1)
		synctest.Wait()
		require.Zero(t, w.served(t).Delay)
		w.served(t)
		require.EqualValues(t, 1, l.Stats()[0].Replayed)
		ctx, cancel := context.WithDeadline(t.Context(), clock.Now().Add(time.Second))
		defer cancel()
		check(t, l, request(""))
		require.Equal(t, by("/", yes(3, 1, minute)), checked(l.Wait(ctx, request("1"))),
			"its time is over, though a new request would wait for longer than until the deadline")
	})
}

// TestRetryAfterTheRulesChange changes the rules while a caller with an ID waits.
func TestRetryAfterTheRulesChange(t *testing.T) {
	inBubblesWithIDs(t, aMinute, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		check(t, l, request(""))
		w := startRuleWait(t.Context(), l, request("1"))
		synctest.Wait()
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Additional: true,
			Rate: ratelimit.PerMinute(10)}))
		synctest.Wait()
		clock.Advance(minute)
		synctest.Wait()
		res := w.served(t)
		require.Equal(t, res, check(t, l, request("1")), "it is recorded under the rules that have charged it")
		require.Equal(t, 9, peekAt(t, l, "all", "alice").Remaining)
	})
}

// A gate is a custom limiter. Each call of Take waits until the test calls answer.
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

// answer makes one call of Take return res and err.
func (g *gate) answer(res ratelimit.Result, err error) {
	g.answers <- func() (ratelimit.Result, error) { return res, err }
}

// besideAGate returns a RateLimiter whose endpoint has a rule of 10 an hour and a rule with the
// gate g.
func besideAGate(t *testing.T, g *gate, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	return newRules(t, []ratelimit.Rule{
		{Name: "own", Endpoint: "/", Rate: ratelimit.PerHour(10)},
		{Name: "gate", Endpoint: "/", Limiter: g, OnStoreError: ratelimit.FailOpen},
	}, nil, append(opts, ids())...)
}

// startCheck calls Check in a new goroutine.
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

// TestRetryWaitsForTheFirstAttempt sends a request again while a custom limiter decides on its
// first attempt.
func TestRetryWaitsForTheFirstAttempt(t *testing.T) {
	granted := ratelimit.Result{Allowed: true, Limit: 5, Remaining: 4}
	begin := func(t *testing.T) (g *gate, l *ratelimit.RateLimiter, first, retry *waiter) {
		g = newGate()
		l = besideAGate(t, g)
		first = startCheck(t.Context(), l, request("1"))
		synctest.Wait()
		retry = startCheck(t.Context(), l, request("1"))
		synctest.Wait()
		require.EqualValues(t, 1, g.calls.Load(), "the retry waits")
		require.False(t, retry.returned())
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

// TestWaitForACustomLimiterWithAnID has two callers wait with one ID at an endpoint that also has a
// custom limiter.
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
		clock.Advance(minute)
		synctest.Wait()
		require.Equal(t, ws[0].served(t), ws[1].served(t))
		require.False(t, ws[2].returned())
		require.Equal(t, 2, calls, "once for each")
		clock.Advance(minute)
		synctest.Wait()
		ws[2].served(t)
		require.Equal(t, 3, calls)
		require.EqualValues(t, 3, l.Stats()[0].Allowed)
		require.EqualValues(t, 3, l.Stats()[0].Replayed)
	})
}

// TestIDsWithACustomLimiterAndAStore proves that a request with an ID is refused if a store and a
// custom limiter would both have to record it.
func TestIDsWithACustomLimiterAndAStore(t *testing.T) {
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

// TestRetryAfterALostReply loses the answer of a store that has charged the request, and sends the
// request again.
func TestRetryAfterALostReply(t *testing.T) {
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
	require.Equal(t, by("/", yes(10, 9, 6*minute)), check(t, l, request("1")), "it was charged once")
	require.Equal(t, 9, peek(t, l, request("")).Remaining)
}

// TestStoreDenialsDoNotHideRecords proves that a retry gets its recorded answer from a store that
// would deny a new request without a call.
func TestStoreDenialsDoNotHideRecords(t *testing.T) {
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

// TestSettingTheClockForgetsRecords makes limiters on a clock that has not been set yet, and sets
// it when there are records.
func TestSettingTheClockForgetsRecords(t *testing.T) {
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
