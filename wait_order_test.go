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

// A queue is waiters for one key, in the order in which they came.
type queue struct {
	waiters []*waiter
	cancel  []context.CancelFunc
	gone    map[int]bool // those that have given up
}

// line starts a Wait for each n, one after the other. It must be called in a
// bubble, and so must the methods of what it returns.
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

// giveUp cancels the i-th waiter, who must not have been served.
func (q *queue) giveUp(t *testing.T, i int) {
	t.Helper()
	require.False(t, q.waiters[i].over(), "waiter %d", i)
	q.cancel[i]()
	synctest.Wait()
	require.True(t, q.waiters[i].over(), "waiter %d", i)
	require.Equal(t, context.Canceled, q.waiters[i].err)
	require.Equal(t, ratelimit.Result{}, q.waiters[i].res)
	q.gone[i] = true
}

// served returns how many have been served. It fails if anybody was before one
// who came earlier.
func (q *queue) served(t *testing.T) (n int) {
	t.Helper()
	synctest.Wait()
	first := -1 // who has not been served
	for i, w := range q.waiters {
		switch {
		case q.gone[i]:
		case !w.over():
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

// TestWaitersAreServedInOrder proves that waiters for one key are served in the order in
// which they came, whichever of them give up.
func TestWaitersAreServedInOrder(t *testing.T) {
	ns := []int{3, 1, 4, 1, 2, 4, 1, 1, 3}
	for _, row := range []struct {
		giveUp []int
		why    string
	}{
		{nil, "all wait to the end"},
		{[]int{0}, "the head gives up"},
		{[]int{0, 1, 2}, "one head after the other gives up"},
		{[]int{4}, "one in the middle gives up"},
		{[]int{4, 3, 5}, "and its neighbours"},
		{[]int{8}, "the last gives up"},
		{[]int{8, 7}, "and the new last"},
		{[]int{0, 8, 4}, "some everywhere"},
	} {
		overAll(t, func(t *testing.T, a algorithm) {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(epoch)
				l := a.start(t, ratelimit.PerMinute(4), ratelimit.WithClock(clock))
				require.True(t, take(t, l, "key", 4).Allowed)
				q := line(t, l, "key", ns...)
				require.Equal(t, len(ns), waiting(l))
				for gone, i := range row.giveUp {
					q.giveUp(t, i)
					require.Equal(t, len(ns)-gone-1, waiting(l), row.why)
				}
				want := len(ns) - len(row.giveUp)
				for steps := 0; q.served(t) < want; steps++ {
					require.Less(t, steps, 200, "%s: somebody is never served", row.why)
					clock.Advance(5 * sec)
				}
				require.Zero(t, waiting(l), row.why)
			})
		})
	}
}

// TestALateJoinerWaitsBehindTheOthers proves that a waiter does not overtake the one ahead
// of it, although its own request would fit.
func TestALateJoinerWaitsBehindTheOthers(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l := a.start(t, ratelimit.PerMinute(4), ratelimit.WithClock(clock))
			spend(t, l, "key", 3)
			q := line(t, l, "key", 4, 1)
			require.Equal(t, 1, l.Peek("key").Remaining)
			require.Zero(t, q.served(t), "the second could have the unit that is left, but is not first")
			q.giveUp(t, 0)
			if a.name == "leaky bucket" {
				clock.Advance(45 * sec) // the Delay of the fourth unit
			}
			require.Equal(t, 1, q.served(t), "at once when the first gives up")
			require.Zero(t, waiting(l))
		})
	})
}

// TestAFollowerThatCanNotBeServedInTimeFailsAtOnce proves that a waiter fails at once if
// its deadline lies before the first waiter can be served.
func TestAFollowerThatCanNotBeServedInTimeFailsAtOnce(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerMinute(4), opts...)
		spend(t, l, "key", 3)
		q := line(t, l, "key", 4)
		head := take(t, l, "key", 4)
		require.False(t, head.Allowed)

		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), head.RetryAfter-1)
		defer cancel()
		res, err := l.Wait(ctx, "key", 1)
		assert.ErrorIs(t, err, context.DeadlineExceeded, "not even the head is served by then")
		assert.False(t, res.Allowed)
		assert.GreaterOrEqual(t, res.RetryAfter, head.RetryAfter, "until the head is served")
		assert.Equal(t, started, time.Now(), "at once")
		assert.Equal(t, 1, waiting(l), "the head waits on")
		assert.Equal(t, 1, l.Peek("key").Remaining, "nothing is taken")

		_, err = l.Wait(t.Context(), "key", 5)
		assert.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "more than ever fits does not stand in line")
		q.giveUp(t, 0)
		advance(time.Hour)
	})
}

// TestSetRateWakesTheFirst proves that waiters of every key follow a new rate from the
// moment it is set.
func TestSetRateWakesTheFirst(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l := a.start(t, ratelimit.PerHour(1), ratelimit.WithClock(clock))
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
			require.Equal(t, 2, q.served(t), "within seconds instead of hours")
			require.Equal(t, 1, other.served(t), "of every key")
		})
	})
}

