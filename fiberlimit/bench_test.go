package fiberlimit_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/limiter"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/fiberlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// BenchmarkOverhead measures an empty handler of Fiber and of net/http, alone and behind a limit: the difference is what
// the limit costs.
//
// The limiter of Fiber itself, in the row "own", also limits by the address of the connection, and sends three header fields. It
// does less: it counts in windows of whole seconds that begin with the first request of a client, by a clock that is set once a
// second, and has neither rules nor endpoints. All clients share one lock, and their number in its memory has no bound.
func BenchmarkOverhead(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}}, nil)
	require.NoError(b, err)
	nothing := func(fiber.Ctx) error { return nil }
	used := func(limits ...any) fasthttp.RequestHandler {
		app := fiber.New()
		if len(limits) > 0 {
			app.Use(limits...)
		}
		app.Get("/users/:id", nothing)
		return app.Handler()
	}
	within := fiber.New()
	within.Get("/users/:id", fiberlimit.Handler(l), nothing)
	counted, err := fiberlimit.New(l, fiberlimit.Config{Count: func(fiber.Ctx, int) bool { return true }})
	require.NoError(b, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{"none": mux, "httplimit": httplimit.Handler(mux, l)} {
		b.Run("framework=nethttp/limit="+name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/users/7", nil)
			r.RemoteAddr = "203.0.113.9:1234"
			w := &quietWriter{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
	for _, row := range []struct {
		name string
		h    fasthttp.RequestHandler
	}{
		{"none", used()},
		{"pass", used(fiber.Ctx.Next)},
		{"fiberlimit", used(fiberlimit.Handler(l))},
		{"fiberlimit,route", within.Handler()},
		{"fiberlimit,count", used(counted.Handler)},
		{"own", used(limiter.New(limiter.Config{Max: 1_000_000_000, Expiration: time.Second}))},
	} {
		b.Run("framework=fiber/limit="+row.name, func(b *testing.B) {
			var request fasthttp.Request
			request.SetRequestURI("/users/7")
			request.Header.SetMethod(fasthttp.MethodGet)
			request.Header.SetHost("example.com")
			ctx := new(fasthttp.RequestCtx)
			ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 1234}, nil)
			b.ReportAllocs()
			for b.Loop() {
				ctx.ResetUserValues()
				ctx.Response.Reset()
				row.h(ctx)
			}
		})
	}
}
