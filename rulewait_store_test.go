package ratelimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func TestRuleWaitWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		for _, row := range []struct {
			policy ratelimit.FailurePolicy
			lasts  time.Duration
			err    error
			why    string
		}{
			{ratelimit.FailOpen, 0, ratelimit.ErrStore, "who is open serves at once"},
			{ratelimit.FailLocal(1), 10 * sec, ratelimit.ErrStore, "the share of this process, when it has one"},
			{ratelimit.FailClosed, 3 * sec, nil, "who is closed asks the store again each second"},
		} {
			store := newFaultyStore(t, nil)
			l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(6).WithBurst(1)}, ratelimit.WithStore(store), ratelimit.WithFailurePolicy(row.policy))
			if row.policy == ratelimit.FailLocal(1) {
				require.True(t, l.Allow("c", "/e").Allowed)
			}
			store.from(errsBefore)
			if row.policy == ratelimit.FailClosed {
				store.do(errsBefore, errsBefore, errsBefore)
				store.then = sound
			}
			began := time.Now()
			res, err := l.Wait(t.Context(), req)
			require.ErrorIs(t, err, row.err, row.why)
			require.True(t, res.Allowed, row.why)
			require.Equal(t, row.err != nil, res.Degraded, row.why)
			require.Equal(t, row.lasts, time.Since(began), row.why)
		}
	})
}

func TestRuleWaitForALeakyBucketThatIsFull(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "leaky", Endpoint: "/e", Rate: ratelimit.PerSecond(1).WithBurst(5), Algorithm: ratelimit.AlgorithmLeakyBucket},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerMinute(9)},
	}
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, rules, nil)
		five := startLeaky(t, 5, ratelimit.WithObserver(new(record)))
		req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 5}
		checked(l.Check(t.Context(), req))
		take(t, five, "c", 5)
		req.Cost = 1
		for _, row := range []struct {
			name string
			wait func(ctx context.Context) (ratelimit.Result, error)
		}{
			{"rule", func(ctx context.Context) (ratelimit.Result, error) { return l.Wait(ctx, req) }},
			{"limiter", func(ctx context.Context) (ratelimit.Result, error) { return five.Wait(ctx, "c", 1) }},
		} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 5*sec-1)
			res, err := row.wait(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, "%s: a second for the room, and four for the Delay", row.name)
			require.Equal(t, sec, res.RetryAfter)
			require.Equal(t, began, time.Now(), "%s: at once", row.name)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*sec+1)
		defer cancel()
		began := time.Now()
		_, err := l.Wait(ctx, req)
		require.NoError(t, err)
		require.Equal(t, 5*sec, time.Since(began))
	})
}

func TestRuleWaitForMoreThanTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		store.from(errsBefore)
		l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerSecond(10)}, ratelimit.WithStore(store), ratelimit.WithFailurePolicy(ratelimit.FailLocal(5)))
		res, err := l.Wait(t.Context(), ratelimit.Request{Cost: 3})
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit, "the share never grants 3")
		require.ErrorIs(t, err, ratelimit.ErrStore, "but the store may")
		require.Equal(t, named("default", degraded(no(2, 2, ratelimit.Never, 0))), res)
	})
}

func TestRuleWaitThatProbesTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaultyStore(t, nil)
		l := newRules(t, nil, &ratelimit.Rule{
			Rate: ratelimit.PerSecond(10), Algorithm: ratelimit.AlgorithmLeakyBucket,
		}, ratelimit.WithStore(store))
		store.from(errsBefore)
		for range 5 {
			l.Allow("c", "")
		}
		pass(sec)
		store.do(sound, errsBefore)
		store.then = sound
		ctx, cancel := context.WithTimeout(t.Context(), mins)
		defer cancel()
		_, err := l.Wait(ctx, ratelimit.Request{Client: "c"})
		require.ErrorIs(t, err, ratelimit.ErrStore, "the look is answered, the charge is not")
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c"})
		require.NoError(t, err, "the look has found the store back: one failure is one failure")
		require.False(t, res.Degraded)
	})
}
