package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestServerTime makes requests as fast as it can, by the server's clock. It checks that no
// more is granted than the bound of the algorithm, and not much less.
func TestServerTime(t *testing.T) {
	client := start(t).client(t)
	s := newStore(t, client)
	const burst, perSecond = 10, 200
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		u := ask(a, ratelimit.PerSecond(perSecond).WithBurst(burst), 1)
		began, granted := time.Now(), 0
		for time.Since(began) < 500*time.Millisecond {
			if take(t, s, u).Allowed {
				granted++
			}
		}
		took := time.Since(began)
		bound := burst + int(took*perSecond/time.Second)
		assert.LessOrEqual(t, granted, bound, "%s in %v", a, took)
		assert.Greater(t, granted, burst+perSecond/10, "%s in %v: units must come back", a, took)
		t.Logf("%s: %d granted in %v, the bound is %d", a, granted, took, bound)
	}
}

// TestServerWindow checks that a window ends by the server's clock.
func TestServerWindow(t *testing.T) {
	client := start(t).client(t)
	s := newStore(t, client, redisstore.WithDenialCache(0)) // a cached denial may give a RetryAfter that is a round trip too long
	for _, a := range all[2:] {
		u := ask(a, ratelimit.Rate{Requests: 3, Per: 200 * time.Millisecond}, 3)
		require.True(t, take(t, s, u).Allowed, a)
		began := time.Now()
		res := take(t, s, u)
		until(t, func(context.Context) error {
			if !take(t, s, u).Allowed {
				return assert.AnError
			}
			return nil
		})
		if !res.Allowed {
			assert.GreaterOrEqual(t, time.Since(began), res.RetryAfter, "%s: granted before its RetryAfter had passed", a)
		}
	}
}
