package fiberlimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/fiberlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// These tests are about what Fiber does in a way of its own. The tests that all frameworks share are in
// internal/verify/frameworks.

// limited returns a limiter with a default rule of n requests a minute, and these rules.
func limited(t testing.TB, n int, rules ...ratelimit.Rule) *ratelimit.RateLimiter {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	l, err := ratelimit.New(rules, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l
}

func made(t testing.TB, l *ratelimit.RateLimiter, c fiberlimit.Config) *fiberlimit.Middleware {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m, err := fiberlimit.New(l, c)
	require.NoError(t, err)
	return m
}

// A server is an app that listens.
type server struct {
	url    string
	client *http.Client
}

// serve lets the app listen on a network, "tcp" or "unix".
func serve(t testing.TB, app *fiber.App, network string) server {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address) //nolint:noctx // a test listens for as long as it runs
	require.NoError(t, err)
	go func() { _ = app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = app.ShutdownWithTimeout(time.Second) // Fiber would wait for a connection that the client has made and not used
	})
	return server{"http://fiber", &http.Client{Transport: transport}}
}

// ask returns the response to a request with header lines in pairs, and its body.
func (s server) ask(t testing.TB, method, path string, header ...string) (res *http.Response, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err = s.client.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res, string(text)
}

func (s server) get(t testing.TB, path string, header ...string) int {
	t.Helper()
	res, _ := s.ask(t, http.MethodGet, path, header...) //nolint:bodyclose // ask closes it
	return res.StatusCode
}

// left returns how many requests the client with this name has left.
func left(t testing.TB, l *ratelimit.RateLimiter, client string) int {
	t.Helper()
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: client})
	require.NoError(t, err)
	return res.Remaining
}

func hello(c fiber.Ctx) error { return c.SendString("hello") }

func TestHandler(t *testing.T) {
	app := fiber.New()
	app.Use(fiberlimit.Handler(limited(t, 1)))
	app.Get("/", hello)
	s := serve(t, app, "tcp")
	_, body := s.ask(t, http.MethodGet, "/") //nolint:bodyclose // ask closes it
	assert.Equal(t, "hello", body)
	assert.Equal(t, 429, s.get(t, "/"))
	assert.Panics(t, func() { fiberlimit.Handler(nil) })
}

func TestNew(t *testing.T) {
	_, err := fiberlimit.New(nil, fiberlimit.Config{IPv6Bits: 7, Jitter: 2})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	for _, text := range []string{"limiter", "ipv6Bits", "jitter"} {
		assert.ErrorContains(t, err, text)
	}
	rule := ratelimit.Rule{Endpoint: "GET /items/:id", Rate: ratelimit.PerMinute(1)}
	_, err = fiberlimit.New(limited(t, 1, rule), fiberlimit.Config{})
	assert.ErrorContains(t, err, "Pattern")
	_, err = fiberlimit.New(limited(t, 1, rule), fiberlimit.Config{Endpoint: fiberlimit.Pattern()})
	assert.NoError(t, err)
	assert.Panics(t, func() { fiberlimit.APIKey("", nil) })
}

func TestCheck(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "misspelled", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1)},
		{Name: "items", Endpoint: "/items/:id", Rate: ratelimit.PerMinute(1)},
		{Name: "admin", Endpoint: "/admin/*", Rate: ratelimit.PerMinute(1)},
		{Name: "other", Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)},
	}
	app := fiber.New()
	app.Get("/items/:id", hello)
	app.Use("/admin/", hello)
	m := made(t, limited(t, 1, rules...), fiberlimit.Config{})
	const want = `httplimit: rule "misspelled" limits nothing: no route gives its endpoint "/items/{id}"
httplimit: rule "admin" limits nothing: no route gives its endpoint "/admin/*"`
	assert.EqualError(t, m.Check(app), want)
	check := m.CheckRules(app)
	assert.EqualError(t, check(rules, nil), want)
	app.Get("/admin/users", hello)
	assert.NoError(t, check(rules[1:], nil), "the routes are read at each check")
}

