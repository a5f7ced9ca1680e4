package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestStopped stops the server. It checks that a call takes no longer than the timeout,
// that a decision returns at once when the breaker is open, and that afterwards there are
// as many goroutines as before, and no connections but those of the pool.
func TestStopped(t *testing.T) {
	const timeout = 50 * time.Millisecond // the default
	srv := startReal(t)
	observer, client := srv.client(t), redis.NewClient(&redis.Options{Addr: srv.addr})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client)
	require.NoError(t, err)
	ask := limited(t, s, "a", 1000, ratelimit.FailClosed)
	until(t, func(context.Context) error { _, err := ask(0); return err })
	settled(t, s, client, observer)
	goroutines := goleak.IgnoreCurrent()
	srv.signal(t, syscall.SIGSTOP)

	calls := measure(20, func() { fails(t, s, []ratelimit.Ask{askFor("b")}, timeout, redisstore.ClassTimeout) })
	for range 5 {
		_, err = ask(0)
		require.ErrorIs(t, err, ratelimit.ErrStore)
	}
	refused := measure(1000, func() { _, err = ask(0) })
	require.ErrorContains(t, err, "failed too often")
	assert.Less(t, calls[len(calls)-1], 10*timeout)
	assert.Less(t, refused[len(refused)/2], 10*time.Millisecond)

	srv.signal(t, syscall.SIGCONT)
	went := time.Now()
	until(t, func(context.Context) error { _, err := ask(0); return err })
	answers := time.Since(went)
	pool := settled(t, s, client, observer)
	goleak.VerifyNone(t, goroutines)
	t.Logf("server stopped, a timeout of %v: calls take %v, at most %v; with the breaker open decisions take %v, at most %v; "+
		"it answers %v after it goes on; %d connections in the pool and no other, no goroutine left",
		timeout, calls[len(calls)/2], calls[len(calls)-1], refused[len(refused)/2], refused[len(refused)-1], answers, pool)
}

// settled waits until the server has no connections but one of observer and those in the pool of
// client, and returns how many the pool has.
func settled(t testing.TB, s *redisstore.Store, client, observer *redis.Client) (pool int) {
	t.Helper()
	idle(t, s)
	until(t, func(context.Context) error {
		runtime.GC() // closes connections that failed while they were set up: see go-redis issue 3982
		pool = int(client.PoolStats().TotalConns)
		if c := number(t, observer, "clients", "connected_clients"); c != 1+pool {
			return fmt.Errorf("%d connections in the pool and %d in the server", pool, c)
		}
		return nil
	})
	return pool
}

// measure returns how long n calls of do take, sorted.
func measure(n int, do func()) []time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		do()
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took
}

// askFor returns an ask for one unit of the token bucket of key.
func askFor(key string) ratelimit.Ask {
	return ratelimit.Ask{Rule: "rule", Key: key, Client: key, Algorithm: ratelimit.AlgorithmTokenBucket, Rate: yearly(1000), N: 1}
}
