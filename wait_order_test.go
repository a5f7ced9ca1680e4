package ratelimit_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A queue holds calls of Wait for one key, in the order in which they were made.
type queue struct {
	waiters []*waiter
	cancel  []context.CancelFunc
	gone    map[int]bool // indexes of the waiters that have given up
}

// line calls Wait for each of ns, one after the other. Call it, and the methods of the queue, in a
// synctest bubble.
func line(t *testing.T, l limiter, key string, ns ...int) *queue {
	t.Helper()
	q := &queue{gone: make(map[int]bool)}
	for _, n := range ns {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		q.cancel = append(q.cancel, cancel)
		q.waiters = append(q.waiters, startWait(ctx, l, key, n))
		synctest.Wait()
	}
	return q
}

// giveUp cancels the i-th waiter, which must not have been served yet.
func (q *queue) giveUp(t *testing.T, i int) {
	t.Helper()
	require.False(t, q.waiters[i].returned(), "waiter %d", i)
	q.cancel[i]()
	synctest.Wait()
	require.True(t, q.waiters[i].returned(), "waiter %d", i)
	require.Equal(t, context.Canceled, q.waiters[i].err)
	require.Equal(t, ratelimit.Result{}, q.waiters[i].res)
	q.gone[i] = true
}

// served returns how many waiters have been served. It fails the test if one was served
// before a waiter that came earlier.
func (q *queue) served(t *testing.T) (n int) {
	t.Helper()
	synctest.Wait()
	first := -1 // the first waiter that has not been served
	for i, w := range q.waiters {
		switch {
		case q.gone[i]:
		case !w.returned():
			if first < 0 {
				first = i
			}
		default:
			require.Equal(t, -1, first, "waiter %d is served before one that came earlier", i)
			w.served(t)
			n++
		}
	}
	return n
}

// TestWaitersAreServedInOrder proves that waiters for one key are served in the order in which they
// came, whichever of them give up.
func TestWaitersAreServedInOrder(t *testing.T) {
	ns := []int{3, 1, 4, 1, 2, 4, 1, 1, 3}
	for _, row := range []struct {
		giveUp []int
		why    string
	}{
		{nil, "all wait to the end"},
		{[]int{0}, "the first gives up"},
		{[]int{0, 1, 2}, "each first one gives up, three times"},
		{[]int{4}, "one in the middle gives up"},
		{[]int{4, 3, 5}, "one in the middle and its neighbours give up"},
		{[]int{8}, "the last gives up"},
		{[]int{8, 7}, "the last gives up, and then the new last"},
		{[]int{0, 8, 4}, "the first, the last and one in the middle give up"},
	} {
		eachOnFakeClock(t, ratelimit.PerMinute(4), func(t *testing.T, a algorithm, l limiter, clock *ratelimit.FakeClock) {
			require.True(t, take(t, l, "key", 4).Allowed)
			q := line(t, l, "key", ns...)
			require.Equal(t, len(ns), waiting(l))
			for gone, i := range row.giveUp {
				q.giveUp(t, i)
				require.Equal(t, len(ns)-gone-1, waiting(l), row.why)
			}
			want := len(ns) - len(row.giveUp)
			for steps := 0; q.served(t) < want; steps++ {
				require.Less(t, steps, 200, "%s: a waiter is never served", row.why)
				clock.Advance(5 * sec)
			}
			require.Zero(t, waiting(l), row.why)
		})
	}
}

// TestWaiterDoesNotOvertake proves that a waiter does not overtake the one ahead of it, even if its
// own request would fit.
func TestWaiterDoesNotOvertake(t *testing.T) {
	eachOnFakeClock(t, ratelimit.PerMinute(4), func(t *testing.T, a algorithm, l limiter, clock *ratelimit.FakeClock) {
		spend(t, l, "key", 3)
		q := line(t, l, "key", 4, 1)
		require.Equal(t, 0, l.Peek("key").Remaining, "a look comes behind both")
		require.Zero(t, q.served(t), "the second wants no more than the unit that is left, but is not first")
		q.giveUp(t, 0)
		if a.name == "leaky bucket" {
			clock.Advance(45 * sec) // the Delay of the fourth unit
		}
		require.Equal(t, 1, q.served(t), "the second is served at once when the first gives up")
		require.Zero(t, waiting(l))
	})
}

