package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestOverrideKeepsTheWindow gives a client another rate for a time. What the client has used in the current window counts
// on, before and after. An Override whose rate has other windows is refused.
func TestOverrideKeepsTheWindow(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Time{})
	const hour = time.Hour
	for text, row := range map[string]struct{ more, other string }{
		"5/month Europe/Berlin": {"20/month from day 15 Europe/Berlin", "20/month"},
		"5/25h from first":      {"20/25h from first", "20/25h"},
	} {
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			start := utcHour(2026, time.January, 30, 22) // 25 hours before February begins in Berlin
			clock.Set(start)
			rate, err := ratelimit.ParseRate(text)
			require.NoError(t, err)
			more, err := ratelimit.ParseRate(row.more)
			require.NoError(t, err)
			other, err := ratelimit.ParseRate(row.other)
			require.NoError(t, err)
			l, err := ratelimit.New([]ratelimit.Rule{fixedRule(rate)}, nil, opts...)
			require.NoError(t, err)
			require.Equal(t, grantBy(5, 2, 25*hour), tryN(t, l, "", 3))
			clock.Advance(hour)
			err = l.Override(t.Context(), ratelimit.Override{Client: "a", Effect: ratelimit.EffectRate, Rate: other})
			require.ErrorContains(t, err, "must be that of the rule's rate", text)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)

			until := start.Add(2 * hour)
			require.NoError(t, l.Override(t.Context(), ratelimit.Override{Client: "a", Effect: ratelimit.EffectRate, Rate: more, Until: until}))
			end := start.Add(25 * hour)
			if more.Per == 0 {
				end = utcHour(2026, time.February, 14, 23) // the day of the month is that of the Override
			}
			require.Equal(t, grantBy(20, 15, end.Sub(clock.Now())), tryN(t, l, "", 2), text)
			clock.Set(until)
			if len(opts) > 1 {
				end = start.Add(25 * hour) // a store learns the rate from denials, too: the units are then those of January
			}
			require.Equal(t, denyBy(5, 0, end.Sub(until)), tryN(t, l, "", 1), "%s: five are used", text)
			clock.Set(end)
			require.Equal(t, 4, tryN(t, l, "", 1).Remaining, text)
		})
	}
}

// TestUnitsOfYesterday changes the rate of a rule a day after the last grant, while its window lasts. The units then count in
// the new window, although they were charged before it began.
func TestUnitsOfYesterday(t *testing.T) {
	start := utcHour(2026, time.October, 23, 13)
	clock := ratelimit.NewFakeClock(start)
	for from, to := range map[string]string{
		"10/month": "10/day UTC", "10/year": "10/day Europe/Berlin", "10/week UTC": "10/24h", "10/24h from first": "10/24h",
		"10/168h": "10/day UTC", "10/48h from first": "10/day UTC", "10/month Asia/Tokyo": "10/h from first",
	} {
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			clock.Set(start)
			old, err := ratelimit.ParseRate(from)
			require.NoError(t, err)
			rate, err := ratelimit.ParseRate(to)
			require.NoError(t, err)
			l, err := ratelimit.New([]ratelimit.Rule{fixedRule(old)}, nil, opts...)
			require.NoError(t, err)
			tryN(t, l, "", 3)
			clock.Advance(23 * time.Hour)
			require.NoError(t, l.UpdateRate("r", rate))
			require.Equal(t, 6, tryN(t, l, "", 1).Remaining, "%s to %s", from, to)
		})
	}
}

// TestFirstWindowAfterItCameBack gives all units of a window back. The next unit then begins a window of the full length.
func TestFirstWindowAfterItCameBack(t *testing.T) {
	clock := ratelimit.NewFakeClock(utcHour(2026, time.October, 23, 13))
	onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
		l, err := ratelimit.New([]ratelimit.Rule{fixedRule(ratelimit.Rate{Requests: 10, Per: time.Hour, Window: "first"})}, nil, opts...)
		require.NoError(t, err)
		held, err := l.Reserve(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"}, time.Hour)
		require.NoError(t, err)
		clock.Advance(20 * time.Minute)
		require.NoError(t, held.Cancel())
		require.Equal(t, grantBy(10, 9, time.Hour), tryN(t, l, "", 1))
		clock.Advance(time.Minute)
		require.Equal(t, grantBy(10, 8, 59*time.Minute), tryN(t, l, "", 1))
	})
}

