package httplimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A quietWriter is a ResponseWriter that keeps its header.
type quietWriter struct{ header http.Header }

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *quietWriter) WriteHeader(int)             {}

// TestAllocations bounds what a granted request costs beside the next handler: the context,
// the request with it, the text of the header fields, the identity, and what mux.Handler takes.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", nothing)
	one := ratelimit.Rule{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000)}
	three := []ratelimit.Rule{one, {Name: "by ip", Endpoint: "*", Key: ratelimit.KeyIP, Rate: ratelimit.PerSecond(1_000_000)}, {Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1_000_000)}}
	for _, row := range []struct {
		name  string
		rules []ratelimit.Rule
		c     httplimit.Config
		next  http.Handler
		peer  string
		want  float64
	}{
		{"one rule", []ratelimit.Rule{one}, httplimit.Config{}, nothing, "203.0.113.9:80", 3},
		{"three rules", three, httplimit.Config{}, nothing, "203.0.113.9:80", 4},
		{"IPv6", three, httplimit.Config{}, nothing, "[2001:db8:1:2:3:4:5:6]:80", 4},
		{"a proxy", three, httplimit.Config{Proxies: ten}, nothing, proxy, 4},
		{"no fields", three, httplimit.Config{Headers: httplimit.HeadersNone}, nothing, proxy, 3},
	} {
		l, clock := limited(t, row.rules, nil)
		h := wrap(t, l, row.c, row.next)
		r := request(t, "/users/7", row.peer, "X-Forwarded-For", "203.0.113.9, 10.0.0.7")
		w := &quietWriter{http.Header{}}
		h.ServeHTTP(w, r)
		got := testing.AllocsPerRun(500, func() {
			clock.Advance(1000)
			h.ServeHTTP(w, r)
		})
		assert.LessOrEqual(t, got, row.want, row.name)
	}
	l, _ := limited(t, three, nil)
	h, bare := httplimit.Handler(mux, l), http.Handler(mux)
	r, w := request(t, "/users/7", "203.0.113.9:80"), &quietWriter{http.Header{}}
	with := testing.AllocsPerRun(500, func() { h.ServeHTTP(w, r) })
	without := testing.AllocsPerRun(500, func() { bare.ServeHTTP(w, r) })
	assert.LessOrEqual(t, with-without, 5.0, "over a ServeMux")
}
