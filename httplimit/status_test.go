package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestStatus answers in handlers that ask the limiter themselves as a Middleware would.
func TestStatus(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), -1)
	defer stop()
	for _, row := range []struct {
		why    string
		ctx    context.Context
		policy ratelimit.FailurePolicy
		req    ratelimit.Request
		want   int
	}{
		{"the client has used its share", t.Context(), ratelimit.FailLocal(1), ratelimit.Request{Cost: 2}, 429},
		{"FailClosed denies", t.Context(), ratelimit.FailClosed, ratelimit.Request{}, 503},
		{"FailClosed denies by the default rule too", t.Context(), ratelimit.FailClosed, ratelimit.Request{Endpoint: "/other"}, 503},
		{"one rule denies by itself", t.Context(), ratelimit.FailClosed, ratelimit.Request{Rules: []string{"/a", "local"}, Cost: 2}, 429},
		{"a rule is unknown", t.Context(), ratelimit.FailClosed, ratelimit.Request{Rules: []string{"gone"}}, 500},
		{"the cost is negative", t.Context(), ratelimit.FailClosed, ratelimit.Request{Cost: -1}, 500},
		{"the caller has left", ended, ratelimit.FailClosed, ratelimit.Request{}, 503},
		{"the deadline has passed", late, ratelimit.FailClosed, ratelimit.Request{}, 503},
	} {
		if row.req.Endpoint == "" {
			row.req.Endpoint = "/a"
		}
		store, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		rate := ratelimit.PerMinute(1)
		l, _ := limited(t, []ratelimit.Rule{
			{Endpoint: "/a", Rate: rate, OnStoreError: row.policy},
			{Name: "local", Rate: rate, OnStoreError: ratelimit.FailLocal(1)},
		}, &ratelimit.Rule{Rate: rate, OnStoreError: row.policy}, ratelimit.WithStore(downStore{store}), ratelimit.WithName("n"))
		res, each, err := l.CheckAll(row.ctx, row.req, nil)
		require.False(t, res.Allowed, row.why)
		assert.Equal(t, row.want, httplimit.Status(l, err, each...), row.why)
		if len(each) < 2 {
			assert.Equal(t, row.want, httplimit.Status(l, err, res), "%s: with the one Result", row.why)
		}
		held, err := l.Reserve(row.ctx, row.req, time.Minute)
		assert.Equal(t, row.want, httplimit.Status(l, err, held.Results()...), "%s: a reservation", row.why)
		m := made(t, l, httplimit.Config{Log: new(logbook).logger(), Prepare: func(_ *http.Request, q *ratelimit.Request) {
			q.Endpoint, q.Rules, q.Cost = row.req.Endpoint, row.req.Rules, row.req.Cost
		}})
		w := httptest.NewRecorder()
		m.Handler(ok).ServeHTTP(w, request(t, "/", "203.0.113.9:1").WithContext(row.ctx))
		assert.Equal(t, row.want, w.Code, "%s: the middleware", row.why)
	}
}

// A downStore is a complete Store that cannot be reached.
type downStore struct{ *ratelimit.MemoryStore }

func (downStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errors.New("down")
}
