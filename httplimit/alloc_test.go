package httplimit_test

import (
	"net/http"
	"runtime"
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

// TestAllocations bounds what a granted request allocates besides the next handler: the identity, the
// text of the header fields, and the slices with which they are set. Behind a proxy that is not trusted, it is
// also the context which says that the address may be the proxy's. With Config.Info it is also the
// context, with the request and the answers of several rules; over a ServeMux, what mux.Handler takes.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", nothing)
	one := ratelimit.Rule{Name: "per-client", Endpoint: "*", Rate: ratelimit.PerSecond(1_000_000)}
	three := []ratelimit.Rule{
		one,
		{Name: "by ip", Endpoint: "*", Key: ratelimit.KeyIP, Rate: ratelimit.PerSecond(1_000_000)},
		{Name: "all", Endpoint: "*", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1_000_000)},
	}
	for _, row := range []struct {
		name   string
		rules  []ratelimit.Rule
		c      httplimit.Config
		next   http.Handler
		peer   string
		allocs float64
		bytes  uint64
	}{
		{"one rule", []ratelimit.Rule{one}, httplimit.Config{}, nothing, "203.0.113.9:80", 3, 96},
		{"one rule, Info", []ratelimit.Rule{one}, httplimit.Config{Info: true}, nothing, "203.0.113.9:80", 4, 784},
		{"three rules", three, httplimit.Config{}, nothing, "203.0.113.9:80", 3, 192},
		{"three rules, Info", three, httplimit.Config{Info: true}, nothing, "203.0.113.9:80", 5, 1136},
		{"IPv6", three, httplimit.Config{}, nothing, "[2001:db8:1:2:3:4:5:6]:80", 3, 208},
		{"a proxy", three, httplimit.Config{Proxies: ten}, nothing, proxy, 3, 192},
		{"a proxy that is not trusted", three, httplimit.Config{Headers: httplimit.HeadersNone}, nothing, proxy, 2, 64},
		{"no fields", three, httplimit.Config{Headers: httplimit.HeadersNone}, nothing, "203.0.113.9:80", 1, 32},
		{"a ServeMux", three, httplimit.Config{}, mux, "203.0.113.9:80", 5, 224},
	} {
		l, clock := limited(t, row.rules, nil)
		h := wrap(t, l, row.c, row.next)
		r := request(t, "/users/7", row.peer)
		if row.peer == proxy {
			r.Header.Set("X-Forwarded-For", "203.0.113.9, 10.0.0.7")
		}
		w := &quietWriter{http.Header{}}
		serve := func() {
			clock.Advance(1000)
			h.ServeHTTP(w, r)
		}
		bare := func() { row.next.ServeHTTP(w, r) }
		serve()
		bare()
		allocs, bytes := allocated(serve)
		bareAllocs, bareBytes := allocated(bare)
		assert.LessOrEqual(t, allocs-bareAllocs, row.allocs, row.name)
		assert.LessOrEqual(t, bytes-bareBytes, row.bytes, row.name)
	}
}

// allocated returns how many allocations a call of f makes, and of how many bytes, rounded down.
func allocated(f func()) (allocs float64, bytes uint64) {
	const runs = 500
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	allocs = testing.AllocsPerRun(runs, f)
	runtime.ReadMemStats(&after)
	return allocs, (after.TotalAlloc - before.TotalAlloc) / (runs + 1)
}