// TestWaiterThatCannotBeServedInTimeFailsAtOnce proves that a waiter fails at once if its deadline
// comes before the first waiter can be served.
func TestWaiterThatCannotBeServedInTimeFailsAtOnce(t *testing.T) {
	eachAlgorithmAndClock(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(4), opts...)
		spend(t, l, "key", 3)
		head := take(t, l, "key", 4)
		require.False(t, head.Allowed)
		q := line(t, l, "key", 4)

		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), head.RetryAfter-1)
		defer cancel()
		res, err := l.Wait(ctx, "key", 1)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "not even the first waiter is served by then")
		assert.False(t, res.Allowed)
		assert.GreaterOrEqual(t, res.RetryAfter, head.RetryAfter, "a retry makes sense only when the first waiter has been served")
		assert.Equal(t, started, time.Now(), "Wait fails at once")
		assert.Equal(t, 1, waiting(l), "the first goes on waiting")
		assert.Equal(t, res, l.Peek("key"), "nothing is taken, and a look is answered as the Wait was")

		_, err = l.Wait(t.Context(), "key", 5)
		assert.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "a count above the limit does not join the line")
		q.giveUp(t, 0)
		advance(time.Hour)
	})
}

// TestSetRateWakesTheFirst proves that a new rate applies at once to waiters for every key.
func TestSetRateWakesTheFirst(t *testing.T) {
	eachOnFakeClock(t, ratelimit.PerHour(1), func(t *testing.T, _ algorithm, l limiter, clock *ratelimit.FakeClock) {
		spend(t, l, "key", 1)
		spend(t, l, "other", 1)
		q, other := line(t, l, "key", 1, 1), line(t, l, "other", 1)
		require.NoError(t, l.SetRate(ratelimit.PerSecond(1)))
		synctest.Wait()
		require.Zero(t, q.served(t)+other.served(t))
		for range 4 {
			clock.Advance(sec)
			synctest.Wait()
		}
		require.Equal(t, 2, q.served(t), "both are served within seconds instead of hours")
		require.Equal(t, 1, other.served(t), "the waiter for another key is served too")
	})
}

// TestSetRateBelowAWaitersCount proves that a waiter is refused at once if it waits for more units
// than the new limit.
func TestSetRateBelowAWaitersCount(t *testing.T) {
	eachOnFakeClock(t, ratelimit.PerMinute(5), func(t *testing.T, _ algorithm, l limiter, _ *ratelimit.FakeClock) {
		spend(t, l, "key", 5)
		w := startWait(t.Context(), l, "key", 4)
		synctest.Wait()
		require.NoError(t, l.SetRate(ratelimit.PerMinute(3)))
		synctest.Wait()
		require.True(t, w.returned())
		require.ErrorIs(t, w.err, ratelimit.ErrExceedsLimit, "the new limit is smaller than what it waits for")
		require.Equal(t, ratelimit.Never, w.res.RetryAfter)
		require.Zero(t, waiting(l))
	})
}

// TestResetWakesTheFirst proves that Reset serves the first waiter for its key at once, and no
// other waiter.
func TestResetWakesTheFirst(t *testing.T) {
	eachAlgorithmAndClock(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerHour(1), opts...)
		spend(t, l, "key", 1)
		spend(t, l, "other", 1)
		q, other := line(t, l, "key", 1, 1), line(t, l, "other", 1)
		require.NoError(t, l.Reset("key"))
		require.Equal(t, 1, q.served(t), "the first waiter is served at once")
		require.Zero(t, other.served(t), "no waiter for another key is")
		require.NoError(t, l.Reset("key"))
		require.Equal(t, 2, q.served(t), "a second Reset serves the next one")
		other.giveUp(t, 0)
		advance(0)
	})
}

