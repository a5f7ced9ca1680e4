package recipes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A downStore is a complete Store that cannot be reached.
type downStore struct{ *ratelimit.MemoryStore }

func (downStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errors.New("down")
}

// TestOutage asks the recipes that answer denials themselves while the store is down. A denial is the client's
// fault only if the client has used its share of this process.
func TestOutage(t *testing.T) {
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		gone   bool // whether the rule is unknown
		status int
	}{
		{ratelimit.FailClosed, false, http.StatusServiceUnavailable},
		{ratelimit.FailLocal(1), false, http.StatusTooManyRequests},
		{ratelimit.FailClosed, true, http.StatusInternalServerError},
	} {
		down := func() *ratelimit.RateLimiter {
			store, err := ratelimit.NewMemoryStore()
			require.NoError(t, err)
			l, err := ratelimit.New([]ratelimit.Rule{{Name: "tokens", Rate: ratelimit.PerHour(1)}}, &ratelimit.Rule{Rate: ratelimit.PerHour(1)},
				ratelimit.WithClock(newClock()), ratelimit.WithStore(downStore{store}), ratelimit.WithName("shop"),
				ratelimit.WithFailurePolicy(row.policy))
			require.NoError(t, err)
			return l
		}

		q := ratelimit.Request{Client: "alice", Rules: []string{"tokens"}}
		if row.gone {
			q.Rules = []string{"gone"}
		}
		m := middleware(t, down(), httplimit.Config{})
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			_, _ = m.Reserve(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), q, time.Minute)
		}
		assert.Equal(t, row.status, w.Code, "Reserve: %v", row)
		assert.Equal(t, row.status == http.StatusTooManyRequests, strings.Contains(w.Body.String(), "quota-exceeded"), "Reserve: %v", row)
	}
}
