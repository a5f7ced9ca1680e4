package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	benbjohnson "github.com/benbjohnson/clock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestAMoveBeforeTheAlarmIsNotLost moves the clock by exactly what is needed while the
// waiter goes from its denial to its alarm, and proves that it wakes. If a move were lost,
// all goroutines would wait for ever, and the bubble would fail.
func TestAMoveBeforeTheAlarmIsNotLost(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		for _, s := range sources[:2] {
			t.Run(s.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts, advance := s.make()
					l := a.start(t, ratelimit.PerMinute(1), opts...)
					spend(t, l, "key", 1)
					r := rand.New(rand.NewPCG(1, 2))
					for range 300 {
						left := l.Peek("key").RetryAfter
						w := startWait(t.Context(), l, "key", 1)
						for left > 0 {
							d := min(left, 1+time.Duration(r.Int64N(int64(mins))))
							advance(d)
							left -= d
						}
						w.served(t)
					}
				})
			})
		}
	})
}

// nudged is a clock that moves by itself right before or after its next calls, as if
// another goroutine moved it at the worst moment.
type nudged struct {
	*ratelimit.FakeClock
	before, after []time.Duration
}

func (c *nudged) nudge(moves *[]time.Duration) {
	if len(*moves) > 0 {
		d := (*moves)[0]
		*moves = (*moves)[1:]
		c.Advance(d)
	}
}

func (c *nudged) Now() time.Time {
	c.nudge(&c.before)
	defer c.nudge(&c.after)
	return c.FakeClock.Now()
}

func (c *nudged) After(d time.Duration) <-chan time.Time {
	if d < 0 {
		panic("an alarm in the past")
	}
	c.nudge(&c.before)
	defer c.nudge(&c.after)
	return c.FakeClock.After(d)
}

// TestAMoveAtAnyMomentIsNotLost moves the clock right before or after each call that Wait
// makes to it, and proves that Wait returns. If it did not, the bubble would fail.
func TestAMoveAtAnyMomentIsNotLost(t *testing.T) {
	const whole, half = mins, 30 * sec
	for _, row := range []struct {
		before, after []time.Duration
		why           string
	}{
		{nil, []time.Duration{whole}, "after the reading that denied"},
		{nil, []time.Duration{0, whole}, "after the alarm is set"},
		{nil, []time.Duration{0, 0, whole}, "after the clock is read again"},
		{nil, []time.Duration{half, half}, "on both sides of setting the alarm"},
		{nil, []time.Duration{half, 0, half}, "after both readings"},
		{nil, []time.Duration{whole - 1, 1}, "all but a nanosecond, and then that nanosecond"},
		{[]time.Duration{0, whole}, nil, "before the alarm is set"},
		{[]time.Duration{0, half, half}, nil, "before the alarm is set and before the clock is read again"},
		{[]time.Duration{0, half, 0, half}, nil, "before the alarm is set, and before it is set again"},
		{nil, []time.Duration{6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec},
			"at each of ten moments"},
		{nil, []time.Duration{2 * whole}, "by more than needed"},
		{nil, []time.Duration{-half, half, whole}, "first back, then forward"},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &nudged{FakeClock: ratelimit.NewFakeClock(epoch)}
			l := algorithm{"token bucket", tokenBucket}.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
			spend(t, l, "key", 1)
			clock.before, clock.after = row.before, row.after
			_, err := l.Wait(t.Context(), "key", 1) // if all goroutines wait for ever, the bubble fails
			require.NoError(t, err, row.why)
		})
	}
}

// TestADeadlineThatLeavesTimeIsKept proves that Wait succeeds if the grant comes one
// nanosecond before the deadline.
func TestADeadlineThatLeavesTimeIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, a := range algorithms {
			l := a.start(t, ratelimit.PerMinute(1))
			spend(t, l, "key", 1)
			ctx, cancel := context.WithTimeout(t.Context(), l.Peek("key").RetryAfter+1)
			_, err := l.Wait(ctx, "key", 1)
			require.NoError(t, err, "%s: the grant lies a nanosecond before the deadline", a.name)
			cancel()
		}
	})
}

// TestADeadlineOfAMock proves that Wait compares the deadline of a mock's context with the
// mock's time, and not with the machine's.
func TestADeadlineOfAMock(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		synctest.Test(t, func(t *testing.T) {
			mock := benbjohnson.NewMock()
			mock.Set(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)) // earlier than the time of the bubble
			l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(mock))
			spend(t, l, "key", 1)
			look := l.Peek("key")

			short, cancel := mock.WithTimeout(t.Context(), look.RetryAfter-1)
			res, err := l.Wait(short, "key", 1)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, look, res)
			assert.Equal(t, look, l.Peek("key"), "Wait fails at once, and nothing is taken")

			long, cancel := mock.WithTimeout(t.Context(), look.RetryAfter+1)
			defer cancel()
			w := startWait(long, l, "key", 1)
			synctest.Wait()
			require.False(t, w.over())
			mock.Add(look.RetryAfter)
			w.served(t)
		})
	})
}

