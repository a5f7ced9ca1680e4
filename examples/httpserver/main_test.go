package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratelimit-go/ratelimit"
)

// TestMain fails if a goroutine is left at the end.
func TestMain(m *testing.M) {
	logging.Disable() // of the client of Redis, whose errors say the same
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	goleak.VerifyTestMain(m)
}

// logged is the log of the program.
var logged lines

// lines are safe for concurrent use by multiple goroutines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// has reports whether a text was logged.
func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// An api is the program while it runs in this process.
type api struct {
	url, metrics string
	stop         func() error // ends the program and returns what it returns
}

// start starts the program at a free port of the loopback interface, whose clients it takes for
// proxies. It ends with the test.
func start(t testing.TB, args []string, opts ...ratelimit.Option) *api {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-listen", "127.0.0.1:0", "-metrics", "127.0.0.1:0", "-proxies", "127.0.0.0/8"}, args...), in, opts...)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	var once atomic.Bool
	a := &api{stop: func() error {
		if once.Swap(true) {
			return nil
		}
		cancel()
		return <-ended
	}}
	lines := bufio.NewScanner(out)
	for a.url == "" || a.metrics == "" {
		require.True(t, lines.Scan(), lines.Err())
		if what, url, _ := strings.Cut(lines.Text(), " at "); what == "serving metrics" {
			a.metrics = url
		} else {
			require.Equal(t, "serving the API", what)
			a.url = url
		}
	}
	t.Cleanup(func() { assert.NoError(t, a.stop()) })
	return a
}

// newClock returns a clock at the beginning of a minute.
func newClock() *ratelimit.FakeClock {
	return ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}

// client is an HTTP client without connections that outlive a test.
func client(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}
}

// ask sends a request with header fields, which are names and values, and returns the answer.
func (a *api) ask(t testing.TB, c *http.Client, method, path string, fields ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	res, err := c.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res, string(body)
}

// each runs a test on both routers.
func each(t *testing.T, test func(t *testing.T, a *api, c *http.Client, clock *ratelimit.FakeClock)) {
	for name, args := range map[string][]string{"mux": nil, "chi": {"-chi"}} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			test(t, start(t, args, ratelimit.WithClock(clock)), client(t), clock)
		})
	}
}

const address, apiKey = "X-Forwarded-For", "X-API-Key"

// TestTiers compares the plans of two customers, and what a search costs.
func TestTiers(t *testing.T) {
	each(t, func(t *testing.T, a *api, c *http.Client, clock *ratelimit.FakeClock) {
		for i := range 12 {
			res, body := a.ask(t, c, http.MethodGet, "/search", apiKey, "k-456")
			require.Equal(t, http.StatusOK, res.StatusCode, i)
			assert.JSONEq(t, `{"path":"/search","query":""}`, body)
		}
		res, _ := a.ask(t, c, http.MethodGet, "/search", apiKey, "k-456")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		assert.Equal(t, "5", res.Header.Get("Retry-After"))
		assert.Equal(t, `"per-client";r=0;t=5`, res.Header.Get("RateLimit"))

		res, _ = a.ask(t, c, http.MethodGet, "/search", apiKey, "k-123")
		assert.Equal(t, http.StatusOK, res.StatusCode, "another customer has another budget")
		assert.Equal(t, `"per-client";q=600;w=60`, res.Header.Get("RateLimit-Policy"), "the plan of the customer")
		assert.Equal(t, `"per-client";r=595;t=60`, res.Header.Get("RateLimit"), "not that of the global rule")

		clock.Advance(5*time.Second - 1)
		res, _ = a.ask(t, c, http.MethodGet, "/search", apiKey, "k-456")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		clock.Advance(1)
		res, _ = a.ask(t, c, http.MethodGet, "/search", apiKey, "k-456")
		assert.Equal(t, http.StatusOK, res.StatusCode, "who obeys Retry-After is served")
	})
}

