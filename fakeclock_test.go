package ratelimit_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// rung returns what c has received, or the zero Time if that is nothing.
func rung(c <-chan time.Time) time.Time {
	select {
	case at := <-c:
		return at
	default:
		return time.Time{}
	}
}

func TestFakeClockMoves(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	for _, row := range []struct {
		move func()
		want time.Time
		why  string
	}{
		{func() {}, epoch, "it stands where it was started"},
		{func() { clock.Advance(sec) }, epoch.Add(sec), "it advances"},
		{func() { clock.Advance(1) }, epoch.Add(sec + 1), "by a nanosecond"},
		{func() { clock.Advance(0) }, epoch.Add(sec + 1), "or not at all"},
		{func() { clock.Advance(-time.Hour) }, epoch.Add(sec + 1 - time.Hour), "or back"},
		{func() { clock.Set(time.Unix(-5, 0)) }, time.Unix(-5, 0), "it can be set, before 1970 too"},
		{func() { clock.Set(time.Time{}) }, time.Time{}, "and to the zero Time"},
		{func() { clock.Set(epoch) }, epoch, "and on again"},
	} {
		row.move()
		assert.Equal(t, row.want, clock.Now(), row.why)
		assert.Equal(t, row.want, clock.Now(), "it stands still")
	}
}

func TestFakeClockAfter(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	assert.Equal(t, epoch, rung(clock.After(0)), "no time passes at once")
	assert.Equal(t, epoch, rung(clock.After(-sec)), "nor does less than none")

	second, minute, again := clock.After(sec), clock.After(mins), clock.After(sec)
	require.Equal(t, 3, clock.Alarms())
	clock.Advance(sec - 1)
	assert.Zero(t, rung(second), "one nanosecond early")
	clock.Advance(1)
	assert.Equal(t, epoch.Add(sec), rung(second), "exactly on time")
	assert.Equal(t, epoch.Add(sec), rung(again), "each of those that wait for one instant")
	assert.Zero(t, rung(minute), "not yet")
	assert.Zero(t, rung(second), "an alarm rings once")

	clock.Advance(-30 * sec)
	clock.Advance(30 * sec)
	assert.Zero(t, rung(second), "even if its instant comes again")
	clock.Advance(-time.Hour)
	clock.Advance(time.Hour + mins - sec - 1)
	assert.Zero(t, rung(minute), "a clock that went back has to come all the way")
	clock.Set(epoch.Add(24 * time.Hour))
	assert.Equal(t, epoch.Add(24*time.Hour), rung(minute), "it receives the time that the clock was set to")
	assert.Zero(t, clock.Alarms())

	clock.After(sec)
	clock.Advance(sec) // does not wait for a receiver
	assert.Zero(t, clock.Alarms())
}

func TestZeroFakeClock(t *testing.T) {
	var clock ratelimit.FakeClock
	assert.Equal(t, time.Time{}, clock.Now())
	alarm := clock.After(sec)
	clock.Advance(sec)
	assert.Equal(t, time.Time{}.Add(sec), clock.Now())
	assert.Equal(t, time.Time{}.Add(sec), rung(alarm))

	var other ratelimit.FakeClock
	other.Advance(-sec)
	assert.Equal(t, time.Time{}.Add(-sec), other.Now())
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(new(ratelimit.FakeClock)))
		spend(t, l, "key", 3)
		denied(t, l, "key")
	})
}

func TestFakeClockConcurrently(t *testing.T) {
	const callers, each = 4, 500
	clock := ratelimit.NewFakeClock(epoch)
	var wg sync.WaitGroup
	alarms := make([][]<-chan time.Time, callers)
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				clock.Advance(ms)
				alarms[c] = append(alarms[c], clock.After(time.Duration(i)*ms))
				if now := clock.Now(); now.Before(epoch.Add(time.Duration(i+1) * ms)) {
					t.Errorf("a move is lost: %v", now)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, epoch.Add(callers*each*ms), clock.Now(), "no move is lost")
	clock.Advance(each * ms)
	for _, own := range alarms {
		for _, alarm := range own {
			require.NotZero(t, rung(alarm), "an alarm is lost")
		}
	}
	assert.Zero(t, clock.Alarms())
}

func TestAWaitLeavesNoAlarm(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			end func(l limiter, clock *ratelimit.FakeClock, cancel context.CancelFunc)
			why string
		}{
			{func(_ limiter, _ *ratelimit.FakeClock, cancel context.CancelFunc) { cancel() }, "given up"},
			{func(l limiter, _ *ratelimit.FakeClock, _ context.CancelFunc) { _ = l.Reset("key") }, "reset"},
			{func(_ limiter, clock *ratelimit.FakeClock, _ context.CancelFunc) { clock.Advance(time.Hour) }, "served"},
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
