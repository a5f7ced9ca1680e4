package httplimit_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A logging is a ResponseWriter with the one optional method that writers of logs often have.
type logging struct{ http.ResponseWriter }

func (l logging) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// A hijackable is a ResponseWriter whose connection can be taken over.
type hijackable struct{ http.ResponseWriter }

func (hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// A bare is a ResponseWriter without optional methods.
type bare struct{ w http.ResponseWriter }

func (b bare) Header() http.Header         { return b.w.Header() }
func (b bare) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b bare) WriteHeader(status int)      { b.w.WriteHeader(status) }

// TestCountBehindUnwrap reaches the methods of a writer further out by a ResponseController. Count sees what the
// client sees.
func TestCountBehindUnwrap(t *testing.T) {
	for _, row := range []struct {
		why    string
		w      func(http.ResponseWriter) http.ResponseWriter
		do     func(*testing.T, *http.ResponseController)
		status int // set by the handler afterwards; 0 for none
		want   int
	}{
		{"a stream begins", func(w http.ResponseWriter) http.ResponseWriter { return logging{w} },
			func(t *testing.T, c *http.ResponseController) { assert.NoError(t, c.Flush()) }, 401, 200},
		{"through two writers", func(w http.ResponseWriter) http.ResponseWriter { return logging{logging{w}} },
			func(t *testing.T, c *http.ResponseController) { assert.NoError(t, c.Flush()) }, 401, 200},
		{"nothing can be flushed", func(w http.ResponseWriter) http.ResponseWriter { return logging{bare{w}} },
			func(t *testing.T, c *http.ResponseController) { assert.ErrorIs(t, c.Flush(), http.ErrNotSupported) }, 401, 401},
		{"the connection is taken over", func(w http.ResponseWriter) http.ResponseWriter { return logging{hijackable{w}} },
			func(t *testing.T, c *http.ResponseController) {
				_, _, err := c.Hijack()
				assert.NoError(t, err)
			}, 0, 101},
		{"it cannot be taken over", func(w http.ResponseWriter) http.ResponseWriter { return logging{w} },
			func(t *testing.T, c *http.ResponseController) {
				_, _, err := c.Hijack()
				assert.ErrorIs(t, err, http.ErrNotSupported)
			}, 500, 500},
	} {
		seen := 0
		l, _ := perMinute(t, 9)
		h := wrap(t, l, httplimit.Config{Count: func(_ *http.Request, status int) bool { seen = status; return true }},
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				row.do(t, http.NewResponseController(w))
				if row.status != 0 {
					w.WriteHeader(row.status)
				}
			}))
		recorder := httptest.NewRecorder()
		h.ServeHTTP(row.w(recorder), request(t, "/", "203.0.113.9:1"))
		assert.Equal(t, row.want, seen, row.why)
		if row.want != 101 {
			assert.Equal(t, row.want, recorder.Code, "%s: the client", row.why)
		}
	}
	unwrapped := 0
	l, _ := perMinute(t, 1)
	h := wrap(t, l, httplimit.Config{Count: func(_ *http.Request, status int) bool { unwrapped = status; return true }},
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(interface{ Unwrap() http.ResponseWriter }).Unwrap().WriteHeader(http.StatusTeapot)
		}))
	h.ServeHTTP(httptest.NewRecorder(), request(t, "/", "203.0.113.9:1"))
	assert.Equal(t, http.StatusTeapot, unwrapped, "a handler that unwraps the writer itself")
}

// TestCountAfterReload gets a rule with a custom Limiter after the start. Requests are limited, and none is given back.
func TestCountAfterReload(t *testing.T) {
	log, status := new(logbook), http.StatusOK
	l, _ := perMinute(t, 2)
	h := wrap(t, l, httplimit.Config{Count: failed, Log: log.logger()}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
	}))
	r := request(t, "/", "203.0.113.9:1")
	assert.Equal(t, []int{200, 200, 200}, codes(h, r, 3))
	own, err := ratelimit.NewTokenBucket(ratelimit.PerHour(2))
	require.NoError(t, err)
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "per-client", Limiter: fixed{own}}))
	assert.Equal(t, []int{200, 200, 429, 429}, codes(h, r, 4), "the limit holds")
	require.Len(t, log.lines(), 1)
	assert.Contains(t, log.lines()[0], "Config.Count is not asked, and all requests count")
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerHour(2)}))
	assert.Equal(t, []int{200, 200, 200}, codes(h, r, 3), "they are given back again")
	status = http.StatusUnauthorized
	assert.Equal(t, []int{401, 401, 429}, codes(h, r, 3))
}

// TestCountManyInFlight has more requests of one key in flight than can be given back. The log says so, once.
func TestCountManyInFlight(t *testing.T) {
	for _, row := range []struct {
		why              string
		key              ratelimit.KeyType
		inFlight, lines  int
		allAreGivenBack  bool
		requestsByClient int
	}{
		{"few", ratelimit.KeyGlobal, 1000, 0, true, 1000},
		{"too many of one key", ratelimit.KeyGlobal, 3000, 1, false, 3000},
		{"many, but few of each key", ratelimit.KeyUser, 3000, 0, true, 1},
	} {
		log := new(logbook)
		l, _ := limited(t, nil, &ratelimit.Rule{Name: "logins", Key: row.key, Rate: ratelimit.PerHour(5000)})
		m := made(t, l, httplimit.Config{Count: failed, Log: log.logger(), Client: func(r *http.Request) (string, string, bool) {
			return r.URL.Path, "", true
		}})
		inFlight := 0
		var next http.Handler
		next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { // each request is served within the one before
			if inFlight++; inFlight < row.inFlight {
				m.Handler(next).ServeHTTP(httptest.NewRecorder(), request(t, "/"+strconv.Itoa(inFlight/row.requestsByClient), client+":1"))
			}
		})
		m.Handler(next).ServeHTTP(httptest.NewRecorder(), request(t, "/0", client+":1"))
		require.Equal(t, row.inFlight, inFlight)
		assert.Len(t, log.lines(), row.lines, row.why)
		res, err := l.Peek(t.Context(), ratelimit.Request{Client: "/0"})
		require.NoError(t, err)
		assert.Equal(t, row.allAreGivenBack, res.Remaining == 5000, "%s: %d are left", row.why, res.Remaining)
		if row.lines > 0 {
			assert.Contains(t, log.lines()[0], "more requests of one key are in flight than can be given back", row.why)
		}
	}
}