// TestAWaitLeavesNoAlarm proves that a Wait that has ended, however it ended, has no alarm
// left on the clock.
func TestAWaitLeavesNoAlarm(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			end func(l limiter, clock *ratelimit.FakeClock, cancel context.CancelFunc)
			why string
		}{
			{func(_ limiter, _ *ratelimit.FakeClock, cancel context.CancelFunc) { cancel() }, "its caller gives up"},
			{func(l limiter, _ *ratelimit.FakeClock, _ context.CancelFunc) { _ = l.Reset("key") }, "its key is reset"},
			{func(_ limiter, clock *ratelimit.FakeClock, _ context.CancelFunc) { clock.Advance(time.Hour) }, "it is served"},
		} {
			synctest.Test(t, func(t *testing.T) {
				clock := ratelimit.NewFakeClock(epoch)
				l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
				spend(t, l, "key", 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := startWait(ctx, l, "key", 1)
				synctest.Wait()
				require.False(t, w.over())
				require.Equal(t, 1, clock.Alarms(), row.why)
				row.end(l, clock, cancel)
				synctest.Wait()
				require.True(t, w.over(), row.why)
				assert.Zero(t, clock.Alarms(), row.why)
				assert.Zero(t, waiting(l), row.why)
			})
		}
	})
}

// A hasty clock moves on by an hour each time it is read.
type hasty struct {
	*ratelimit.FakeClock
	alarms atomic.Int64
}

func (c *hasty) Now() time.Time {
	c.Advance(time.Hour)
	return c.FakeClock.Now()
}

func (c *hasty) After(d time.Duration) <-chan time.Time {
	c.alarms.Add(1)
	return c.FakeClock.After(d)
}

// TestAClockThatNeverStandsStill proves that Wait does not follow for ever a clock that
// moves whenever it is read: it sets 100 alarms and then waits for one.
func TestAClockThatNeverStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hasty{FakeClock: ratelimit.NewFakeClock(epoch)}
		l := algorithms[0].start(t, ratelimit.Rate{Requests: 1, Per: 200 * 365 * 24 * time.Hour}, ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		require.False(t, w.over())
		require.Equal(t, int64(100), clock.alarms.Load(), "after 100 alarms Wait stops following the clock")
		cancel()
		synctest.Wait()
		require.True(t, w.over())
	})
}

// TestWaitAtTheEndOfTime proves that Wait fails at once where the clock has reached the
// last instant that can be told apart.
func TestWaitAtTheEndOfTime(t *testing.T) {
	for _, a := range algorithms {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		clock.Advance(ratelimit.Never)
		clock.Advance(time.Hour)
		spend(t, l, "key", 1)
		res, err := l.Wait(t.Context(), "key", 1)
		assert.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "%s: no later instant can be told apart", a.name)
		assert.Equal(t, ratelimit.Never, res.RetryAfter)
	}
}

// TestALeakyBucketIsChargedWhenTheDelayIsLearnt proves that a Wait for a leaky bucket is
// charged before it waits out its Delay, and no longer stands in the line of waiters then.
func TestALeakyBucketIsChargedWhenTheDelayIsLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := startLeaky(t, 5, ratelimit.WithClock(clock))
		q := line(t, l, "key", 1, 1, 1)
		require.Equal(t, 1, q.served(t), "the first leaves at once")
		require.Equal(t, delayed(3*sec, peeked(5, 2, 3*sec)), l.Peek("key"), "all three have been charged")
		require.Zero(t, waiting(l), "a request that only waits out its Delay does not block the line")
		clock.Advance(sec - 1)
		require.Equal(t, 1, q.served(t), "one nanosecond early")
		clock.Advance(1)
		require.Equal(t, 2, q.served(t))
		clock.Advance(sec)
		require.Equal(t, 3, q.served(t))
		for i, want := range []ratelimit.Result{
			yes(5, 4, 1*sec), yes(5, 3, 2*sec), yes(5, 2, 3*sec),
		} {
			assert.Equal(t, want, q.waiters[i].res, "the decision's Result, with no Delay left")
		}
		require.Equal(t, delayed(sec, peeked(5, 4, sec)), l.Peek("key"), "they were charged once")
	})
}

