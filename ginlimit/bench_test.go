package ginlimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ginlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// BenchmarkOverhead measures an empty handler of gin and of net/http, alone and behind a limit: the difference is what
// the limit costs. BenchmarkGin in internal/verify/frameworks compares it with another limiter for gin.
func BenchmarkOverhead(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}}, nil)
	require.NoError(b, err)
	ginHandler := func(limits ...gin.HandlerFunc) http.Handler {
		router := gin.New()
		router.Use(limits...)
		router.GET("/users/:id", func(*gin.Context) {})
		return router
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(http.ResponseWriter, *http.Request) {})
	counted, err := ginlimit.New(l, ginlimit.Config{Count: func(*gin.Context, int) bool { return true }})
	require.NoError(b, err)
	withInfo, err := ginlimit.New(l, ginlimit.Config{Info: true})
	require.NoError(b, err)
	for _, row := range []struct {
		name string
		h    http.Handler
	}{
		{"framework=nethttp/limit=none", mux},
		{"framework=nethttp/limit=httplimit", httplimit.Handler(mux, l)},
		{"framework=gin/limit=none", ginHandler()},
		{"framework=gin/limit=ginlimit", ginHandler(ginlimit.Handler(l))},
		{"framework=gin/limit=ginlimit,count", ginHandler(counted.Handler())},
		{"framework=gin/limit=ginlimit,info", ginHandler(withInfo.Handler())},
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
