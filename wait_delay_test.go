package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// startLeaky returns a leaky bucket of 1 a second and a burst.
func startLeaky(t *testing.T, burst int, opts ...ratelimit.Option) limiter {
	t.Helper()
	return algorithm{"leaky bucket", leakyBucket}.start(t, ratelimit.PerSecond(1).WithBurst(burst), opts...)
}

func TestALeakyBucketIsChargedWhenTheDelayIsLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		l := startLeaky(t, 5, ratelimit.WithClock(clock))
		q := line(t, l, "key", 1, 1, 1)
		require.Equal(t, 1, q.served(t), "the first leaves at once")
		require.Equal(t, delayed(3*sec, peeked(5, 2, 3*sec)), l.Peek("key"), "all three are in the bucket")
		require.Zero(t, waiting(l), "who only waits to leave stands in nobody's way")
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

func TestADelayBeyondTheDeadlineIsNotCharged(t *testing.T) {
	for _, row := range []struct {
		use      int           // units taken before
		n        int           // units waited for
		deadline time.Duration // from now
		lasts    time.Duration // how long Wait takes if it is granted; else -1
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
			assert.Equal(t, look, l.Peek("key"), "%s: uncharged", row.why)
			assert.Zero(t, waiting(l), row.why)
		})
	}
}

func TestARequestGivenUpDuringItsDelayKeepsItsPlace(t *testing.T) {
	overSourcesOf(t, algorithm{"leaky bucket", leakyBucket}, func(t *testing.T, a algorithm, opts []ratelimit.Option, advance func(time.Duration)) {
		l := startLeaky(t, 5, opts...)
		q := line(t, l, "key", 1, 1, 1)
		require.Equal(t, 1, q.served(t))
		look := l.Peek("key")
		q.giveUp(t, 1)
		assert.Equal(t, look, l.Peek("key"), "its place is not given away")
		assert.Equal(t, 3*sec, l.Peek("key").Delay, "the next one's Delay counts it")
		advance(2*sec - 1)
		require.Equal(t, 1, q.served(t), "nobody moves up")
		advance(1)
		require.Equal(t, 2, q.served(t))
	})
}

func TestADelayIsWaitedForBehindOthers(t *testing.T) {
	// Two wait for room, one after the other, and then for their Delay. A
	// third, whose deadline lies before the first may leave, fails at once.
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
