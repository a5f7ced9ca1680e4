package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A redisServer is a redis-server that belongs to a test.
type redisServer struct {
	addr string
	cmd  *exec.Cmd
}

// startRedis starts a redis-server that keeps nothing on disk. It ends with the test. Without the program, the test
// is skipped, or fails if the environment has RATELIMIT_REQUIRE_REDIS=1.
func startRedis(t *testing.T) *redisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
			require.NoError(t, err)
		}
		t.Skip("no redis-server on this machine")
	}
	port := fmt.Sprint(10_000 + rand.IntN(20_000)) // below the ports that the system gives to connections
	s := &redisServer{addr: "127.0.0.1:" + port}
	s.cmd = exec.CommandContext(context.Background(), "redis-server", // Cleanup ends it
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	until(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return s
}

func (s *redisServer) url() string { return "redis://" + s.addr + "/0" }

// TestInRedis has two gateways with the options of the flag -redis. What one has in flight, the other knows.
func TestInRedis(t *testing.T) {
	_, err := inRedis("http://127.0.0.1", 1)
	require.Error(t, err)
	url := startRedis(t).url()
	var both [2]*gateway
	for i := range both {
		opts, err := inRedis(url, len(both))
		require.NoError(t, err)
		both[i], err = newGateway(repeat, opts...)
		require.NoError(t, err)
	}
	until(t, func() bool { // until Redis answers both in time
		held, err := both[0].limiter.Reserve(t.Context(), ratelimit.Request{
			Client: "alice", Endpoint: "/v1/chat", Costs: []ratelimit.Cost{{Unit: "tokens", N: estimate}},
		}, time.Minute)
		if err != nil {
			return false
		}
		defer func() { _ = held.Cancel() }()
		seen, err := both[1].limiter.Reserve(t.Context(), ratelimit.Request{
			Client: "alice", Endpoint: "/v1/chat", Cost: 1000, Costs: []ratelimit.Cost{{Unit: "tokens", N: 0}},
		}, time.Minute)
		return err == nil && seen.Results()[2].Remaining == 3
	})
}

// until waits until ok returns true, for at most a minute.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for range 6000 {
		if ok() {
			return
		}
		pass(10 * time.Millisecond)
	}
	require.Fail(t, "it has not happened within a minute")
}

// pass waits for d.
func pass(d time.Duration) { <-time.After(d) }
