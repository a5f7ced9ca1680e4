package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestMain fails if a goroutine is left at the end. One that dials a dead server for a client
// that is closed ends only with the client's own timeout, so it gets that long. The log of the
// client is off, because its errors say the same.
func TestMain(m *testing.M) {
	logging.Disable()
	code := m.Run()
	for begun := time.Now(); code == 0; {
		err := goleak.Find() // it looks for half a second
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// A server is a redis-server that belongs to a test, or a fake of one.
type server struct {
	addr string
	log  string
	args []string
	cmd  *exec.Cmd // nil if the server does not run, or is a fake
}

// program returns the path of a program of Redis. If there is none it skips the test, or
// fails it if the environment has RATELIMIT_REQUIRE_REDIS=1.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
		t.Fatalf("RATELIMIT_REQUIRE_REDIS is set, but there is no %s on this machine", name)
	}
	t.Skipf("no %s on this machine: the test needs to start one", name)
	return ""
}

// freePort returns a port of the loopback interface on which no program listens. It is
// below the ports that the system gives to connections, so that a server finds it free when
// it is started again.
func freePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			require.NoError(t, l.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start starts a server that ends with the test. On a machine without redis-server it
// starts a fake in this process, which is enough for a test that only sends commands.
func start(t testing.TB) *server {
	t.Helper()
	_, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv("RATELIMIT_REQUIRE_REDIS") != "1" {
		return &server{addr: miniredis.RunT(t).Addr()}
	}
	return startReal(t)
}

// startReal starts a redis-server that ends with the test.
func startReal(t testing.TB, args ...string) *server {
	t.Helper()
	return startWith(t, append([]string{"--save", "", "--appendonly", "no"}, args...)...)
}

// startWith starts a redis-server with exactly these arguments. It ends with the test.
func startWith(t testing.TB, args ...string) *server {
	t.Helper()
	program(t, "redis-server")
	dir, port := t.TempDir(), freePort(t)
	s := &server{addr: "127.0.0.1:" + port, log: filepath.Join(dir, "log")}
	s.args = slices.Concat(args, []string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--logfile", s.log})
	t.Cleanup(func() {
		s.kill(t)
		if t.Failed() {
			text, _ := os.ReadFile(s.log)
			lines := strings.Split(string(text), "\n")
			t.Logf("%s: %s", s.addr, strings.Join(lines[max(len(lines)-15, 0):], "\n"))
		}
	})
	s.run(t)
	s.await(t)
	return s
}

// run starts the program of s, with further arguments if more has any.
func (s *server) run(t testing.TB, more ...string) {
	t.Helper()
	args := append(slices.Clone(s.args), more...)
	s.cmd = exec.CommandContext(context.Background(), program(t, "redis-server"), args...) // Cleanup ends it
	require.NoError(t, s.cmd.Start())
}

// await waits until s answers, and returns when that was.
func (s *server) await(t testing.TB) time.Time {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = c.Close() }()
	until(t, func(ctx context.Context) error { return c.Ping(ctx).Err() })
	return time.Now()
}

// kill ends s at once, if it runs.
func (s *server) kill(t testing.TB) {
	t.Helper()
	if s.cmd != nil {
		s.signal(t, syscall.SIGKILL)
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

func (s *server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Signal(sig))
}

// until calls do until it returns nil, and fails the test after 20 seconds.
func until(t testing.TB, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, err, "it must succeed within 20 s")
		}
	}
}

// client returns a client of s that is closed when the test ends.
func (s *server) client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newStore returns a store on client with a timeout that is long enough for a busy machine.
func newStore(t testing.TB, client redis.UniversalClient, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, append([]redisstore.Option{redisstore.WithTimeout(10 * time.Second)}, opts...)...)
	require.NoError(t, err)
	return s
}

// number returns the value of one field in a section of INFO.
func number(t testing.TB, c *redis.Client, section, name string) int {
	t.Helper()
	info, err := c.Info(context.Background(), section).Result()
	require.NoError(t, err)
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return atoi(t, value)
		}
	}
	t.Fatalf("INFO %s has no %s", section, name)
	return 0
}

func atoi(t testing.TB, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	require.NoError(t, err)
	return n
}

// ask returns an ask for n units of the key "a".
func ask(a ratelimit.Algorithm, r ratelimit.Rate, n int) ratelimit.Ask {
	return ratelimit.Ask{Rule: "rule", Key: "a", Client: "a", Algorithm: a, Rate: r, N: n}
}

// take takes one ask, and returns its result.
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
