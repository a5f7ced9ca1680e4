package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// layered returns next behind n Middlewares, the first of which is the outermost. Each has a rule of
// its own, which is called by its number. info returns whether it has Config.Info.
func layered(t *testing.T, n, perMinute int, info func(i int) bool, next http.Handler) (http.Handler, []*httplimit.Middleware) {
	t.Helper()
	layers := make([]*httplimit.Middleware, n)
	for i := n - 1; i >= 0; i-- {
		l, _ := limited(t, nil, &ratelimit.Rule{Name: fmt.Sprint(i), Rate: ratelimit.PerMinute(perMinute)})
		layers[i] = made(t, l, httplimit.Config{Info: info(i), Log: new(logbook).logger()})
		next = layers[i].Handler(next)
	}
	return next, layers
}

// TestManyLayers has more layers around a handler than have a place in the table of the responses
// that are being served. All write to the response, and none charges it twice.
func TestManyLayers(t *testing.T) {
	const n = 7
	for name, info := range map[string]func(i int) bool{
		"no Info":           func(int) bool { return false },
		"Info of all":       func(int) bool { return true },
		"Info of every odd": func(i int) bool { return i%2 == 1 },
	} {
		t.Run(name, func(t *testing.T) {
			var layers []*httplimit.Middleware
			var inner string
			found := false
			h, layers := layered(t, n, 3, info, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for _, m := range layers {
					m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						var i *httplimit.Info
						if i, found = httplimit.FromContext(r.Context()); found {
							inner = i.Result.Rule
						}
					})).ServeHTTP(w, r)
				}
			}))
			var want []string
			for i := range n {
				want = append(want, fmt.Sprintf(`"%d";r=2;t=40`, i))
			}
			w := get(t, h, "/", "203.0.113.9:1")
			assert.Equal(t, want, w.Header().Values("RateLimit"))
			assert.Len(t, w.Header().Values("RateLimit-Policy"), n)
			assert.Equal(t, info(5), found)
			if found {
				assert.Equal(t, map[bool]string{true: "6", false: "5"}[info(6)], inner, "the innermost that has one")
			}
			assert.Equal(t, []int{200, 200, 429}, codes(h, request(t, "/", "203.0.113.9:1"), 3), "charged once for each request")
		})
	}
}

// TestOneResponseAgain serves one response twice, one after the other. Both are charged, also if the
// first has panicked.
func TestOneResponseAgain(t *testing.T) {
	for _, info := range []bool{false, true} {
		panics := true
		h, _ := layered(t, 2, 3, func(int) bool { return info }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if panics {
				panic(http.ErrAbortHandler)
			}
		}))
		w, r := httptest.NewRecorder(), request(t, "/", "203.0.113.9:1")
		require.Panics(t, func() { h.ServeHTTP(w, r) })
		panics = false
		h.ServeHTTP(w, r)
		assert.Equal(t, []string{`"0";r=1;t=20`, `"1";r=1;t=20`}, w.Header().Values("RateLimit"))
		h.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code)
		h.ServeHTTP(w, r)
		assert.Equal(t, []string{`"0";r=0;t=20`}, w.Header().Values("RateLimit"))
	}
}

// TestInfoIsOptional proves that the next handler gets the request itself unless Config.Info is set.
func TestInfoIsOptional(t *testing.T) {
	l, _ := perMinute(t, 100)
	for _, info := range []bool{false, true} {
		r := request(t, "/", "203.0.113.9:1")
		answer(wrap(t, l, httplimit.Config{Info: info}, http.HandlerFunc(func(_ http.ResponseWriter, inner *http.Request) {
			_, found := httplimit.FromContext(inner.Context())
			assert.Equal(t, info, found)
			assert.Equal(t, !info, inner == r)
		})), r)
	}
}

// TestNoHeader serves responses whose header is a nil map. Each is charged.
func TestNoHeader(t *testing.T) {
	l, _ := perMinute(t, 100)
	m := made(t, l, httplimit.Config{Headers: httplimit.HeadersNone, Log: new(logbook).logger()})
	h := m.Handler(ok)
	for range 3 {
		h.ServeHTTP(&quietWriter{}, request(t, "/", "203.0.113.9:1"))
	}
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "ip:203.0.113.9"})
	require.NoError(t, err)
	assert.Equal(t, 96, res.Remaining)
}