// byHand is a clock whose alarms ring when the test sends on rings, and not when the clock moves.
type byHand struct {
	*ratelimit.FakeClock
	rings chan time.Time
}

func (c *byHand) After(time.Duration) <-chan time.Time { return c.rings }

// TestAllowServesADueWaiterFirst proves that an Allow that comes when the first waiter is due, but
// has not woken yet, does not take its unit, and serves that waiter.
func TestAllowServesADueWaiterFirst(t *testing.T) {
	eachInBubble(t, func(t *testing.T, a algorithm) {
		clock := &byHand{ratelimit.NewFakeClock(epoch), make(chan time.Time)}
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		due := l.Peek("key").RetryAfter
		q := line(t, l, "key", 1, 1)
		clock.Advance(due)
		denied(t, l, "key") // before the first waiter wakes
		if a.name != "leaky bucket" {
			require.Equal(t, 1, q.served(t), "the unit is that of the first, which needs no alarm")
		}
		require.Equal(t, 1, waiting(l))
		clock.Advance(l.Peek("key").RetryAfter)
		spend(t, l, "key", 1) // RetryAfter includes the unit of the second waiter
		require.Zero(t, waiting(l), "both have been charged before")
		clock.Advance(time.Hour)
		close(clock.rings)
		require.Equal(t, 2, q.served(t))
	})
}

// TestWaitersForOneKeyDoNotHoldUpAnother proves that waiters for one key do not hold up another
// key.
func TestWaitersForOneKeyDoNotHoldUpAnother(t *testing.T) {
	eachOnFakeClock(t, ratelimit.PerMinute(2), func(t *testing.T, _ algorithm, l limiter, clock *ratelimit.FakeClock) {
		spend(t, l, "slow", 2)
		slow := line(t, l, "slow", 2, 2, 2)
		clock.Advance(30 * sec)
		line(t, l, "quick", 1).waiters[0].served(t)
		require.True(t, take(t, l, "quick", 1).Allowed)
		require.Zero(t, slow.served(t))
		require.Equal(t, 3, waiting(l))
		for steps := 0; slow.served(t) < 3; steps++ {
			require.Less(t, steps, 100)
			clock.Advance(10 * sec)
		}
	})
}

// TestThousandWaitersShareOneAlarm proves that only the first waiter for a key sets an alarm, and
// that the library starts no goroutine for a waiter.
func TestThousandWaitersShareOneAlarm(t *testing.T) {
	const waiters = 1000
	eachInBubble(t, func(t *testing.T, a algorithm) {
		clock := &counting{FakeClock: ratelimit.NewFakeClock(epoch)}
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		ctx, cancel := context.WithCancel(t.Context())
		all := make([]*waiter, waiters)
		for i := range all {
			all[i] = startWait(ctx, l, "key", 1)
		}
		synctest.Wait()
		require.Equal(t, waiters, waiting(l))
		assert.Equal(t, int64(1), clock.alarms.Load(), "only the first waiter has an alarm")
		assert.NotRegexp(t, `created by github\.com/ratelimit-go/ratelimit(\.|/internal/)`, goroutines(),
			"each waiter waits in its caller's goroutine: neither the root package nor one below it starts another")
		cancel()
		for _, w := range all {
			<-w.done
			require.Equal(t, context.Canceled, w.err)
		}
		assert.Zero(t, waiting(l), "no waiter is left")
	})
}

