package echolimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/echolimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// BenchmarkOverhead measures an empty handler of Echo and of net/http, alone and behind a limit: the difference is what
// the limit costs.
//
// The limiter of Echo itself, in the row "own", also limits by the address of the connection, and sends two header fields. It
// does less: it has one rate for all requests, without rules and endpoints, and does not say when units come back, except in
// the Retry-After of a denial. All clients share one lock, and the number of clients in its memory has no bound.
func BenchmarkOverhead(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}}, nil)
	require.NoError(b, err)
	echoHandler := func(limits ...echo.MiddlewareFunc) http.Handler {
		e := echo.New()
		e.Use(limits...)
		e.GET("/users/:id", func(*echo.Context) error { return nil })
		return e
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	counted, err := echolimit.New(l, echolimit.Config{Count: func(*echo.Context, int) bool { return true }})
	require.NoError(b, err)
	own := middleware.RateLimiter(middleware.NewRateLimiterMemoryStore(1_000_000_000))
	for _, row := range []struct {
		name string
		h    http.Handler
	}{
		{"framework=nethttp/limit=none", mux},
		{"framework=nethttp/limit=httplimit", httplimit.Handler(mux, l)},
		{"framework=echo/limit=none", echoHandler()},
		{"framework=echo/limit=echolimit", echoHandler(echolimit.Handler(l))},
		{"framework=echo/limit=echolimit,count", echoHandler(counted.Handler)},
		{"framework=echo/limit=own", echoHandler(own)},
	} {
		b.Run(row.name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/users/7", nil)
			r.RemoteAddr = "203.0.113.9:1234"
			w := &quietWriter{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				row.h.ServeHTTP(w, r)
			}
		})
	}
}