// TestLayersInParallel serves many responses at the same time. Each gets the fields of all layers, and is
// charged by each of them.
func TestLayersInParallel(t *testing.T) {
	const n, callers, each = 6, 8, 200
	h, layers := layered(t, n, 100_000, func(i int) bool { return i == 2 }, ok)
	h = layers[0].Handler(h) // the outermost twice
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				assert.Len(t, w.Header().Values("RateLimit"), n)
			}
		})
	}
	wg.Wait()
	w := get(t, h, "/", "192.0.2.1:1")
	for i, line := range w.Header().Values("RateLimit") {
		assert.True(t, strings.HasPrefix(line, fmt.Sprintf(`"%d";r=%d;`, i, 100_000-callers*each-1)), line)
	}
}

// TestRetryAfterOfLayers obeys the Retry-After of an inner denial while an outer Middleware has nothing left. It is
// then granted, and one second earlier it is not.
func TestRetryAfterOfLayers(t *testing.T) {
	for _, row := range []struct {
		why   string
		outer ratelimit.Rule
		cost  int
		form  httplimit.Headers
		info  bool
		want  string
	}{
		{"a bucket", ratelimit.Rule{Rate: ratelimit.PerHour(2)}, 1, httplimit.HeadersDraft11, false, "1800"},
		{"other header fields", ratelimit.Rule{Rate: ratelimit.PerHour(2)}, 1, httplimit.HeadersNone, false, "1800"},
		{"the request is copied", ratelimit.Rule{Rate: ratelimit.PerHour(2)}, 1, httplimit.HeadersDraft11, true, "1800"},
		{"a rule that clients do not see", ratelimit.Rule{Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(2)},
			1, httplimit.HeadersDraft11, false, "1800"},
		{"a window", ratelimit.Rule{Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(2)},
			1, httplimit.HeadersDraft11, false, "3600"},
		{"more than a unit is left, but not the cost", ratelimit.Rule{Rate: ratelimit.PerHour(11)}, 5, httplimit.HeadersDraft11, false, "1310"},
		{"enough is left", ratelimit.Rule{Rate: ratelimit.PerHour(20)}, 1, httplimit.HeadersDraft11, false, "10"},
	} {
		address, clock := limited(t, nil, &row.outer)
		user, err := ratelimit.New(nil, &ratelimit.Rule{Name: "user", Rate: ratelimit.PerMinute(6).WithBurst(1)}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		outer := httplimit.Config{Headers: row.form, Info: row.info, Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Cost = row.cost }}
		h := wrap(t, address, outer, wrap(t, user, httplimit.Config{Headers: row.form}, ok))
		require.Equal(t, 200, get(t, h, "/", "203.0.113.9:1").Code, row.why)
		denied := get(t, h, "/", "203.0.113.9:1")
		require.Equal(t, 429, denied.Code, row.why)
		assert.Equal(t, row.want, denied.Header().Get("Retry-After"), row.why)
		seconds, err := strconv.Atoi(denied.Header().Get("Retry-After"))
		require.NoError(t, err)
		clock.Advance(time.Duration(seconds) * time.Second)
		assert.Equal(t, 200, get(t, h, "/", "203.0.113.9:1").Code, "%s: who obeys it is granted", row.why)
	}
	outer, clock := perMinute(t, 2)
	inner, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(6).WithBurst(1)}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	h := wrap(t, outer, httplimit.Config{}, wrap(t, inner, httplimit.Config{}, ok))
	var pushback []string
	for range 2 {
		r := request(t, "/", "203.0.113.9:1", "Content-Type", "application/grpc")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		pushback = append(pushback, w.Header().Get("Grpc-Retry-Pushback-Ms"))
	}
	assert.Equal(t, []string{"", "-1"}, pushback, "30 s are longer than a gRPC client is asked to wait")
}
