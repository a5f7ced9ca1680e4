package ginlimit_test

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ginlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// These tests are about what gin does in a way of its own. The tests that all frameworks share are in
// internal/verify/frameworks.

func init() { gin.SetMode(gin.ReleaseMode) }

// limited returns a limiter with a default rule of n requests a minute, and these rules.
func limited(t testing.TB, n int, rules ...ratelimit.Rule) *ratelimit.RateLimiter {
	t.Helper()
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	l, err := ratelimit.New(rules, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return l
}

func made(t testing.TB, l *ratelimit.RateLimiter, c ginlimit.Config) *ginlimit.Middleware {
	t.Helper()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m, err := ginlimit.New(l, c)
	require.NoError(t, err)
	return m
}

// serve starts a server, and returns its URL.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// get returns the status and the body of a response.
func get(t testing.TB, url string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res.StatusCode, string(text)
}

// left returns how many requests the address of the tests has left.
func left(t testing.TB, l *ratelimit.RateLimiter) int {
	t.Helper()
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: "ip:127.0.0.1", IP: "127.0.0.1"})
	require.NoError(t, err)
	return res.Remaining
}

func TestHandler(t *testing.T) {
	router := gin.New()
	router.Use(ginlimit.Handler(limited(t, 1)))
	router.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	url := serve(t, router)
	status, body := get(t, url)
	assert.Equal(t, 200, status)
	assert.Equal(t, "hello", body)
	status, _ = get(t, url)
	assert.Equal(t, 429, status)
	assert.Panics(t, func() { ginlimit.Handler(nil) })
}

func TestNew(t *testing.T) {
	_, err := ginlimit.New(nil, ginlimit.Config{IPv6Bits: 7, Jitter: 2, BusyRetry: -1, Headers: 9})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	for _, text := range []string{"limiter", "ipv6Bits", "jitter", "busyRetry", "headers"} {
		assert.ErrorContains(t, err, text)
	}
	_, err = ginlimit.New(limited(t, 1, ratelimit.Rule{Endpoint: "GET /items/:id", Rate: ratelimit.PerMinute(1)}), ginlimit.Config{})
	assert.ErrorContains(t, err, "Pattern")
	_, err = ginlimit.New(limited(t, 1, ratelimit.Rule{Endpoint: "GET /items/:id", Rate: ratelimit.PerMinute(1)}),
		ginlimit.Config{Endpoint: ginlimit.Pattern})
	require.NoError(t, err)
	custom := ratelimit.Rule{Name: "custom", Limiter: never{}}
	_, err = ginlimit.New(limited(t, 1, custom), ginlimit.Config{Count: func(*gin.Context, int) bool { return true }})
	assert.ErrorContains(t, err, "gives no units back")
}

// A never is a custom limiter that denies.
type never struct{ ratelimit.Limiter }

func TestCheck(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "misspelled", Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(1)},
		{Endpoint: "/items/:id", Rate: ratelimit.PerMinute(1)},
		{Endpoint: "/item*", Rate: ratelimit.PerMinute(1)},
		{Name: "admin", Endpoint: "/admin/*", Rate: ratelimit.PerMinute(1)},
		{Endpoint: "unmatched", Rate: ratelimit.PerMinute(1)},
		{Name: "by name", Rate: ratelimit.PerMinute(1)},
	}
	router := gin.New()
	router.GET("/items/:id", func(*gin.Context) {})
	m := made(t, limited(t, 1, rules...), ginlimit.Config{})
	const want = `httplimit: rule "misspelled" limits nothing: no route gives its endpoint "/items/{id}"
httplimit: rule "admin" limits nothing: no route gives its endpoint "/admin/*"`
	assert.EqualError(t, m.Check(router), want)
	check := m.CheckRules(router)
	assert.EqualError(t, check(rules, nil), want)
	router.GET("/admin/users", func(*gin.Context) {})
	assert.NoError(t, check(rules[1:], nil), "the routes are read at each check")
	own := made(t, limited(t, 1, rules...), ginlimit.Config{Endpoint: func(*gin.Context) string { return "any" }})
	assert.NoError(t, own.Check(router))
}

