package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// fails checks that a decision fails with one of classes, within ten times the timeout of
// the store.
func fails(t testing.TB, s *redisstore.Store, asks []ratelimit.Ask, within time.Duration, classes ...redisstore.Class) {
	t.Helper()
	began := time.Now()
	results, err := s.Take(context.Background(), asks)
	took := time.Since(began)
	assert.Nil(t, results)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	var e *redisstore.Error
	require.ErrorAs(t, err, &e)
	assert.Contains(t, classes, e.Class, err.Error())
	assert.Equal(t, string(e.Class), ratelimit.StoreErrorClass(e).ErrorClass())
	assert.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
	assert.Less(t, took, 10*within)
}

// failsForNow is fails, on a store with a [short] timeout, for a state of the server that may
// pass, so that the store repeats the call. On a busy machine the last try may still be under way
// when the timeout ends; failsForNow then calls again.
func failsForNow(t testing.TB, s *redisstore.Store, asks []ratelimit.Ask, class redisstore.Class) {
	t.Helper()
	count := func() uint64 { return s.Stats().Errors[class] }
	before := count()
	until(t, func(context.Context) error {
		fails(t, s, asks, short, class, redisstore.ClassTimeout)
		if count() == before {
			return errors.New("each call has timed out")
		}
		return nil
	})
}

var rate5 = ratelimit.PerMinute(5)

// TestNoReplicas checks the class of the error of a server that has too few replicas to take writes.
func TestNoReplicas(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client, redisstore.WithTimeout(short))
	u := ask(all[0], rate5, 1)
	take(t, s, u)
	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	failsForNow(t, s, []ratelimit.Ask{u}, redisstore.ClassReadOnly)
	require.NoError(t, client.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	require.Equal(t, 3, take(t, s, u).Remaining, "the refused request was not charged")
}

func TestForeignKeys(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	ctx := context.Background()
	garbage := []string{
		"", "x", "1", "-1 -1 -1", "0 0 0", "1 2 3 4 5 6 7 8 9 10 11", "0 0 0 0 0 0 0 0", "0 0 0 0",
		"1 1 5 1 1000000 0 0 0", "1 1 5 1 1 2251799813685249 0 0", "1 1 5 1 1 0 9007199254740991 0",
		"1 99999999999999999999 1", "nan nan nan", strings.Repeat("9", 400), "1 2 3\n", "1.5 2 3", "1e3 1 1",
		"1 1 5 0 0 2251799813685249", "1 1 5 0 1000000 1", "1 12000000 5 0 0 9007199254740992",
		"1 12000000 5 9007199254740991 0 1", "1 1 5 0 0 2251799813685249 0 0 0", "1 1 5 0 0 1 9 0 0",
		"60000000 9007199254740991 0 1", "60000000 9007199254740991 0 1 1",
		"60000000 0 0 9007199254740992", "60000000 0 0 1 9007199254740992",
	}
	for _, a := range all {
		u := ask(a, rate5, 1)
		other := u
		other.Rule = "other"
		key := s.KeyOf(u)
		for _, g := range garbage {
			require.NoError(t, client.Del(ctx, key, s.KeyOf(other)).Err())
			if a == ratelimit.AlgorithmSlidingWindowLog {
				require.NoError(t, client.RPush(ctx, key, g).Err())
			} else {
				require.NoError(t, client.Set(ctx, key, g, 0).Err())
			}
			held := dump(t, client)
			fails(t, s, []ratelimit.Ask{other, u}, 10*time.Second, redisstore.ClassCorrupt)
			fails(t, s, []ratelimit.Ask{u}, 10*time.Second, redisstore.ClassCorrupt)
			assert.Equal(t, held, dump(t, client), "%s, %q: nothing is charged", a, g)
		}
		require.NoError(t, client.Del(ctx, key).Err())
		require.NoError(t, client.HSet(ctx, key, "a", "b").Err())
		fails(t, s, []ratelimit.Ask{other, u}, 10*time.Second, redisstore.ClassWrongType)
		require.NoError(t, s.Reset(ctx, []ratelimit.Ask{u}))
		assert.Equal(t, 4, take(t, s, u).Remaining, "%s: Reset clears it", a)
	}
}

// TestGarbageInLog puts text in the place of a number into the middle of a log.
func TestGarbageInLog(t *testing.T) {
	client := start(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock))
	u := ask(ratelimit.AlgorithmSlidingWindowLog, ratelimit.PerMinute(9), 1)
	for range 9 {
		require.True(t, take(t, s, u).Allowed)
		clock.Advance(time.Second)
	}
	for i := int64(3); i < 17; i++ {
		require.NoError(t, client.LSet(context.Background(), s.KeyOf(u), i, "x").Err())
	}
	u.N = 4
	fails(t, s, []ratelimit.Ask{u}, 10*time.Second, redisstore.ClassCorrupt)
}

