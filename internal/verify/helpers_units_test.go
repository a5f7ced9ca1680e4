package verify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// newYear is when the clocks of the tests of units start: at an edge of every window.
var newYear = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newRules makes a RateLimiter of rules that must be valid.
func newRules(t testing.TB, rules []ratelimit.Rule, opts ...ratelimit.Option) *ratelimit.RateLimiter {
	t.Helper()
	opts = append([]ratelimit.Option{ratelimit.WithName("test")}, opts...) // which limiters in a store need
	l, err := ratelimit.New(rules, nil, opts...)
	require.NoError(t, err)
	return l
}

// check calls l.Check, which must not return an error.
func check(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) ratelimit.Result {
	t.Helper()
	res, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	return res
}

// A deadStore fails each call.
type deadStore struct{}

func (deadStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, ratelimit.ErrStore
}

func (deadStore) Reset(context.Context, []ratelimit.Ask) error { return ratelimit.ErrStore }

// peekOf calls l.Peek, which must not return an error.
func peekOf(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) ratelimit.Result {
	t.Helper()
	res, err := l.Peek(t.Context(), req)
	require.NoError(t, err)
	return res
}
