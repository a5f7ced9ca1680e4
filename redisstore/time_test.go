package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestServerTime makes requests as fast as it can, by the server's clock. It checks that no
// more is granted than the bound of the algorithm, and that units come back.
func TestServerTime(t *testing.T) {
	client := start(t).client(t)
	s := newStore(t, client)
	const burst, perSecond = 10, 200
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
		u := ask(a, ratelimit.PerSecond(perSecond).WithBurst(burst), 1)
		began, granted := time.Now(), 0
		until(t, func(context.Context) error {
			for range 10 {
				if take(t, s, u).Allowed {
					granted++
				}
			}
			if time.Since(began) < 500*time.Millisecond || granted <= burst+perSecond/10 {
				return fmt.Errorf("%s: %d granted; units must come back", a, granted)
			}
			return nil
		})
		took := time.Since(began)
		bound := burst + int(took*perSecond/time.Second)
		assert.LessOrEqual(t, granted, bound, "%s in %v", a, took)
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

// TestLogLeaves lets 65,000 entries leave a log at once. It checks that the server does not take
// time for each of them.
func TestLogLeaves(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock))
	ctx := context.Background()
	u := ask(ratelimit.AlgorithmSlidingWindowLog, ratelimit.Rate{Requests: 65_536, Per: time.Minute}, 1)
	const entries = 65_000
	now := clock.Now().UnixMicro()
	values := []any{fmt.Sprintf("%d %d 0", time.Minute.Microseconds(), now)}
	for i := range entries + 10 { // the last ten stay
		at := now + int64(i)
		if i >= entries {
			at += 30 * time.Second.Microseconds()
		}
		values = append(values, at, i+1)
	}
	for part := range slices.Chunk(values, 10_000) {
		require.NoError(t, client.RPush(ctx, s.KeyOf(u), part...).Err())
	}
	clock.Advance(75 * time.Second) // the entries stay in the list until the charge after the next
	require.True(t, take(t, s, u).Allowed)
	clock.Advance(time.Second)
	require.NoError(t, client.ConfigResetStat(ctx).Err())
	res := take(t, s, u)
	assert.Equal(t, 65_536-12, res.Remaining)
	assert.EqualValues(t, 1+2*12, client.LLen(ctx, s.KeyOf(u)).Val())
	stats, err := client.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	assert.NotContains(t, stats, "cmdstat_lpop", "it takes time for each entry")
	_, trim, _ := strings.Cut(stats, "cmdstat_ltrim:")
	trim, _, _ = strings.Cut(trim, "\r\n")
	t.Logf("65,000 entries leave a log: LTRIM %s", trim)
}

// TestManyKeysOutOfMemory makes callers of different keys wait at the same time, and the server
// run out of memory. It checks that those keys are denied that are used up, although the others
// cannot be stored.
func TestManyKeysOutOfMemory(t *testing.T) {
	for _, a := range []ratelimit.Algorithm{
		ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowCounter,
	} {
		srv := startReal(t)
		client := srv.client(t)
		store := newStore(t, client, frozen(), redisstore.WithDenialCache(0))
		asks := apart(a, ratelimit.PerDay(3), 4*redisstore.MaxPipelines)
		used := func(i int) bool { return i%2 == 0 }
		for i, u := range asks {
			if u.N = 3; used(i) {
				require.True(t, take(t, store, u).Allowed)
			}
		}
		require.NoError(t, client.ConfigSet(context.Background(), "maxmemory", "1").Err())
		c := gather(t, srv, store, len(asks))
		for i, u := range asks {
			c.asks(context.Background(), i, u)
		}
		c.goes()
		for i := range asks {
			if used(i) {
				assert.NoError(t, c.errs[i], "%s, key %d", a, i)
				assert.False(t, c.answers[i].Allowed, "%s, key %d", a, i)
				continue
			}
			var failed *redisstore.Error
			if assert.ErrorAs(t, c.errs[i], &failed, "%s, key %d", a, i) {
				assert.Equal(t, redisstore.ClassOOM, failed.Class)
			}
		}
	}
}