// TestErrors has handlers that fail, and handlers further out that answer for them, or do not.
func TestErrors(t *testing.T) {
	l := limited(t, 10)
	m := made(t, l, ginlimit.Config{Count: func(_ *gin.Context, status int) bool { return status >= 400 }})
	router := gin.New()
	answer := http.StatusUnauthorized
	router.Use(func(c *gin.Context) {
		if c.Next(); len(c.Errors) > 0 && answer != 0 {
			c.AbortWithStatusJSON(answer, gin.H{"error": c.Errors.String()})
		}
	}, m.Handler())
	router.GET("/", func(c *gin.Context) { _ = c.Error(errors.New("no")) })
	router.GET("/aborts", func(c *gin.Context) { _ = c.AbortWithError(http.StatusForbidden, errors.New("no")) })
	url := serve(t, router)
	status, _ := get(t, url)
	assert.Equal(t, 401, status)
	assert.Equal(t, 9, left(t, l), "the status that the client got counts")
	answer = http.StatusOK
	get(t, url)
	assert.Equal(t, 9, left(t, l), "the handler of errors has answered 200")
	get(t, url+"/aborts")
	assert.Equal(t, 8, left(t, l), "gin has sent 403 before")
	answer = 0
	get(t, url)
	assert.Equal(t, 7, left(t, l), "nobody has answered for the error, so it stays charged")
}

// TestDenied has a Denied that returns an error, which a handler further out gets.
func TestDenied(t *testing.T) {
	no := errors.New("slow down")
	m := made(t, limited(t, 1), ginlimit.Config{Denied: func(*gin.Context, *httplimit.Info) error { return no }})
	router := gin.New()
	var got error
	router.Use(func(c *gin.Context) {
		if c.Next(); len(c.Errors) > 0 {
			got = c.Errors[0].Err
			c.String(http.StatusTooManyRequests, "later")
		}
	}, m.Handler())
	router.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	url := serve(t, router)
	get(t, url)
	status, body := get(t, url)
	assert.Equal(t, 429, status)
	assert.Equal(t, "later", body)
	assert.Equal(t, no, got)
}

// TestWriter has handlers that begin their answers in each way that gin has, and reads the status that Count gets and
// what is left while the handler runs.
func TestWriter(t *testing.T) {
	for name, row := range map[string]struct {
		handle gin.HandlerFunc
		status int // that Count gets
		early  bool
	}{
		"Write":           {func(c *gin.Context) { c.Status(201); _, _ = c.Writer.Write([]byte("x")) }, 201, true},
		"WriteString":     {func(c *gin.Context) { c.Status(201); _, _ = c.Writer.WriteString("x") }, 201, true},
		"WriteHeaderNow":  {func(c *gin.Context) { c.Status(201); c.Writer.WriteHeaderNow() }, 201, true},
		"Flush":           {func(c *gin.Context) { c.Status(201); c.Writer.Flush() }, 201, true},
		"a controller":    {func(c *gin.Context) { c.Status(201); _ = http.NewResponseController(c.Writer).Flush() }, 201, true},
		"Status":          {func(c *gin.Context) { c.Status(400); c.Status(204) }, 204, false},
		"abort":           {func(c *gin.Context) { c.AbortWithStatus(403) }, 403, true},
		"nothing":         {func(*gin.Context) {}, 200, false},
		"a second status": {func(c *gin.Context) { c.String(202, "x"); c.Status(500) }, 202, true},
		"a redirect":      {func(c *gin.Context) { c.Redirect(302, "/elsewhere") }, 302, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, got := limited(t, 10), 0
			m := made(t, l, ginlimit.Config{Count: func(_ *gin.Context, status int) bool {
				got = status
				return false
			}})
			router := gin.New()
			router.Use(m.Handler())
			router.GET("/", func(c *gin.Context) {
				assert.Equal(t, 9, left(t, l))
				row.handle(c)
				assert.Equal(t, row.early, left(t, l) == 10, "the units are back when the client gets the status")
			})
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.RemoteAddr = "127.0.0.1:1"
			router.ServeHTTP(w, r)
			assert.Equal(t, row.status, got)
			assert.Equal(t, row.status, w.Code)
			assert.Equal(t, 10, left(t, l))
		})
	}
}