// TestSharedWindow has a limiter that keeps one key. The other keys share a window. A key that then gets a place of its
// own goes on in that window: it has what the others have used, and the same begin.
func TestSharedWindow(t *testing.T) {
	const hour, minute = time.Hour, time.Minute
	start := utcHour(2026, time.January, 31, 21) // two hours before February begins in Berlin
	for _, rate := range []ratelimit.Rate{
		{Requests: 10, Window: "month Europe/Berlin"},
		{Requests: 10, Per: 2 * hour, Window: "first"},
	} {
		clock := ratelimit.NewFakeClock(start)
		l, err := ratelimit.NewFixedWindow(rate, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.NoError(t, err)
		take := func(key string, n int) ratelimit.Result {
			res, err := l.Take(t.Context(), key, n)
			require.NoError(t, err)
			res.Rule = "r"
			return res
		}
		require.Equal(t, grantBy(10, 9, 2*hour), take("own", 1))
		require.Equal(t, grantBy(10, 7, 2*hour), take("b", 3))
		clock.Advance(30 * minute)
		require.Equal(t, grantBy(10, 5, 90*minute), take("c", 2), "%s: it shares the window of b", rate)
		require.NoError(t, l.Reset("own"))
		require.Equal(t, grantBy(10, 4, 90*minute), take("d", 1), "%s: it gets the place, and inherits the window", rate)
		require.Equal(t, denyBy(10, 4, 90*minute), take("d", 5), "%s", rate)
		clock.Advance(90*minute - 1)
		require.Equal(t, denyBy(10, 4, 1), take("d", 5), "%s: until that window ends", rate)
		clock.Advance(1)
		require.Equal(t, 5, take("d", 5).Remaining, "%s", rate)
		require.Equal(t, 1, take("e", 9).Remaining, "%s: the shared window has ended too", rate)
	}
}

// TestSharedWindowsOfSeveralDays has clients without states of their own, whose months begin on other days. They share one
// debt, and still none is granted more than its limit in one of its months. A denied request is granted at its RetryAfter.
func TestSharedWindowsOfSeveralDays(t *testing.T) {
	rule := fixedRule(ratelimit.Rate{Requests: 5, Window: "month"})
	rule.Tiers = map[string]ratelimit.Rate{
		"mid":  {Requests: 6, Window: ratelimit.Monthly(15, "")},
		"more": {Requests: 9, Window: ratelimit.Monthly(28, "")},
	}
	tiers, days := []string{"", "mid", "more"}, []int{1, 15, 28}
	clock := ratelimit.NewFakeClock(time.Time{})
	grants, denials := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		clock.Set(utcHour(2026, time.January, 1+r.IntN(28), r.IntN(24)))
		l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		require.NoError(t, err)
		used := make(map[[2]int]int) // by the number of the client and the month
		for step := range 60 {
			if r.IntN(2) == 0 {
				clock.Advance(time.Duration(r.IntN(9*24)) * time.Hour)
			}
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "owner", Endpoint: "/"}))
			l.Allow("owner", "/") // has the only state, if no client got it
			i := r.IntN(3)
			req := ratelimit.Request{Client: fmt.Sprint(i), Endpoint: "/", Tier: tiers[i], Cost: 1 + r.IntN(5)}
			res, err := l.Check(t.Context(), req)
			require.NoError(t, err)
			if !res.Allowed {
				denials++
				require.Positive(t, res.RetryAfter)
				for _, wait := range []time.Duration{res.RetryAfter - 1, 1} {
					clock.Advance(wait)
					look, err := l.Explain(t.Context(), req)
					require.NoError(t, err)
					require.Equal(t, wait == 1, look.Result.Allowed, "seed %d, step %d", seed, step)
				}
				continue
			}
			grants++
			now := clock.Now().AddDate(0, 0, 1-days[i])
			month := [2]int{i, now.Year()*12 + int(now.Month())}
			used[month] += req.Cost
			require.LessOrEqual(t, used[month], res.Limit, "seed %d, step %d", seed, step)
		}
	}
	t.Log(grants, "grants,", denials, "denials")
	require.Greater(t, min(grants, denials), 3000)
}

// TestExplainWindows explains decisions of rules with windows. MaxIn is for an interval as long as the current window.
func TestExplainWindows(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Time{})
	for text, row := range map[string]struct {
		reset time.Duration
		maxIn int
	}{
		"10/month Europe/Berlin":             {17*24*time.Hour + 22*time.Hour, 30}, // 31 days touch three months: February has 28
		"10/month from day 15 Europe/Berlin": {22 * time.Hour, 30},
		"10/day Europe/Berlin":               {22 * time.Hour, 30},
		"10/h from first":                    {time.Hour, 20},
		"10/24h":                             {23 * time.Hour, 20},
	} {
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			clock.Set(utcHour(2026, time.January, 14, 1))
			rate, err := ratelimit.ParseRate(text)
			require.NoError(t, err)
			l, err := ratelimit.New([]ratelimit.Rule{fixedRule(rate)}, nil, opts...)
			require.NoError(t, err)
			tryN(t, l, "", 3)
			req := ratelimit.Request{Client: "a", Endpoint: "/", Cost: 8}
			for range 2 {
				e, err := l.Explain(t.Context(), req)
				require.NoError(t, err)
				require.Len(t, e.Rules, 1)
				require.Equal(t, rate, e.Rules[0].Rate)
				require.Equal(t, ratelimit.RateFrom("rule"), e.Rules[0].RateFrom)
				require.Equal(t, row.maxIn, e.Rules[0].MaxIn, text)
				require.Equal(t, denyBy(10, 7, row.reset), e.Result, text)
				require.Contains(t, e.String(), rate.String())

				coded, err := json.Marshal(e)
				require.NoError(t, err)
				require.Contains(t, string(coded), `"`+rate.String()+`"`)
				var back ratelimit.Explanation
				require.NoError(t, json.Unmarshal(coded, &back))
				require.Equal(t, rate, back.Rules[0].Rate)
			}
			require.Equal(t, 6, tryN(t, l, "", 1).Remaining, "an explanation charges nothing")
		})
	}
}