// TestLogin has a client that forges addresses behind a proxy.
func TestLogin(t *testing.T) {
	each(t, func(t *testing.T, a *api, c *http.Client, clock *ratelimit.FakeClock) {
		clock.Advance(30 * time.Second)
		for range 5 {
			res, _ := a.ask(t, c, http.MethodPost, "/login", address, "6.6.6.6, 203.0.113.9")
			require.Equal(t, http.StatusOK, res.StatusCode)
		}
		res, body := a.ask(t, c, http.MethodPost, "/login", address, "9.9.9.9, 203.0.113.9")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode, "what stands on the left is the client's text")
		assert.Contains(t, body, `"violated-policies":["/login"]`)
		res, _ = a.ask(t, c, http.MethodPost, "/login", apiKey, "k-123", address, "203.0.113.9")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode, "a plan buys no guesses")
		res, _ = a.ask(t, c, http.MethodPost, "/login", address, "203.0.113.10")
		assert.Equal(t, http.StatusOK, res.StatusCode)
		res, _ = a.ask(t, c, http.MethodGet, "/items/7", address, "203.0.113.9")
		assert.Equal(t, http.StatusOK, res.StatusCode, "the rest of the API has another rule")
		assert.Equal(t, `"per-client";r=59;t=59`, res.Header.Get("RateLimit"))
		clock.Advance(time.Minute - 1)
		res, _ = a.ask(t, c, http.MethodPost, "/login", address, "203.0.113.9")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode, "the window slides: no new guesses at the full minute")
		clock.Advance(1)
		res, _ = a.ask(t, c, http.MethodPost, "/login", address, "203.0.113.9")
		assert.Equal(t, http.StatusOK, res.StatusCode)
	})
}

// TestKeys makes keys up. They are no fresh budgets.
func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, a *api, c *http.Client, _ *ratelimit.FakeClock) {
		for i := range 60 {
			res, _ := a.ask(t, c, http.MethodGet, "/items/7", apiKey, "guess "+string(rune('A'+i)), address, "203.0.113.9")
			require.Equal(t, http.StatusOK, res.StatusCode)
		}
		res, _ := a.ask(t, c, http.MethodGet, "/items/8", apiKey, "another", address, "203.0.113.9")
		assert.Equal(t, http.StatusTooManyRequests, res.StatusCode)
	})
}

// TestEverybody has 200 clients at once, of whom the service takes 100 a second.
func TestEverybody(t *testing.T) {
	each(t, func(t *testing.T, a *api, c *http.Client, clock *ratelimit.FakeClock) {
		served := func() (n int) {
			for i := range 200 {
				res, body := a.ask(t, c, http.MethodGet, "/items/7", address, fmt.Sprintf("203.0.113.%d", i))
				if res.StatusCode == http.StatusOK {
					n++
				} else {
					require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
					require.NotContains(t, body, "everybody", "what all others do is nobody's business")
				}
			}
			return n
		}
		assert.Equal(t, 100, served())
		assert.Equal(t, 0, served())
		clock.Advance(time.Second)
		assert.Equal(t, 100, served())
		for range 10 {
			res, _ := a.ask(t, c, http.MethodGet, "/healthz")
			assert.Equal(t, http.StatusOK, res.StatusCode, "a load balancer may always ask")
		}
	})
}

// TestMetrics scrapes what was counted.
func TestMetrics(t *testing.T) {
	each(t, func(t *testing.T, a *api, c *http.Client, _ *ratelimit.FakeClock) {
		for range 6 {
			a.ask(t, c, http.MethodPost, "/login")
		}
		_, body := (&api{url: a.metrics}).ask(t, c, http.MethodGet, "/metrics")
		for _, line := range []string{
			`ratelimit_requests_total{limiter="default",result="allowed",rule="/login"} 5`,
			`ratelimit_requests_total{limiter="default",result="denied",rule="/login"} 1`,
			`ratelimit_requests_total{limiter="default",result="allowed",rule="everybody"} 5`,
			`ratelimit_config_last_reload_successful{limiter="default"} 1`,
		} {
			assert.Contains(t, body, line+"\n")
		}
		res, _ := a.ask(t, c, http.MethodGet, "/metrics")
		assert.Equal(t, http.StatusNotFound, res.StatusCode, "clients do not see them")
	})
}

