package frameworks

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/middleware/gin"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ginlimit"
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// BenchmarkGin measures an empty handler of gin, alone and behind a limit: ginlimit, and the middleware of
// github.com/ulule/limiter with its store in memory. Gin has no limiter of its own. The benchmarks of echolimit and fiberlimit
// measure the limiters that Echo and Fiber have.
//
// Both limit by the address of the connection, and each sends its own header fields. That of ulule does less: it counts in
// windows that begin with the first request of a client, and has neither rules nor endpoints. The memory of its store has no
// bound, and a denial does not say how long to wait, except by the field X-RateLimit-Reset.
func BenchmarkGin(b *testing.B) {
	l, err := ratelimit.New([]ratelimit.Rule{{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000_000)}}, nil)
	require.NoError(b, err)
	peer := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Second, Limit: 1_000_000_000})
	for _, row := range []struct {
		name   string
		limits []gin.HandlerFunc
	}{
		{"none", nil},
		{"ginlimit", []gin.HandlerFunc{ginlimit.Handler(l)}},
		{"ulule", []gin.HandlerFunc{ulule.NewMiddleware(peer)}},
	} {
		b.Run("limit="+row.name, func(b *testing.B) {
			router := gin.New()
			router.Use(row.limits...)
			router.GET("/users/:id", func(*gin.Context) {})
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/users/7", nil)
			r.RemoteAddr = "203.0.113.9:1234"
			w := &quietWriter{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				router.ServeHTTP(w, r)
			}
			require.Len(b, w.header, map[string]int{"none": 0, "ginlimit": 2, "ulule": 3}[row.name], "the header fields")
		})
	}
}
