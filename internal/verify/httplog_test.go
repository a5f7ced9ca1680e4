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
