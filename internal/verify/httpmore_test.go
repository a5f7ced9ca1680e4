package verify

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
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
