package recipes

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and log's, which writes to it
	os.Exit(m.Run())
}

// newClock returns a clock at the beginning of a minute.
func newClock() *ratelimit.FakeClock {
	return ratelimit.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
}

// limiter returns a limiter whose clock stands still.
func limiter(t testing.TB, rules []ratelimit.Rule, rest *ratelimit.Rule) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(rules, rest, ratelimit.WithClock(newClock()))
	require.NoError(t, err)
	return l
}

// perMinute returns a limiter of n requests a minute for each client.
func perMinute(t testing.TB, n int) *ratelimit.RateLimiter {
	t.Helper()
	return limiter(t, nil, &ratelimit.Rule{Name: "per-client", Rate: ratelimit.PerMinute(n)})
}

// byRoute returns a limiter by address of two requests a minute for route, and four for the rest.
func byRoute(t testing.TB) *ratelimit.RateLimiter {
	t.Helper()
	return limiter(t, []ratelimit.Rule{{Endpoint: "/items/{id}", Rate: ratelimit.PerMinute(2)}},
		&ratelimit.Rule{Name: "rest", Rate: ratelimit.PerMinute(4)})
}

func middleware(t testing.TB, l *ratelimit.RateLimiter, c httplimit.Config) *httplimit.Middleware {
	t.Helper()
	c.Info = true // many recipes call FromContext
	m, err := httplimit.New(l, c)
	require.NoError(t, err)
	return m
}

// serve serves h until the test ends, and returns the URL.
func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// An answer is what came of a request.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request with header fields, which are names and values.
func ask(t testing.TB, method, url string, fields ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(fields); i += 2 {
		req.Header.Add(fields[i], fields[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, res.Header, string(body)}
}

// statuses sends n equal requests and returns their statuses.
func statuses(t testing.TB, n int, url string, fields ...string) (got []int) {
	t.Helper()
	for range n {
		got = append(got, ask(t, http.MethodGet, url, fields...).status)
	}
	return got
}

// ok answers with the path.
func ok(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "ok %s", r.URL.Path) }
