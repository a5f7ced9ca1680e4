package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestBillingDays has a rule whose tiers have months that begin on other days. A key whose day changes carries its count into
// the month that is current.
func TestBillingDays(t *testing.T) {
	day := 24 * time.Hour
	clock := ratelimit.NewFakeClock(berlin(t, "2026-01-14 00:00:00"))
	rule := ratelimit.Rule{Name: "r", Endpoint: "/", Algorithm: fixed, Rate: monthly(10), Tiers: map[string]ratelimit.Rate{
		"mid":  {Requests: 10, Window: ratelimit.Monthly(15, "Europe/Berlin")},
		"more": {Requests: 20, Window: ratelimit.Monthly(28, "Europe/Berlin")},
	}}
	resolves := rule
	resolves.Tiers, resolves.Resolve = nil, func(req ratelimit.Request) (ratelimit.Rate, bool) {
		rate, ok := rule.Tiers[req.Tier]
		return rate, ok
	}
	for i, rule := range []ratelimit.Rule{rule, resolves} {
		clock.Set(berlin(t, "2026-01-14 00:00:00"))
		s := newStore(t, startReal(t).client(t), redisstore.WithClock(clock))
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(s), ratelimit.WithName("n"))
		require.NoError(t, err)
		allow := func(tier string, n int) ratelimit.Result {
			t.Helper()
			res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Tier: tier, Cost: n})
			require.NoError(t, err)
			return res
		}
		granted := func(limit, left int, reset time.Duration) ratelimit.Result {
			return ratelimit.Result{Allowed: true, Limit: limit, Remaining: left, ResetAfter: reset, Rule: "r"}
		}
		require.Equal(t, granted(10, 7, 18*day), allow("", 3), i)
		require.Equal(t, granted(10, 5, day), allow("mid", 2), "the units of January count until the 15th")
		clock.Advance(day)
		require.Equal(t, granted(10, 9, 31*day), allow("mid", 1), "a month from January 15 to February 15")
		require.Equal(t, granted(10, 8, 17*day), allow("", 1), "the last unit was charged in January")
		require.Equal(t, granted(20, 13, 13*day), allow("more", 5), "a month from December 28 to January 28")
		clock.Advance(17 * day) // it is February 1, in the month of this tier
		require.Equal(t, granted(20, 12, 27*day), allow("more", 8))
		require.Equal(t, granted(10, 1, 28*day), allow("", 1), "the units of today are those of February too")
		clock.Advance(27 * day)
		require.Equal(t, granted(20, 10, 28*day), allow("more", 1), "the nine units of February count until the 28th of March")
		clock.Advance(day)
		march := 31*day - time.Hour // clocks are set forward in it
		denied := denial(10, 0, march, march)
		denied.Rule = "r"
		require.Equal(t, denied, allow("", 1), "and then in March")
	}
}

// TestEdgesBeyondTheScripts has a year that ends after the last second that a script can compute with. It ends then.
func TestEdgesBeyondTheScripts(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Date(2255, time.March, 1, 0, 0, 0, 0, time.UTC))
	s := newStore(t, startReal(t).client(t), redisstore.WithClock(clock))
	res := take(t, s, ask(fixed, ratelimit.Rate{Requests: 10, Window: "year"}, 1))
	require.Equal(t, time.Unix(9_000_000_000, 0).Sub(clock.Now()), res.ResetAfter)
}
