package redisstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// eachOf calls do with 0 to n-1, atOnce of them at the same time.
func eachOf(atOnce, n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	all.Wait()
}

// replicas returns n stores on one server that take units ahead.
func replicas(t *testing.T, n int, opts ...redisstore.Option) []*redisstore.Store {
	srv := start(t)
	stores := make([]*redisstore.Store, n)
	for i := range stores {
		stores[i] = newStore(t, srv.client(t), opts...)
	}
	return stores
}

// granted asks all stores for u from several goroutines, asks times in all, and returns how
// many units were granted.
func granted(t *testing.T, stores []*redisstore.Store, u ratelimit.Ask, asks int) int {
	var units atomic.Int64
	eachOf(4*len(stores), asks, func(i int) {
		results, err := stores[i%len(stores)].Take(context.Background(), []ratelimit.Ask{u})
		if assert.NoError(t, err) && results[0].Allowed {
			units.Add(int64(u.N))
		}
	})
	return int(units.Load())
}

var leased = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket,
	ratelimit.AlgorithmFixedWindow,
	ratelimit.AlgorithmSlidingWindowCounter,
	ratelimit.AlgorithmSlidingWindowLog,
}

// TestLeases lets replicas take units of one key ahead while time stands still. It checks
// that they grant no more than the limit, that they make far fewer calls than decisions,
// and that units that are not spent are given back.
func TestLeases(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	stores := replicas(t, 3, redisstore.WithClock(clock), redisstore.WithLeases(20))
	for _, a := range leased {
		const limit = 5000
		u := ask(a, ratelimit.PerHour(limit), 1)
		calls := stores[0].Stats().Calls
		got := granted(t, stores, u, 3000)
		assert.Equal(t, 3000, got, a)
		calls = stores[0].Stats().Calls - calls
		assert.Less(t, calls, uint64(500), "%s: of about 1000 decisions", a)
		rest := granted(t, stores, u, 4000)
		assert.LessOrEqual(t, got+rest, limit, a)
		assert.GreaterOrEqual(t, got+rest, limit-3*20, a)
		t.Logf("%s: %d calls of one replica for 1000 decisions; granted %d of %d", a, calls, got+rest, limit)
		clock.Advance(3 * time.Hour)
	}
}

// TestLeasesGivenBack checks that units taken ahead are given back on Close, and when no
// request spends them: after that the server counts exactly what was granted.
func TestLeasesGivenBack(t *testing.T) {
	t.Parallel()
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	for _, closes := range []bool{true, false} {
		for _, a := range leased {
			stores := replicas(t, 2, redisstore.WithClock(clock), redisstore.WithLeases(50))
			u := ask(a, ratelimit.PerHour(10_000), 1)
			got := granted(t, stores, u, 777)
			require.Equal(t, 777, got)
			stats := stores[0].Stats()
			for stats.Leased == stats.LeaseHits { // until some units are not spent
				got += granted(t, stores[:1], u, 1)
				stats = stores[0].Stats()
			}
			if closes {
				for _, s := range stores {
					require.NoError(t, s.Close())
				}
			}
			u.N = 0
			plain := newStore(t, stores[0].Client(), redisstore.WithClock(clock))
			until(t, func(ctx context.Context) error {
				results, err := plain.Take(ctx, []ratelimit.Ask{u})
				if err == nil && (closes || results[0].Remaining == 10_000-got) {
					assert.Equal(t, 10_000-got, results[0].Remaining, a)
					return nil
				}
				return assert.AnError
			})
			until(t, func(context.Context) error { // it is counted only when the reply of the server has arrived
				if stats := stores[0].Stats(); stats.Leased != stats.LeaseHits+stats.Returned {
					return fmt.Errorf("%s: %+v", a, stats)
				}
				return nil
			})
		}
	}
}

// TestLeasesOfCosts spends units that were taken ahead several at a time, and checks that
// each is charged once.
func TestLeasesOfCosts(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	for _, a := range leased {
		store := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(50))[0]
		u, spent := ask(a, ratelimit.PerHour(10_000), 0), 0
		for i := range 300 {
			u.N = 1 + i%7
			require.True(t, take(t, store, u).Allowed, a)
			spent += u.N
		}
		require.NoError(t, store.Close())
		assert.Positive(t, store.Stats().LeaseHits, a)
		assert.Equal(t, 10_000-spent, left(t, store, u), a)
	}
}

