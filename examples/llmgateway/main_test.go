package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A service is the gateway behind a server, and a clock that stands still.
type service struct {
	t     *testing.T
	clock *ratelimit.FakeClock
	*gateway
	url  string
	over chan any // receives when a request is over: what the gateway has panicked with, or nil
}

func start(t *testing.T, m model) *service {
	s := &service{t: t, clock: ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), over: make(chan any, 9)}
	var err error
	s.gateway, err = newGateway(m, ratelimit.WithClock(s.clock))
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.over <- recover() }()
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = server.URL + "/v1/chat"
	return s
}

// ask sends a prompt of alice.
func (s *service) ask(ctx context.Context, prompt string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, strings.NewReader(prompt))
	require.NoError(s.t, err)
	r.Header.Set("X-Client", "alice")
	return http.DefaultClient.Do(r)
}

// answer returns the whole answer to a prompt, and its status.
func (s *service) answer(prompt string) (text string, status int) {
	resp, err := s.ask(s.t.Context(), prompt)
	require.NoError(s.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, resp.Body.Close())
	require.Nil(s.t, <-s.over)
	return string(body), resp.StatusCode
}

func TestSettlesForWhatWasUsed(t *testing.T) {
	s := start(t, func(_ context.Context, prompt string, emit func(string, int) error) error {
		return emit(prompt, 1312)
	})
	for i := range 13 {
		text, status := s.answer("hello")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "hello", text)
		require.Equal(t, [3]int{59 - i, 20_000 - 1312*(i+1), 4}, left(t, s.gateway), "and not 4,000 for each")
	}
	text, status := s.answer("hello") // 2,944 are left
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Contains(t, text, `"violated-policies":["tokens"]`)
	require.Equal(t, [3]int{47, 2944, 4}, left(t, s.gateway), "what was denied has charged nothing")
}

func TestStreamsAndStops(t *testing.T) {
	s := start(t, func(ctx context.Context, _ string, emit func(string, int) error) error {
		if err := emit("one\n", 100); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	resp, err := s.ask(ctx, "count")
	require.NoError(t, err)
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line, "it arrives while the model goes on")
	require.Equal(t, [3]int{59, 16_000, 3}, left(t, s.gateway), "held")
	leave()
	require.Nil(t, <-s.over)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, [3]int{59, 19_900, 4}, left(t, s.gateway))
}

func TestUsesMoreThanItHolds(t *testing.T) {
	s := start(t, func(_ context.Context, _ string, emit func(string, int) error) error { return emit("much", 26_000) })
	_, status := s.answer("")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, [3]int{59, 0, 4}, left(t, s.gateway))
	resp, err := s.ask(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "1800", resp.Header.Get("Retry-After"), "6,000 beyond the limit and 4,000 to hold, at 20,000 an hour")
}

func TestPanics(t *testing.T) {
	s := start(t, func(_ context.Context, _ string, emit func(string, int) error) error {
		_ = emit("one", 1)
		panic("the model is broken")
	})
	resp, err := s.ask(t.Context(), "")
	if err == nil {
		require.NoError(t, resp.Body.Close())
	}
	require.Equal(t, "the model is broken", <-s.over)
	require.Equal(t, [3]int{59, 19_999, 4}, left(t, s.gateway))
}

// TestOutage asks the gateway while its store is down, for a request without an answer, and over the limit.
func TestOutage(t *testing.T) {
	down := func(policy ratelimit.FailurePolicy) *gateway {
		store, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		g, err := newGateway(func(_ context.Context, _ string, emit func(string, int) error) error { return emit("much", 5000) },
			ratelimit.WithStore(downStore{store}), ratelimit.WithName("llm"), ratelimit.WithFailurePolicy(policy))
		require.NoError(t, err)
		return g
	}
	ended, leave := context.WithCancel(t.Context())
	leave()
	for _, row := range []struct {
		ctx    context.Context
		policy ratelimit.FailurePolicy
		want   []int
	}{
		{t.Context(), ratelimit.FailClosed, []int{503}},
		{t.Context(), ratelimit.FailLocal(4), []int{200, 429}},
		{ended, ratelimit.FailClosed, []int{503}},
	} {
		g := down(row.policy)
		for _, want := range row.want {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequestWithContext(row.ctx, http.MethodPost, "/v1/chat", http.NoBody))
			require.Equal(t, want, w.Code, row.policy)
		}
	}
}

