package httplimit_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// failed counts the requests that have failed.
func failed(_ *http.Request, status int) bool { return status >= 400 }

// TestCount gives back what does not count, for every way in which a status can come.
func TestCount(t *testing.T) {
	var got []int
	l, _ := perMinute(t, 1)
	h := wrap(t, l, httplimit.Config{Info: true, Count: func(r *http.Request, status int) bool {
		info, found := httplimit.FromContext(r.Context())
		require.True(t, found)
		require.Equal(t, client, info.Request.IP)
		got = append(got, status)
		return failed(r, status)
	}}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/write":
			_, _ = w.Write([]byte("x"))
		case "/flush":
			w.(http.Flusher).Flush()
		case "/controller":
			assert.NoError(t, http.NewResponseController(w).Flush())
		case "/early":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
			w.WriteHeader(http.StatusOK)
		case "/late":
			_, _ = w.Write([]byte("x"))
			w.WriteHeader(http.StatusUnauthorized)
		case "/panic":
			panic(http.ErrAbortHandler)
		case "/latepanic":
			w.WriteHeader(http.StatusOK)
			panic(http.ErrAbortHandler)
		case "/304":
			w.WriteHeader(http.StatusNotModified)
		}
	}))
	ask := func(path string) (code int) {
		defer func() {
			if recover() != nil {
				code = -1
			}
		}()
		w := get(t, h, path, "203.0.113.9:1")
		if w.Code != http.StatusTooManyRequests {
			assert.Equal(t, `"per-client";r=0;t=60`, w.Header().Get("RateLimit"), "before it was given back")
		}
		return w.Code
	}
	for path, status := range map[string]int{"/write": 200, "/flush": 200, "/controller": 200, "/nothing": 200, "/304": 304, "/late": 200,
		"/latepanic": 200} {
		got = nil
		for range 3 {
			require.NotEqual(t, http.StatusTooManyRequests, ask(path), path)
		}
		assert.Equal(t, []int{status, status, status}, got, path)
	}
	for path, status := range map[string]int{"/early": 401, "/panic": 500} {
		got = nil
		ask(path)
		assert.Equal(t, http.StatusTooManyRequests, ask(path), path)
		assert.Equal(t, []int{status}, got, path)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "ip:203.0.113.9"}))
	}
}

// TestCountCost gives the whole cost back, and takes none of it twice.
func TestCountCost(t *testing.T) {
	l, _ := perMinute(t, 5)
	h := wrap(t, l, httplimit.Config{
		Count:   failed,
		Prepare: func(_ *http.Request, q *ratelimit.Request) { q.Cost = 3 },
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	for range 5 {
		require.Equal(t, 200, get(t, h, "/good", "203.0.113.9:1").Code)
	}
	require.Equal(t, 400, get(t, h, "/bad", "203.0.113.9:1").Code)
	w := get(t, h, "/good", "203.0.113.9:1")
	assert.Equal(t, 429, w.Code)
	assert.Equal(t, `"per-client";r=2;t=24`, w.Header().Get("RateLimit"))
	assert.EqualValues(t, 15, l.Stats()[0].GivenBack)
}

func TestAttack24ParallelGuesses(t *testing.T) {
	l, _ := perMinute(t, 3)
	var inside atomic.Int32
	enter, leave := make(chan struct{}, 10), make(chan struct{})
	h := wrap(t, l, httplimit.Config{Count: failed}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		inside.Add(1)
		enter <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusUnauthorized)
	}))
	codes := make(chan int, 3)
	for range 3 {
		r := request(t, "/", "203.0.113.9:1")
		go func() { codes <- answer(h, r).Code }()
	}
	for range 3 {
		<-enter
	}
	for range 10 {
		assert.Equal(t, 429, get(t, h, "/", "203.0.113.9:1").Code, "what is under way is reserved")
	}
	close(leave)
	for range 3 {
		assert.Equal(t, 401, <-codes)
	}
	assert.Equal(t, 429, get(t, h, "/", "203.0.113.9:1").Code)
	assert.EqualValues(t, 3, inside.Load())
}

