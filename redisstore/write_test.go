package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// dump returns everything that the server stores, by key.
func dump(t testing.TB, c *redis.Client) map[string]string {
	t.Helper()
	ctx := context.Background()
	keys, err := c.Keys(ctx, "*").Result()
	require.NoError(t, err)
	held := make(map[string]string)
	for _, k := range keys {
		held[k], err = c.Dump(ctx, k).Result()
		require.NoError(t, err)
	}
	return held
}

// TestNothingWritten checks that a denial, a look, and an ask that never fits leave the
// server as it was, by the bytes that it stores and by its own count of changes.
func TestNothingWritten(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0)) // so that the server denies
	rate := ratelimit.Rate{Requests: 2, Per: time.Minute}
	for _, a := range all {
		look := take(t, store, ask(a, rate, 0))
		assert.True(t, look.Allowed)
		assert.Equal(t, 2, look.Remaining)
	}
	assert.Empty(t, dump(t, client), "a look creates no key")
	for _, a := range all {
		require.True(t, take(t, store, ask(a, rate, 2)).Allowed)
	}
	held, changes := dump(t, client), number(t, client, "persistence", "rdb_changes_since_last_save")
	require.Len(t, held, len(all))
	clock.Advance(time.Second)
	for _, a := range all {
		for _, n := range []int{0, 1, 2, 3, math.MaxInt} {
			assert.False(t, take(t, store, ask(a, rate, n)).Allowed, "%s, %d units", a, n)
		}
	}
	assert.Equal(t, held, dump(t, client))
	assert.Equal(t, changes, number(t, client, "persistence", "rdb_changes_since_last_save"))
}

// TestExpiry checks that every key expires by the server's clock, not before its state is
// as good as new, and not much later.
func TestExpiry(t *testing.T) {
	client := start(t).client(t)
	store := newStore(t, client)
	ctx := context.Background()
	rates := []ratelimit.Rate{
		{Requests: 1, Per: time.Millisecond},
		{Requests: 7, Per: 3 * time.Second},
		{Requests: 1000, Per: 24 * time.Hour},
		{Requests: 60000, Per: 366 * 24 * time.Hour},
	}
	for _, rate := range rates {
		for _, a := range all {
			u := ask(a, rate, 1)
			u.Rule = rate.String()
			res := take(t, store, u)
			left, err := client.PTTL(ctx, store.KeyOf(u)).Result()
			require.NoError(t, err)
			assert.Greater(t, left, res.ResetAfter, "%s, %v: the key expires 1 s late, and the test takes less than that", a, rate)
			atMost := res.ResetAfter + rate.Per/time.Duration(rate.Requests) + rate.Per + 2*time.Second
			assert.Less(t, left, atMost, "%s, %v", a, rate)
		}
	}
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	assert.Len(t, keys, len(rates)*len(all))
	t.Logf("%d keys, each of which expires", len(keys))
}

// TestKeysVanish checks that the server is empty in the end.
func TestKeysVanish(t *testing.T) {
	client := startReal(t).client(t)
	store := newStore(t, client)
	for _, a := range all {
		take(t, store, ask(a, ratelimit.Rate{Requests: 5, Per: time.Millisecond}, 1))
	}
	until(t, func(ctx context.Context) error {
		n, err := client.DBSize(ctx).Result()
		if n > 0 {
			return fmt.Errorf("%d keys are left", n)
		}
		return err
	})
}

// TestLimitHolds asks for one key from many goroutines at one instant, and checks that
// exactly the limit is granted.
func TestLimitHolds(t *testing.T) {
	client := start(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, client, redisstore.WithClock(clock))
	const limit, goroutines, each = 150, 16, 20
	for _, a := range all {
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					results, err := store.Take(context.Background(), []ratelimit.Ask{ask(a, ratelimit.PerHour(limit), 1)})
					if assert.NoError(t, err) && results[0].Allowed {
						granted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, limit, granted.Load(), a)
	}
}