// TestWindowsAfterTheClockWasSet has a clock that shows the year 1 until it is set, as on a machine without a battery. The
// windows are then those of the time that it shows.
func TestWindowsAfterTheClockWasSet(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10/month Europe/Berlin": time.Hour, "10/5h from first": 5 * time.Hour, "10/24h": 2 * time.Hour,
	} {
		now := time.Time{}
		clock := clockFunc(func() time.Time { return now })
		onMemory(t, clock, func(t *testing.T, opts []ratelimit.Option) {
			now = time.Time{}
			rate, err := ratelimit.ParseRate(text)
			require.NoError(t, err)
			l, err := ratelimit.New([]ratelimit.Rule{fixedRule(rate)}, nil, opts...)
			require.NoError(t, err)
			tryN(t, l, "", 3)
			now = utcHour(2026, time.January, 31, 22)
			require.Equal(t, grantBy(10, 9, want), tryN(t, l, "", 1), text)
			now = now.Add(want - 1)
			require.Equal(t, denyBy(10, 9, 1), tryN(t, l, "", 10), text)
		})
	}
}

// TestWindowsAllocateNothing has decisions by rules with windows, also when a window ends.
func TestWindowsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	clock := ratelimit.NewFakeClock(utcHour(2026, time.January, 31, 22))
	for _, rate := range []ratelimit.Rate{{Requests: 10, Window: "month Europe/Berlin"}, {Requests: 10, Per: time.Hour, Window: "first"}} {
		for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithClock(clock)}} {
			l, err := ratelimit.New([]ratelimit.Rule{fixedRule(rate)}, nil, opts...)
			require.NoError(t, err)
			tryN(t, l, "", 1)
			require.Zero(t, testing.AllocsPerRun(100, func() { l.Allow("a", "/"); clock.Advance(time.Second) }), "%s", rate)
		}
	}
}

// TestWaitForTheNextWindow has three callers that wait for two units of a window: two of them are served when the next one
// begins, and the third one a window later.
func TestWaitForTheNextWindow(t *testing.T) {
	for text, want := range map[string][3]time.Duration{ // the bubble begins on Saturday, January 1, 2000, at midnight
		"2/day Europe/Berlin": {23 * time.Hour, 23 * time.Hour, 47 * time.Hour},
		"2/week UTC":          {48 * time.Hour, 48 * time.Hour, 216 * time.Hour},
		"2/5h from first":     {5 * time.Hour, 5 * time.Hour, 10 * time.Hour},
	} {
		for _, stored := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var opts []ratelimit.Option
				if stored {
					store, err := ratelimit.NewMemoryStore()
					require.NoError(t, err)
					opts = []ratelimit.Option{ratelimit.WithStore(store), ratelimit.WithName("n")}
				}
				rate, err := ratelimit.ParseRate(text)
				require.NoError(t, err)
				l, err := ratelimit.New([]ratelimit.Rule{fixedRule(rate)}, nil, opts...)
				require.NoError(t, err)
				start := time.Now()
				require.True(t, tryN(t, l, "", 2).Allowed)
				time.Sleep(time.Minute)
				var after [3]time.Duration
				for i := range after {
					go func() {
						_, err := l.Wait(context.Background(), ratelimit.Request{Client: "a", Endpoint: "/"})
						if after[i] = time.Since(start); err != nil {
							after[i] = -1
						}
					}()
					synctest.Wait() // until the caller waits, so that they come in this order
				}
				time.Sleep(400 * time.Hour)
				synctest.Wait()
				require.Equal(t, want, after, "%s, stored: %t", text, stored)
			})
		}
	}
}

// TestWaitBeyondTheDeadline has a caller whose deadline is just before the month ends, and one whose deadline is then.
func TestWaitBeyondTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := ratelimit.New([]ratelimit.Rule{fixedRule(ratelimit.Rate{Requests: 1, Window: "month"})}, nil)
		require.NoError(t, err)
		tryN(t, l, "", 1)
		start := time.Now()
		month := utcHour(2000, time.February, 1, 0).Sub(start)
		for _, patience := range []time.Duration{month - 1, month + 1} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_, err = l.Wait(ctx, ratelimit.Request{Client: "a", Endpoint: "/"})
			cancel()
			if patience < month {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Zero(t, time.Since(start), "it is known at once")
			} else {
				require.NoError(t, err)
				require.Equal(t, month, time.Since(start))
			}
		}
	})
}
