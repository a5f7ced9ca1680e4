package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// onMemory runs the test f with the options of a limiter that decides in memory, and with those of one on a MemoryStore.
func onMemory(t *testing.T, clock ratelimit.Clock, f func(t *testing.T, opts []ratelimit.Option)) {
	for _, name := range []string{"memory", "MemoryStore"} {
		t.Run(name, func(t *testing.T) {
			var opts []ratelimit.Option
			if clock != nil {
				opts = append(opts, ratelimit.WithClock(clock))
			}
			if name == "MemoryStore" {
				store, err := ratelimit.NewMemoryStore(opts...)
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("n"))
			}
			f(t, opts)
		})
	}
}

func fixedRule(r ratelimit.Rate) ratelimit.Rule {
	return ratelimit.Rule{Name: "r", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: r}
}

// tryN requests n units for the client "a" with this tier.
func tryN(t *testing.T, l *ratelimit.RateLimiter, tier string, n int) ratelimit.Result {
	t.Helper()
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Tier: tier, Cost: n})
	if !res.Degraded {
		require.NoError(t, err)
	}
	return res
}

// grantBy is the Result of a grant by the rule "r".
func grantBy(limit, remaining int, reset time.Duration) ratelimit.Result {
	return ratelimit.Result{Allowed: true, Limit: limit, Remaining: remaining, ResetAfter: reset, Rule: "r"}
}

// denyBy is the Result of a denial by the rule "r", whose window ends after the time retry.
func denyBy(limit, remaining int, retry time.Duration) ratelimit.Result {
	return ratelimit.Result{Limit: limit, Remaining: remaining, RetryAfter: retry, ResetAfter: retry, Rule: "r", Reason: ratelimit.ReasonLimit}
}

func utcHour(year int, month time.Month, day, hour int) time.Time {
	return time.Date(year, month, day, hour, 0, 0, 0, time.UTC)
}

// TestChangeToAnotherWindow changes the rate of a rule from each kind of window to each other kind. What counts at that
// instant counts in the new window that is then current, and what was reserved before is not given back.
func TestChangeToAnotherWindow(t *testing.T) {
	start := utcHour(2026, time.October, 24, 12)
	rates := []struct {
		text string
		end  time.Time // of the window that is current at the start; zero for windows from the first use, which last an hour
	}{
		{"10/24h", utcHour(2026, time.October, 25, 0)},
		{"10/6h", utcHour(2026, time.October, 24, 18)},
		{"10/h from first", time.Time{}},
		{"10/6h from first", time.Time{}},
		{"10/month", utcHour(2026, time.November, 1, 0)},
		{"10/month Europe/Berlin", utcHour(2026, time.October, 31, 23)},
		{"10/month from day 15", utcHour(2026, time.November, 15, 0)},
		{"10/week UTC", utcHour(2026, time.October, 26, 0)},
		{"10/year Asia/Tokyo", utcHour(2026, time.December, 31, 15)},
	}
	for _, from := range rates {
		for _, to := range rates {
			if from == to {
				continue
			}
			clock := ratelimit.NewFakeClock(start)
			onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
				clock.Set(start)
				old, err := ratelimit.ParseRate(from.text)
				require.NoError(t, err)
				rate, err := ratelimit.ParseRate(to.text)
				require.NoError(t, err)
				l, err := ratelimit.New([]ratelimit.Rule{fixedRule(old)}, nil, opts...)
				require.NoError(t, err)
				tryN(t, l, "", 3)
				clock.Advance(10 * time.Minute)
				held, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Cost: 2}, 24*time.Hour)
				require.NoError(t, err)
				require.NoError(t, l.UpdateRate("r", rate))
				left := to.end.Sub(clock.Now())
				if to.end.IsZero() {
					left = rate.Per
				}
				require.Equal(t, grantBy(10, 4, left), tryN(t, l, "", 1), "%s to %s", from.text, to.text)
				require.NoError(t, held.Cancel())
				require.Equal(t, grantBy(10, 3, left), tryN(t, l, "", 1), "%s to %s: nothing is given back", from.text, to.text)

				clock.Advance(left - 1)
				require.Equal(t, denyBy(10, 3, 1), tryN(t, l, "", 4), "%s to %s: until the window ends", from.text, to.text)
				clock.Advance(1)
				require.Equal(t, 6, tryN(t, l, "", 4).Remaining, "%s to %s: then all is granted", from.text, to.text)

				require.NoError(t, l.UpdateRate("r", old))
				clock.Advance(2 * 366 * 24 * time.Hour)
				require.NoError(t, l.UpdateRate("r", rate))
				require.Equal(t, 9, tryN(t, l, "", 1).Remaining, "%s to %s: nothing counts of a window that has ended", from.text, to.text)
			})
		}
	}
}