func TestOutOfMemory(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	ctx := context.Background()
	require.True(t, take(t, s, ask(all[0], rate5, 5)).Allowed)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	assert.False(t, take(t, s, ask(all[0], rate5, 1)).Allowed, "a denial needs no memory")
	for _, a := range all[1:] {
		fails(t, s, []ratelimit.Ask{ask(a, rate5, 1)}, 10*time.Second, redisstore.ClassOOM)
	}
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	for _, a := range all[1:] {
		assert.Equal(t, 4, take(t, s, ask(a, rate5, 1)).Remaining, "%s: nothing was charged", a)
	}
}

func TestReadOnly(t *testing.T) {
	client := startReal(t).client(t)
	s, err := redisstore.New(client, redisstore.WithTimeout(short))
	require.NoError(t, err)
	require.NoError(t, client.ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
	failsForNow(t, s, []ratelimit.Ask{ask(all[0], rate5, 1)}, redisstore.ClassReadOnly)
	require.NoError(t, client.ReplicaOf(context.Background(), "NO", "ONE").Err())
	until(t, func(ctx context.Context) error {
		_, err := s.Take(ctx, []ratelimit.Ask{ask(all[0], rate5, 1)})
		return err
	})
}

func TestNoServer(t *testing.T) {
	s := nowhere(t)
	fails(t, s, []ratelimit.Ask{ask(all[0], rate5, 1)}, 50*time.Millisecond, redisstore.ClassDial, redisstore.ClassTimeout)
	assert.ErrorIs(t, s.Reset(context.Background(), []ratelimit.Ask{ask(all[0], rate5, 1)}), ratelimit.ErrStore)
	until(t, func(context.Context) error {
		if s.CallsUnderWay() > 0 {
			return assert.AnError
		}
		return nil
	})
}

func TestClosedClient(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: start(t).addr})
	s := newStore(t, client)
	require.NoError(t, client.Close())
	fails(t, s, []ratelimit.Ask{ask(all[0], rate5, 1)}, time.Second, redisstore.ClassClosed)
}

// TestHung stops the server. It checks that decisions fail in time, that they work again as
// soon as the server runs, and that no call stays under way.
func TestHung(t *testing.T) {
	t.Parallel()
	srv := startReal(t)
	servers, cluster := startCluster(t)
	for name, hung := range map[string]struct {
		servers []*server
		client  redis.UniversalClient
	}{"standalone": {[]*server{srv}, srv.client(t)}, "cluster": {servers, cluster}} {
		t.Run(name, func(t *testing.T) {
			const timeout = 50 * time.Millisecond
			s, err := redisstore.New(hung.client)
			require.NoError(t, err)
			u := ask(all[0], ratelimit.PerDay(1000), 1)
			until(t, func(ctx context.Context) error {
				_, err := s.Take(ctx, []ratelimit.Ask{u})
				return err
			})
			for _, srv := range hung.servers {
				srv.signal(t, syscall.SIGSTOP)
			}
			for range 5 {
				fails(t, s, []ratelimit.Ask{u}, timeout, redisstore.ClassTimeout)
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout/5)
			_, err = newStore(t, hung.client).Take(ctx, []ratelimit.Ask{u})
			assert.ErrorIs(t, err, context.DeadlineExceeded, "the caller's context ends before the timeout")
			cancel()
			for _, srv := range hung.servers {
				srv.signal(t, syscall.SIGCONT)
			}
			until(t, func(ctx context.Context) error {
				_, err := s.Take(ctx, []ratelimit.Ask{u})
				return err
			})
			until(t, func(context.Context) error {
				if s.CallsUnderWay() > 0 {
					return assert.AnError
				}
				return nil
			})
		})
	}
}

func TestInvalidAsks(t *testing.T) {
	s := nowhere(t)
	ctx := context.Background()
	results, err := s.Take(ctx, nil)
	assert.NoError(t, err)
	assert.Empty(t, results)
	_, err = s.Take(ctx, []ratelimit.Ask{ask(all[0], rate5, -1)})
	assert.ErrorIs(t, err, ratelimit.ErrInvalidCount)
	_, err = s.Take(ctx, []ratelimit.Ask{ask("Other", rate5, 1)})
	assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	assert.ErrorIs(t, s.Reset(ctx, []ratelimit.Ask{ask("Other", rate5, 1)}), ratelimit.ErrInvalidConfig)
	_, err = s.Take(ctx, []ratelimit.Ask{ask(all[0], ratelimit.Rate{}, 1)})
	assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, err = new(redisstore.Store).Take(ctx, []ratelimit.Ask{ask(all[0], rate5, 1)})
	assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = s.Take(ended, []ratelimit.Ask{ask(all[0], rate5, 1)})
	assert.Equal(t, context.Canceled, err)
	assert.Equal(t, context.Canceled, s.Reset(ended, []ratelimit.Ask{ask(all[0], rate5, 1)}))
}