// TestGivenBackLater gives units back after they have drained or left, and others have been
// charged since. It checks that nothing is added to what is left.
func TestGivenBackLater(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	for _, a := range leased {
		store := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(50))[0]
		plain := newStore(t, store.Client(), redisstore.WithClock(clock))
		u := ask(a, ratelimit.PerHour(1000), 1)
		for stats := store.Stats(); stats.Leased == stats.LeaseHits; stats = store.Stats() {
			take(t, store, u)
		}
		clock.Advance(2 * time.Hour)
		u.N = 500
		require.True(t, take(t, plain, u).Allowed)
		require.NoError(t, store.Close())
		assert.Equal(t, 500, left(t, plain, u), a)
	}
}

// TestLeasesAcrossWindows spends units in one window that were taken ahead in the window
// before. It checks that each replica grants at most that many above the limit.
func TestLeasesAcrossWindows(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	const limit, ahead = 2000, 40
	for _, a := range leased {
		stores := replicas(t, 3, redisstore.WithClock(clock), redisstore.WithLeases(ahead))
		u := ask(a, ratelimit.PerHour(limit), 1)
		got := granted(t, stores, u, 900)
		clock.Advance(2 * time.Hour)
		second := granted(t, stores, u, 2*limit)
		assert.Equal(t, 900, got)
		assert.LessOrEqual(t, second, limit+len(stores)*ahead, a)
		assert.GreaterOrEqual(t, second, limit-len(stores)*ahead, a)
		t.Logf("%s: granted %d of %d, with 3 times %d ahead", a, second, limit, ahead)
	}
}

// TestLeasesOfRates changes the rate while units are taken ahead. These can no longer be
// spent, and it checks that they are given back.
func TestLeasesOfRates(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	stores := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(50), redisstore.WithDenialCache(0))
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(10_000), 1)
	require.Equal(t, 500, granted(t, stores, u, 500))
	u.Rate = ratelimit.PerHour(600)
	got := granted(t, stores, u, 500)
	require.NoError(t, stores[0].Close())
	assert.LessOrEqual(t, got, 100)
	assert.GreaterOrEqual(t, got, 100-50)
	u.N = 0
	assert.Equal(t, 100-got, take(t, stores[0], u).Remaining, "all units taken ahead are given back")
}

// TestLeasesOfSeldomKeys checks that no units are taken ahead for a key that is asked for
// once, for a leaky bucket, or for a key that has little left.
func TestLeasesOfSeldomKeys(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(1000))[0]
	for _, u := range apart(ratelimit.AlgorithmTokenBucket, ratelimit.PerHour(1000), 50) {
		take(t, store, u)
	}
	for range 50 {
		take(t, store, ask(ratelimit.AlgorithmLeakyBucket, ratelimit.PerHour(1000), 1))
	}
	for range 50 {
		take(t, store, ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(7), 1))
	}
	assert.Zero(t, store.Stats().Leased)
}

// TestLeasesReset checks that a Reset also drops the units that were taken ahead.
func TestLeasesReset(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	stores := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(100))
	u := ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerHour(1000), 1)
	granted(t, stores, u, 300)
	require.NoError(t, stores[0].Reset(context.Background(), []ratelimit.Ask{u}))
	assert.Equal(t, 999, take(t, stores[0], u).Remaining)
}

// hold makes store take units of u ahead until it holds some, and returns how many were granted.
func hold(t *testing.T, store *redisstore.Store, u ratelimit.Ask) (got int) {
	t.Helper()
	for stats := store.Stats(); stats.Leased == stats.LeaseHits+stats.Returned; stats = store.Stats() {
		require.True(t, take(t, store, u).Allowed)
		got++
	}
	return got
}

