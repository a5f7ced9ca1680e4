package redisstore_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestMain fails if a goroutine is left at the end.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server is a redis-server that belongs to a test.
type server struct {
	addr string
	cmd  *exec.Cmd
	log  string
}

// program returns the path of a program of Redis, or skips the test. With
// RATELIMIT_REQUIRE_REDIS=1 in the environment the test fails without it.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
		t.Fatalf("RATELIMIT_REQUIRE_REDIS is set, and there is no %s", name)
	}
	t.Skipf("no %s on this machine: the test needs one of its own", name)
	return ""
}

// freePort returns a port of the loopback that nobody listens on.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// start starts a redis-server that ends with the test.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	path, dir, port := program(t, "redis-server"), t.TempDir(), freePort(t)
	s := &server{addr: "127.0.0.1:" + port, log: filepath.Join(dir, "log")}
	args = append([]string{
		"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", dir, "--logfile", s.log,
	}, args...)
	s.cmd = exec.CommandContext(context.Background(), path, args...) // Cleanup ends it
	require.NoError(t, s.cmd.Start())
	t.Cleanup(func() {
		s.signal(t, syscall.SIGKILL)
		_ = s.cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(s.log)
			lines := strings.Split(string(text), "\n")
			t.Logf("%s: %s", s.addr, strings.Join(lines[max(len(lines)-15, 0):], "\n"))
		}
	})
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	defer func() { _ = c.Close() }()
	until(t, func(ctx context.Context) error { return c.Ping(ctx).Err() })
	return s
}

func (s *server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(sig))
}

// until calls do until it succeeds.
func until(t testing.TB, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, err, "not within 20 s")
		}
	}
}

// client returns a client of s that is closed with the test.
func (s *server) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startCluster starts three masters that are a cluster, and returns them and a
// client.
func startCluster(t testing.TB) ([]*server, *redis.ClusterClient) {
	t.Helper()
	cli := program(t, "redis-cli")
	var servers []*server
	var addrs []string
	for range 3 {
		s := start(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t), "--cluster-node-timeout", "2000")
		servers, addrs = append(servers, s), append(addrs, s.addr)
	}
	args := append([]string{"--cluster", "create"}, append(addrs, "--cluster-replicas", "0", "--cluster-yes")...)
	out, err := exec.CommandContext(t.Context(), cli, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = c.Close() })
	until(t, func(ctx context.Context) error {
		return c.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error {
			info, err := m.ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:3")) {
				err = errors.New("the cluster is not ready")
			}
			return err
		})
	})
	return servers, c
}

// newStore returns a store on client with time enough for a busy machine.
func newStore(t testing.TB, client redis.UniversalClient, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, append([]redisstore.Option{redisstore.WithTimeout(10 * time.Second)}, opts...)...)
	require.NoError(t, err)
	return s
}

// number returns the field of that name of a section of INFO.
func number(t testing.TB, c *redis.Client, section, name string) int {
	t.Helper()
	info, err := c.Info(context.Background(), section).Result()
	require.NoError(t, err)
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(value)
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("INFO %s has no %s", section, name)
	return 0
}

// ask is for n units of the key a.
func ask(a ratelimit.Algorithm, r ratelimit.Rate, n int) ratelimit.Ask {
	return ratelimit.Ask{Rule: "rule", Key: "a", Client: "a", Algorithm: a, Rate: r, N: n}
}

// take takes what one ask wants.
func take(t testing.TB, s *redisstore.Store, a ratelimit.Ask) ratelimit.Result {
	t.Helper()
	results, err := s.Take(context.Background(), []ratelimit.Ask{a})
	require.NoError(t, err)
	require.Len(t, results, 1)
	return results[0]
}

var all = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket,
	ratelimit.AlgorithmLeakyBucket,
	ratelimit.AlgorithmFixedWindow,
	ratelimit.AlgorithmSlidingWindowCounter,
	ratelimit.AlgorithmSlidingWindowLog,
}
