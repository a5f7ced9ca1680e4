package httplimit_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// running is a rule that lets n requests run at once, each for at most a minute.
func running(n int) ratelimit.Rule {
	return ratelimit.Rule{
		Name: "running", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmInFlight,
		Rate: ratelimit.Rate{Requests: n, Per: time.Minute},
	}
}

// held returns how many requests run, by the client with the address 127.0.0.1.
func held(t *testing.T, l *ratelimit.RateLimiter) int {
	t.Helper()
	r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "ip:127.0.0.1", Endpoint: "/"}, time.Minute)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Done()) }()
	each := r.Results()
	left := each[len(each)-1]
	if left.Allowed {
		left.Remaining++
	}
	return left.Limit - left.Remaining
}

// TestRunning lets 64 connections send requests to a server: never more than the limit run at once, and what was denied
// is not charged.
func TestRunning(t *testing.T) {
	const limit = 5
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "requests", Endpoint: "/", Rate: ratelimit.Rate{Requests: 100_000, Per: 24 * time.Hour}}, running(limit),
	}, nil)
	require.NoError(t, err)
	m, err := httplimit.New(l, httplimit.Config{Endpoint: func(*http.Request) string { return "/" }})
	require.NoError(t, err)
	var now, most, granted, denied atomic.Int64
	full := make(chan struct{})
	deny := sync.OnceFunc(func() { close(full) })
	server := httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-full // at first, requests run until one was denied
		if granted.Add(1)%7 == 0 {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte("done"))
	})))
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 50 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
				if !assert.NoError(t, err) {
					return
				}
				resp, err := client.Do(r)
				if err != nil {
					continue // the handler has panicked
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusTooManyRequests {
					denied.Add(1)
					deny()
					assert.Contains(t, []string{"1", "2"}, resp.Header.Get("Retry-After"), "nobody knows when, so clients try again soon")
				}
			}
		})
	}
	all.Wait()
	server.Close()
	require.LessOrEqual(t, most.Load(), int64(limit))
	require.Positive(t, denied.Load())
	require.Zero(t, held(t, l), "nothing is held at the end")
	require.EqualValues(t, granted.Load(), l.Stats()[0].Allowed-1, "what was denied has charged no request, but held has")
}

// TestRunningEnds ends what is running when the handler does: after a panic, after a hijack, and not before.
func TestRunningEnds(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{running(2)}, nil)
	count := func(*http.Request, int) bool { return false }
	for name, c := range map[string]httplimit.Config{"plain": {}, "with Count": {Count: count}, "with Info": {Info: true}} {
		for kind, handler := range map[string]http.HandlerFunc{
			"returns": func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusOK)
				require.Equal(t, 1, held(t, l), "Count settles at the status, but the request goes on")
			},
			"panics": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			"hijacks": func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				assert.NoError(t, err)
				assert.Equal(t, 1, held(t, l), "the connection is in use until the handler returns")
				assert.NoError(t, conn.Close())
			},
		} {
			over := make(chan any, 1)
			h := wrap(t, l, c, handler)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { over <- recover() }()
				h.ServeHTTP(w, r)
			}))
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			require.NoError(t, err)
			resp, err := http.DefaultClient.Do(r)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			<-over
			server.Close()
			require.Zero(t, held(t, l), "%s, %s", name, kind)
		}
	}
}

