package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestDeniedHere checks that a key that was denied is denied again without a call.
func TestDeniedHere(t *testing.T) {
	store := newStore(t, start(t).client(t), redisstore.WithDenialCache(time.Hour))
	for _, a := range all {
		rate := ratelimit.PerDay(3)
		require.True(t, take(t, store, ask(a, rate, 3)).Allowed)
		first := take(t, store, ask(a, rate, 1))
		before := store.Stats()
		for range 100 {
			res := take(t, store, ask(a, rate, 1))
			assert.False(t, res.Allowed, a)
			assert.Equal(t, 3, res.Limit, a)
			assert.Zero(t, res.Remaining, a)
			assert.LessOrEqual(t, res.RetryAfter, first.RetryAfter, "%s: time has passed", a)
			assert.Greater(t, res.RetryAfter, first.RetryAfter-10*time.Minute, a)
			assert.LessOrEqual(t, res.ResetAfter, first.ResetAfter, a)
		}
		after := store.Stats()
		assert.EqualValues(t, 100, after.CacheHits-before.CacheHits, a)
		assert.Equal(t, before.Calls, after.Calls, a)
	}
}

// TestDeniedForAnyCost denies five units of a key. It checks that further requests for as
// many units or more are denied without a call, and that the server decides about fewer.
func TestDeniedForAnyCost(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, start(t).client(t), redisstore.WithClock(clock))
	for _, a := range all {
		if a == ratelimit.AlgorithmSlidingWindowLog {
			continue // its state is too large to be kept here: only "nothing is left" is kept
		}
		rate := ratelimit.PerHour(10)
		require.True(t, take(t, store, ask(a, rate, 6)).Allowed)
		require.False(t, take(t, store, ask(a, rate, 5)).Allowed)
		hits := store.Stats().CacheHits
		for i, n := range []int{5, 9, 10, 7} {
			res := take(t, store, ask(a, rate, n))
			assert.False(t, res.Allowed, "%s, %d units", a, n)
			assert.Equal(t, 4, res.Remaining)
			assert.EqualValues(t, i+1, store.Stats().CacheHits-hits, "%s, %d units", a, n)
		}
		for i := range 4 {
			res := take(t, store, ask(a, rate, 1))
			assert.True(t, res.Allowed, a)
			assert.Equal(t, 3-i, res.Remaining, a)
		}
		assert.EqualValues(t, 4, store.Stats().CacheHits-hits, a)
	}
}

// TestDeniedNoLonger checks that a denied key is granted again at the same microsecond as
// without a denial cache.
func TestDeniedNoLonger(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 777_000))
	store := newStore(t, start(t).client(t), redisstore.WithClock(clock), redisstore.WithDenialCache(time.Hour))
	for _, a := range all {
		rate := ratelimit.Rate{Requests: 3, Per: 10 * time.Second}
		require.True(t, take(t, store, ask(a, rate, 3)).Allowed)
		wait := take(t, store, ask(a, rate, 1)).RetryAfter
		clock.Advance(wait - time.Microsecond)
		res := take(t, store, ask(a, rate, 1))
		assert.False(t, res.Allowed, a)
		assert.Equal(t, time.Microsecond, res.RetryAfter, a)
		clock.Advance(time.Microsecond)
		assert.True(t, take(t, store, ask(a, rate, 1)).Allowed, a)
	}
	assert.EqualValues(t, len(all), store.Stats().CacheHits)
}

// TestDenialsForgotten checks that the cache notices a Reset of this process at once, and
// one of another process no later than WithDenialCache says.
func TestDenialsForgotten(t *testing.T) {
	client := start(t).client(t)
	const limit = 200 * time.Millisecond
	store := newStore(t, client, redisstore.WithDenialCache(limit))
	other := newStore(t, client)
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: 1, Per: 366 * 24 * time.Hour}, 1)
	deny := func() {
		require.True(t, take(t, store, u).Allowed)
		require.False(t, take(t, store, u).Allowed)
		require.False(t, take(t, store, u).Allowed)
	}
	deny()
	require.NoError(t, store.Reset(context.Background(), []ratelimit.Ask{u}))
	deny()
	began := time.Now()
	require.NoError(t, other.Reset(context.Background(), []ratelimit.Ask{u}))
	until(t, func(ctx context.Context) error {
		results, err := store.Take(ctx, []ratelimit.Ask{u})
		if err == nil && !results[0].Allowed {
			err = assert.AnError
		}
		return err
	})
	assert.Less(t, time.Since(began), 10*limit)
	assert.Zero(t, store.Denials(), "a state that is no longer believed is not kept")
}