// TestHijack takes a connection over, directly and by a ResponseController.
func TestHijack(t *testing.T) {
	for _, by := range []func(c *gin.Context) (io.WriteCloser, error){
		func(c *gin.Context) (io.WriteCloser, error) {
			conn, _, err := c.Writer.Hijack()
			return conn, err
		},
		func(c *gin.Context) (io.WriteCloser, error) {
			conn, _, err := http.NewResponseController(c.Writer).Hijack()
			return conn, err
		},
	} {
		statuses := make(chan int, 2)
		m := made(t, limited(t, 10), ginlimit.Config{Count: func(_ *gin.Context, status int) bool {
			statuses <- status
			return true
		}})
		router := gin.New()
		router.Use(m.Handler())
		router.GET("/", func(c *gin.Context) {
			conn, err := by(c)
			if assert.NoError(t, err) {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntaken")
				_ = conn.Close()
			}
		})
		_, body := get(t, serve(t, router))
		assert.Equal(t, "taken", body)
		assert.Equal(t, http.StatusSwitchingProtocols, <-statuses)
		assert.Empty(t, statuses)
	}
}

// TestInsideOfRouter limits a group, a single route, and the handler of unmatched requests.
func TestInsideOfRouter(t *testing.T) {
	l := limited(t, 100, ratelimit.Rule{Endpoint: "/api/items/:id", Rate: ratelimit.PerMinute(1)},
		ratelimit.Rule{Endpoint: "/login", Rate: ratelimit.PerMinute(1)})
	m := made(t, l, ginlimit.Config{})
	router := gin.New()
	hello := func(c *gin.Context) { c.String(http.StatusOK, "hello") }
	router.Group("/api", m.Handler()).GET("/items/:id", hello)
	router.GET("/login", m.Handler(), hello)
	router.GET("/free", hello)
	url := serve(t, router)
	for _, path := range []string{"/api/items/1", "/login"} {
		status, _ := get(t, url+path)
		assert.Equal(t, 200, status)
		status, _ = get(t, url+path)
		assert.Equal(t, 429, status)
	}
	for range 200 {
		status, _ := get(t, url+"/free")
		require.Equal(t, 200, status)
	}
}

// TestLayers has two middlewares: each charges, and the header fields show the rules of both.
func TestLayers(t *testing.T) {
	router := gin.New()
	byUser, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-user", Rate: ratelimit.PerMinute(1)})
	require.NoError(t, err)
	router.Use(made(t, limited(t, 5), ginlimit.Config{}).Handler(), func(c *gin.Context) { c.Set("user", "alice") },
		made(t, byUser, ginlimit.Config{Client: func(c *gin.Context) (client, tier string, ok bool) {
			return c.GetString("user"), "", true
		}}).Handler())
	router.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	w := httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	assert.Equal(t, []string{`"per-client";q=5;w=60`, `"per-user";q=1;w=60`}, w.Header()["Ratelimit-Policy"])
	w = httptest.NewRecorder()
	router.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, `"per-user";r=0;t=60`, w.Header()["Ratelimit"][1])
	assert.Contains(t, w.Body.String(), `"violated-policies":["per-user"]`)
}

// TestClient compares the client of requests with what Client returns, and a reset with it.
func TestClient(t *testing.T) {
	l := limited(t, 1)
	m := made(t, l, ginlimit.Config{})
	assert.Equal(t, "ip:2001:db8::/64", m.Client(netip.MustParseAddr("2001:db8::7")))
	router := gin.New()
	router.Use(m.Handler())
	router.GET("/", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	url := serve(t, router)
	status, _ := get(t, url)
	assert.Equal(t, 204, status)
	status, _ = get(t, url)
	assert.Equal(t, 429, status)
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: m.Client(netip.MustParseAddr("127.0.0.1"))}))
	status, _ = get(t, url)
	assert.Equal(t, 204, status)
}

// TestServerSentEvents reads events while the handler makes them, with Config.Count and Config.Info.
func TestServerSentEvents(t *testing.T) {
	m := made(t, limited(t, 1), ginlimit.Config{Info: true, Count: func(*gin.Context, int) bool { return true }})
	router := gin.New()
	router.Use(m.Handler())
	next := make(chan string)
	router.GET("/", func(c *gin.Context) {
		c.Stream(func(io.Writer) bool {
			text, ok := <-next
			if ok {
				c.SSEvent("message", text)
			}
			return ok
		})
	})
	s := httptest.NewServer(router)
	defer s.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	go func() { next <- "one" }()
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for _, want := range []string{"one", "two", "three"} {
		require.True(t, lines.Scan())
		assert.Equal(t, "event:message", lines.Text())
		require.True(t, lines.Scan())
		assert.Equal(t, "data:"+want, lines.Text())
		require.True(t, lines.Scan())
		switch want {
		case "one":
			next <- "two"
		case "two":
			next <- "three"
		}
	}
	close(next)
}