// TestRunningInside decides a second time inside a request, which holds no second slot.
func TestRunningInside(t *testing.T) {
	l, _ := limited(t, []ratelimit.Rule{
		running(1),
		{Name: "tokens", Endpoint: "*", Additional: true, Unit: "tokens", Rate: ratelimit.PerMinute(100)},
	}, nil)
	m := made(t, l, httplimit.Config{})
	var held *ratelimit.Reservation
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.True(t, m.Allow(w, r, ratelimit.Request{Costs: []ratelimit.Cost{{Unit: "tokens", N: 10}}}))
		require.Equal(t, []string{`"running";r=0`, `"tokens";r=90;t=54`}, w.Header()["Ratelimit"])
		var ok bool
		held, ok = m.Reserve(w, r, ratelimit.Request{Costs: []ratelimit.Cost{{N: 0}, {Unit: "tokens", N: 20}}}, time.Minute)
		require.True(t, ok)
		require.NoError(t, held.SettleCosts(ratelimit.Cost{Unit: "tokens", N: 5}))
		_, ok = m.Reserve(w, r, ratelimit.Request{Costs: []ratelimit.Cost{{N: 0}, {Unit: "tokens", N: 86}}}, time.Minute)
		require.False(t, ok)
	}))
	w := get(t, h, "/", "192.0.2.1:1")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, []string{`"tokens";q=100;qu="tokens";w=60`}, w.Header()["Ratelimit-Policy"][1:])
}

// TestReserveFails answers as the Middleware does if there is no Reservation.
func TestReserveFails(t *testing.T) {
	l, _ := perMinute(t, 5)
	m := made(t, l, httplimit.Config{})
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		units, ok := m.Reserve(w, r, ratelimit.Request{Rules: []string{"gone"}}, time.Minute)
		require.False(t, ok)
		require.Nil(t, units)
	})
	require.Equal(t, http.StatusInternalServerError, get(t, h, "/", "192.0.2.1:1").Code)

	down, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5)},
		ratelimit.WithStore(downStore{}), ratelimit.WithName("x"), ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	m = made(t, down, httplimit.Config{})
	require.Equal(t, http.StatusInternalServerError, get(t, h, "/", "192.0.2.1:1").Code, "this store cannot give units back")
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	down, err = ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(5)},
		ratelimit.WithStore(unreachable{store}), ratelimit.WithName("x"), ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	m = made(t, down, httplimit.Config{})
	h = func(w http.ResponseWriter, r *http.Request) {
		_, ok := m.Reserve(w, r, ratelimit.Request{}, time.Minute)
		require.False(t, ok)
	}
	require.Equal(t, http.StatusServiceUnavailable, get(t, h, "/", "192.0.2.1:1").Code, "and not 429")
}

// An unreachable store is complete, but fails each Take.
type unreachable struct{ *ratelimit.MemoryStore }

func (unreachable) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, net.ErrClosed
}

// TestHoldExtend lets a request run for longer than the Per of its rule.
func TestHoldExtend(t *testing.T) {
	for _, row := range []struct {
		every time.Duration
		want  int
	}{{0, 1}, {50 * time.Second, 1}, {-1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			l, err := ratelimit.New([]ratelimit.Rule{running(1)}, nil)
			require.NoError(t, err)
			m := made(t, l, httplimit.Config{HoldExtend: row.every})
			work := func() {
				<-time.After(10*time.Minute + 1)
				require.Equal(t, row.want, held(t, l))
			}
			get(t, m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { work() })), "/", "127.0.0.1:1")
			require.Zero(t, held(t, l))
			ctx, leave := context.WithCancel(t.Context())
			w := httptest.NewRecorder()
			units, ok := m.Reserve(w, request(t, "/", "127.0.0.1:1").WithContext(ctx), ratelimit.Request{Endpoint: "/"}, time.Hour)
			require.True(t, ok)
			work()
			leave() // from now on, nobody extends
			<-time.After(time.Minute)
			require.Zero(t, held(t, l))
			require.NoError(t, units.Done())
		})
	}
}

// TestHoldExtendFails lets a request run whose store does not answer once: it still counts as running after Per.
func TestHoldExtendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		var log logbook
		once := &failsOnce{MemoryStore: store}
		l, err := ratelimit.New([]ratelimit.Rule{running(1)}, nil, ratelimit.WithStore(once), ratelimit.WithName("x"))
		require.NoError(t, err)
		m := made(t, l, httplimit.Config{Log: log.logger()})
		get(t, m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			<-time.After(10*time.Minute + 1)
			require.True(t, once.failed.Load())
			require.Equal(t, 1, held(t, l))
		})), "/", "127.0.0.1:1")
		require.Zero(t, held(t, l))
	})
}

