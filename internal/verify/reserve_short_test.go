package verify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestReservationsByOneRule proves that a reservation by one rule in this process, which is made the
// short way, is denied, settled, recorded and observed as others are.
func TestReservationsByOneRule(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1e9, 0))
	var told []ratelimit.Decision
	rules := []ratelimit.Rule{{
		Name: "r", Endpoint: "/", Rate: ratelimit.PerHour(5), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(50)},
	}}
	made := func(opts ...ratelimit.Option) *ratelimit.RateLimiter {
		l, err := ratelimit.New(rules, nil, append(opts, ratelimit.WithClock(clock), ratelimit.WithRequestIDs(time.Hour))...)
		require.NoError(t, err)
		return l
	}
	reserve := func(l *ratelimit.RateLimiter, req ratelimit.Request) *ratelimit.Reservation {
		req.Client, req.Endpoint = "a", "/"
		r, err := l.Reserve(t.Context(), req, time.Minute)
		require.NoError(t, err)
		return r
	}
	left := func(l *ratelimit.RateLimiter, tier string) int {
		res, err := l.Peek(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Tier: tier})
		require.NoError(t, err)
		return res.Remaining
	}

	l := made()
	denied := reserve(l, ratelimit.Request{Cost: 6})
	require.False(t, denied.Result().Allowed)
	require.NoError(t, denied.Settle(9))
	require.Equal(t, 5, left(l, ""), "it has charged nothing, so nothing more is charged either")
	paid := reserve(l, ratelimit.Request{Cost: 10, Tier: "paid"})
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "a"}))
	require.NoError(t, paid.Settle(20))
	require.Equal(t, 40, left(l, "paid"), "what was used beyond is charged to the new key at the rate of its tier")

	l = made()
	for range 3 {
		require.Equal(t, 3, reserve(l, ratelimit.Request{Cost: 2, ID: "1"}).Result().Remaining)
	}
	require.Equal(t, 3, left(l, ""), "a retry is not charged")
	require.EqualValues(t, 2, l.Stats()[0].Replayed)

	l = made(ratelimit.WithObserver(observing(func(d ratelimit.Decision) { told = append(told, d) })))
	reserve(l, ratelimit.Request{})
	require.Len(t, told, 1)
}

// An observing is an Observer that is a function.
type observing func(d ratelimit.Decision)

func (f observing) Observe(_ context.Context, d ratelimit.Decision) { f(d) }

// TestResultsAreACopy proves that callers may change what Results has returned.
func TestResultsAreACopy(t *testing.T) {
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "a", Endpoint: "/", Rate: ratelimit.PerHour(5)}, {Name: "b", Endpoint: "/", Rate: ratelimit.PerHour(7)},
	}, nil)
	require.NoError(t, err)
	r, err := l.Reserve(t.Context(), ratelimit.Request{Endpoint: "/"}, time.Minute)
	require.NoError(t, err)
	first := r.Results()
	require.Len(t, first, 2)
	clear(first)
	for i, name := range []string{"a", "b"} {
		require.Equal(t, name, r.Results()[i].Rule)
	}
}
