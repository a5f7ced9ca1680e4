package verify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestResetOfSeveralRulesIsOne has two requests wait while all of their rules are reset. It proves that
// all keys are reset before these requests are served, so what they are charged is not forgotten.
func TestResetOfSeveralRulesIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{
			{Name: "a", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(3)},
			{Name: "b", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(5)},
		}, nil)
		require.NoError(t, err)
		for range 3 {
			require.True(t, l.Allow("alice", "/").Allowed)
		}
		first, second := queueUp(t, l, "alice", "a", "b"), queueUp(t, l, "alice", "a", "b")
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"}))
		synctest.Wait()
		require.True(t, served(first))
		require.True(t, served(second))
		for rule, left := range map[string]int{"a": 1, "b": 3} {
			res, err := l.Peek(t.Context(), ratelimit.Request{Client: "alice", Rules: []string{rule}})
			require.NoError(t, err)
			require.Equal(t, left, res.Remaining, "rule %s", rule)
		}
	})
}

// windowAndLeaky returns a limiter with a fixed window and a leaky bucket, and a request for all of the
// window's units. One such request was granted, and another waits: it is served after a minute, when the
// bucket has been empty for half a minute.
func windowAndLeaky(t *testing.T) (l *ratelimit.RateLimiter, req ratelimit.Request, done <-chan struct{}) {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "leaky", Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerMinute(6)},
		{Name: "window", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(3)},
	}, nil)
	require.NoError(t, err)
	req = ratelimit.Request{Client: "alice", Endpoint: "/", Cost: 3}
	res, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	require.True(t, res.Allowed)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := l.Wait(context.Background(), req)
		require.NoError(t, err)
	}()
	synctest.Wait()
	return l, req, ended
}

// TestDelayIsTakenAtTheGrant has a request come behind a waiting one. It proves that it is refused only
// if its Delay at the instant of its grant would outlast its deadline. There is no such Delay, because
// the window has room so late.
func TestDelayIsTakenAtTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, req, _ := windowAndLeaky(t)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 130*time.Second)
		defer cancel()
		_, err := l.Wait(ctx, req)
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, time.Since(start))
	})
}

// TestDenialBehindWaitersHasNoDelay proves that the answers of CheckAll behind a waiting request are
// those of Explain, and that no denied rule has a Delay.
func TestDenialBehindWaitersHasNoDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, req, done := windowAndLeaky(t)
		e, err := l.Explain(t.Context(), req)
		require.NoError(t, err)
		_, each, err := l.CheckAll(t.Context(), req, nil)
		require.NoError(t, err)
		require.Len(t, each, 2)
		for i, res := range each {
			require.Equal(t, e.Rules[i].Result, res)
			require.False(t, res.Allowed)
			require.Zero(t, res.Delay)
		}
		<-done
	})
}
