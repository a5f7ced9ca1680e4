package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A server is a redis-server that belongs to a test.
type server struct {
	addr string
	args []string
	cmd  *exec.Cmd // nil while it does not run
}

// startRedis starts a redis-server that keeps nothing on disk. It ends with the test. Without the
// program the test is skipped, or fails if the environment has RATELIMIT_REQUIRE_REDIS=1.
func startRedis(t testing.TB) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("RATELIMIT_REQUIRE_REDIS") == "1" {
			require.NoError(t, err)
		}
		t.Skip("no redis-server on this machine")
	}
	// Below the ports that the system gives to connections, so that it is free after a restart.
	port := fmt.Sprint(10_000 + rand.IntN(20_000))
	s := &server{
		addr: "127.0.0.1:" + port,
		args: []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()},
	}
	t.Cleanup(func() { s.kill(t) })
	s.run(t)
	return s
}

// run starts s, and returns when it answers.
func (s *server) run(t testing.TB) {
	t.Helper()
	s.cmd = exec.CommandContext(context.Background(), "redis-server", s.args...) // Cleanup ends it
	require.NoError(t, s.cmd.Start())
	c := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialerRetries: 1})
	defer func() { _ = c.Close() }()
	until(t, func() bool { return c.Ping(t.Context()).Err() == nil })
}

// kill ends s at once, if it runs.
func (s *server) kill(t testing.TB) {
	t.Helper()
	if s.cmd != nil {
		require.NoError(t, s.cmd.Process.Kill())
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// connections returns how many connections s has, with that which asks.
func (s *server) connections(t testing.TB) int {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr})
	defer func() { _ = c.Close() }()
	list, err := c.ClientList(t.Context()).Result()
	require.NoError(t, err)
	return strings.Count(strings.TrimSpace(list), "\n") + 1
}

func (s *server) url() string { return "redis://" + s.addr + "/0" }

// TestShared has two programs, of two replicas, on one Redis server. Together they grant what one
// would and, when the server is killed, half of it each.
func TestShared(t *testing.T) {
	srv := startRedis(t)
	shareServer(t, srv.url(), "50ms", func() { srv.kill(t) }, func() { srv.run(t) })
}

// shareServer proves that two programs share the limits in the server at a URL. The functions end and
// start the server, and each call of the store may take timeout.
func shareServer(t *testing.T, url, timeout string, kill, run func()) {
	t.Helper()
	c := client(t)
	var apis []*api
	for range 2 {
		apis = append(apis, start(t, []string{"-store", url, "-replicas", "2", "-timeout", timeout}))
	}
	logins := func(address string) (statuses []int) {
		for i := range 6 {
			res, _ := apis[i%2].ask(t, c, http.MethodPost, "/login", "X-Forwarded-For", address)
			statuses = append(statuses, res.StatusCode)
		}
		return statuses
	}
	assert.Equal(t, []int{200, 200, 200, 200, 200, 429}, logins("203.0.113.1"))

	kill()
	assert.Equal(t, []int{503, 503, 503, 503, 503, 503}, logins("203.0.113.2"), "nobody logs in by guessing meanwhile")
	for _, a := range apis {
		granted := 0
		for range 100 {
			res, _ := a.ask(t, c, http.MethodGet, "/items/7", "X-Forwarded-For", "203.0.113.3")
			if res.StatusCode == http.StatusOK {
				granted++
			}
		}
		assert.GreaterOrEqual(t, granted, 30, "half of 60")
		assert.Less(t, granted, 60, "not the limit once more for each: 30, and one every two seconds")
	}

	run()
	until(t, func() bool {
		res, _ := apis[0].ask(t, c, http.MethodPost, "/login", "X-Forwarded-For", "203.0.113.4")
		return res.StatusCode == http.StatusOK
	})
}

// TestWithoutRedis starts the program while the server is gone. It says so, and limits by itself.
func TestWithoutRedis(t *testing.T) {
	a := start(t, []string{"-store", "redis://127.0.0.1:1/0"})
	assert.True(t, logged.has("until Redis answers, each process limits by itself"))
	res, _ := a.ask(t, client(t), http.MethodGet, "/items/7")
	assert.Equal(t, http.StatusOK, res.StatusCode)
	assert.Empty(t, res.Header.Get("RateLimit"), "what the others have granted is not known")
}
