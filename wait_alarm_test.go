package ratelimit_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestAMoveBeforeTheAlarmIsNotLost(t *testing.T) {
	// The clock is moved by exactly what is needed while the waiter goes from
	// its denial to its alarm. If a move were lost, all would wait for ever
	// and the bubble would say so.
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

// nudged is a clock with After that others move at the worst moments: before or
// after each of the next calls.
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
		panic("a clock is not asked for the past")
	}
	c.nudge(&c.before)
	defer c.nudge(&c.after)
	return c.FakeClock.After(d)
}

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
		{nil, []time.Duration{whole - 1, 1}, "all but a nanosecond, and it"},
		{[]time.Duration{0, whole}, nil, "before the alarm is set"},
		{[]time.Duration{0, half, half}, nil, "before the alarm is set and before the clock is read again"},
		{[]time.Duration{0, half, 0, half}, nil, "before the alarm is set, and before it is set again"},
		{nil, []time.Duration{6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec, 6 * sec},
			"at each of ten moments"},
		{nil, []time.Duration{2 * whole}, "by more than needed"},
		{nil, []time.Duration{-half, half, whole}, "first back"},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &nudged{FakeClock: ratelimit.NewFakeClock(epoch)}
			l := algorithm{"token bucket", tokenBucket}.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
			spend(t, l, "key", 1)
			clock.before, clock.after = row.before, row.after
			_, err := l.Wait(t.Context(), "key", 1) // a bubble in which all wait for ever fails
			require.NoError(t, err, row.why)
		})
	}
}