// goroutines returns the stacks of all goroutines.
func goroutines() string {
	buf := make([]byte, 8<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// TestThousandWaitersAreServedOneByOne proves that each new unit serves exactly one of many
// waiters.
func TestThousandWaitersAreServedOneByOne(t *testing.T) {
	const waiters = 1000
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := algorithm{"token bucket", tokenBucket}.start(t, ratelimit.PerSecond(1), ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		var served atomic.Int64
		for range waiters {
			go func() {
				if _, err := l.Wait(t.Context(), "key", 1); err == nil {
					served.Add(1)
				}
			}()
		}
		synctest.Wait()
		for i := range int64(waiters) {
			require.Equal(t, i, served.Load())
			clock.Advance(sec)
			synctest.Wait()
		}
		require.Equal(t, int64(waiters), served.Load())
		require.Zero(t, waiting(l))
		require.Zero(t, clock.Alarms())
	})
}

// TestWaiterBehindAWokenOneUsesTheNewState proves that a new waiter does not fail because of an
// outdated forecast: the waiter ahead of it was woken by a change, but has not run yet.
func TestWaiterBehindAWokenOneUsesTheNewState(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, tt := range []struct {
		why  string
		wake func(l limiter) error
	}{
		{"Reset forgets what the key has used", func(l limiter) error { return l.Reset("key") }},
		{"SetRate earns sooner", func(l limiter) error { return l.SetRate(ratelimit.Rate{Requests: 2, Per: 10 * ms}) }},
	} {
		for _, a := range algorithms[:1] {
			t.Run(tt.why+"/"+a.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := a.start(t, ratelimit.PerHour(2))
					spend(t, l, "key", 2)
					line(t, l, "key", 1)
					ctx, cancel := context.WithTimeout(t.Context(), minute)
					defer cancel()
					require.NoError(t, tt.wake(l))
					_, err := l.Wait(ctx, "key", 1)
					require.NoError(t, err)
				})
			})
		}
	}
}

// TestWaitersWithEarlyDeadlinesFailAtOnce has a hundred callers with a deadline of ten seconds wait
// for one unit a second: ten are served, and ninety are refused at once.
func TestWaitersWithEarlyDeadlinesFailAtOnce(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		rule := ratelimit.Rule{Name: "one", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerSecond(1)}
		for _, row := range []struct {
			name string
			wait func(t *testing.T) func(ctx context.Context) (ratelimit.Result, error)
		}{
			{"limiter", func(t *testing.T) func(ctx context.Context) (ratelimit.Result, error) {
				l := a.start(t, ratelimit.PerSecond(1))
				return func(ctx context.Context) (ratelimit.Result, error) { return l.Wait(ctx, "key", 1) }
			}},
			{"rule", func(t *testing.T) func(ctx context.Context) (ratelimit.Result, error) {
				l := newRules(t, []ratelimit.Rule{rule}, nil)
				return func(ctx context.Context) (ratelimit.Result, error) {
					return l.Wait(ctx, ratelimit.Request{Client: "key", Endpoint: "/e"})
				}
			}},
			{"MemoryStore", func(t *testing.T) func(ctx context.Context) (ratelimit.Result, error) {
				store, err := ratelimit.NewMemoryStore()
				require.NoError(t, err)
				l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithName("n"))
				return func(ctx context.Context) (ratelimit.Result, error) {
					return l.Wait(ctx, ratelimit.Request{Client: "key", Endpoint: "/e"})
				}
			}},
		} {
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wait := row.wait(t)
					ctx, cancel := context.WithTimeout(t.Context(), 10*sec)
					defer cancel()
					began := time.Now()
					var served, refused atomic.Int64
					for range 100 {
						go func() {
							switch res, err := wait(ctx); {
							case err == nil:
								served.Add(1)
							case time.Since(began) == 0 && !res.Allowed:
								assert.ErrorIs(t, err, context.DeadlineExceeded)
								refused.Add(1)
							}
						}()
						synctest.Wait()
					}
					advanceMachine(10*sec - 1)
					synctest.Wait()
					want := int64(10)
					if a.name == "sliding window counter" {
						want = 5 // the counter is stricter: a unit counts for two windows
					}
					require.Equal(t, want, served.Load())
					require.Equal(t, 100-want, refused.Load())
				})
			})
		}
	})
}

