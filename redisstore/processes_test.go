package redisstore_test

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// worker is the variable that has TestProcesses be one of the processes, which asks
// the server at that address.
const worker = "RATELIMIT_TEST_WORKER"

const (
	processes, goroutines, asksEach = 3, 8, 25
	shared                          = 150 // the limit that they share, of 600 asks
)

// TestProcesses has processes, of several goroutines each, ask for one key at one
// instant: they are granted just the limit.
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
	for _, a := range all {
		granted, err := client.LRange(ctx, string(a), 0, -1).Result()
		require.NoError(t, err)
		total := 0
		for _, g := range granted {
			total += atoi(t, g)
		}
		assert.Equal(t, shared, total, a)
		assert.Len(t, granted, processes)
		t.Logf("%s: %d processes of %d goroutines at one instant: %d asks, limit %d, granted %v = %d",
			a, processes, goroutines, processes*goroutines*asksEach, shared, granted, total)
	}
}

// work is what one of the processes does: it waits for its turn, asks, and tells the
// server what it was granted.
func work(t *testing.T, addr string) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	s := newStore(t, client, frozen())
	require.NoError(t, client.BLPop(context.Background(), 20*time.Second, "go").Err())
	for _, a := range all {
		var granted int
		var mu sync.Mutex
		var running sync.WaitGroup
		for range goroutines {
			running.Go(func() {
				for range asksEach {
					results, err := s.Take(context.Background(), []ratelimit.Ask{ask(a, ratelimit.PerDay(shared), 1)})
					mu.Lock()
					if assert.NoError(t, err) && results[0].Allowed {
						granted++
					}
					mu.Unlock()
				}
			})
		}
		running.Wait()
		require.NoError(t, client.RPush(context.Background(), string(a), granted).Err())
	}
}
