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

// TestLeasesLostReplyOfABusyKey drops replies to calls that take units ahead, while the connection stays open and the
// key goes on to be asked for. It checks that in the end all units that nobody got are given back.
func TestLeasesLostReplyOfABusyKey(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := start(t)
	p := startProxy(t, srv.addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	store, err := redisstore.New(client, redisstore.WithClock(clock), redisstore.WithLeases(100), redisstore.WithTimeout(200*time.Millisecond))
	require.NoError(t, err)
	direct := newStore(t, srv.client(t), redisstore.WithClock(clock))
	const limit = 10_000_000
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(limit), 1)
	got := hold(t, store, u)
	for range 1000 { // until each call takes many units ahead
		require.True(t, take(t, store, u).Allowed)
		got++
	}
	ctx, cancel := context.WithCancel(t.Context()) // such as that of an HTTP request
	defer cancel()
	var stop atomic.Bool
	var granted, failed atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !stop.Load() {
				if _, err := store.Take(ctx, []ratelimit.Ask{u}); err == nil {
					granted.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	for range 4 {
		p.will(drops, 1)
		before := store.Stats().Errors[redisstore.ClassTimeout]
		until(t, func(context.Context) error { // until callers have waited for the whole timeout, and others have come
			if stats := store.Stats(); stats.Errors[redisstore.ClassTimeout] == before {
				return fmt.Errorf("no call has failed: %+v", stats)
			}
			return nil
		})
		calls := store.Stats().Calls
		until(t, func(context.Context) error {
			if stats := store.Stats(); stats.Calls < calls+20 {
				return fmt.Errorf("few calls since: %+v", stats)
			}
			return nil
		})
	}
	stop.Store(true)
	all.Wait()
	idle(t, store)
	require.NoError(t, store.Close())
	used := limit - left(t, direct, u) - got
	assert.GreaterOrEqual(t, used, int(granted.Load()), "what was granted is charged")
	assert.LessOrEqual(t, used, int(granted.Load()+failed.Load()), "nothing stays charged that nobody asked for")
}

// TestLeasesReturnedAfterAHang stops the server while units that nobody spends are given back. It checks that they are
// given back when the server goes on.
func TestLeasesReturnedAfterAHang(t *testing.T) {
	t.Parallel()
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := startReal(t)
	store := newStore(t, srv.client(t), redisstore.WithClock(clock), redisstore.WithLeases(50),
		redisstore.WithLeaseTerm(300*time.Millisecond), redisstore.WithTimeout(200*time.Millisecond))
	for _, a := range leased {
		u := ask(a, ratelimit.PerHour(10_000), 1)
		got := hold(t, store, u)
		failed := store.Stats().Errors[redisstore.ClassTimeout]
		srv.signal(t, syscall.SIGSTOP)
		until(t, func(context.Context) error {
			if store.Stats().Errors[redisstore.ClassTimeout] == failed {
				return fmt.Errorf("%s: no return has failed", a)
			}
			return nil
		})
		srv.signal(t, syscall.SIGCONT)
		direct := newStore(t, store.Client(), redisstore.WithClock(clock))
		until(t, func(context.Context) error {
			if n := left(t, direct, u); n != 10_000-got {
				return fmt.Errorf("%s: %d are left, not %d", a, n, 10_000-got)
			}
			return nil
		})
	}
	require.NoError(t, store.Close())
}

// TestLeasesCloseWhileTheServerHangs closes a store whose server does not answer. The error says how many units could
// not be given back, and the next Close gives them back.
func TestLeasesCloseWhileTheServerHangs(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := startReal(t)
	store := newStore(t, srv.client(t), redisstore.WithClock(clock), redisstore.WithLeases(50),
		redisstore.WithLeaseTerm(time.Hour), redisstore.WithTimeout(200*time.Millisecond))
	u := ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerHour(10_000), 1)
	got := hold(t, store, u)
	stats := store.Stats()
	held := stats.Leased - stats.LeaseHits
	require.Positive(t, held)
	srv.signal(t, syscall.SIGSTOP)
	err := store.Close()
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.ErrorContains(t, err, fmt.Sprintf("redisstore: %d units that were taken ahead could not be given back: ", held))
	require.ErrorContains(t, store.Close(), fmt.Sprint(held), "a Close that fails changes nothing")
	srv.signal(t, syscall.SIGCONT)
	until(t, func(context.Context) error { return store.Close() })
	direct := newStore(t, store.Client(), redisstore.WithClock(clock))
	assert.Equal(t, 10_000-got, left(t, direct, u))
	require.NoError(t, store.Close())
}

// TestLeasesReturnedOnce loses the replies to calls that give units back. It checks that the units are given back once,
// although the process tries again.
func TestLeasesReturnedOnce(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := start(t)
	p := startProxy(t, srv.addr)
	direct := newStore(t, srv.client(t), redisstore.WithClock(clock), redisstore.WithLeases(50))
	other := ask(leased[0], ratelimit.PerHour(10_000), 1)
	other.Rule = "other"
	hold(t, direct, other)
	require.NoError(t, direct.Close(), "the server knows the script")
	for _, a := range leased {
		client := redis.NewClient(&redis.Options{Addr: p.addr})
		store := newStore(t, client, redisstore.WithClock(clock), redisstore.WithLeases(50), redisstore.WithLeaseTerm(time.Hour))
		u := ask(a, ratelimit.PerHour(10_000), 1)
		got := hold(t, store, u)
		u.N = 100
		require.True(t, take(t, direct, u).Allowed, "used by others, so that returning too much shows")
		p.will(loses, 2)
		err := store.Close()
		require.ErrorIs(t, err, ratelimit.ErrStore, a)
		require.Equal(t, 10_000-100-got, left(t, direct, u), "%s: the server has run it", a)
		for err != nil {
			err = store.Close()
		}
		require.Equal(t, 10_000-100-got, left(t, direct, u), "%s: the second one has returned nothing more", a)
		idle(t, store)
		require.NoError(t, client.Close())
	}
}

// TestLeasesLeaveNoNote checks that Close deletes the notes of the process, and that calls drop those of processes that
// have died.
func TestLeasesLeaveNoNote(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	srv := start(t)
	client := srv.client(t)
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(1_000_000), 1)
	other := newStore(t, client, redisstore.WithClock(clock), redisstore.WithLeases(5), redisstore.WithLeaseTerm(time.Hour))
	note := other.KeyOf(u) + ";a"
	hold(t, other, u)
	fields := func() int64 {
		n, err := client.HLen(t.Context(), note).Result()
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 1, fields())
	for range 10 {
		store := newStore(t, srv.client(t), redisstore.WithClock(clock), redisstore.WithLeases(50))
		hold(t, store, u)
		require.EqualValues(t, 2, fields())
		require.NoError(t, store.Close())
		require.EqualValues(t, 1, fields(), "each has left nothing behind")
	}
	second, err := client.Time(t.Context()).Result()
	require.NoError(t, err)
	for i := range 200 { // processes that died an hour ago, and two that live
		at := second.Add(-time.Hour)
		if i < 2 {
			at = second
		}
		require.NoError(t, client.HSet(t.Context(), note, fmt.Sprint("process", i), fmt.Sprint(at.Unix(), " 1 1 0 reply")).Err())
	}
	for range 3000 {
		require.True(t, take(t, other, u).Allowed)
		if fields() == 3 {
			break
		}
	}
	require.EqualValues(t, 3, fields(), "198 have died")
	for i := range 2 {
		require.True(t, client.HExists(t.Context(), note, fmt.Sprint("process", i)).Val(), "one that lives")
	}
	require.NoError(t, other.Close())
}
