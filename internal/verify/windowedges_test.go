package verify

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// limitersOf returns two limiters with a rule of this rate: one in memory, and one on a MemoryStore.
func limitersOf(t *testing.T, rate ratelimit.Rate, clock *ratelimit.FakeClock) map[string]*ratelimit.RateLimiter {
	t.Helper()
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	all := make(map[string]*ratelimit.RateLimiter)
	for name, opts := range map[string][]ratelimit.Option{
		"memory": nil, "MemoryStore": {ratelimit.WithStore(store), ratelimit.WithName("windows")},
	} {
		rule := ratelimit.Rule{Name: "rule", Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: rate}
		all[name], err = ratelimit.New([]ratelimit.Rule{rule}, nil, append(opts, ratelimit.WithClock(clock))...)
		require.NoError(t, err)
	}
	return all
}

// instant reads an instant.
func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err)
	return at
}

// TestRetryAfterToEdges has a window for each kind of edge. A key that takes the whole limit at the begin of the window is
// told to wait until its end. It is denied one nanosecond before that, and granted at the end.
func TestRetryAfterToEdges(t *testing.T) {
	for _, c := range []struct{ window, begin, lasts, why string }{
		{"day", "2026-06-01T00:00:00Z", "24h", "a usual day"},
		{"day Europe/Berlin", "2026-03-28T23:00:00Z", "23h", "clocks are set forward"},
		{"day Europe/Berlin", "2026-10-24T22:00:00Z", "25h", "clocks are set back"},
		{"day Australia/Lord_Howe", "2026-04-04T13:00:00Z", "24h30m", "clocks are set back by half an hour"},
		{"day Antarctica/Casey", "2023-03-08T13:00:00Z", "27h", "clocks are set back by three hours"},
		{"day America/Sao_Paulo", "2018-11-04T03:00:00Z", "23h", "the day begins at one o'clock"},
		{"day America/Sao_Paulo", "2018-02-17T02:00:00Z", "25h", "the day ends at the second midnight"},
		{"day America/St_Johns", "2006-10-28T02:30:00Z", "25h", "it is the next day for a minute, an hour before the end"},
		{"day Pacific/Apia", "2011-12-29T10:00:00Z", "24h", "the next day is skipped, so the one after it begins"},
		{"week Pacific/Apia", "2011-12-26T10:00:00Z", "144h", "a week of six days"},
		{"month Pacific/Apia", "2011-12-01T10:00:00Z", "720h", "a December of 30 days"},
		{"year Pacific/Apia", "2011-01-01T10:00:00Z", "8736h", "a year of 364 days"},
		{"day", "2028-02-29T00:00:00Z", "24h", "a leap day"},
		{"month", "2028-02-01T00:00:00Z", "696h", "29 days of February"},
		{"month", "2027-02-01T00:00:00Z", "672h", "28 days of February"},
		{"month from day 28", "2028-02-28T00:00:00Z", "696h", "a month that has the leap day"},
		{"month from day 28", "2027-02-28T00:00:00Z", "672h", "one that has none"},
		{"year", "2028-01-01T00:00:00Z", "8784h", "a leap year"},
		{"year", "2100-01-01T00:00:00Z", "8760h", "2100 is none"},
		{"week Europe/Berlin", "2026-03-22T23:00:00Z", "167h", "clocks are set forward on its Sunday"},
		{"month Europe/Berlin", "2026-02-28T23:00:00Z", "743h", "31 days less an hour"},
		{"month from day 15 Europe/Berlin", "2026-10-14T22:00:00Z", "745h", "31 days and an hour"},
		{"year America/New_York", "2027-01-01T05:00:00Z", "8760h", "clocks are set twice"},
		{"first", "2026-03-28T23:00:00.000000001Z", "23h30m", "a window of its own"},
		{"first", "1969-12-31T23:59:59.999999999Z", "1ns", "the shortest window"},
	} {
		const limit = 3
		rate := ratelimit.Rate{Requests: limit, Window: ratelimit.Window(c.window)}
		lasts, err := time.ParseDuration(c.lasts)
		require.NoError(t, err)
		if c.window == "first" {
			rate.Per = lasts
		}
		begin := instant(t, c.begin)
		clock := ratelimit.NewFakeClock(begin.Add(-1))
		for name, l := range limitersOf(t, rate, clock) {
			what := []any{"%s from %s: %s (%s)", c.window, c.begin, c.why, name}
			ask := func(at time.Duration, n int) ratelimit.Result {
				clock.Set(begin.Add(at))
				res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/", Cost: n})
				require.NoError(t, err)
				return res
			}
			if c.window != "first" {
				require.True(t, ask(-1, limit).Allowed, what...) // in the window before
				require.Equal(t, time.Nanosecond, ask(-1, 1).RetryAfter, what...)
			}
			want := ratelimit.Result{Allowed: true, Limit: limit, ResetAfter: lasts, Rule: "rule"}
			require.Equal(t, want, ask(0, limit), what...)
			for _, at := range []time.Duration{0, lasts / 2, lasts - 1} {
				left := lasts - at
				want = ratelimit.Result{Limit: limit, RetryAfter: left, ResetAfter: left, Rule: "rule", Reason: ratelimit.ReasonLimit}
				require.Equal(t, want, ask(at, 1), what...)
			}
			require.Equal(t, limit-1, ask(lasts, 1).Remaining, what...)
		}
	}
}