// TestAttack22CountedWriters takes connections over, streams and copies through a writer that is
// wrapped, over a real server.
func TestAttack22CountedWriters(t *testing.T) {
	l, _ := perMinute(t, 1)
	server := serve(t, wrap(t, l, httplimit.Config{Count: func(r *http.Request, status int) bool { return r.URL.Path == "/bad" }},
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := http.NewResponseController(w)
			switch r.URL.Path {
			case "/upgrade":
				conn, rw, err := c.Hijack()
				if assert.NoError(t, err) {
					_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: close\r\n\r\nhello")
					assert.NoError(t, rw.Flush())
					assert.NoError(t, conn.Close())
				}
			case "/events":
				assert.NoError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)), "what only the inner writer has")
				for range 3 {
					_, _ = io.WriteString(w, "data: x\n\n")
					assert.NoError(t, c.Flush())
				}
			case "/copy":
				_, err := io.Copy(w, strings.NewReader("copied"))
				assert.NoError(t, err)
			}
		})))
	for _, c := range []*http.Client{server.h1, server.h2} {
		for path, want := range map[string]string{"/events": "data: x\n\ndata: x\n\ndata: x\n\n", "/copy": "copied"} {
			for range 2 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.url+path, nil)
				require.NoError(t, err)
				res, err := c.Do(r)
				require.NoError(t, err)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				assert.Equal(t, want, string(body))
			}
		}
	}
	for range 2 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(server.url, "http://"))
		require.NoError(t, err)
		_, err = io.WriteString(conn, "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
		require.NoError(t, err)
		all, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Equal(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: close\r\n\r\nhello", string(all))
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, 200, server.get(t, server.h1, "/bad").StatusCode)
	assert.Equal(t, 429, server.get(t, server.h1, "/bad").StatusCode, "which counts")
}

// A source is a reader that returns these parts, and then an error.
type source struct {
	parts []string
	err   error
}

func (s *source) Read(p []byte) (n int, err error) {
	if len(s.parts) == 0 {
		return 0, s.err
	}
	n = copy(p, s.parts[0])
	if s.parts[0] = s.parts[0][n:]; s.parts[0] == "" {
		s.parts = s.parts[1:]
	}
	if len(s.parts) == 0 {
		return n, s.err // with the last bytes, as a reader may
	}
	return n, nil
}

// TestCopyThatFails copies from what cannot be read, before and after its first byte, over a real
// server. The status that counts is the one that the client gets.
func TestCopyThatFails(t *testing.T) {
	broken := errors.New("broken")
	long := strings.Repeat("x", 5000)
	for _, row := range []struct {
		why    string
		src    *source
		n      int
		status int
		body   string
	}{
		{"nothing can be read", &source{err: broken}, 0, 502, "no\n"},
		{"nothing can be read, after an empty part", &source{parts: []string{""}, err: broken}, 0, 502, "no\n"},
		{"there is nothing", &source{err: io.EOF}, 0, 200, ""},
		{"it breaks off", &source{parts: []string{"a"}, err: broken}, 1, 200, "ano\n"},
		{"it breaks off later", &source{parts: []string{"a", long}, err: broken}, 5001, 200, "a" + long + "no\n"},
		{"all is well", &source{parts: []string{"a", "", long}, err: io.EOF}, 5001, 200, "a" + long},
	} {
		l, _ := perMinute(t, 5)
		var counted []int
		server := serve(t, wrap(t, l, httplimit.Config{Count: func(_ *http.Request, status int) bool {
			counted = append(counted, status)
			return true
		}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n, err := w.(io.ReaderFrom).ReadFrom(row.src)
			assert.EqualValues(t, row.n, n, row.why)
			if err != nil {
				assert.Equal(t, broken, err)
				http.Error(w, "no", http.StatusBadGateway)
			}
		})))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.url, nil)
		require.NoError(t, err)
		res, err := server.h1.Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		assert.Equal(t, row.body, string(body), row.why)
		assert.Equal(t, row.status, res.StatusCode, row.why)
		assert.Equal(t, []int{row.status}, counted, row.why)
	}
}