// TestEndpoints reads which endpoints requests have, of a middleware that the app uses and of one at the routes.
func TestEndpoints(t *testing.T) {
	rows := []struct{ method, path, want, pattern string }{
		{"GET", "/items/7", "/items/:id", "GET /items/:id"},
		{"HEAD", "/items/7", "/items/:id", "GET /items/:id"},
		{"DELETE", "/items/7", "unmatched", "unmatched"},
		{"GET", "/items/7/", "/items/:id", "GET /items/:id"},
		{"GET", "/ITEMS/7", "/items/:id", "GET /items/:id"},
		{"GET", "/any", "/any", "GET /any"},
		{"PATCH", "/any", "/any", "PATCH /any"},
		{"GET", "/api/users/7", "/api/users/:name?", "GET /api/users/:name?"},
		{"GET", "/api/users", "/api/users/:name?", "GET /api/users/:name?"},
		{"GET", "/sub/one", "/sub/one", "GET /sub/one"},
		{"GET", "/files/a/b", "/files/*", "GET /files/*"},
		{"GET", "/numbers/7", "/numbers/:n<int>", "GET /numbers/:n<int>"},
		{"GET", "/numbers/x", "/numbers/:word", "GET /numbers/:word"},
		{"GET", "/nothing", "unmatched", "unmatched"},
		{"GET", "/rewritten", "/any", "GET /any"},
	}
	for _, pattern := range []bool{false, true} {
		for _, within := range []bool{false, true} {
			got := ""
			l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1000), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
				got = r.Endpoint
				return ratelimit.Rate{}, false
			}})
			require.NoError(t, err)
			config := fiberlimit.Config{}
			if pattern {
				config.Endpoint = fiberlimit.Pattern()
			}
			m := made(t, l, config)
			app := fiber.New()
			app.Use(func(c fiber.Ctx) error {
				if c.Path() == "/rewritten" {
					c.Path("/any")
				}
				return c.Next()
			})
			limit := func(c fiber.Ctx) error { return c.Next() }
			if within {
				limit = m.Handler
			} else {
				app.Use(m.Handler)
			}
			sub := fiber.New()
			sub.Get("/one", limit, hello)
			app.Get("/items/:id", limit, hello)
			app.All("/any", limit, hello)
			app.Group("/api").Get("/users/:name?", limit, hello)
			app.Use("/sub", sub)
			app.Get("/files/*", limit, hello)
			app.Get("/numbers/:n<int>", limit, hello)
			app.Get("/numbers/:word", limit, hello)
			s := serve(t, app, "tcp")
			for _, row := range rows {
				want := row.want
				if pattern {
					want = row.pattern
				}
				if within && want == "unmatched" {
					continue
				}
				got = ""
				s.ask(t, row.method, row.path) //nolint:bodyclose // ask closes it
				assert.Equal(t, want, got, "%s %s, at the routes: %v", row.method, row.path, within)
			}
		}
	}
}

// TestNewRoutes adds a route while the app serves.
func TestNewRoutes(t *testing.T) {
	app := fiber.New()
	app.Use(made(t, limited(t, 100, ratelimit.Rule{Endpoint: "/late", Rate: ratelimit.PerMinute(1)}), fiberlimit.Config{}).Handler)
	app.Get("/early", hello)
	s := serve(t, app, "tcp")
	assert.Equal(t, 200, s.get(t, "/early"))
	app.Get("/late", hello)
	app.RebuildTree()
	assert.Equal(t, 200, s.get(t, "/late"))
	assert.Equal(t, 429, s.get(t, "/late"))
}

// TestTwoApps proves that a Middleware of two apps uses the routes of the app that has got the request.
func TestTwoApps(t *testing.T) {
	m := made(t, limited(t, 100, ratelimit.Rule{Endpoint: "/:page", Rate: ratelimit.PerMinute(1)}), fiberlimit.Config{})
	var servers []server
	for _, path := range []string{"/:page", "/exact"} {
		app := fiber.New()
		app.Use(m.Handler)
		app.Get(path, hello)
		servers = append(servers, serve(t, app, "tcp"))
	}
	for range 2 {
		assert.Equal(t, 200, servers[1].get(t, "/exact"), "no rule has this endpoint")
	}
	assert.Equal(t, 200, servers[0].get(t, "/exact"))
	assert.Equal(t, 200, servers[1].get(t, "/exact"))
	assert.Equal(t, 429, servers[0].get(t, "/exact"))
}

