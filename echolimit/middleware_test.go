package echolimit_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/echolimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// These tests are about what Echo does in a way of its own. The tests that all frameworks share are in
// internal/verify/frameworks.

// limited returns a limiter with a default rule of n requests a minute, and these rules.
func limited(t testing.TB, n int, rules ...ratelimit.Rule) *ratelimit.RateLimiter {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	l, err := ratelimit.New(rules, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l
}

func made(t testing.TB, l *ratelimit.RateLimiter, c echolimit.Config) *echolimit.Middleware {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m, err := echolimit.New(l, c)
	require.NoError(t, err)
	return m
}

// quiet returns an Echo that logs nothing.
func quiet() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	return e
}

// get returns the response of h to a GET request from 127.0.0.1.
func get(t testing.TB, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, h, http.MethodGet, path)
}

func ask(t testing.TB, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.RemoteAddr = "127.0.0.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// left returns how many requests the address of the tests has left.
func left(t testing.TB, l *ratelimit.RateLimiter) int {
	t.Helper()
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: "ip:127.0.0.1", IP: "127.0.0.1"})
	require.NoError(t, err)
	return res.Remaining
}

func hello(c *echo.Context) error { return c.String(http.StatusOK, "hello") }

func TestHandler(t *testing.T) {
	e := quiet()
	e.Use(echolimit.Handler(limited(t, 1)))
	e.GET("/", hello)
	assert.Equal(t, "hello", get(t, e, "/").Body.String())
	assert.Equal(t, 429, get(t, e, "/").Code)
	assert.Panics(t, func() { echolimit.Handler(nil) })
}

func TestNew(t *testing.T) {
	_, err := echolimit.New(nil, echolimit.Config{IPv6Bits: 7, Jitter: 2})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	for _, text := range []string{"limiter", "ipv6Bits", "jitter"} {
		assert.ErrorContains(t, err, text)
	}
	rule := ratelimit.Rule{Endpoint: "GET /items/:id", Rate: ratelimit.PerMinute(1)}
	_, err = echolimit.New(limited(t, 1, rule), echolimit.Config{})
	assert.ErrorContains(t, err, "Pattern")
	_, err = echolimit.New(limited(t, 1, rule), echolimit.Config{Endpoint: echolimit.Pattern})
	assert.NoError(t, err)
}

func TestCheck(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "misspelled", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1)},
		{Name: "items", Endpoint: "/items/:id", Rate: ratelimit.PerMinute(1)},
		{Name: "admin", Endpoint: "/admin/*", Rate: ratelimit.PerMinute(1)},
		{Name: "other", Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)},
	}
	e := quiet()
	e.GET("/items/:id", hello)
	e.RouteNotFound("/admin/*", hello)
	m := made(t, limited(t, 1, rules...), echolimit.Config{})
	const want = `httplimit: rule "misspelled" limits nothing: no route gives its endpoint "/items/{id}"
httplimit: rule "admin" limits nothing: no route gives its endpoint "/admin/*"`
	assert.EqualError(t, m.Check(e), want)
	check := m.CheckRules(e)
	assert.EqualError(t, check(rules, nil), want)
	e.GET("/admin/users", hello)
	assert.NoError(t, check(rules[1:], nil), "the routes are read at each check")
}