// A failsOnce is a complete store whose first Settle fails.
type failsOnce struct {
	*ratelimit.MemoryStore
	failed atomic.Bool
}

func (s *failsOnce) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	if s.failed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	return s.MemoryStore.Settle(ctx, asks)
}

// TestHeldIDs refuses an ID beside a rule that counts what is running.
func TestHeldIDs(t *testing.T) {
	var log logbook
	l, _ := limited(t, []ratelimit.Rule{running(1)}, nil, ratelimit.WithRequestIDs(time.Hour))
	h := wrap(t, l, httplimit.Config{Log: log.logger(), Prepare: func(r *http.Request, req *ratelimit.Request) {
		req.ID = r.Header.Get("Idempotency-Key")
	}}, http.NotFoundHandler())
	require.Equal(t, http.StatusNotFound, get(t, h, "/", "192.0.2.1:1").Code)
	require.Equal(t, http.StatusInternalServerError, get(t, h, "/", "192.0.2.1:1", "Idempotency-Key", "a").Code)
	require.Contains(t, log.lines()[0], "must be empty beside a rule with the algorithm InFlight")
}

// TestUnitsInHeaders shows the binding rule first, the others in their order, and what each counts.
func TestUnitsInHeaders(t *testing.T) {
	var log logbook
	l, _ := limited(t, []ratelimit.Rule{
		{Name: "tokens", Endpoint: "/", Unit: "tokens", Rate: ratelimit.PerMinute(60)},
		{Name: "bytes", Endpoint: "/", Unit: "bytes", Rate: ratelimit.PerMinute(60)},
		{Name: "requests", Endpoint: "/", Rate: ratelimit.PerMinute(600)},
		{Name: "at once", Endpoint: "/", Algorithm: ratelimit.AlgorithmInFlight, Rate: ratelimit.Rate{Requests: 2, Per: time.Minute}},
		{Name: "soft", Endpoint: "/", Mode: ratelimit.ModeAdvise, Rate: ratelimit.PerMinute(1)},
	}, nil)
	mux := http.NewServeMux()
	mux.Handle("/", http.NotFoundHandler())
	cost := 10
	h := wrap(t, l, httplimit.Config{Log: log.logger(), Endpoint: func(*http.Request) string { return "/" },
		Prepare: func(r *http.Request, req *ratelimit.Request) {
			if r.Method == http.MethodPost {
				req.Costs = []ratelimit.Cost{{Unit: "tokens", N: cost}, {Unit: "bytes", N: 1}}
			}
		}}, mux)
	post := request(t, "/", "192.0.2.1:1")
	post.Method = http.MethodPost
	head := answer(h, post).Header()
	require.Equal(t, []string{`"at once";r=1, "tokens";r=50;t=50, "bytes";r=59;t=59, "requests";r=599;t=60`}, head["Ratelimit"])
	require.Equal(t, []string{
		`"at once";q=2;qu="concurrent-requests", "tokens";q=60;qu="tokens";w=60, "bytes";q=60;qu="content-bytes";w=60, "requests";q=600;w=60`,
	}, head["Ratelimit-Policy"])
	cost = 51
	w := answer(h, post)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, []string{`"tokens";r=50;t=50`}, w.Header()["Ratelimit"])
	require.Empty(t, log.lines())
	require.Equal(t, http.StatusNotFound, get(t, h, "/", "192.0.2.1:1").Code)
	require.Equal(t, http.StatusNotFound, get(t, h, "/", "192.0.2.1:1").Code)
	require.LessOrEqual(t, len(log.lines()), 1, "at most one line a minute")
}