// billed are a rule and the same rule with its rates from Resolve. Clients of the tier "mid" have months from day 15.
func billed(tiers map[string]ratelimit.Rate) []ratelimit.Rule {
	rule := fixedRule(ratelimit.Rate{Requests: 10, Window: "month Europe/Berlin"})
	resolves := rule
	rule.Tiers = tiers
	resolves.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
		rate, ok := tiers[req.Tier]
		return rate, ok
	}
	return []ratelimit.Rule{rule, resolves}
}

// TestBillingDays has tiers, and rates from Resolve, whose months begin on other days. A key whose day changes carries its
// count into the month that is current.
func TestBillingDays(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Time{})
	day := 24 * time.Hour
	rules := billed(map[string]ratelimit.Rate{
		"mid":  {Requests: 10, Window: ratelimit.Monthly(15, "Europe/Berlin")},
		"more": {Requests: 20, Window: ratelimit.Monthly(28, "Europe/Berlin")},
	})
	for i, rule := range rules {
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			clock.Set(utcHour(2026, time.January, 13, 23)) // January 14 begins in Berlin
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
			require.NoError(t, err)
			require.Equal(t, grantBy(10, 7, 18*day), tryN(t, l, "", 3), i)
			require.Equal(t, grantBy(10, 5, day), tryN(t, l, "mid", 2), "the units of January count until the 15th")
			clock.Advance(day - 1)
			require.Equal(t, denyBy(10, 5, 1), tryN(t, l, "mid", 6))
			clock.Advance(1)
			require.Equal(t, grantBy(10, 9, 31*day), tryN(t, l, "mid", 1), "a month from January 15 to February 15")
			require.Equal(t, grantBy(10, 8, 17*day), tryN(t, l, "", 1), "January has what counted at the change")
			require.Equal(t, grantBy(20, 17, 13*day), tryN(t, l, "more", 1), "a month from December 28 to January 28")
			clock.Advance(13 * day)
			require.Equal(t, grantBy(20, 19, 31*day), tryN(t, l, "more", 1))
		})
	}
}

// TestBillingDayOfTheOwner has requests for one key with two billing days. In both, a denied request is granted at its
// RetryAfter and not before, and a look says what a request would be answered. As long as the day stays, the limit holds in
// each month.
func TestBillingDayOfTheOwner(t *testing.T) {
	oneGoroutine(t)
	tiers := map[string]ratelimit.Rate{
		"mid":  {Requests: 5, Window: ratelimit.Monthly(15, "")},
		"more": {Requests: 9, Window: ratelimit.Monthly(28, "")},
	}
	rule := fixedRule(ratelimit.Rate{Requests: 5, Window: "month"})
	rule.Tiers = tiers
	months := map[string]int{"": 1, "mid": 15, "more": 28}
	clock := ratelimit.NewFakeClock(time.Time{})
	onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
		changes, denials := 0, 0
		for seed := range uint64(400) {
			r := rand.New(rand.NewPCG(seed, 6))
			clock.Set(utcHour(2026, time.January, 1+r.IntN(28), r.IntN(24)))
			if seed%4 == 3 {
				opts = append(slices.Clip(opts), ratelimit.WithMaxKeys(1))
			}
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
			require.NoError(t, err)
			client := fmt.Sprint("client ", seed)
			if seed%4 == 3 {
				l.Allow("another", "/") // the client has no state of its own, except on a store
			}
			tier, month, used := "", 0, 0 // used are the units that were granted in the month since the tier changed
			for step := range 40 {
				if r.IntN(3) == 0 {
					tier, used = []string{"", "mid", "more"}[r.IntN(3)], 0
					changes++
				}
				clock.Advance(time.Duration(r.IntN(5*24)) * time.Hour)
				req := ratelimit.Request{Client: client, Endpoint: "/", Tier: tier, Cost: 1 + r.IntN(4)}
				for range 2 {
					look, err := l.Explain(t.Context(), req)
					require.NoError(t, err)
					res, err := l.Check(t.Context(), req)
					require.NoError(t, err)
					require.Equal(t, look.Result.Allowed, res.Allowed, "seed %d, step %d", seed, step)
					if res.Allowed {
						now := clock.Now().AddDate(0, 0, 1-months[tier])
						if that := now.Year()*12 + int(now.Month()); month != that {
							month, used = that, 0
						}
						used += req.Cost
						require.LessOrEqual(t, res.Remaining, res.Limit-used, "seed %d, step %d: tier %q", seed, step, tier)
						break
					}
					denials++
					require.Positive(t, res.RetryAfter, "seed %d, step %d", seed, step)
					require.Equal(t, look.Result.RetryAfter, res.RetryAfter, "seed %d, step %d", seed, step)
					clock.Advance(res.RetryAfter - 1)
					early, err := l.Explain(t.Context(), req)
					require.NoError(t, err)
					require.False(t, early.Result.Allowed, "seed %d, step %d", seed, step)
					clock.Advance(1)
					late, err := l.Explain(t.Context(), req)
					require.NoError(t, err)
					require.True(t, late.Result.Allowed, "seed %d, step %d: tier %q after %s", seed, step, tier, res.RetryAfter)
				}
			}
		}
		t.Log(changes, "changes of the tier,", denials, "denials")
	})
}