// TestErrors has handlers that fail. Config.Count gets the status that the client gets.
func TestErrors(t *testing.T) {
	for name, row := range map[string]struct {
		handle fiber.Handler
		status int
	}{
		"a fiber.Error":  {func(fiber.Ctx) error { return fiber.ErrUnauthorized }, 401},
		"another error":  {func(fiber.Ctx) error { return errors.New("no") }, 500},
		"an own status":  {func(fiber.Ctx) error { return errTeapot }, 418},
		"it fails, too":  {func(fiber.Ctx) error { return errHopeless }, 500},
		"a panic":        {func(fiber.Ctx) error { panic("a bug") }, 500},
		"status alone":   {func(c fiber.Ctx) error { return c.SendStatus(204) }, 204},
		"nothing":        {func(fiber.Ctx) error { return nil }, 200},
		"no such route":  {nil, 404},
		"a second limit": {func(c fiber.Ctx) error { return c.Next() }, 404},
	} {
		t.Run(name, func(t *testing.T) {
			l, got := limited(t, 10), 0
			m := made(t, l, fiberlimit.Config{Count: func(_ fiber.Ctx, status int) bool {
				got = status
				return false
			}})
			app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
				switch {
				case errors.Is(err, errTeapot):
					return c.SendStatus(fiber.StatusTeapot)
				case errors.Is(err, errHopeless):
					return err
				}
				return fiber.DefaultErrorHandler(c, err)
			}})
			app.Use(recovery.New(), m.Handler)
			if row.handle != nil {
				app.Get("/", row.handle)
			}
			assert.Equal(t, row.status, serve(t, app, "tcp").get(t, "/"))
			assert.Equal(t, row.status, got)
			assert.Equal(t, 10, left(t, l, "ip:127.0.0.1"))
		})
	}
}

var errTeapot, errHopeless = errors.New("teapot"), errors.New("hopeless")

// TestDenied has a Denied that returns an error, for which Fiber's ErrorHandler answers.
func TestDenied(t *testing.T) {
	m := made(t, limited(t, 1), fiberlimit.Config{Denied: func(fiber.Ctx, *httplimit.Info) error { return fiber.ErrTooManyRequests }})
	app := fiber.New()
	app.Use(m.Handler)
	app.Get("/", hello)
	s := serve(t, app, "tcp")
	s.get(t, "/")
	res, body := s.ask(t, http.MethodGet, "/") //nolint:bodyclose // ask closes it
	assert.Equal(t, 429, res.StatusCode)
	assert.Equal(t, "60", res.Header.Get("Retry-After"))
	assert.Equal(t, "Too Many Requests", body)
}

// TestUnix has clients of a unix socket: they have no address, unless a trusted proxy tells it.
func TestUnix(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		l := limited(t, 10)
		app := fiber.New()
		app.Use(made(t, l, fiberlimit.Config{Proxies: httplimit.Proxies{Unix: trusted}}).Handler)
		app.Get("/", hello)
		assert.Equal(t, 200, serve(t, app, "unix").get(t, "/", "X-Forwarded-For", "203.0.113.1"))
		if trusted {
			assert.Equal(t, 9, left(t, l, "ip:203.0.113.1"))
		} else {
			assert.Equal(t, 9, left(t, l, "ip:local"))
		}
	}
}

// TestFieldNames has an app that keeps the names of header fields as clients have written them.
func TestFieldNames(t *testing.T) {
	l := limited(t, 10)
	m := made(t, l, fiberlimit.Config{Proxies: httplimit.Proxies{Hops: 1}})
	app := fiber.New(fiber.Config{DisableHeaderNormalizing: true})
	app.Use(m.Handler)
	app.Get("/", hello)
	s := serve(t, app, "tcp")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
	require.NoError(t, err)
	r.Header["x-forwarded-FOR"] = []string{"203.0.113.1"}
	res, err := s.client.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, 9, left(t, l, "ip:203.0.113.1"))
}

// TestContext gives the limiter the context of the request, and handlers the one with the Info.
func TestContext(t *testing.T) {
	type key struct{}
	var got []any
	l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(5)},
		ratelimit.WithObserver(observer(func(ctx context.Context) { got = append(got, ctx.Value(key{})) })))
	require.NoError(t, err)
	first, second := made(t, l, fiberlimit.Config{Info: true}), made(t, l, fiberlimit.Config{})
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		c.SetContext(context.WithValue(c.Context(), key{}, "outer"))
		return c.Next()
	}, first.Handler, func(c fiber.Ctx) error {
		c.SetContext(context.WithValue(c.Context(), key{}, "inner"))
		return c.Next()
	}, second.Handler)
	app.Get("/", func(c fiber.Ctx) error {
		info, ok := fiberlimit.Info(c)
		assert.True(t, ok)
		assert.Equal(t, 4, info.Result.Remaining)
		assert.Equal(t, "inner", c.Context().Value(key{}))
		return nil
	})
	s := serve(t, app, "tcp")
	res, _ := s.ask(t, http.MethodGet, "/") //nolint:bodyclose // ask closes it
	assert.Equal(t, 200, res.StatusCode)
	assert.Equal(t, []any{"outer", "inner"}, got)
	assert.Equal(t, []string{`"per-client";r=4;t=48, "per-client";r=3;t=36`}, res.Header["Ratelimit"], "both have charged")
}

