package verify

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/configfile"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestHTTPStatus asks for the status of denials that no Middleware has decided.
func TestHTTPStatus(t *testing.T) {
	rate := ratelimit.PerMinute(1)
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "closed", Rate: rate, OnStoreError: ratelimit.FailClosed}, {Name: "local", Rate: rate, OnStoreError: ratelimit.FailLocal(1)},
	}, nil, ratelimit.WithStore(goneStore{errors.New("down")}), ratelimit.WithName("http"))
	require.NoError(t, err)
	for _, row := range []struct {
		rules []string
		want  int
	}{
		{[]string{"closed"}, http.StatusServiceUnavailable},
		{[]string{"local"}, http.StatusTooManyRequests},
		{[]string{"closed", "local"}, http.StatusTooManyRequests},
		{[]string{"gone"}, http.StatusInternalServerError},
	} {
		_, each, err := l.CheckAll(t.Context(), ratelimit.Request{Rules: row.rules, Cost: 2}, nil)
		require.Equal(t, row.want, httplimit.Status(l, err, each...), row.rules)
	}
}

// TestHTTPReload changes the rules so that one limits nothing. A Watcher refuses this, and a Middleware says it once.
func TestHTTPReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.json")
	write := func(endpoint string) {
		text := fmt.Sprintf(`[{"endpoint": %q, "algorithm": "FixedWindow", "rate": "9/m"}]`, endpoint)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("/login")
	l, w, err := configfile.Open(path)
	require.NoError(t, err)
	var log strings.Builder
	m, err := httplimit.New(l, httplimit.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("/login", func(http.ResponseWriter, *http.Request) {})
	h := m.Handler(mux)
	ask := func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	}
	ask()
	w.Log, w.Check = slog.New(slog.DiscardHandler), m.CheckRules(mux)
	write("/logn")
	require.ErrorContains(t, w.Reload(), "limits nothing")
	rules, _ := l.Rules()
	require.Equal(t, "/login", rules[0].Endpoint)
	require.Empty(t, log.String())

	w.Check = nil
	require.NoError(t, w.Reload())
	ask()
	require.Equal(t, 1, strings.Count(log.String(), "limits nothing"), log.String())
	require.NoError(t, l.UpdateRate("/logn", ratelimit.PerMinute(8)))
	ask()
	require.Equal(t, 1, strings.Count(log.String(), "limits nothing"), log.String())
}

// TestHTTPTiers has clients of tiers that no rule knows.
func TestHTTPTiers(t *testing.T) {
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(1000), Tiers: map[string]ratelimit.Rate{"pro": ratelimit.PerHour(2000)}})
	require.NoError(t, err)
	var log strings.Builder
	tier := ""
	m, err := httplimit.New(l, httplimit.Config{
		Log:    slog.New(slog.NewTextHandler(&log, nil)),
		Client: func(*http.Request) (string, string, bool) { return "alice", tier, true },
	})
	require.NoError(t, err)
	h := m.Handler(http.NotFoundHandler())
	for _, row := range []struct {
		tier  string
		lines int
	}{{"", 0}, {"pro", 0}, {"Pro", 1}, {"Pro", 1}} {
		tier = row.tier
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		require.Equal(t, row.lines, strings.Count(log.String(), "no rule has a rate for a tier"), row.tier)
	}
	for i := range 200 {
		tier = fmt.Sprint(i)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	}
	require.Equal(t, 100, strings.Count(log.String(), "no rule has a rate for a tier"))
	e, err := l.Explain(t.Context(), ratelimit.Request{Client: "alice", Tier: "Pro"})
	require.NoError(t, err)
	require.Contains(t, e.String(), "no rule here has a rate for the tier \"Pro\"")
}

// TestHTTPPace reads the RateLimit of a bucket with units left, and the Retry-After of two layers.
func TestHTTPPace(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	layer := func(rate ratelimit.Rate, next http.Handler) http.Handler {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "a", Rate: rate}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		return httplimit.Handler(next, l)
	}
	ask := func(h http.Handler) http.Header {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		return w.Header()
	}
	h := layer(ratelimit.PerMinute(100), http.NotFoundHandler())
	require.Equal(t, `"a";r=99;t=60`, ask(h).Get("RateLimit"))
	require.Equal(t, `"a";r=98;t=59`, ask(h).Get("RateLimit"))

	h = layer(ratelimit.PerHour(2), layer(ratelimit.PerMinute(6).WithBurst(1), http.NotFoundHandler()))
	require.Empty(t, ask(h).Get("Retry-After"))
	require.Equal(t, "1800", ask(h).Get("Retry-After"), "the outer layer has nothing left")
}

// TestResultPrints prints a grant and a denial.
func TestResultPrints(t *testing.T) {
	l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "r", Rate: ratelimit.PerHour(1)}, ratelimit.WithClock(ratelimit.NewFakeClock(time.Unix(0, 0))))
	require.NoError(t, err)
	require.Equal(t, `allowed, 0 of 1 remain, reset after 1h0m0s, by rule "r"`, fmt.Sprint(l.Allow("alice", "/")))
	require.Equal(t, `denied, 0 of 1 remain, retry after 1h0m0s, reset after 1h0m0s, by rule "r"`, fmt.Sprint(l.Allow("alice", "/")))
}
