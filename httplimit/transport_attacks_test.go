package httplimit_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestAttack28ClockSkew has servers whose clocks are years off. Dates are compared with theirs.
func TestAttack28ClockSkew(t *testing.T) {
	for _, skew := range []time.Duration{-20 * 365 * 24 * time.Hour, -time.Hour, 0, time.Hour, 20 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			theirs := time.Now().Add(skew)
			date, after := theirs.Format(http.TimeFormat), theirs.Add(20*time.Second)
			for _, res := range []*http.Response{
				response(429, "Date", date, "Retry-After", after.Format(http.TimeFormat)),
				response(200, "Date", date, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(after.Unix())),
				response(429, "Date", date, "Retry-After", "20"),
				response(200, "Date", date, "RateLimit", `"a";r=0;t=20`),
				response(200, "Date", date, "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "20"),
			} {
				if after.Unix() < 1_000_000_000 && res.Header.Get("X-RateLimit-Reset") == fmt.Sprint(after.Unix()) {
					continue // before 2001 it is a duration
				}
				tr := &httplimit.Transport{Base: &wire{answer: once(res)}}
				_, err := send(t.Context(), t, tr, api)
				require.NoError(t, err)
				heldFor(t, tr, 20*time.Second, skew, res.Header)
			}
		})
	}
}

// TestAttack29HostileRetryAfter has a real server that writes what it likes to the connection.
func TestAttack29HostileRetryAfter(t *testing.T) {
	for _, row := range []struct {
		header string
		wait   time.Duration // the least that a later request would wait
		most   time.Duration
	}{
		{"Retry-After: 1000000\r\n", 599 * time.Second, 600 * time.Second},
		{"Retry-After: -1\r\n", 0, time.Second},
		{"Retry-After: 1e400\r\n", 0, time.Second},
		{"Retry-After: " + strings.Repeat("9", 1<<20) + "\r\n", 0, time.Second},
		{"Retry-After: 50\r\n" + strings.Repeat("Retry-After: 500\r\n", 9), 49 * time.Second, 50 * time.Second},
		{"Retry-After:\r\n", 0, time.Second},
		{"Retry-After: \x80\xff\r\n", 0, time.Second},
		{"Retry-After: Thu, 01 Jan 1970 00:00:00 GMT\r\nDate: Fri, 31 Dec 9999 23:59:59 GMT\r\n", 0, time.Second},
		{"RateLimit: " + strings.Repeat(`"a";r=0;t=1,`, 50_000) + "\"b\";r=0;t=40\r\n", 39 * time.Second, 40 * time.Second},
		{"RateLimit: " + strings.Repeat("(", 1<<20) + "\r\n", 0, time.Second},
		{strings.Repeat("RateLimit: \"a\";r=0;t=40\r\n", 2000), 39 * time.Second, 40 * time.Second},
		{"RateLimit: \"a\";r=0" + strings.Repeat(";r=0;t=40", 50_000) + "\r\n", 39 * time.Second, 40 * time.Second},
		{"X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: " + strings.Repeat("1", 400) + "\r\n", 0, time.Second},
	} {
		name := row.header[:min(len(row.header), 60)]
		server := rawServer(t, "HTTP/1.1 429 Too Many Requests\r\n"+row.header+"Content-Length: 0\r\n\r\n")
		base := &http.Transport{}
		tr := &httplimit.Transport{Base: base, MaxWait: 1}
		_, err := send(t.Context(), t, tr, server)
		require.NoError(t, err, name)
		_, err = send(t.Context(), t, tr, server)
		var held *httplimit.HoldError
		require.ErrorAs(t, err, &held, name)
		assert.LessOrEqual(t, held.Wait, row.most, name)
		assert.GreaterOrEqual(t, held.Wait, row.wait, name)
		base.CloseIdleConnections()
	}
}

// rawServer answers each request of a connection with this text, byte by byte as it stands.
func rawServer(t testing.TB, answer string) (url string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		all.Wait()
	})
	return "http://" + listener.Addr().String()
}

