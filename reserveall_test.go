package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestReserveAllAnswersAsCheckAll proves for random requests that ReserveAll charges and answers
// as CheckAll does, also the answers of the rules, and that what is canceled was not charged.
func TestReserveAllAnswersAsCheckAll(t *testing.T) {
	overTwins(t, func(t *testing.T, one, two *ratelimit.RateLimiter, req ratelimit.Request) bool {
		canceled, _, err := two.ReserveAll(t.Context(), req, time.Hour, nil)
		require.NoError(t, err)
		require.NoError(t, canceled.Cancel())
		res, each := checkAll(t, one, req)
		given := make([]ratelimit.Result, 1, 4)
		r, all, err := two.ReserveAll(t.Context(), req, time.Hour, given)
		require.NoError(t, err)
		require.NoError(t, r.Settle(req.Cost))
		require.Equal(t, res, r.Result())
		require.Equal(t, append(given, each...), all)
		return res.Allowed
	})
}

// TestReserveAllErrors appends nothing where nothing was decided.
func TestReserveAllErrors(t *testing.T) {
	l, _ := buildRules(t, threeRules)
	given := make([]ratelimit.Result, 1, 4)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		req  ratelimit.Request
		term time.Duration
		want error
	}{
		{t.Context(), ratelimit.Request{Endpoint: "/e"}, 0, ratelimit.ErrInvalidConfig},
		{t.Context(), ratelimit.Request{Endpoint: "/e", Cost: -1}, time.Hour, ratelimit.ErrInvalidCount},
		{t.Context(), ratelimit.Request{Rules: []string{"nobody"}}, time.Hour, ratelimit.ErrUnknownRule},
		{ended, ratelimit.Request{Endpoint: "/e"}, time.Hour, context.Canceled},
	} {
		r, all, err := l.ReserveAll(c.ctx, c.req, c.term, given)
		require.ErrorIs(t, err, c.want)
		require.Nil(t, r)
		require.Equal(t, given, all)
	}
}
