package httplimit_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// perMinute returns a limiter with a default rule of n requests a minute for each client, and
// its clock.
func perMinute(t testing.TB, n int, rules ...ratelimit.Rule) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	t.Helper()
	return limited(t, rules, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)})
}

// limited returns a limiter with these rules, and its clock.
func limited(t testing.TB, rules []ratelimit.Rule, defaultRule *ratelimit.Rule, opts ...ratelimit.Option) (*ratelimit.RateLimiter,
	*ratelimit.FakeClock) {
	t.Helper()
	clock := ratelimit.NewFakeClock(start)
	l, err := ratelimit.New(rules, defaultRule, append(opts, ratelimit.WithClock(clock))...)
	require.NoError(t, err)
	return l, clock
}

// wrap returns next behind a Middleware.
func wrap(t testing.TB, l *ratelimit.RateLimiter, c httplimit.Config, next http.Handler) http.Handler {
	t.Helper()
	return made(t, l, c).Handler(next)
}

func made(t testing.TB, l *ratelimit.RateLimiter, c httplimit.Config) *httplimit.Middleware {
	t.Helper()
	m, err := httplimit.New(l, c)
	require.NoError(t, err)
	return m
}

// ok answers 200.
var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })

// request returns a request from an address, with header lines in pairs.
func request(t testing.TB, target, from string, header ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	r.RemoteAddr = from
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

// answer returns what h answers to r.
func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get returns what h answers to a request from an address.
func get(t testing.TB, h http.Handler, target, from string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return answer(h, request(t, target, from, header...))
}

// infoOf returns the Info that a handler behind m, whose Config.Info is set, gets for r.
func infoOf(t testing.TB, m *httplimit.Middleware, r *http.Request) (info httplimit.Info) {
	t.Helper()
	w := answer(m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, found := httplimit.FromContext(r.Context())
		require.True(t, found)
		info = *got
	})), r)
	require.Equal(t, http.StatusOK, w.Code)
	return info
}

// prefixes returns these prefixes.
func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

// A logbook is a log whose lines a test can read.
type logbook struct {
	mu  sync.Mutex
	all strings.Builder
}

func (b *logbook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(line)
}

func (b *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// lines returns the lines so far.
func (b *logbook) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.FieldsFunc(b.all.String(), func(r rune) bool { return r == '\n' })
}

// A brokenStore is a Store that cannot be reached.
type brokenStore struct{ err error }

func (s brokenStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, s.err
}

func (s brokenStore) Reset(context.Context, []ratelimit.Ask) error { return s.err }