// TestAttack30HostAHoldsB has a host that asks for much, by its answers and by redirects, and a
// million of them.
func TestAttack30HostAHoldsB(t *testing.T) {
	t.Run("by a redirect", func(t *testing.T) {
		var served [2]atomic.Int64
		b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if served[1].Add(1) == 1 {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		}))
		defer b.Close()
		a := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served[0].Add(1)
			w.Header().Set("Retry-After", "3600") // of a redirect, this is something else
			if r.URL.Path == "/to-b" {
				http.Redirect(w, r, b.URL, http.StatusTemporaryRedirect)
			}
		}))
		defer a.Close()
		client := &http.Client{Transport: &httplimit.Transport{Base: a.Client().Transport, MaxWait: time.Minute}}
		do := func(target string) (*http.Response, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader("body"))
			require.NoError(t, err)
			res, err := client.Do(r)
			if err == nil {
				require.NoError(t, res.Body.Close())
			}
			return res, err
		}
		res, err := do(a.URL + "/to-b") //nolint:bodyclose // do closes it
		require.NoError(t, err)
		require.Equal(t, http.StatusTooManyRequests, res.StatusCode)
		res, err = do(a.URL + "/here") //nolint:bodyclose // do closes it
		require.NoError(t, err, "A is not held")
		require.Equal(t, http.StatusOK, res.StatusCode)
		_, err = do(a.URL + "/to-b") //nolint:bodyclose // do closes it
		var held *httplimit.HoldError
		require.ErrorAs(t, err, &held, "B is, also by way of A")
		assert.Equal(t, b.URL, held.Host)
		var wrapped *url.Error
		require.ErrorAs(t, err, &wrapped)
		assert.Equal(t, b.URL, wrapped.URL)
		assert.EqualValues(t, 3, served[0].Load())
		assert.EqualValues(t, 1, served[1].Load())
	})
	t.Run("a million hosts", func(t *testing.T) {
		if testing.Short() {
			t.Skip("takes seconds")
		}
		synctest.Test(t, func(t *testing.T) {
			seconds := "500"
			w := roundTripper(func(*http.Request) (*http.Response, error) { return response(429, "Retry-After", seconds), nil })
			tr := &httplimit.Transport{Base: w, MaxWait: 1}
			r := &http.Request{URL: &url.URL{Scheme: "http"}, Method: http.MethodGet}
			ask := func(host string) error {
				r.URL.Host = host
				res, err := tr.RoundTrip(r)
				if err == nil {
					_ = res.Body.Close()
				}
				return err
			}
			for i := range 1023 {
				require.NoError(t, ask(fmt.Sprintf("early-%d", i)))
			}
			seconds = "599"
			require.NoError(t, ask("mine"))
			seconds = "400"
			for i := range 500_000 {
				require.NoError(t, ask(fmt.Sprintf("h-%d.example", i)), "it ends first, and leaves")
			}
			for i := range 1023 {
				require.Error(t, ask(fmt.Sprintf("early-%d", i)), "none has left")
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			seconds = "550"
			for i := range 500_000 {
				require.NoError(t, ask(fmt.Sprintf("g-%d.example", i)))
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20), "at most 1,024 are remembered")
			require.Error(t, ask("mine"), "it ends last")
			require.NoError(t, ask("early-0"), "these have left")
		})
	})
}