// TestGreedyClientAtOddMidnights is the attack of a client that knows when the clocks of a zone are set. It asks once a minute
// and one nanosecond before each minute, for three dates, and is granted the limit once for each date, as it begins.
func TestGreedyClientAtOddMidnights(t *testing.T) {
	oneGoroutine(t)
	for _, c := range []struct{ window, zone, before, odd, after, why string }{
		{"day", "America/Sao_Paulo", "2018-11-03 00:00 -0300", "2018-11-04 01:00 -0200", "2018-11-05 00:00 -0200", "no midnight"},
		{"day", "America/Sao_Paulo", "2018-02-17 00:00 -0200", "2018-02-18 00:00 -0300", "2018-02-19 00:00 -0300", "a second midnight"},
		{"day", "Asia/Beirut", "2022-03-26 00:00 +0200", "2022-03-27 01:00 +0300", "2022-03-28 00:00 +0300", "no midnight"},
		{"day", "Asia/Beirut", "2022-10-29 00:00 +0300", "2022-10-30 00:00 +0200", "2022-10-31 00:00 +0200", "a second midnight"},
		{"day", "Asia/Gaza", "2021-03-26 00:00 +0200", "2021-03-27 01:00 +0300", "2021-03-28 00:00 +0300", "no midnight"},
		{"day", "Asia/Gaza", "2016-10-28 00:00 +0300", "2016-10-29 00:00 +0300", "2016-10-30 00:00 +0200", "one o'clock was midnight again"},
		{"day", "Africa/Cairo", "2024-04-25 00:00 +0200", "2024-04-26 01:00 +0300", "2024-04-27 00:00 +0300", "no midnight"},
		{"day", "Africa/Cairo", "2024-10-31 00:00 +0300", "2024-11-01 00:00 +0200", "2024-11-02 00:00 +0200", "a second midnight"},
		{"day", "Europe/Berlin", "2026-03-28 00:00 +0100", "2026-03-29 00:00 +0100", "2026-03-30 00:00 +0200", "a day of 23 hours"},
		{"day", "Europe/Berlin", "2026-10-24 00:00 +0200", "2026-10-25 00:00 +0200", "2026-10-26 00:00 +0100", "a day of 25 hours"},
		{"day", "America/St_Johns", "2006-10-28 00:00 -0230", "2006-10-29 00:00 -0330", "2006-10-30 00:00 -0330", "a minute that comes back"},
		{"day", "Pacific/Apia", "2011-12-29 00:00 -1000", "2011-12-31 00:00 +1400", "2012-01-01 00:00 +1400", "no December 30"},
		{"day", "", "2028-02-28 00:00 +0000", "2028-02-29 00:00 +0000", "2028-03-01 00:00 +0000", "a leap day"},
		{"day", "", "2100-02-27 00:00 +0000", "2100-02-28 00:00 +0000", "2100-03-01 00:00 +0000", "a year without one"},
		{"month", "America/Sao_Paulo", "2018-10-04 00:00 -0300", "2018-11-04 01:00 -0200", "2018-12-04 00:00 -0200", "a billing day"},
		{"month", "Africa/Cairo", "2024-10-01 00:00 +0300", "2024-11-01 00:00 +0200", "2024-12-01 00:00 +0200", "two midnights on the first"},
	} {
		const local = "2006-01-02 15:04 -0700"
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		begin, err := time.ParseInLocation(local, c.before, zone)
		require.NoError(t, err)
		end, err := time.ParseInLocation(local, c.after, zone)
		require.NoError(t, err)
		rate := ratelimit.Rate{Requests: 2, Window: ratelimit.Calendar(c.window, c.zone)}
		if c.window == "month" {
			rate.Window = ratelimit.Monthly(begin.Day(), c.zone)
		}
		clock := ratelimit.NewFakeClock(begin)
		for name, l := range limitersOf(t, rate, clock) {
			var granted []string
			for at := begin; !at.After(end); at = at.Add(time.Minute) {
				for _, now := range []time.Time{at.Add(-1), at, at} {
					if now.Before(begin) {
						continue
					}
					clock.Set(now)
					if l.Allow("client", "/").Allowed {
						require.Equal(t, now.Truncate(time.Minute), now)
						granted = append(granted, now.In(zone).Format(local))
					}
				}
			}
			want := []string{c.before, c.before, c.odd, c.odd, c.after, c.after}
			require.Equal(t, want, granted, "%s: %s (%s)", rate, c.why, name)
		}
	}
}