// TestLeasesLostReply loses the reply to a call that takes units ahead. It checks that these are
// given back in the end, and that the request itself was charged once.
func TestLeasesLostReply(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := start(t)
	p := startProxy(t, srv.addr)
	direct := newStore(t, srv.client(t), redisstore.WithClock(clock))
	for _, closes := range []bool{true, false} {
		for _, a := range leased {
			client := redis.NewClient(&redis.Options{Addr: p.addr})
			store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithLeases(50))
			u := ask(a, ratelimit.PerHour(10_000), 1)
			require.NoError(t, direct.Reset(context.Background(), []ratelimit.Ask{u}))
			got := hold(t, store, u)
			for range 20 { // the next calls take more
				require.True(t, take(t, store, u).Allowed)
				got++
			}
			p.will(loses, 1)
			for p.met.Load() == 0 {
				_, err := store.Take(context.Background(), []ratelimit.Ask{u})
				if got++; p.met.Load() == 0 {
					require.NoError(t, err)
				}
			}
			if closes {
				require.NoError(t, store.Close())
			}
			until(t, func(context.Context) error {
				if n := left(t, direct, u); n != 10_000-got {
					return fmt.Errorf("%s: %d are left, not %d", a, n, 10_000-got)
				}
				return nil
			})
			require.True(t, take(t, store, u).Allowed, "%s: the key is of use", a)
			require.NoError(t, store.Close())
			assert.Equal(t, 10_000-got-1, left(t, direct, u), a)
			idle(t, store)
			require.NoError(t, client.Close())
		}
	}
}

// TestLeasesResetElsewhere resets a key in another process than that which has taken units of it
// ahead. It checks that these units are not given back to the new state.
func TestLeasesResetElsewhere(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	for _, a := range leased {
		stores := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(100), redisstore.WithLeaseTerm(time.Hour))
		other := newStore(t, stores[0].Client(), redisstore.WithClock(clock))
		u := ask(a, ratelimit.PerHour(1000), 1)
		hold(t, stores[0], u)
		require.NoError(t, other.Reset(context.Background(), []ratelimit.Ask{u}))
		u.N = 990
		require.True(t, take(t, other, u).Allowed)
		require.NoError(t, stores[0].Close())
		granted := 990
		for u.N = 1; take(t, other, u).Allowed; {
			granted++
		}
		assert.Equal(t, 1000, granted, "%s: of 1,000", a)
		t.Logf("%s: after a Reset elsewhere, %d of 1,000 were granted", a, granted)
	}
}

// TestLeasesAfterResetElsewhere is as TestLeasesResetElsewhere, but the process has taken further
// units ahead after the Reset. It checks that only these are given back.
func TestLeasesAfterResetElsewhere(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	for _, a := range leased {
		store := replicas(t, 1, redisstore.WithClock(clock), redisstore.WithLeases(50), redisstore.WithLeaseTerm(time.Hour))[0]
		other := newStore(t, store.Client(), redisstore.WithClock(clock))
		u := ask(a, ratelimit.PerHour(10_000), 1)
		hold(t, store, u)
		require.NoError(t, other.Reset(context.Background(), []ratelimit.Ask{u}))
		spent := 0
		for before := store.Stats().Leased; store.Stats().Leased == before; spent += u.N {
			u.N = 60 // more than it holds
			require.True(t, take(t, store, u).Allowed)
		}
		require.NoError(t, store.Close())
		assert.Equal(t, 10_000-spent, left(t, other, u), a)
	}
}

// TestLeasesLateCall stops the server while a call takes units ahead, so that the call is run long
// after its caller has left. It checks that the units come back.
func TestLeasesLateCall(t *testing.T) {
	t.Parallel()
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := startReal(t)
	client := srv.client(t)
	store, err := redisstore.New(client, redisstore.WithClock(clock), redisstore.WithLeases(50), redisstore.WithTimeout(time.Second))
	require.NoError(t, err)
	u := ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerHour(10_000), 1)
	until(t, func(ctx context.Context) error { return warm(ctx, store, u) })
	got := hold(t, store, u)
	srv.signal(t, syscall.SIGSTOP)
	for err == nil {
		_, err = store.Take(context.Background(), []ratelimit.Ask{u})
		got++
	}
	require.ErrorIs(t, err, ratelimit.ErrStore)
	until(t, func(context.Context) error { // until the note has been looked for once, in vain
		failed := uint64(0)
		for _, n := range store.Stats().Errors {
			failed += n
		}
		if failed < 2 {
			return fmt.Errorf("%d calls have failed", failed)
		}
		return nil
	})
	srv.signal(t, syscall.SIGCONT)
	direct := newStore(t, client, redisstore.WithClock(clock))
	until(t, func(context.Context) error {
		if n := left(t, direct, u); n != 10_000-got {
			return fmt.Errorf("%d are left, not %d", n, 10_000-got)
		}
		return nil
	})
	require.NoError(t, store.Close())
}