// TestErrors has handlers that fail in each way that Echo has. Config.Count gets the status that the client gets.
func TestErrors(t *testing.T) {
	for name, row := range map[string]struct {
		handle echo.HandlerFunc
		outer  echo.MiddlewareFunc
		status int
		counts int // the status that Count gets; 0 if it gets none
	}{
		"an HTTPError":       {func(*echo.Context) error { return echo.ErrUnauthorized }, nil, 401, 401},
		"another error":      {func(*echo.Context) error { return errors.New("no") }, nil, 500, 500},
		"answered, then err": {func(c *echo.Context) error { _ = c.NoContent(202); return errors.New("no") }, nil, 202, 202},
		"a panic":            {func(*echo.Context) error { panic("a bug") }, middleware.Recover(), 500, 500},
		"an outer middleware answers": {func(*echo.Context) error { return errors.New("no") }, func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				if next(c) != nil {
					return c.NoContent(http.StatusTeapot)
				}
				return nil
			}
		}, 418, 418},
		"nobody answers": {func(*echo.Context) error { return errors.New("no") }, func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				_ = next(c)
				return nil
			}
		}, 200, 0},
		"a JSON answer": {func(c *echo.Context) error { return c.JSON(201, "x") }, nil, 201, 201},
		"nothing":       {func(*echo.Context) error { return nil }, nil, 200, 200},
	} {
		t.Run(name, func(t *testing.T) {
			l, got := limited(t, 10), 0
			m := made(t, l, echolimit.Config{Count: func(_ *echo.Context, status int) bool {
				got = status
				return false
			}})
			e := quiet()
			if row.outer != nil {
				e.Use(row.outer)
			}
			e.Use(m.Handler)
			e.GET("/", row.handle)
			assert.Equal(t, row.status, get(t, e, "/").Code)
			assert.Equal(t, row.counts, got)
			if row.counts == 0 {
				assert.Equal(t, 9, left(t, l), "it stays charged")
			} else {
				assert.Equal(t, 10, left(t, l))
			}
		})
	}
}

// TestReplacedResponse has an outer middleware that replaces Echo's Response by a writer without Unwrap.
func TestReplacedResponse(t *testing.T) {
	l, got := limited(t, 10), 0
	m := made(t, l, echolimit.Config{Count: func(_ *echo.Context, status int) bool {
		got = status
		return false
	}})
	e := quiet()
	e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.SetResponse(opaque{c.Response()})
			return next(c)
		}
	}, m.Handler)
	e.GET("/", func(c *echo.Context) error { return c.String(http.StatusAccepted, "hello") })
	assert.Equal(t, 202, get(t, e, "/").Code)
	assert.Equal(t, 202, got)
	assert.Equal(t, 10, left(t, l))
}

type opaque struct{ w http.ResponseWriter }

func (o opaque) Header() http.Header         { return o.w.Header() }
func (o opaque) Write(p []byte) (int, error) { return o.w.Write(p) }
func (o opaque) WriteHeader(status int)      { o.w.WriteHeader(status) }

// TestHijack takes a connection over: Count gets 101.
func TestHijack(t *testing.T) {
	statuses := make(chan int, 2)
	m := made(t, limited(t, 10), echolimit.Config{Count: func(_ *echo.Context, status int) bool {
		statuses <- status
		return true
	}})
	e := quiet()
	e.Use(m.Handler)
	e.GET("/", func(c *echo.Context) error {
		conn, _, err := http.NewResponseController(c.Response()).Hijack()
		if err != nil {
			return err
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntaken")
		return conn.Close()
	})
	s := httptest.NewServer(e)
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, "taken", string(body))
	assert.Equal(t, http.StatusSwitchingProtocols, <-statuses)
	assert.Empty(t, statuses)
}

// TestDenied has a Denied that returns an error, for which Echo's HTTPErrorHandler answers.
func TestDenied(t *testing.T) {
	m := made(t, limited(t, 1), echolimit.Config{Denied: func(*echo.Context, *httplimit.Info) error { return echo.ErrTooManyRequests }})
	e := quiet()
	e.Use(m.Handler)
	e.GET("/", hello)
	assert.Equal(t, 200, get(t, e, "/").Code)
	denied := get(t, e, "/")
	assert.Equal(t, 429, denied.Code)
	assert.Equal(t, "60", denied.Header().Get("Retry-After"))
	assert.JSONEq(t, `{"message":"Too Many Requests"}`, denied.Body.String())
}

// TestEndpoints reads which endpoints requests have. Clients cannot choose one, by the path or by the method.
func TestEndpoints(t *testing.T) {
	for _, row := range []struct {
		pattern      bool
		method, path string
		want         string
	}{
		{false, "GET", "/items/7", "/items/:id"},
		{true, "GET", "/items/7", "GET /items/:id"},
		{false, "DELETE", "/items/7", "unmatched"},
		{true, "DELETE", "/items/7", "unmatched"},
		{false, "BREW", "/any", "/any"},
		{true, "BREW", "/any", "/any"},
		{true, "GET", "/any", "/any"},
		{false, "GET", "/nothing", "unmatched"},
		{true, "GET", "/nothing", "unmatched"},
		{false, "GET", "/group/nothing", "unmatched"},
		{true, "GET", "/group/nothing", "unmatched"},
		{false, "GET", "/group/one", "/group/one"},
	} {
		got := ""
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
			got = r.Endpoint
			return ratelimit.Rate{}, false
		}})
		require.NoError(t, err)
		config := echolimit.Config{}
		if row.pattern {
			config.Endpoint = echolimit.Pattern
		}
		e := quiet()
		e.Use(made(t, l, config).Handler)
		e.GET("/items/:id", hello)
		e.Any("/any", hello)
		group := e.Group("/group", func(next echo.HandlerFunc) echo.HandlerFunc { return next })
		group.GET("/one", hello)
		ask(t, e, row.method, row.path)
		assert.Equal(t, row.want, got, row)
	}
}

