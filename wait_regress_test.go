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

// TestAFollowerDoesNotBelieveAnOldGrant joins a line whose first waiter has been
// woken but has not run yet.
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

// A hasty clock moves on by an hour whenever it is read.
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

func TestAClockThatNeverStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hasty{FakeClock: ratelimit.NewFakeClock(epoch)}
		l := algorithms[0].start(t, ratelimit.Rate{Requests: 1, Per: 200 * 365 * 24 * time.Hour}, ratelimit.WithClock(clock))
		spend(t, l, "key", 1)
		ctx, cancel := context.WithCancel(t.Context())
		w := startWait(ctx, l, "key", 1)
		synctest.Wait()
		require.False(t, w.over())
		require.Equal(t, int64(100), clock.alarms.Load(), "it is not followed for ever")
		cancel()
		synctest.Wait()
		require.True(t, w.over())
	})
}

func TestWaitAtTheEndOfTime(t *testing.T) {
	for _, a := range algorithms {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerMinute(1), ratelimit.WithClock(clock))
		clock.Advance(ratelimit.Never)
		clock.Advance(time.Hour)
		spend(t, l, "key", 1)
		res, err := l.Wait(t.Context(), "key", 1)
		assert.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "%s: the clock can not be seen to move on", a.name)
		assert.Equal(t, ratelimit.Never, res.RetryAfter)
	}
}

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
		require.Equal(t, want, res, "a wait of that much would bring the Delay within the deadline")
		require.Equal(t, before, l.Peek("key"), "nothing was taken")
	})
}
