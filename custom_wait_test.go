package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestWaitForACustomLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := ratelimit.NewFixedWindow(ratelimit.Rate{Requests: 1, Per: 10 * sec})
		require.NoError(t, err)
		l := newRules(t, beside(algorithms[0], inner, ""), nil)
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		require.True(t, l.Allow("c", "/e").Allowed)
		before := peekAt(t, l, "ours", "c")
		wait := inner.Peek("c").RetryAfter
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), wait-1)
		defer cancel()
		_, err = l.Wait(short, req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, began, time.Now(), "at once")
		require.Equal(t, before, peekAt(t, l, "ours", "c"), "and nothing is taken")
		res, err := l.Wait(t.Context(), req)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, wait, time.Since(began))
		require.Equal(t, []ratelimit.RuleStats{{Rule: "custom", Allowed: 2}, {Rule: "ours", Allowed: 2, LiveKeys: 1},
			{Rule: "shadow", Allowed: 2, LiveKeys: 1}, {Rule: "watch"}}, l.Stats(), "an attempt that fails is no decision")
	})
}

func TestWaitForACustomLimiterThatDoesNotWork(t *testing.T) {
	for _, row := range []struct {
		limiter ratelimit.Limiter
		err     error
		why     string
	}{
		{new(ratelimit.TokenBucket), ratelimit.ErrInvalidConfig, "the zero limiter"},
		{answering(ratelimit.Result{}, errFault), errFault, "an error of its own"},
		{answering(no(1, 0, ratelimit.Never, 0), nil), ratelimit.ErrExceedsLimit, "a denial for ever"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newRules(t, beside(algorithms[0], row.limiter, ""), nil)
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			defer cancel()
			began := time.Now()
			_, err := l.Wait(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"})
			require.ErrorIs(t, err, row.err, row.why)
			require.Equal(t, began, time.Now(), "%s: at once", row.why)
			require.Equal(t, 5, peekAt(t, l, "ours", "c").Remaining, row.why)
		})
	}
}

func TestWaitForACustomLimiterThatNamesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := newRules(t, nil, &ratelimit.Rule{Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
			if asked++; asked <= 3 {
				return ratelimit.Result{Limit: 1}, nil
			}
			return yes(1, 0, sec), nil
		})})
		began := time.Now()
		_, err := l.Wait(t.Context(), ratelimit.Request{})
		require.NoError(t, err)
		require.Equal(t, 3*ms, time.Since(began), "it is not asked without pause")
	})
}

func TestWaitForACustomLeakyBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaky := startLeaky(t, 5)
		l := newRules(t, beside(algorithms[0], leaky, ""), nil)
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		spend(t, leaky, "c", 3)
		look, ours := leaky.Peek("c"), peekAt(t, l, "ours", "c")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*sec-1)
		res, err := l.Wait(ctx, req)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "the Delay outlasts the deadline")
		require.False(t, res.Allowed)
		require.Equal(t, began, time.Now(), "at once")
		require.Equal(t, look, leaky.Peek("c"), "and nothing is taken")
		require.Equal(t, ours, peekAt(t, l, "ours", "c"))
		require.Zero(t, l.Stats()[1].Allowed)

		ctx, cancel = context.WithTimeout(t.Context(), 3*sec+1)
		defer cancel()
		res, err = l.Wait(ctx, req)
		require.NoError(t, err)
		require.Zero(t, res.Delay)
		require.Equal(t, 3*sec, time.Since(began), "it has been waited for")
	})
}