// TestReload changes the file, by SIGHUP and by waiting. It keeps what was used.
func TestReload(t *testing.T) {
	path := copied(t, "limits.json")
	a, c := start(t, []string{"-limits", path}, ratelimit.WithClock(newClock())), client(t)
	limit := func() string {
		res, _ := a.ask(t, c, http.MethodGet, "/items/7")
		return res.Header.Get("RateLimit") + " of " + res.Header.Get("RateLimit-Policy")
	}
	assert.Equal(t, `"per-client";r=59;t=59 of "per-client";q=60;w=60`, limit())
	replace(t, path, `"60/m"`, `"60/h"`)
	hangUp(t)
	until(t, func() bool { return strings.Contains(limit(), "q=60;w=3600") })
	replace(t, path, `"60/h"`, `"none"`)
	hangUp(t)
	until(t, func() bool { return logged.has("the file is refused") })
	assert.Contains(t, limit(), "q=60;w=3600", "a file that is wrong changes nothing")
	replace(t, path, `"none"`, `"30/h"`)
	until(t, func() bool { return strings.Contains(limit(), "q=30;w=3600") })
}

// hangUp sends this process a SIGHUP.
func hangUp(t testing.TB) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGHUP))
}

// A gate is a clock that can be held.
type gate struct {
	*ratelimit.FakeClock
	armed   atomic.Bool
	entered chan struct{}
	open    chan struct{}
}

func (g *gate) Now() time.Time {
	if g.armed.Swap(false) {
		close(g.entered)
		<-g.open
	}
	return g.FakeClock.Now()
}

// TestStop ends the program while it decides on a request. The request is answered, and no further
// one is taken.
func TestStop(t *testing.T) {
	clock := &gate{FakeClock: newClock(), entered: make(chan struct{}), open: make(chan struct{})}
	a := start(t, nil, ratelimit.WithClock(clock))
	clock.armed.Store(true)
	answered := make(chan int, 1)
	go func() {
		defer close(answered) // also if the request is lost
		res, _ := a.ask(t, client(t), http.MethodGet, "/items/7")
		answered <- res.StatusCode
	}()
	<-clock.entered
	stopped := make(chan error)
	go func() { stopped <- a.stop() }()
	until(t, func() bool {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(a.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	close(clock.open)
	assert.Equal(t, http.StatusOK, <-answered)
	assert.NoError(t, <-stopped)
}

// TestMistakes starts the program with what it cannot use.
func TestMistakes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "limits.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"rules": [{"endpoint": "/login", "rate": "5/m", "algorithm": "FixedWindows"}]}`), 0o600))
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = busy.Close() }()
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"-limits", "none.json"}, "none.json"},
		{[]string{"-limits", bad}, bad + `:1:50: rules[0].algorithm is "FixedWindows": unknown algorithm; did you mean "FixedWindow"?`},
		{[]string{"-proxies", "10.0.0.0"}, "10.0.0.0"},
		{[]string{"-proxies", "0.0.0.0/0"}, "proxies.trusted[0]"},
		{[]string{"-store", "localhost"}, "-store must be a URL that begins with redis:// or postgres://"},
		{[]string{"-store", "redis://127.0.0.1:1/x"}, "redis"},
		{[]string{"-store", "redis://127.0.0.1:1", "-replicas", "0"}, "local"},
		{[]string{"-store", "redis://127.0.0.1:1", "-timeout", "0s"}, "timeout is 0s"},
		{[]string{"-store", "postgres://127.0.0.1:x/shop"}, "port"},
		{[]string{"-store", "postgres://127.0.0.1:1/shop"}, "pgstore: cannot connect"},
		{[]string{"-listen", busy.Addr().String(), "-metrics", "127.0.0.1:0"}, "in use"},
		{[]string{"-listen", "127.0.0.1:0", "-metrics", busy.Addr().String()}, "in use"},
		{[]string{"limits.json"}, `unknown argument "limits.json"`},
	} {
		assert.ErrorContains(t, run(t.Context(), row.args, io.Discard), row.want, row.args)
	}
}

// copied returns the path of a copy of a file.
func copied(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// replace replaces a text that the file at path has, by another file in its place.
func replace(t testing.TB, path, old, text string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), old)
	save(t, path, strings.Replace(string(data), old, text, 1))
}

// save puts another file in the place of that at path.
func save(t testing.TB, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// until calls is until it returns true, and fails the test after 30 seconds.
func until(t testing.TB, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			require.Fail(t, "it has not become so within 30 s")
		}
	}
}