// TestAutomaticHead has an Echo that answers HEAD by the route for GET: Pattern returns the name of this route, so that HEAD
// does not evade its rule.
func TestAutomaticHead(t *testing.T) {
	l := limited(t, 100, ratelimit.Rule{Endpoint: "GET /items/:id", Rate: ratelimit.PerMinute(1)})
	e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(made(t, l, echolimit.Config{Endpoint: echolimit.Pattern}).Handler)
	e.GET("/items/:id", hello)
	assert.Equal(t, 200, ask(t, e, http.MethodHead, "/items/7").Code)
	assert.Equal(t, 429, ask(t, e, http.MethodHead, "/items/7").Code)
	assert.Equal(t, 429, ask(t, e, http.MethodGet, "/items/7").Code)
}

// TestPre has the middleware before the router. The log says what is wrong.
func TestPre(t *testing.T) {
	var log strings.Builder
	e := quiet()
	e.Pre(made(t, limited(t, 1), echolimit.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}).Handler)
	e.GET("/", hello)
	get(t, e, "/")
	assert.Contains(t, log.String(), "unmatched")
}

// TestGroup limits a group and a single route.
func TestGroup(t *testing.T) {
	l := limited(t, 100, ratelimit.Rule{Endpoint: "/api/items/:id", Rate: ratelimit.PerMinute(1)},
		ratelimit.Rule{Endpoint: "/login", Rate: ratelimit.PerMinute(1)})
	m := made(t, l, echolimit.Config{})
	e := quiet()
	e.Group("/api", m.Handler).GET("/items/:id", hello)
	e.GET("/login", hello, m.Handler)
	e.GET("/free", hello)
	for _, path := range []string{"/api/items/1", "/login"} {
		assert.Equal(t, 200, get(t, e, path).Code)
		assert.Equal(t, 429, get(t, e, path).Code)
	}
	for range 200 {
		require.Equal(t, 200, get(t, e, "/free").Code)
	}
}

// TestLayers has two middlewares: each charges, and the header fields show the rules of both.
func TestLayers(t *testing.T) {
	byUser, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-user", Rate: ratelimit.PerMinute(1)})
	require.NoError(t, err)
	e := quiet()
	e.Use(made(t, limited(t, 5), echolimit.Config{Count: func(*echo.Context, int) bool { return true }}).Handler,
		func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				c.Set("user", "alice")
				return next(c)
			}
		},
		made(t, byUser, echolimit.Config{
			Count: func(*echo.Context, int) bool { return true },
			Client: func(c *echo.Context) (client, tier string, ok bool) {
				client, ok = c.Get("user").(string)
				return client, "", ok
			},
		}).Handler)
	e.GET("/", hello)
	assert.Equal(t, []string{`"per-client";q=5;w=60`, `"per-user";q=1;w=60`}, get(t, e, "/").Header()["Ratelimit-Policy"])
	denied := get(t, e, "/")
	assert.Equal(t, 429, denied.Code)
	assert.Contains(t, denied.Body.String(), `"violated-policies":["per-user"]`)
}

func TestClient(t *testing.T) {
	l := limited(t, 1)
	m := made(t, l, echolimit.Config{})
	e := quiet()
	e.Use(m.Handler)
	e.GET("/", hello)
	assert.Equal(t, 200, get(t, e, "/").Code)
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: m.Client(netip.MustParseAddr("127.0.0.1"))}))
	assert.Equal(t, 200, get(t, e, "/").Code)
	assert.Equal(t, 429, get(t, e, "/").Code)
}