// TestWaiterForTwoIsServedDespiteAllow calls Allow ten times a second, at a rate of ten a second: a
// waiter for two units gets them after 200 ms, and then Allow is granted again.
func TestWaiterForTwoIsServedDespiteAllow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := algorithms[0].start(t, ratelimit.PerSecond(10).WithBurst(2))
		require.True(t, take(t, l, "key", 2).Allowed)
		w := startWait(t.Context(), l, "key", 2)
		synctest.Wait()
		advanceMachine(100 * ms)
		denied(t, l, "key")
		require.False(t, w.returned())
		advanceMachine(100 * ms)
		synctest.Wait()
		require.True(t, w.returned(), "served at 200 ms")
		denied(t, l, "key")
		advanceMachine(100 * ms)
		spend(t, l, "key", 1)
	})
}

// TestMaxWaiters proves that WithMaxWaiters limits the number of waiters, and that a further one is
// refused at once with the denial.
func TestMaxWaiters(t *testing.T) {
	eachInBubble(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithMaxWaiters(2))
		spend(t, l, "key", 1)
		spend(t, l, "other", 1)
		q, other := line(t, l, "key", 1), line(t, l, "other", 1)
		look := l.Peek("key")
		res, err := l.Wait(t.Context(), "key", 1)
		require.ErrorIs(t, err, ratelimit.ErrTooManyWaiters)
		require.Equal(t, look, res, "it is answered as a look is")
		q.giveUp(t, 0)
		q = line(t, l, "key", 1)
		require.Equal(t, 2, waiting(l), "there is room for one again")
		q.giveUp(t, 0)
		other.giveUp(t, 0)
	})
	_, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1), ratelimit.WithMaxWaiters(0))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "maxWaiters")
}

// TestWorkOfManyWaitersIsLinear counts the work that a line of waiters costs while callers leave
// and new ones come: it grows with the number of waiters, not with its square.
func TestWorkOfManyWaitersIsLinear(t *testing.T) {
	const waiters = 5000
	synctest.Test(t, func(t *testing.T) {
		l := algorithms[0].start(t, ratelimit.PerHour(1), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		spend(t, l, "key", 1)
		cancels := make([]context.CancelFunc, waiters)
		for i := range cancels {
			var ctx context.Context
			ctx, cancels[i] = context.WithCancel(t.Context())
			startWait(ctx, l, "key", 1)
		}
		synctest.Wait()
		for i, cancel := range cancels {
			cancel()
			if i%10 == 0 {
				synctest.Wait()
			}
			denied(t, l, "key")
			if i == waiters-100 {
				break
			}
		}
		synctest.Wait()
		require.Less(t, l.(interface{ Walked() int }).Walked(), 150*waiters, "each caller is foretold some 64 times, whatever their number")
		for _, cancel := range cancels {
			cancel()
		}
		synctest.Wait()
		require.Zero(t, waiting(l))
	})
}

// TestMaxWaitersCountsAllKindsOfWaiters proves that waiters for a custom limiter and waiters for a
// rule count together, whichever come first.
func TestMaxWaitersCountsAllKindsOfWaiters(t *testing.T) {
	for _, endpoints := range [][2]string{{"/plain", "/custom"}, {"/custom", "/plain"}} {
		synctest.Test(t, func(t *testing.T) {
			l := newRules(t, []ratelimit.Rule{
				{Endpoint: "/plain", Rate: ratelimit.PerHour(1)},
				{Endpoint: "/custom", Limiter: answering(no(1, 0, sec, sec), nil)},
			}, nil, ratelimit.WithMaxWaiters(2))
			require.True(t, l.Allow("c", "/plain").Allowed)
			ctx, cancel := context.WithCancel(t.Context())
			for range 2 {
				startRuleWait(ctx, l, ratelimit.Request{Client: "c", Endpoint: endpoints[0]})
			}
			synctest.Wait()
			require.Equal(t, 2, l.InLine())
			_, err := l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: endpoints[1]})
			require.ErrorIs(t, err, ratelimit.ErrTooManyWaiters)
			cancel()
			synctest.Wait()
		})
	}
}