// TestClockSetBackOverAnEdge is the attack of a client that makes the clock go back over the begin of a window. A key that
// was charged in the new window goes on in it, and one that was not goes on in the old one.
func TestClockSetBackOverAnEdge(t *testing.T) {
	for _, c := range []struct{ window, edge, next string }{
		{"day Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"day Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		{"day America/Sao_Paulo", "2018-02-18T03:00:00Z", "2018-02-19T03:00:00Z"},
		{"month", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z"},
		{"year America/New_York", "2027-01-01T05:00:00Z", "2028-01-01T05:00:00Z"},
		{"first", "2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z"}, // the old window lasts until the edge, and the new one until next
	} {
		edge, next := instant(t, c.edge), instant(t, c.next)
		rate := ratelimit.Rate{Requests: 2, Window: ratelimit.Window(c.window)}
		if c.window == "first" {
			rate.Per = next.Sub(edge)
		}
		clock := ratelimit.NewFakeClock(edge.Add(-5 * time.Hour))
		for name, l := range limitersOf(t, rate, clock) {
			what := []any{"%s (%s)", c.window, name}
			clock.Set(edge.Add(-5 * time.Hour))
			for _, key := range []string{"used in both", "used before"} {
				require.True(t, l.Allow(key, "/").Allowed, what...)
				require.True(t, l.Allow(key, "/").Allowed, what...)
			}
			clock.Set(edge.Add(-1))
			require.Equal(t, time.Nanosecond, l.Allow("used in both", "/").RetryAfter, what...)
			clock.Set(edge)
			require.True(t, l.Allow("used in both", "/").Allowed, what...)
			require.True(t, l.Allow("used in both", "/").Allowed, what...)
			for _, back := range []time.Duration{1, time.Minute, 3 * time.Hour} {
				clock.Set(edge.Add(-back))
				left := next.Sub(clock.Now())
				want := ratelimit.Result{Limit: 2, RetryAfter: left, ResetAfter: left, Rule: "rule", Reason: ratelimit.ReasonLimit}
				require.Equal(t, want, l.Allow("used in both", "/"), what...)
				want.RetryAfter, want.ResetAfter = back, back
				require.Equal(t, want, l.Allow("used before", "/"), what...)
			}
			clock.Set(next.Add(-1))
			require.Equal(t, time.Nanosecond, l.Allow("used in both", "/").RetryAfter, what...)
			clock.Set(next)
			require.Equal(t, 1, l.Allow("used in both", "/").Remaining, what...)
		}
	}
}

// TestMaxInOfCalendars has greedy clients: one nanosecond before an edge they take all that is left, and so at each edge that
// follows. In no interval are they granted more than MaxIn says. In many, they are granted as much.
func TestMaxInOfCalendars(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 24))
	intervals, reached := 0, 0
	for _, zone := range append([]string{""}, hardZones...) {
		for _, window := range []ratelimit.Window{
			ratelimit.Calendar("day", zone), ratelimit.Calendar("week", zone), ratelimit.Calendar("year", zone),
			ratelimit.Monthly(1, zone), ratelimit.Monthly(2+r.IntN(27), zone),
		} {
			rate := ratelimit.Rate{Requests: 1 + r.IntN(5), Window: window}
			clock := ratelimit.NewFakeClock(time.Date(1971+r.IntN(60), 1, 1+r.IntN(365), 0, 0, 0, 0, time.UTC))
			l, err := ratelimit.NewFixedWindow(rate, ratelimit.WithClock(clock))
			require.NoError(t, err)
			takeLeft(t, l, "edges", rate.Requests)
			clock.Advance(l.Peek("edges").RetryAfter - 1)
			start := clock.Now()
			granted, sum := map[time.Time]int{}, 0
			var at []time.Time
			for range 500 {
				n := takeLeft(t, l, "greedy", rate.Requests)
				require.Equal(t, rate.Requests, n, "at %v", clock.Now())
				sum += n
				granted[clock.Now()], at = sum, append(at, clock.Now())
				clock.Advance(l.Peek("greedy").RetryAfter)
				if clock.Now().Sub(start) > 200*366*24*time.Hour {
					break
				}
			}
			for range 200 {
				i := r.IntN(len(at))
				j := i + r.IntN(min(len(at)-i, 40))
				first := at[i]
				if i+1 < len(at) { // the units of a window may be taken as it ends, too
					first = at[i+1].Add(-1)
				}
				units := (j - i + 1) * rate.Requests
				most := ratelimit.AlgorithmFixedWindow.MaxIn(rate, max(at[j].Sub(first), 0))
				require.LessOrEqual(t, units, most, "%v from %v to %v", rate, first, at[j])
				intervals++
				if units == most {
					reached++
				}
			}
		}
	}
	t.Log(intervals, "intervals, and in", reached, "of them as much was granted as MaxIn says")
	require.Greater(t, reached, intervals/4)
}

