package verify

import (
	"context"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A hardened is a Middleware of a limit of two requests, and its log.
type hardened struct {
	*httplimit.Middleware
	limiter *ratelimit.RateLimiter
	log     *strings.Builder
}

func harden(t *testing.T, c httplimit.Config, rules ...ratelimit.Rule) hardened {
	l, err := ratelimit.New(rules, &ratelimit.Rule{Name: "default", Rate: ratelimit.PerHour(2)})
	require.NoError(t, err)
	h := hardened{limiter: l, log: &strings.Builder{}}
	c.Log = slog.New(slog.NewTextHandler(h.log, nil))
	h.Middleware, err = httplimit.New(l, c)
	require.NoError(t, err)
	return h
}

// ask sends a request to next behind the Middleware, and returns the status.
func (h hardened) ask(next http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.Handler(next).ServeHTTP(w, r)
	return w.Code
}

func requestTo(t *testing.T, method, path string) *http.Request {
	return httptest.NewRequestWithContext(t.Context(), method, "http://shop.example"+path, nil)
}

// TestHTTPRoutes has routers that find another route than the Middleware, and a client that sends a path as its route.
func TestHTTPRoutes(t *testing.T) {
	login := ratelimit.Rule{Endpoint: "/login", Rate: ratelimit.PerHour(9)}
	found := func(route string) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.Pattern = route })
	}
	for _, row := range []struct {
		endpoint      func(*http.Request) string
		outer, inner  string
		lines         int
		whyItIsLogged string
	}{
		{nil, "/", "/login", 1, "a rule limits nothing"},
		{nil, "/", "/other", 0, "no rule has that route"},
		{nil, "", "/other", 1, "the request was unmatched"},
		{httplimit.Fixed("unmatched"), "/", "/login", 1, "an Endpoint that does not know the route"},
		{httplimit.Fixed("mine"), "/", "/login", 0, "an Endpoint with names of its own"},
	} {
		h := harden(t, httplimit.Config{Endpoint: row.endpoint}, login)
		for range 2 {
			r := requestTo(t, http.MethodGet, "/")
			r.Pattern = row.outer
			require.Equal(t, 200, h.ask(found(row.inner), r))
		}
		require.Equal(t, row.lines, strings.Count(h.log.String(), "\n"), "%s: %s", row.whyItIsLogged, h.log)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/users/{id}/", func(http.ResponseWriter, *http.Request) {})
	endpoints := map[string]bool{}
	h := harden(t, httplimit.Config{Prepare: func(_ *http.Request, q *ratelimit.Request) { endpoints[q.Endpoint] = true }})
	for _, path := range []string{"/users/1", "/users/2", "/users/3/"} {
		r := requestTo(t, http.MethodGet, path)
		r.Method = http.MethodConnect
		h.ask(mux, r)
	}
	require.Equal(t, map[string]bool{"/users/{id}/": true}, endpoints)
}

// TestHTTPPeers has a peer of a unix socket whose name looks like an address, and a proxy that is not trusted.
func TestHTTPPeers(t *testing.T) {
	h := harden(t, httplimit.Config{})
	got := []int{}
	for _, name := range []string{"203.0.113.1:1", "203.0.113.2:1", "203.0.113.3:1"} {
		r := requestTo(t, http.MethodGet, "/")
		r.RemoteAddr = name
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "s", Net: "unix"}))
		got = append(got, h.ask(http.NotFoundHandler(), r.WithContext(ctx)))
	}
	require.Equal(t, []int{404, 404, 429}, got)

	h = harden(t, httplimit.Config{Proxies: httplimit.Proxies{Unix: true}})
	for range 2 {
		r := requestTo(t, http.MethodGet, "/")
		r.RemoteAddr = "192.168.0.5:1"
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		h.ask(http.NotFoundHandler(), r)
	}
	require.Equal(t, 1, strings.Count(h.log.String(), "a proxy that Config.Proxies does not trust"), h.log)
}

// TestHTTPPanic panics after a form was parsed. The server needs the form, to remove its files.
func TestHTTPPanic(t *testing.T) {
	h := harden(t, httplimit.Config{Info: true})
	r := requestTo(t, http.MethodPost, "/")
	require.Panics(t, func() {
		h.ask(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			r.MultipartForm, r.Pattern = new(multipart.Form), "/upload"
			panic("a bug")
		}), r)
	})
	require.NotNil(t, r.MultipartForm)
	require.Equal(t, "/upload", r.Pattern)
}

// TestHTTPContentType sends types that begin like the one of gRPC.
func TestHTTPContentType(t *testing.T) {
	for kind, want := range map[string]int{"application/grpc": 200, "application/grpc+proto": 200, "application/grpc; a=b": 200, "application/grpcXYZ": 429} {
		h := harden(t, httplimit.Config{})
		r := requestTo(t, http.MethodPost, "/")
		r.Header.Set("Content-Type", kind)
		for range 2 {
			require.Equal(t, 404, h.ask(http.NotFoundHandler(), r))
		}
		require.Equal(t, want, h.ask(http.NotFoundHandler(), r), kind)
	}
}

// An onlyUnwrap is a ResponseWriter that has Flush only by Unwrap.
type onlyUnwrap struct{ http.ResponseWriter }

func (w onlyUnwrap) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestHTTPCountMore flushes by a ResponseController, meets a rule that gives no units back, and has many requests of
// one key in flight.
func TestHTTPCountMore(t *testing.T) {
	seen := 0
	count := httplimit.Config{Count: func(_ *http.Request, status int) bool { seen = status; return status >= 400 }}
	h := harden(t, count)
	flush := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		w.WriteHeader(http.StatusUnauthorized)
	})
	h.Handler(flush).ServeHTTP(onlyUnwrap{httptest.NewRecorder()}, requestTo(t, http.MethodGet, "/"))
	require.Equal(t, 200, seen, "the client has seen it")

	own, err := ratelimit.NewFixedWindow(ratelimit.PerHour(1))
	require.NoError(t, err)
	require.NoError(t, h.limiter.SetDefaultRule(ratelimit.Rule{Limiter: own}))
	require.Equal(t, 404, h.ask(http.NotFoundHandler(), requestTo(t, http.MethodGet, "/")))
	require.Equal(t, 429, h.ask(http.NotFoundHandler(), requestTo(t, http.MethodGet, "/")))
	require.Contains(t, h.log.String(), "all requests count")

	h = harden(t, count, ratelimit.Rule{Endpoint: "*", Rate: ratelimit.PerHour(5000)})
	inFlight := 0
	var next http.HandlerFunc
	next = func(http.ResponseWriter, *http.Request) {
		if inFlight++; inFlight < 1300 {
			h.ask(next, requestTo(t, http.MethodGet, "/"))
		}
	}
	h.ask(next, requestTo(t, http.MethodGet, "/"))
	require.Equal(t, 1, strings.Count(h.log.String(), "in flight"), h.log)
}