// TestOtherWindowsOfTiers has rates of a tier, and from Resolve, that may not differ so from the rate of the rule.
func TestOtherWindowsOfTiers(t *testing.T) {
	clock := ratelimit.NewFakeClock(utcHour(2026, time.January, 14, 0))
	const other = `must be that of the rule's rate, 10/month Europe/Berlin: only the day of a month may differ`
	for text, want := range map[string]string{
		"20/month":                             `window is "month": ` + other,
		"20/month Europe/Paris":                `window is "month Europe/Paris": ` + other,
		"20/year Europe/Berlin":                `window is "year Europe/Berlin": ` + other,
		"20/h from first":                      `window is "first": ` + other,
		"20/h":                                 `window is "": ` + other,
		"20/month from day 28 Europe/Berlin":   "",
		"20/month Europe/Berlin":               "",
		"20/month from day 29 Europe/Berlin":   "not read",
		"20/month from day 2 Europe/Nirgendwo": "not read",
	} {
		rate, err := ratelimit.ParseRate(text)
		if want == "not read" {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		rules := billed(map[string]ratelimit.Rate{"t": rate})
		_, err = ratelimit.New(rules[:1], nil, ratelimit.WithClock(clock))
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.EqualError(t, err, `ratelimit: rules[0].tiers["t"].`+want, text)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		}
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			l, err := ratelimit.New(rules[1:], nil, opts...)
			require.NoError(t, err)
			res, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Tier: "t"})
			if want == "" {
				require.NoError(t, err, text)
				require.Equal(t, 20, res.Limit)
				return
			}
			require.ErrorContains(t, err, want, text)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.Equal(t, 10, res.Limit, "the rule's own rate decides")
		})
	}
}

// TestWarmupOfWindows has young keys of a calendar, and of windows from the first use.
func TestWarmupOfWindows(t *testing.T) {
	start := utcHour(2026, time.January, 30, 22) // 25 hours before February begins in Berlin
	clock := ratelimit.NewFakeClock(start)
	const minute, hour = time.Minute, time.Hour
	for _, rate := range []ratelimit.Rate{
		{Requests: 10, Window: "month Europe/Berlin"},
		{Requests: 10, Per: 25 * hour, Window: "first"},
	} {
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			clock.Set(start)
			rule := fixedRule(rate)
			rule.Warmup = ratelimit.Warmup{From: 2, Over: 40 * hour} // a unit more every five hours
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
			require.NoError(t, err)
			require.Equal(t, ratelimit.Never, tryN(t, l, "", 3).RetryAfter, "a new key does not age")
			require.Equal(t, grantBy(10, 0, 40*hour), tryN(t, l, "", 2))
			require.Equal(t, 5*hour, tryN(t, l, "", 1).RetryAfter, "when the key has three units")
			clock.Advance(5*hour - 1)
			require.Equal(t, time.Duration(1), tryN(t, l, "", 1).RetryAfter)
			clock.Advance(1)
			require.Equal(t, grantBy(10, 0, 35*hour), tryN(t, l, "", 1))
			require.Equal(t, 20*hour, tryN(t, l, "", 4).RetryAfter, "in the next window the key has seven units, of which none is used")
			clock.Advance(20*hour - minute)
			require.Equal(t, 2, tryN(t, l, "", 1).Remaining, "the key has six units")
			clock.Advance(minute)
			require.Equal(t, 3, tryN(t, l, "", 4).Remaining, "the window has ended, and seven units are there")
			clock.Advance(15 * hour)
			require.Equal(t, 5, tryN(t, l, "", 1).Remaining, "a key that has grown has ten units")
		})
	}
}

// A failingMemory is a MemoryStore that fails now and then.
type failingMemory struct {
	*ratelimit.MemoryStore
	fails bool
}

func (s *failingMemory) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	if s.fails {
		return nil, errDead
	}
	return s.MemoryStore.Take(ctx, asks)
}