// TestADelayBeyondTheDeadlineIsNotCharged proves that Wait fails at once, uncharged, if the
// Delay would end after the deadline.
func TestADelayBeyondTheDeadlineIsNotCharged(t *testing.T) {
	for _, row := range []struct {
		use      int           // units taken before
		n        int           // units waited for
		deadline time.Duration // from now
		lasts    time.Duration // how long Wait takes if it is granted; -1 if it fails
		why      string
	}{
		{0, 1, 1, 0, "an empty bucket delays nothing"},
		{3, 1, 3*sec + 1, 3 * sec, "the Delay ends a nanosecond before the deadline"},
		{3, 1, 3*sec - 1, -1, "the Delay outlasts the deadline by a nanosecond"},
		{3, 1, 1, -1, "the Delay outlasts the deadline by far"},
		{5, 1, 5*sec + 1, 5 * sec, "a second until there is room, then four until it leaves"},
		{5, 1, 5*sec - 1, -1, "there is room in time, but its Delay ends too late"},
		{5, 1, sec + 1, -1, "there is room in time, but its Delay ends far too late"},
		{5, 1, sec - 1, -1, "there is no room in time"},
		{5, 3, 5*sec + 1, 5 * sec, "three seconds until there is room, then two until they leave"},
		{5, 3, 5*sec - 1, -1, "there is room for all in time, but their Delay ends too late"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := startLeaky(t, 5)
			if row.use > 0 {
				require.True(t, take(t, l, "key", row.use).Allowed)
			}
			look, started := l.Peek("key"), time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			defer cancel()
			res, err := l.Wait(ctx, "key", row.n)
			if row.lasts >= 0 {
				require.NoError(t, err, row.why)
				require.Equal(t, row.lasts, time.Since(started), row.why)
				require.Zero(t, res.Delay, row.why)
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded, row.why)
			assert.Equal(t, started, time.Now(), "%s: it fails at once", row.why)
			assert.False(t, res.Allowed, row.why)
			assert.Positive(t, res.RetryAfter, row.why)
			assert.Equal(t, look, l.Peek("key"), "%s: nothing is charged", row.why)
			assert.Zero(t, waiting(l), row.why)
		})
	}
}

// TestARequestGivenUpDuringItsDelayKeepsItsPlace proves that a request that is cancelled
// during its Delay stays charged, and that the requests behind it do not move up.
func TestARequestGivenUpDuringItsDelayKeepsItsPlace(t *testing.T) {
	overSourcesOf(t, algorithm{"leaky bucket", leakyBucket}, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := startLeaky(t, 5, opts...)
		q := line(t, l, "key", 1, 1, 1)
		require.Equal(t, 1, q.served(t))
		look := l.Peek("key")
		q.giveUp(t, 1)
		assert.Equal(t, look, l.Peek("key"), "the request stays charged")
		assert.Equal(t, 3*sec, l.Peek("key").Delay, "the Delay of the next request counts it")
		advance(2*sec - 1)
		require.Equal(t, 1, q.served(t), "the request behind it does not move up")
		advance(1)
		require.Equal(t, 2, q.served(t))
	})
}

// TestADelayIsWaitedForBehindOthers proves that waiters wait for room, one after the other,
// and then for their Delay, and that a third one whose deadline lies before the first may
// leave fails at once.
func TestADelayIsWaitedForBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLeaky(t, 2)
		require.True(t, take(t, l, "key", 2).Allowed)
		q := line(t, l, "key", 1, 1)
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*sec-1)
		defer cancel()
		_, err := l.Wait(ctx, "key", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, started, time.Now())

		for i := range 2 {
			pass(time.Duration(2+i)*sec - 1 - time.Since(started))
			require.Equal(t, i, q.served(t), "one nanosecond early")
			pass(1)
			require.Equal(t, i+1, q.served(t))
		}
	})
}

// TestARefusedDelayIsADenial proves that a Wait that fails because of the Delay answers
// with a RetryAfter after which the Delay would fit.
func TestARefusedDelayIsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startLeaky(t, 5)
		spend(t, l, "key", 3)
		before := l.Peek("key")
		ctx, cancel := context.WithTimeout(t.Context(), before.Delay/3)
		defer cancel()
		res, err := l.Wait(ctx, "key", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		want := before
		want.Allowed, want.Delay, want.RetryAfter = false, 0, before.Delay-before.Delay/3
		require.Equal(t, want, res, "after that long, the Delay would end at the deadline")
		require.Equal(t, before, l.Peek("key"), "nothing was taken")
	})
}

// TestAResetAfterTheClockWasSet proves that a Reset, if it is the first call after a clock was set
// that stood at the zero time before, serves those who wait as one at whose time all keys are new.
func TestAResetAfterTheClockWasSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := new(bare)
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithClock(clock))
		require.True(t, l.Allow("c", "/e").Allowed)
		ctx, cancel := context.WithCancel(t.Context())
		var ws []*waiter
		for range 3 {
			ws = append(ws, startRuleWait(ctx, l, ratelimit.Request{Client: "c", Endpoint: "/e"}))
			synctest.Wait()
		}
		clock.set(epoch)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "other"}))
		synctest.Wait()
		ws[0].served(t)
		require.Equal(t, 2, l.InLine())
		cancel()
		synctest.Wait()
	})
}

// A bare clock is moved by hand, and has nothing but Now.
type bare struct{ now atomic.Pointer[time.Time] }

func (c *bare) set(t time.Time) { c.now.Store(&t) }

func (c *bare) Now() time.Time {
	if now := c.now.Load(); now != nil {
		return *now
	}
	return time.Time{}
}
