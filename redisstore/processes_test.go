package redisstore_test

import (
	"context"
	"os"
	"os/exec"
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

// worker is the environment variable that makes TestProcesses run as one of the processes.
// Its value is the address of the server.
const worker = "RATELIMIT_TEST_WORKER"

const (
	processes, goroutines, asksEach = 3, 8, 25
	shared                          = 150 // the limit of all processes together, out of 600 asks
	ahead                           = 12  // units that a process may take ahead, if it does so
)

// sharing returns the ask that the processes make, for stores that take units ahead or do
// not.
func sharing(a ratelimit.Algorithm, leases bool) ratelimit.Ask {
	u := ask(a, ratelimit.PerDay(shared), 1)
	if leases {
		u.Rule = "leased"
	}
	return u
}

// TestProcesses starts several processes, of several goroutines each, that ask for one key
// at one instant. It checks that exactly the limit is granted. Processes that take units
// ahead may grant less by the units that they hold, and must give back what they have not
// spent.
func TestProcesses(t *testing.T) {
	if addr := os.Getenv(worker); addr != "" {
		work(t, addr)
		return
	}
	srv := startReal(t)
	client := srv.client(t)
	ctx := context.Background()
	self, err := os.Executable()
	require.NoError(t, err)
	var running sync.WaitGroup
	for range processes {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestProcesses$")
		cmd.Env = append(os.Environ(), worker+"="+srv.addr)
		running.Go(func() {
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, string(out))
		})
	}
	until(t, func(context.Context) error {
		if number(t, client, "clients", "blocked_clients") < processes {
			return assert.AnError
		}
		return nil
	})
	require.NoError(t, client.RPush(ctx, "go", 1, 2, 3).Err())
	running.Wait()
	plain := newStore(t, client, frozen())
	for _, a := range all {
		for _, leases := range []bool{false, true} {
			u := sharing(a, leases)
			granted, err := client.LRange(ctx, u.Rule+string(a), 0, -1).Result()
			require.NoError(t, err)
			require.Len(t, granted, processes)
			total := 0
			for _, g := range granted {
				total += atoi(t, g)
			}
			if !leases {
				assert.Equal(t, shared, total, a)
			}
			assert.LessOrEqual(t, total, shared+processes*ahead, a)
			assert.GreaterOrEqual(t, total, shared-processes*ahead, a)
			assert.Equal(t, shared-total, left(t, plain, u), "%s: the server knows of what was granted", a)
			t.Logf("%s: %d processes of %d goroutines at one instant, units ahead: %t; %d asks, limit %d, granted %v = %d",
				a, processes, goroutines, leases, processes*goroutines*asksEach, shared, granted, total)
		}
	}
}

// work is the work of one process: it waits for the signal, asks, and reports to the server
// how many units were granted.
func work(t *testing.T, addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	require.NoError(t, client.BLPop(context.Background(), 20*time.Second, "go").Err())
	for _, a := range all {
		workFor(t, client, newStore(t, client, frozen()), sharing(a, false))
		workFor(t, client, newStore(t, client, frozen(), redisstore.WithLeases(ahead)), sharing(a, true))
	}
}

// workFor asks s for u, and reports to the server how often that was granted.
func workFor(t *testing.T, client *redis.Client, s *redisstore.Store, u ratelimit.Ask) {
	var granted atomic.Int64
	eachOf(goroutines, goroutines*asksEach, func(int) {
		results, err := s.Take(context.Background(), []ratelimit.Ask{u})
		if assert.NoError(t, err) && results[0].Allowed {
			granted.Add(1)
		}
	})
	require.NoError(t, s.Close())
	require.NoError(t, client.RPush(context.Background(), u.Rule+string(u.Algorithm), granted.Load()).Err())
}