// A downStore is a complete Store that cannot be reached.
type downStore struct{ *ratelimit.MemoryStore }

func (downStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, io.ErrUnexpectedEOF
}

// TestCrash shows what becomes of a request that never ends: its tokens drain as any others.
func TestCrash(t *testing.T) {
	s := start(t, nil)
	_, err := s.limiter.Reserve(t.Context(), ratelimit.Request{
		Client: "alice", Endpoint: "/v1/chat", Costs: []ratelimit.Cost{{Unit: "tokens", N: estimate}},
	}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, [3]int{59, 16_000, 3}, left(t, s.gateway))
	s.clock.Advance(time.Minute)
	require.Equal(t, [3]int{60, 16_333, 4}, left(t, s.gateway), "after a minute it no longer counts as running")
	s.clock.Advance(11 * time.Minute)
	require.Equal(t, [3]int{60, 20_000, 4}, left(t, s.gateway))
}

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var words []string
		emit := func(piece string, _ int) error { words = append(words, piece); return nil }
		require.NoError(t, repeat(t.Context(), "one two", emit))
		require.Equal(t, []string{"one ", "two "}, words)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, repeat(ctx, "one two", emit), context.Canceled)
		require.ErrorIs(t, repeat(t.Context(), "one", func(string, int) error { return io.EOF }), io.EOF)
	})
}

// TestLoad has 64 clients send 20 requests each, of which some are cut off: never more than 4 of a client are answered
// at the same time, and in the end exactly what was used is charged.
func TestLoad(t *testing.T) {
	var now, most, used [4]atomic.Int64
	s := start(t, func(ctx context.Context, prompt string, emit func(string, int) error) error {
		who, err := strconv.Atoi(prompt[:1])
		if err != nil {
			return err
		}
		n := now[who].Add(1)
		defer now[who].Add(-1)
		for m := most[who].Load(); n > m && !most[who].CompareAndSwap(m, n); m = most[who].Load() {
		}
		for range 5 {
			used[who].Add(1)
			if err := emit(prompt, 1); err != nil {
				return err
			}
		}
		if len(prompt) > 1 {
			panic(http.ErrAbortHandler)
		}
		return ctx.Err()
	})
	s.over = make(chan any, 64*20)
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			who := strconv.Itoa(i % len(now))
			for k := range 20 {
				prompt := who
				if k%5 == 4 {
					prompt += " and more"
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url, strings.NewReader(prompt))
				if !assert.NoError(t, err) {
					return
				}
				r.Header.Set("X-Client", who)
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}
		})
	}
	all.Wait()
	for range 64 * 20 {
		<-s.over
	}
	for who := range now {
		require.LessOrEqual(t, most[who].Load(), int64(4))
		r, err := s.limiter.Reserve(t.Context(), ratelimit.Request{
			Client: strconv.Itoa(who), Endpoint: "/v1/chat", Cost: 1000, Costs: []ratelimit.Cost{{Unit: "tokens", N: 0}},
		}, time.Minute)
		require.NoError(t, err)
		each := r.Results()
		require.EqualValues(t, 20_000-used[who].Load(), each[1].Remaining, "tokens charged are those that were used")
		require.Equal(t, 4, each[2].Remaining, "nothing runs any more")
	}
}

// TestShow plays what the program shows without an address: four requests at once, which are settled for the 20 tokens
// that they have used.
func TestShow(t *testing.T) {
	denied := make(whenDenied)
	g, err := newGateway(func(_ context.Context, prompt string, emit func(piece string, tokens int) error) error {
		if err := emit(prompt[:4], 1); err != nil {
			return err
		}
		<-denied
		return emit(prompt[4:], 4)
	}, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1772323200, 0))), ratelimit.WithObserver(denied))
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, g.show(&out))
	require.Equal(t, "denied: 429 Too Many Requests, \"at once\";r=0\n"+
		strings.Repeat("answered: five words for the model\n", 4)+"56 of 60 requests and 19980 of 20000 tokens are left\n", out.String())
}

// A whenDenied is closed when a request is denied.
type whenDenied chan struct{}

func (c whenDenied) Observe(_ context.Context, d ratelimit.Decision) {
	if !d.Result.Allowed {
		close(c)
	}
}
