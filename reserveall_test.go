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
	overAll(t, func(t *testing.T, a algorithm) {
		rules := make([]ratelimit.Rule, len(threeRules))
		for i, r := range threeRules {
			r.Algorithm = byName[a.name]
			rules[i] = r
		}
		one, oneClock := buildRules(t, rules)
		two, twoClock := buildRules(t, rules)
		denials := 0
		for i := range 300 {
			oneClock.Advance(time.Duration(i%7) * mins)
			twoClock.Advance(time.Duration(i%7) * mins)
			req := ratelimit.Request{Client: []string{"a", "b", "c"}[i%3], Endpoint: []string{"/e", "/x"}[i%5/4], Cost: i%4 + 1}
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
			if !res.Allowed {
				denials++
			}
		}
		require.Greater(t, denials, 20)
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