// TestSetRateBelowWhatIsWaitedFor proves that a waiter for more than a new limit ever
// grants is refused at once.
func TestSetRateBelowWhatIsWaitedFor(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(clock))
			spend(t, l, "key", 5)
			w := startWait(t.Context(), l, "key", 4)
			synctest.Wait()
			require.NoError(t, l.SetRate(ratelimit.PerMinute(3)))
			synctest.Wait()
			require.True(t, w.over())
			require.ErrorIs(t, w.err, ratelimit.ErrExceedsLimit, "it will never fit any more")
			require.Equal(t, ratelimit.Never, w.res.RetryAfter)
			require.Zero(t, waiting(l))
		})
	})
}

// TestResetWakesTheFirst proves that Reset serves the first waiter for that key at once,
// and no other waiter.
func TestResetWakesTheFirst(t *testing.T) {
	overSources(t, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := a.start(t, ratelimit.PerHour(1), opts...)
		spend(t, l, "key", 1)
		spend(t, l, "other", 1)
		q, other := line(t, l, "key", 1, 1), line(t, l, "other", 1)
		require.NoError(t, l.Reset("key"))
		require.Equal(t, 1, q.served(t), "at once")
		require.Zero(t, other.served(t), "nobody else")
		require.NoError(t, l.Reset("key"))
		require.Equal(t, 2, q.served(t), "the next is the first by now")
		other.giveUp(t, 0)
		advance(0)
	})
}

// byHand is a clock whose alarms ring when the test says so, and not when the
// clock moves.
type byHand struct {
	*ratelimit.FakeClock
	rings chan time.Time
}

func (c *byHand) After(time.Duration) <-chan time.Time { return c.rings }

// TestAnAllowInBetweenTakesWhatItFinds proves that Allow may take a unit before the first
// waiter hears of it, and that the waiter keeps its place.
func TestAnAllowInBetweenTakesWhatItFinds(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := &byHand{ratelimit.NewFakeClock(epoch), make(chan time.Time)}
			l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
			spend(t, l, "key", 1)
			q := line(t, l, "key", 1, 1)
			for range 3 {
				clock.Advance(l.Peek("key").RetryAfter)
				spend(t, l, "key", 1) // before the head has heard of it
				clock.rings <- clock.Now()
				require.Zero(t, q.served(t), "the head has to wait on")
				require.Equal(t, 2, waiting(l))
			}
			for i := range 2 {
				clock.Advance(l.Peek("key").RetryAfter)
				clock.rings <- clock.Now()
				require.Equal(t, i+1, q.served(t), "and keeps its place")
			}
		})
	})
}

// TestWaitersOfOtherKeysDoNotHinder proves that waiters for one key do not hold up another
// key.
func TestWaitersOfOtherKeysDoNotHinder(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			l := a.start(t, ratelimit.PerMinute(2), ratelimit.WithClock(clock))
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
	})
}

// TestAThousandWaitersShareOneTimer proves that only the first waiter for a key has an
// alarm, and that no waiter needs a goroutine of the library's.
func TestAThousandWaitersShareOneTimer(t *testing.T) {
	const waiters = 1000
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
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
			assert.Equal(t, int64(1), clock.alarms.Load(), "only the head has an alarm")
			assert.NotRegexp(t, `created by github\.com/ratelimit-go/ratelimit(\.|/internal/)`, goroutines(),
				"each waiter waits in its caller's goroutine: neither the root package nor one below it starts another")
			cancel()
			for _, w := range all {
				<-w.done
				require.Equal(t, context.Canceled, w.err)
			}
			assert.Zero(t, waiting(l), "nobody is left")
		})
	})
}

// goroutines returns the stacks of all goroutines.
func goroutines() string {
	buf := make([]byte, 8<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// TestAThousandWaitersAreServedOneByOne proves that each unit earned serves exactly one of
// many waiters.
func TestAThousandWaitersAreServedOneByOne(t *testing.T) {
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

// TestAFollowerDoesNotBelieveAnOldGrant proves that a waiter that joins behind one that has
// been woken but has not run yet does not judge its deadline by the old expectation.
func TestAFollowerDoesNotBelieveAnOldGrant(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, tt := range []struct {
		why  string
		wake func(l limiter) error
	}{
		{"Reset makes the key as good as new", func(l limiter) error { return l.Reset("key") }},
		{"SetRate earns sooner", func(l limiter) error { return l.SetRate(ratelimit.Rate{Requests: 2, Per: 10 * ms}) }},
	} {
		for _, a := range algorithms[:1] {
			t.Run(tt.why+"/"+a.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := a.start(t, ratelimit.PerHour(2))
					spend(t, l, "key", 2)
					line(t, l, "key", 1)
					ctx, cancel := context.WithTimeout(t.Context(), mins)
					defer cancel()
					require.NoError(t, tt.wake(l))
					_, err := l.Wait(ctx, "key", 1)
					require.NoError(t, err)
				})
			})
		}
	}
}