// TestDenialsLate makes a Reset while the reply with a denial is under way. It checks that
// the denial, which is older than the Reset, is not kept.
func TestDenialsLate(t *testing.T) {
	p := startProxy(t, start(t).addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	store := newStore(t, client, frozen())
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerDay(1), 1)
	require.True(t, take(t, store, u).Allowed)
	p.will(delays, 1)
	var denied sync.WaitGroup
	denied.Go(func() {
		results, err := store.Take(context.Background(), []ratelimit.Ask{u})
		assert.NoError(t, err)
		assert.False(t, results[0].Allowed)
	})
	until(t, func(context.Context) error {
		if p.met.Load() == 0 {
			return assert.AnError
		}
		return nil
	})
	require.NoError(t, store.Reset(context.Background(), []ratelimit.Ask{u}))
	denied.Wait()
	assert.True(t, take(t, store, u).Allowed)
}

// TestDenialsOfRates denies a key under one rate, and checks that a request under another
// rate asks the server.
func TestDenialsOfRates(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, start(t).client(t), redisstore.WithClock(clock))
	window := ratelimit.AlgorithmFixedWindow
	require.True(t, take(t, store, ask(window, ratelimit.PerHour(2), 2)).Allowed)
	require.False(t, take(t, store, ask(window, ratelimit.PerHour(2), 1)).Allowed)
	assert.True(t, take(t, store, ask(window, ratelimit.PerHour(3), 1)).Allowed)
}

// TestDenialsBounded denies more keys than the cache can hold.
func TestDenialsBounded(t *testing.T) {
	client := start(t).client(t)
	store := newStore(t, client, redisstore.WithDenialCache(time.Hour))
	const keys = redisstore.MaxDenials * 5 / 4
	asks := make([]ratelimit.Ask, keys)
	for i := range asks {
		asks[i] = ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerDay(1), 1)
		asks[i].Key, asks[i].Client = fmt.Sprint(i), ""
	}
	for range 2 {
		eachOf(16, keys, func(i int) {
			_, err := store.Take(context.Background(), asks[i:i+1])
			assert.NoError(t, err)
		})
		assert.LessOrEqual(t, store.Denials(), redisstore.MaxDenials)
	}
	assert.Greater(t, store.Denials(), redisstore.MaxDenials*9/10)
}

// TestDenialsGrantNothing makes the same requests of two stores on one server, of which one
// has a denial cache, and checks that all results agree.
func TestDenialsGrantNothing(t *testing.T) {
	client := start(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	plain := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	holds := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(time.Hour))
	rng := rand.New(rand.NewPCG(1, 2))
	steps, hits := 4000, holds.Stats().CacheHits
	if testing.Short() {
		steps = 800
	}
	for _, a := range all {
		rate := ratelimit.Rate{Requests: 7, Per: 3 * time.Second}
		for i := range steps {
			one := ask(a, rate, rng.IntN(9))
			one.Client = ""
			two := one
			one.Key, two.Key = "one", "two"
			want, got := take(t, plain, one), take(t, holds, two)
			require.Equal(t, want, got, "%s, step %d, %d units", a, i, one.N)
			if rng.IntN(3) == 0 {
				clock.Advance(time.Duration(rng.Int64N(800_000)) * time.Microsecond)
			}
		}
		clock.Advance(time.Hour)
	}
	t.Logf("%d steps of two stores, %d denied without a call, mismatches 0", steps*len(all), holds.Stats().CacheHits-hits)
	assert.Greater(t, holds.Stats().CacheHits-hits, uint64(steps))
}
