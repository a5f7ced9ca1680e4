package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestClockSetLater makes limiters on clocks that stand outside the years 1678 to 2262, uses
// them, and sets the clocks to today. From then on they answer as limiters that are made today.
func TestClockSetLater(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		for _, made := range []time.Time{{}, starts[6], time.Date(1677, 12, 31, 0, 0, 0, 0, time.UTC)} {
			for _, per := range []time.Duration{time.Minute, 7*time.Second + 13} {
				r := ratelimit.Rate{Requests: 3, Per: per}
				late, clock := &manualClock{made}, &manualClock{starts[0]}
				l := a.start(t, r, ratelimit.WithClock(late), ratelimit.WithMaxKeys(1))
				twin := a.start(t, r, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
				for range 4 {
					l.Allow("a")
					l.Allow("b") // without a state: it uses the shared debt
				}
				late.now = starts[0]
				if per == time.Minute { // the first reading of today is that of another method
					require.NoError(t, l.SetRate(r.WithBurst(r.Burst)))
				}
				for i := range 60 {
					for _, key := range []string{"b", "a"} {
						require.Equal(t, twin.Allow(key), l.Allow(key), "made at %v, call %d for %s", made, i, key)
						require.Equal(t, twin.Peek(key), l.Peek(key))
						require.Equal(t, twin.Len(), l.Len())
					}
					late.now, clock.now = late.now.Add(per/7), clock.now.Add(per/7)
				}
				late.now, clock.now = made, made
				require.Equal(t, twin.Allow("a"), l.Allow("a"), "the origin is taken anew only once")
			}
		}
	})
}

// TestRulesOnAClockSetLater does the same for rules, one by one and together.
func TestRulesOnAClockSetLater(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		for _, names := range [][]string{{"user"}, {"user", "all"}} {
			late, clock := new(manualClock), &manualClock{starts[0]}
			r := ratelimit.Rate{Requests: 3, Per: 7*time.Second + 13}
			rules := []ratelimit.Rule{
				{Name: "user", Algorithm: ratelimit.Algorithm(a.name), Rate: r},
				{Name: "all", Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.Rate{Requests: 4, Per: r.Per}, Key: ratelimit.KeyGlobal},
			}
			limiters := make([]*ratelimit.RateLimiter, 2)
			for i, c := range []ratelimit.Clock{late, clock} {
				l, err := ratelimit.New(rules, nil, ratelimit.WithClock(c))
				require.NoError(t, err)
				limiters[i] = l
			}
			ask := func(l *ratelimit.RateLimiter, client string) ratelimit.Result {
				res, err := l.Check(t.Context(), ratelimit.Request{Client: client, Rules: names})
				require.NoError(t, err)
				return res
			}
			for range 9 {
				ask(limiters[0], "a")
			}
			late.now = starts[0]
			for range 60 {
				require.Equal(t, ask(limiters[1], "a"), ask(limiters[0], "a"))
				late.now, clock.now = late.now.Add(time.Second), clock.now.Add(time.Second)
			}
		}
	})
}

// TestRetryAfterWhenTheClockHasSteppedBack requires that a request is denied until RetryAfter has
// passed on a clock that has stepped back, and granted then.
func TestRetryAfterWhenTheClockHasSteppedBack(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		for _, gap := range []time.Duration{1, time.Second, time.Hour} {
			clock := &manualClock{starts[0]}
			l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock))
			for range 3 {
				require.True(t, l.Allow("a").Allowed)
			}
			clock.now = clock.now.Add(-gap)
			res := l.Allow("a")
			require.Greater(t, res.RetryAfter, gap)
			require.GreaterOrEqual(t, res.ResetAfter, res.RetryAfter)
			clock.now = clock.now.Add(res.RetryAfter - 1)
			require.False(t, l.Peek("a").Allowed, "a nanosecond early")
			clock.now = clock.now.Add(1)
			require.True(t, l.Peek("a").Allowed)
			clock.now = clock.now.Add(res.ResetAfter - res.RetryAfter)
			require.Zero(t, l.Peek("a").ResetAfter)
		}
	})
}

// TestRetryAfterBelowTheFloor requires the same of a key without a state, whose readings count
// as the instant at which a key was evicted.
func TestRetryAfterBelowTheFloor(t *testing.T) {
	start := func(clock ratelimit.Clock) []func(n int) ratelimit.Result {
		l := algorithms[0].start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		rules, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(3)}, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.NoError(t, err)
		return []func(n int) ratelimit.Result{
			func(n int) ratelimit.Result {
				res, err := l.Take(t.Context(), []string{"has the slot", "shares", "shares", "evicts"}[min(n/10, 3)], n%10)
				require.NoError(t, err)
				return res
			},
			func(n int) ratelimit.Result {
				res, err := rules.Check(t.Context(), ratelimit.Request{Client: []string{"has the slot", "shares", "shares", "evicts"}[min(n/10, 3)], Cost: n % 10})
				require.NoError(t, err)
				res.Rule = ""
				return res
			},
		}
	}
	require.Equal(t, "TokenBucket", algorithms[0].name)
	for i := range 2 {
		clock := &manualClock{starts[0]}
		ask := start(clock)[i]
		require.True(t, ask(1).Allowed)
		require.True(t, ask(13).Allowed, "beside the one state there is the shared debt")
		clock.now = clock.now.Add(20 * time.Second)
		require.True(t, ask(31).Allowed, "the first key is as new, and loses its state")
		clock.now = clock.now.Add(-10 * time.Second)
		res := ask(12)
		require.Equal(t, ratelimit.Result{
			Limit: 3, Remaining: 1, RetryAfter: 30 * time.Second, ResetAfter: 50 * time.Second, Reason: ratelimit.ReasonLimit,
		}, res)
		clock.now = clock.now.Add(res.RetryAfter - 1)
		require.False(t, ask(12).Allowed, "a nanosecond early")
		clock.now = clock.now.Add(1)
		require.True(t, ask(12).Allowed)
	}
}