// TestMaxInOfFirst compares MaxIn with the best that a client can do in an interval, by trying everything: how long before the
// interval its window began, and how many units it takes at each instant. The client holds a reservation that began the
// window, and may give it back.
func TestMaxInOfFirst(t *testing.T) {
	cases := 0
	for limit := 1; limit <= 4; limit++ {
		for per := 1; per <= 6; per++ {
			rate := ratelimit.Rate{Requests: limit, Per: time.Duration(per), Window: "first"}
			for length := range 20 {
				g := greed{limit, per, length, map[[4]int]int{}}
				best := g.best(0, per, 0, 0)
				for age := 1; age < per; age++ {
					best = max(best, g.best(0, age, 1, 1))
				}
				cases++
				most := ratelimit.AlgorithmFixedWindow.MaxIn(rate, time.Duration(length))
				require.LessOrEqual(t, best, most, "%v within %d ns", rate, length)
				if limit > 1 { // of a window with one unit, nothing is left once it was given back
					require.Equal(t, best, most, "%v within %d ns", rate, length)
				}
			}
		}
	}
	t.Log(cases, "cases")
}

// A greed finds the most units that a client is granted in an interval of the given length, both ends included.
type greed struct {
	limit, per, length int
	known              map[[4]int]int
}

// best returns the most units from the instant at on. The window has this age and has used units, of which held were
// reserved before the interval. A window with the age per is over.
func (g *greed) best(at, age, used, held int) (most int) {
	if at > g.length {
		return 0
	}
	if age >= g.per || used == 0 {
		age, used, held = 0, 0, 0
	}
	state := [4]int{at, age, used, held}
	if n, ok := g.known[state]; ok {
		return n
	}
	for n := 0; n <= g.limit-used; n++ {
		now := used + n
		most = max(most, n+g.best(at+1, age+1, now, held))
		if held > 0 && now > held { // give it back, and take one unit more, or not
			for more := range held + 1 {
				most = max(most, n+more+g.best(at+1, age+1, now-held+more, 0))
			}
		}
	}
	g.known[state] = most
	return most
}
