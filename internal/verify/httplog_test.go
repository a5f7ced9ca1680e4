package verify

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestHTTPLogOfDecisions has a Resolve that returns an invalid rate, a store that is down, and both.
func TestHTTPLogOfDecisions(t *testing.T) {
	const failed = "the store, or a custom limiter, has failed, and the failure policy has decided"
	const invalid = "the Resolve of a rule has returned an invalid rate, and the rule has decided by its own rate"
	wrong := func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.Rate{Requests: -1}, true }
	down := []ratelimit.Option{ratelimit.WithStore(goneStore{errors.New("down")}), ratelimit.WithName("http")}
	for _, row := range []struct {
		name    string
		resolve func(ratelimit.Request) (ratelimit.Rate, bool)
		options []ratelimit.Option
		want    string
	}{
		{"an invalid rate", wrong, nil, invalid},
		{"a store that is down", nil, down, failed},
		{"both", wrong, down, failed},
	} {
		l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(9), Resolve: row.resolve}, row.options...)
		require.NoError(t, err)
		var log strings.Builder
		m, err := httplimit.New(l, httplimit.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		h := m.Handler(http.NotFoundHandler())
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "%s: one line a minute\n%s", row.name, log.String())
		require.Contains(t, log.String(), row.want, row.name)
		require.Equal(t, row.resolve != nil, strings.Contains(log.String(), "resolve"), "%s: the line names all that is wrong", row.name)
	}
}

// TestHTTPLogOfIDs has requests with an ID that the limiter cannot use. The log says why, without the ID.
func TestHTTPLogOfIDs(t *testing.T) {
	const secret = "7f3a-4711"
	const missing = `msg="httplimit: requests with an ID cannot be decided on: the limiter needs the option WithRequestIDs"`
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerHour(9))
	require.NoError(t, err)
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	own := ratelimit.Rule{Name: "own", Limiter: limiter}
	plain := ratelimit.Rule{Name: "plain", Endpoint: "*", Additional: true, Rate: ratelimit.PerHour(9)}
	for _, row := range []struct {
		name    string
		rules   []ratelimit.Rule
		rest    *ratelimit.Rule
		options []ratelimit.Option
		passes  bool
		want    string
	}{
		{
			"no option", nil, &ratelimit.Rule{Rate: ratelimit.PerHour(9)}, nil, false,
			missing,
		},
		{
			"no option, and Config.Error lets requests pass", nil, &ratelimit.Rule{Rate: ratelimit.PerHour(9)}, nil, true,
			missing,
		},
		{
			"a custom limiter and a store", []ratelimit.Rule{plain}, &own, []ratelimit.Option{
				ratelimit.WithStore(store), ratelimit.WithName("http"), ratelimit.WithRequestIDs(1e9),
			}, false, "one of the rules has a limiter of its own",
		},
	} {
		l, err := ratelimit.New(row.rules, row.rest, row.options...)
		require.NoError(t, err)
		var log strings.Builder
		m, err := httplimit.New(l, httplimit.Config{
			Log:     slog.New(slog.NewTextHandler(&log, nil)),
			Prepare: func(r *http.Request, q *ratelimit.Request) { q.ID = r.Header.Get("Idempotency-Key") },
			Error:   func(*http.Request, error) bool { return row.passes },
		})
		require.NoError(t, err)
		h := m.Handler(http.NotFoundHandler())
		for range 3 {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.Header.Set("Idempotency-Key", secret)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, map[bool]int{false: http.StatusInternalServerError, true: http.StatusNotFound}[row.passes], w.Code, row.name)
		}
		require.Equal(t, 1, strings.Count(log.String(), "\n"), "%s: one line a minute\n%s", row.name, log.String())
		require.Contains(t, log.String(), row.want, row.name)
		require.Equal(t, row.want == missing, strings.Contains(log.String(), missing), row.name)
		require.NotContains(t, log.String(), secret, "%s: the ID names a client's request", row.name)
	}
}
