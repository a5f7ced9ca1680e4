package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	limiter, err := newLimiter(ratelimit.WithClock(s.clock))
	require.NoError(t, err)
	s.gateway = &gateway{limiter, m}
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

// left returns how many tokens alice has left.
func (s *service) left() int {
	res, err := s.limiter.Peek(s.t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/v1/chat"})
	require.NoError(s.t, err)
	return res.Remaining
}

func TestSettlesForWhatWasUsed(t *testing.T) {
	s := start(t, func(_ context.Context, prompt string, emit func(string, int) error) error {
		return emit(prompt, 1312)
	})
	for i := range 13 {
		text, status := s.answer("hello")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, "hello", text)
		require.Equal(t, 20_000-1312*(i+1), s.left(), "and not 4,000 for each")
	}
	text, status := s.answer("hello") // 2,944 are left
	require.Equal(t, http.StatusTooManyRequests, status)
	require.Equal(t, "Too Many Requests\n", text)
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
	require.Equal(t, 16_000, s.left(), "held")
	leave()
	require.Nil(t, <-s.over)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 19_900, s.left())
}

func TestUsesMoreThanItHolds(t *testing.T) {
	s := start(t, func(_ context.Context, _ string, emit func(string, int) error) error { return emit("much", 26_000) })
	_, status := s.answer("")
	require.Equal(t, http.StatusOK, status)
	require.Zero(t, s.left())
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
	require.Equal(t, 19_999, s.left())
}

// TestOutage asks the gateway while its store is down, for a request without an answer, and over the limit.
func TestOutage(t *testing.T) {
	down := func(policy ratelimit.FailurePolicy) *gateway {
		store, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		limiter, err := newLimiter(ratelimit.WithStore(downStore{store}), ratelimit.WithName("llm"), ratelimit.WithFailurePolicy(policy))
		require.NoError(t, err)
		return &gateway{limiter, func(_ context.Context, _ string, emit func(string, int) error) error { return emit("much", 5000) }}
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

// TestCrash shows what becomes of a request that is never settled: it drains as any other.
func TestCrash(t *testing.T) {
	s := start(t, nil)
	_, err := s.limiter.Reserve(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/v1/chat", Cost: hold}, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 16_000, s.left())
	s.clock.Advance(6 * time.Minute)
	require.Equal(t, 18_000, s.left())
	s.clock.Advance(6 * time.Minute)
	require.Equal(t, 20_000, s.left())
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

// TestShow plays what the program shows without an address: five requests hold all tokens, and are
// settled for the 25 that they have used.
func TestShow(t *testing.T) {
	denied := make(whenDenied)
	limiter, err := newLimiter(ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(1772323200, 0))), ratelimit.WithObserver(denied))
	require.NoError(t, err)
	g := &gateway{limiter, func(_ context.Context, prompt string, emit func(piece string, tokens int) error) error {
		if err := emit(prompt[:4], 1); err != nil {
			return err
		}
		<-denied
		return emit(prompt[4:], 4)
	}}
	var out strings.Builder
	require.NoError(t, g.show(&out))
	require.Equal(t, "denied: 429 Too Many Requests, Retry-After: 720\n"+
		strings.Repeat("answered: five words for the model\n", 5)+"19975 of 20000 tokens are left\n", out.String())
}

// A whenDenied is closed when a request is denied.
type whenDenied chan struct{}

func (c whenDenied) Observe(_ context.Context, d ratelimit.Decision) {
	if !d.Result.Allowed {
		close(c)
	}
}