// TestFailLocalWindows has a store that fails after some answers. Until the window of the key ends, this process goes on from
// the last answer. A window from the first use has begun when the answer said, and a window of a calendar at its edge.
func TestFailLocalWindows(t *testing.T) {
	start := utcHour(2026, time.January, 31, 22) // February begins in Berlin after an hour
	const minute = time.Minute
	for _, warm := range []bool{false, true} {
		for _, rate := range []ratelimit.Rate{
			{Requests: 10, Window: "month Europe/Berlin"},
			{Requests: 10, Per: time.Hour, Window: "first"},
		} {
			clock := ratelimit.NewFakeClock(start)
			memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			store := &failingMemory{MemoryStore: memory}
			rule := fixedRule(rate)
			if warm {
				rule.Warmup = ratelimit.Warmup{From: 9, Over: 2 * minute}
			}
			l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("n"))
			require.NoError(t, err)
			local := func(res ratelimit.Result) ratelimit.Result { res.Degraded = true; return res }
			require.Equal(t, grantBy(10, 7-btoi(warm), time.Hour), tryN(t, l, "", 3), "%s", rate)
			clock.Advance(20 * minute)
			require.Equal(t, grantBy(10, 6, 40*minute), tryN(t, l, "", 1))
			clock.Advance(5 * minute)
			store.fails = true
			// A window from the first use also begins for what this process grants without the store.
			reset, left := 35*minute, 4
			if rate.Per > 0 {
				reset, left = time.Hour, 3
			}
			require.Equal(t, local(grantBy(10, 5, reset)), tryN(t, l, "", 1), "%s: the window goes on", rate)
			require.Equal(t, 35*minute, tryN(t, l, "", 6).RetryAfter, "%s", rate)
			clock.Advance(35*minute - 1)
			require.Equal(t, time.Duration(1), tryN(t, l, "", 6).RetryAfter, "%s", rate)
			clock.Advance(1)
			if reset = 28 * 24 * time.Hour; rate.Per > 0 {
				reset = rate.Per
			}
			require.Equal(t, local(grantBy(10, left, reset)), tryN(t, l, "", 6), "%s: then the next window begins", rate)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestFailLocalOfSeveral has four processes that share a limit. The share of each has the windows of the rule.
func TestFailLocalOfSeveral(t *testing.T) {
	clock := ratelimit.NewFakeClock(utcHour(2026, time.January, 31, 22))
	for text, reset := range map[string]time.Duration{
		"10/month Europe/Berlin": time.Hour, "10/5h from first": 5 * time.Hour, "10/24h": 2 * time.Hour,
	} {
		rate, err := ratelimit.ParseRate(text)
		require.NoError(t, err)
		rule := fixedRule(rate)
		rule.OnStoreError = ratelimit.FailLocal(4)
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock),
			ratelimit.WithStore(&emptyStore{fails: true}), ratelimit.WithName("n"))
		require.NoError(t, err)
		want := grantBy(2, 0, reset)
		want.Degraded = true
		require.Equal(t, want, tryN(t, l, "", 2), text)
		require.Equal(t, reset, tryN(t, l, "", 1).RetryAfter, text)
	}
}

// A plainStore is a Store that cannot say which asks it accepts.
type plainStore struct{}

func (plainStore) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) {
	return nil, errDead
}
func (plainStore) Reset(context.Context, []ratelimit.Ask) error { return nil }

// A pickyStore accepts no Window.
type pickyStore struct{ plainStore }

func (pickyStore) Accepts(a ratelimit.Ask) error {
	if a.Rate.Window != "" {
		return errors.New("no windows")
	}
	return nil
}

// TestStoresWithoutWindows has stores that know no Window, and a rule, a tier and rates from Resolve that have one.
func TestStoresWithoutWindows(t *testing.T) {
	for _, row := range []struct {
		store ratelimit.Store
		why   string
	}{
		{plainStore{}, "it has no Accepts, to say that it knows a Window"},
		{pickyStore{}, "no windows"},
	} {
		opts := []ratelimit.Option{ratelimit.WithStore(row.store), ratelimit.WithName("n")}
		for _, rate := range []ratelimit.Rate{{Requests: 10, Window: "month"}, {Requests: 10, Per: time.Hour, Window: "first"}} {
			want := fmt.Sprintf("is %s: is not supported by the store: %s", rate, row.why)
			_, err := ratelimit.New([]ratelimit.Rule{fixedRule(rate)}, nil, opts...)
			require.EqualError(t, err, "ratelimit: rules[0].rate "+want)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			_, err = ratelimit.NewFixedWindow(rate, opts...)
			require.ErrorContains(t, err, want)

			l, err := ratelimit.New([]ratelimit.Rule{fixedRule(ratelimit.PerDay(10))}, nil, opts...)
			require.NoError(t, err, "the store knows windows since the epoch")
			require.ErrorContains(t, l.UpdateRate("r", rate), want)
			require.ErrorContains(t, l.SetRule(fixedRule(rate)), want)
		}
	}
}