// TestLastUnit asks for one key again and again, each algorithm alone and in one call, and
// checks that the last unit is granted and that the next one is not.
func TestLastUnit(t *testing.T) {
	client := start(t).client(t)
	store := newStore(t, client, redisstore.WithClock(ratelimit.NewFakeClock(time.Unix(1772323200, 0))))
	for _, a := range all {
		for i := range 5 {
			res := take(t, store, ask(a, ratelimit.PerHour(5), 1))
			assert.True(t, res.Allowed, "%s: unit %d", a, i+1)
			assert.Equal(t, 4-i, res.Remaining, a)
		}
		assert.False(t, take(t, store, ask(a, ratelimit.PerHour(5), 1)).Allowed, a)
	}
}

// TestScriptsForgotten makes the server forget its scripts before each call.
func TestScriptsForgotten(t *testing.T) {
	client := start(t).client(t)
	store := newStore(t, client)
	for i := range 50 {
		require.NoError(t, client.ScriptFlush(context.Background()).Err())
		res := take(t, store, ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerDay(50), 1))
		assert.Equal(t, 49-i, res.Remaining)
	}
}

// TestClockHeals moves the server's clock far ahead and back again. It checks that no
// lasting harm is done, and that units used in between stay used.
func TestClockHeals(t *testing.T) {
	client := startReal(t).client(t)
	right := time.Unix(1772323200, 0)
	clock := ratelimit.NewFakeClock(right)
	store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithHealing())
	rate := ratelimit.PerMinute(4)
	for _, a := range all {
		clock.Set(right.Add(10 * 366 * 24 * time.Hour))
		require.True(t, take(t, store, ask(a, rate, 3)).Allowed)
		clock.Set(right)
		held := dump(t, client)
		res := take(t, store, ask(a, rate, 0))
		assert.Equal(t, 1, res.Remaining, "%s: the units stay used", a)
		assert.LessOrEqual(t, res.ResetAfter, 2*time.Minute, a)
		assert.Equal(t, held, dump(t, client), "%s: a look writes nothing", a)
		res = take(t, store, ask(a, rate, 2))
		assert.False(t, res.Allowed, a)
		assert.LessOrEqual(t, res.RetryAfter, 2*time.Minute, "%s: the wait is no longer than two windows", a)
		clock.Advance(res.RetryAfter - time.Microsecond)
		assert.False(t, take(t, store, ask(a, rate, 2)).Allowed, "%s: a microsecond early", a)
		clock.Advance(time.Microsecond)
		assert.True(t, take(t, store, ask(a, rate, 2)).Allowed, "%s: on time", a)
	}
}

// TestClockStands moves the server's clock a little ahead and back again. It checks that
// the state does not change until the clock has caught up, and that the answers include that
// time, as in memory.
func TestClockStands(t *testing.T) {
	client := start(t).client(t)
	right := time.Unix(1772323200, 0)
	clock := ratelimit.NewFakeClock(right)
	store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithHealing())
	rate := ratelimit.PerMinute(4)
	for _, a := range all {
		clock.Set(right.Add(30 * time.Second))
		require.True(t, take(t, store, ask(a, rate, 4)).Allowed)
		want := take(t, store, ask(a, rate, 1))
		clock.Set(right)
		want.RetryAfter += 30 * time.Second
		want.ResetAfter += 30 * time.Second
		assert.Equal(t, want, take(t, store, ask(a, rate, 1)), a)
	}
}

// TestClockStandsLong is TestClockStands for times that a double does not hold.
func TestClockStandsLong(t *testing.T) {
	client := start(t).client(t)
	right := time.Unix(1772323200, 0)
	clock := ratelimit.NewFakeClock(right)
	store := newStore(t, client, redisstore.WithClock(clock))
	rate := ratelimit.Rate{Requests: 1, Per: 366*24*time.Hour - time.Microsecond, Burst: 292}
	for _, a := range all[:2] {
		clock.Set(right)
		require.True(t, take(t, store, ask(a, rate, 290)).Allowed)
		for _, back := range []int64{0, 1, 2, 3, 289, 290, 291, 150_000_001} {
			ahead := time.Duration(back) * time.Microsecond
			clock.Set(right.Add(-ahead))
			assert.Equal(t, 290*rate.Per+ahead, take(t, store, ask(a, rate, 0)).ResetAfter, "%s, %d µs back", a, back)
		}
	}
}