// TestEarliestEndLeaves fills the table of holds with ends in a disorder, some of which become
// later, and finds the 1,024 latest of them.
func TestEarliestEndLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seconds int
		w := &wire{answer: func(*http.Request) *http.Response { return response(429, "Retry-After", fmt.Sprint(seconds)) }}
		tr := &httplimit.Transport{Base: w, MaxWait: 1, MaxHold: 100 * time.Hour}
		ask := func(host int) error {
			_, err := send(t.Context(), t, tr, fmt.Sprintf("http://h-%d.example", host))
			return err
		}
		const hosts = 1300
		end := func(i int) int { return 1000 + i*37%hosts } // all different
		for i := range hosts {
			seconds = end(i)
			require.NoError(t, ask(i))
		}
		kept := 0
		for i := range hosts {
			seconds = 0 // changes nothing
			if ask(i) != nil {
				kept++
				require.GreaterOrEqual(t, end(i), 1000+hosts-1024, "%d", i)
			} else {
				require.Less(t, end(i), 1000+hosts-1024, "%d", i)
			}
		}
		require.Equal(t, 1024, kept)
		// When all have ended, they make room.
		time.Sleep(time.Duration(1000+hosts) * time.Second)
		seconds = 1
		for i := range 2 * hosts {
			require.NoError(t, ask(i))
			require.Error(t, ask(i), "though it is short")
			if i%1000 == 999 {
				time.Sleep(time.Second)
			}
		}
	})
}

// TestAttack31CachedLimits has what was said to others: a cache in between, and a 304 whose fields
// are those of a stored response.
func TestAttack31CachedLimits(t *testing.T) {
	first := true
	cache := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("RateLimit", `"default";r=0;t=3600`)
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Reset", "3600")
		switch r.URL.Path {
		case "/hit":
			h.Set("Age", "17")
		case "/stale":
			h.Set("Age", "17")
			h.Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/unchanged":
			w.WriteHeader(http.StatusNotModified)
		default:
			first = false
		}
	}))
	defer cache.Close()
	tr := &httplimit.Transport{Base: cache.Client().Transport, MaxWait: 1}
	for _, path := range []string{"/hit", "/stale", "/unchanged", "/fresh"} {
		_, err := send(t.Context(), t, tr, cache.URL+path)
		require.NoError(t, err, path)
	}
	require.False(t, first)
	_, err := send(t.Context(), t, tr, cache.URL+"/hit")
	require.ErrorAs(t, err, new(*httplimit.HoldError), "what the server itself has said counts")

	// Nobody may store our own denials.
	l, _ := perMinute(t, 1)
	h := wrap(t, l, httplimit.Config{}, ok)
	require.Equal(t, http.StatusOK, get(t, h, "/", proxy).Code)
	denied := get(t, h, "/", proxy)
	require.Equal(t, http.StatusTooManyRequests, denied.Code)
	require.Equal(t, "no-store", denied.Header().Get("Cache-Control"))
}

// TestBothSides lets a Transport talk to a Middleware, for each form of the fields. The server's
// clock is the Transport's, so the times are exact: nobody is ever denied twice in a row.
func TestBothSides(t *testing.T) {
	for _, form := range []httplimit.Headers{httplimit.HeadersDraft11, httplimit.HeadersDelta, httplimit.HeadersNone} {
		l, clock := perMinute(t, 4)
		var denied atomic.Int64
		server := serve(t, wrap(t, l, httplimit.Config{Headers: form, Denied: func(w http.ResponseWriter, r *http.Request, i *httplimit.Info) {
			denied.Add(1)
			httplimit.Problem(w, r, i)
		}}, ok))
		tr := &httplimit.Transport{Base: server.h1.Transport, Clock: clock, MaxWait: time.Minute}
		ctx, cancel := context.WithCancel(t.Context())
		moved := make(chan struct{})
		go func() { // time passes
			defer close(moved)
			for ctx.Err() == nil {
				clock.Advance(100 * time.Millisecond)
				runtime.Gosched()
			}
		}()
		for range 30 {
			_, err := send(t.Context(), t, tr, server.url)
			require.NoError(t, err)
		}
		cancel()
		<-moved
		if form != httplimit.HeadersNone {
			assert.Zero(t, denied.Load(), "who sees that nothing is left waits before he is denied")
		} else {
			assert.LessOrEqual(t, denied.Load(), int64(15), "never twice in a row")
		}
	}
}