// The methods that a writer may have.
type (
	plainWriter struct{ http.ResponseWriter }
	flushes     struct{}
	hijacks     struct{}
	reads       struct{}
)

func (flushes) Flush()                                       {}
func (hijacks) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errors.New("no") }
func (reads) ReadFrom(io.Reader) (int64, error)              { return 0, nil }

// TestCountedWriterHasWhatTheInnerHas keeps io.Copy and type assertions working.
func TestCountedWriterHasWhatTheInnerHas(t *testing.T) {
	w := plainWriter{httptest.NewRecorder()}
	for _, inner := range []http.ResponseWriter{
		w,
		struct {
			plainWriter
			flushes
		}{plainWriter: w},
		struct {
			plainWriter
			hijacks
		}{plainWriter: w},
		struct {
			plainWriter
			reads
		}{plainWriter: w},
		struct {
			plainWriter
			flushes
			hijacks
		}{plainWriter: w},
		struct {
			plainWriter
			flushes
			reads
		}{plainWriter: w},
		struct {
			plainWriter
			hijacks
			reads
		}{plainWriter: w},
		struct {
			plainWriter
			flushes
			hijacks
			reads
		}{plainWriter: w},
	} {
		l, _ := perMinute(t, 10)
		has := func(w http.ResponseWriter) (all [3]bool) {
			_, all[0] = w.(http.Flusher)
			_, all[1] = w.(http.Hijacker)
			_, all[2] = w.(io.ReaderFrom)
			return all
		}
		called := false
		wrap(t, l, httplimit.Config{Count: failed}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			called = true
			assert.Equal(t, has(inner), has(w))
			type unwrapper interface{ Unwrap() http.ResponseWriter }
			assert.Equal(t, inner, w.(unwrapper).Unwrap().(unwrapper).Unwrap(), "behind what Count sees of a ResponseController")
			if h, can := w.(http.Hijacker); can {
				_, _, err := h.Hijack()
				assert.Error(t, err)
			}
		})).ServeHTTP(inner, request(t, "/", "203.0.113.9:1"))
		assert.True(t, called)
	}
}

// A fixed is a Limiter of the user's own.
type fixed struct{ ratelimit.Limiter }

// TestCountNeeds says at the start what cannot give back.
func TestCountNeeds(t *testing.T) {
	own, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(1))
	require.NoError(t, err)
	l, _ := limited(t, []ratelimit.Rule{{Name: "own", Endpoint: "*", Limiter: fixed{own}}}, nil)
	_, err = httplimit.New(l, httplimit.Config{Count: failed})
	assert.EqualError(t, err, `ratelimit: count is set: must be nil beside rule "own": its custom limiter gives no units back`)
	l, _ = limited(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithName("n"),
		ratelimit.WithStore(brokenStore{errors.New("down")}))
	_, err = httplimit.New(l, httplimit.Config{Count: failed})
	assert.EqualError(t, err, "ratelimit: store is httplimit_test.brokenStore: must have a method Settle(context.Context, []Ask) error: "+
		"units are to be reserved")
	assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, err = httplimit.New(nil, httplimit.Config{Count: failed})
	assert.EqualError(t, err, "ratelimit: limiter is nil: must be one that ratelimit.New has made")
}

// TestCountInAStore gives back what was taken in a store.
func TestCountInAStore(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	l, _ := limited(t, nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(1)}, ratelimit.WithName("n"),
		ratelimit.WithStore(store))
	h := wrap(t, l, httplimit.Config{Count: failed}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	assert.Equal(t, []int{200, 200, 200}, codes(h, request(t, "/", "203.0.113.9:1"), 3))
	assert.Equal(t, []int{400, 429}, codes(h, request(t, "/bad", "203.0.113.9:1"), 2))
}