type observer func(context.Context)

func (o observer) Observe(ctx context.Context, _ ratelimit.Decision) { o(ctx) }

// TestEnded has a context that has ended: 503, and nothing is charged.
func TestEnded(t *testing.T) {
	l := limited(t, 10)
	app := fiber.New()
	app.Use(func(c fiber.Ctx) error {
		ctx, cancel := context.WithCancel(c.Context())
		cancel()
		c.SetContext(ctx)
		return c.Next()
	}, made(t, l, fiberlimit.Config{}).Handler)
	app.Get("/", hello)
	assert.Equal(t, 503, serve(t, app, "tcp").get(t, "/"))
	assert.Equal(t, 10, left(t, l, "ip:127.0.0.1"))
}

// TestMemory sends many requests of many users at the same time over few connections. Fiber reuses the memory of the
// names, and a Middleware that of its exchanges: no user may be charged for another.
func TestMemory(t *testing.T) {
	const users, each = 50, 40
	l := limited(t, 1000)
	m := made(t, l, fiberlimit.Config{Info: true, Client: func(c fiber.Ctx) (client, tier string, ok bool) {
		return c.Get("X-User"), "", true
	}})
	app := fiber.New()
	app.Use(m.Handler)
	app.Get("/", func(c fiber.Ctx) error {
		info, _ := fiberlimit.Info(c)
		return c.SendString(info.Request.Client)
	})
	s := serve(t, app, "tcp")
	var running sync.WaitGroup
	for i := range users {
		running.Go(func() {
			user := fmt.Sprintf("user-%d", i)
			for range each {
				_, body := s.ask(t, http.MethodGet, "/", "X-User", user) //nolint:bodyclose // ask closes it
				assert.Equal(t, user, body)
			}
		})
	}
	running.Wait()
	for i := range users {
		assert.Equal(t, 1000-each, left(t, l, fmt.Sprintf("user-%d", i)))
	}
}

// TestKept keeps an Info and asks again when the middleware has returned. Fiber reuses the memory of the first name.
func TestKept(t *testing.T) {
	l := limited(t, 10, ratelimit.Rule{Name: "mails", Rate: ratelimit.PerMinute(1)})
	m := made(t, l, fiberlimit.Config{Info: true, Client: func(c fiber.Ctx) (client, tier string, ok bool) {
		return c.Get("X-User"), c.Get("X-Tier"), true
	}, Endpoint: func(c fiber.Ctx) string { return c.Get("X-Place") }})
	app := fiber.New()
	var kept []*httplimit.Info
	app.Use(func(c fiber.Ctx) error {
		if err := c.Next(); err != nil {
			return err
		}
		_, err := m.Allow(c, ratelimit.Request{Rules: []string{"mails"}})
		return err
	}, m.Handler)
	app.Get("/", func(c fiber.Ctx) error {
		info, _ := fiberlimit.Info(c)
		kept = append(kept, info)
		return nil
	})
	s := serve(t, app, "tcp")
	assert.Equal(t, 200, s.get(t, "/", "X-User", "alice", "X-Tier", "gold", "X-Place", "north"))
	assert.Equal(t, 200, s.get(t, "/", "X-User", "bobby", "X-Tier", "free", "X-Place", "south"))
	assert.Equal(t, 429, s.get(t, "/", "X-User", "alice", "X-Tier", "gold"))
	assert.Equal(t, "alice", kept[0].Request.Client)
	assert.Equal(t, "gold", kept[0].Request.Tier)
	assert.Equal(t, "north", kept[0].Request.Endpoint)
	assert.Equal(t, "bobby", kept[1].Request.Client)
}

func TestClient(t *testing.T) {
	l := limited(t, 1)
	m := made(t, l, fiberlimit.Config{})
	app := fiber.New()
	app.Use(m.Handler)
	app.Get("/", hello)
	s := serve(t, app, "tcp")
	assert.Equal(t, 200, s.get(t, "/"))
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: m.Client(netip.MustParseAddr("127.0.0.1"))}))
	assert.Equal(t, 200, s.get(t, "/"))
	assert.Equal(t, 429, s.get(t, "/"))
}
