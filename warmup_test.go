package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// soaked returns many with RATELIMIT_SOAK=1, and n otherwise.
func soaked(n, many int) int {
	if os.Getenv("RATELIMIT_SOAK") == "1" {
		return many
	}
	if testing.Short() {
		return max(n/4, 1)
	}
	return n
}

// algorithmsOfRules are the algorithms that a rule may have.
var algorithmsOfRules = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
}

// isBucket reports whether rates of a may have a burst.
func isBucket(a ratelimit.Algorithm) bool {
	return a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket
}

// A warmup is a rule that warms up, its clock, and the model of its one key.
type warmup struct {
	t     *testing.T
	rule  ratelimit.Rule
	clock *ratelimit.FakeClock
	l     *ratelimit.RateLimiter
	model ratelimittest.Model
}

// startWarmup makes a RateLimiter of the rule r, and the model of a new key.
func startWarmup(t *testing.T, r ratelimit.Rule, opts ...ratelimit.Option) *warmup {
	clock := ratelimit.NewFakeClock(epoch)
	r.Name = "warm"
	l, err := ratelimit.New([]ratelimit.Rule{r}, nil, append([]ratelimit.Option{ratelimit.WithClock(clock)}, opts...)...)
	require.NoError(t, err)
	return &warmup{t, r, clock, l, ratelimittest.WarmupModel(r.Algorithm, epoch, r.Rate, r.Warmup)}
}

// ask asks for n units for client. If take is false, it only looks.
func (w *warmup) ask(client string, n int, take bool) ratelimit.Result {
	req := ratelimit.Request{Client: client, Rules: []string{"warm"}, Cost: n}
	var res ratelimit.Result
	var err error
	if take {
		res, err = w.l.Check(w.t.Context(), req)
	} else {
		res, err = w.l.Peek(w.t.Context(), req)
	}
	require.NoError(w.t, err)
	require.Equal(w.t, "warm", res.Rule)
	res.Rule = ""
	return res
}

// drawWarmup returns a random rule that warms up over a few microseconds.
func drawWarmup(rng *rand.Rand, a ratelimit.Algorithm) ratelimit.Rule {
	r := ratelimit.Rule{Algorithm: a, Rate: ratelimit.Rate{Requests: 1 + rng.IntN(12), Per: time.Duration(1 + rng.IntN(900))}}
	least := 1
	if isBucket(a) {
		r.Rate.Burst = rng.IntN(2 * r.Rate.Requests)
		least = (r.Rate.Requests-1)/burstOf(r.Rate) + 1
	}
	r.Warmup = ratelimit.Warmup{From: least + rng.IntN(r.Rate.Requests-least+1), Over: time.Duration(1000 + rng.IntN(1000))}
	return r
}

// burstOf returns the burst of r.
func burstOf(r ratelimit.Rate) int {
	if r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}

// TestWarmupModel plays random schedules, in which the clock may step back, and compares each whole
// answer with that of the model. It also checks with looks that each RetryAfter is exact.
func TestWarmupModel(t *testing.T) {
	for i, a := range algorithmsOfRules {
		t.Run(string(a), func(t *testing.T) {
			denials := 0
			for schedule := range soaked(5, 2000) {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(schedule)))
				w, now := startWarmup(t, drawWarmup(rng, a)), time.Duration(0)
				next, retry := time.Duration(0), 0 // when something changes, and the units to ask for then
				for step := range 60 {
					switch rng.IntN(12) {
					case 0:
						now = max(now-time.Duration(rng.IntN(300)), 0)
					case 1:
						now += w.rule.Warmup.Over - 1 + time.Duration(rng.IntN(3))
					case 2, 3, 4:
						now += time.Duration(rng.IntN(int(w.rule.Rate.Per) * 2))
					case 5, 6:
						now = max(next-1+time.Duration(rng.IntN(2)), 0)
					case 7:
						now += time.Duration(rng.IntN(int(w.rule.Warmup.Over)))
					}
					n := 1 + rng.IntN(burstOf(w.rule.Rate)+1)
					if rng.IntN(2) == 0 {
						n = 1
					}
					due := retry > 0
					if due {
						now, n, retry = next, retry, 0
					}
					w.clock.Set(epoch.Add(now))
					want := w.model.Ask(epoch.Add(now), n)
					got := w.ask("a", n, true)
					require.Equal(t, want, got, "schedule %d, step %d: %d units at %d of %#v", schedule, step, n, now, w.rule)
					if due {
						require.True(t, got.Allowed, "after RetryAfter")
					}
					next = now + got.ResetAfter
					if !got.Allowed && got.RetryAfter != ratelimit.Never {
						denials++
						next = now + got.RetryAfter
						w.clock.Set(epoch.Add(next - 1))
						require.False(t, w.ask("a", n, true).Allowed, "one nanosecond early")
						if retry = 0; rng.IntN(2) == 0 {
							retry = n
						}
					}
				}
			}
			require.NotZero(t, denials)
			t.Logf("%d denials with a RetryAfter, all exact", denials)
		})
	}
}

// limitAt returns the limit of a key of this age.
func limitAt(r ratelimit.Rule, age time.Duration) int {
	w := r.Warmup
	if age >= w.Over {
		return r.Rate.Requests
	}
	return w.From + int(time.Duration(r.Rate.Requests-w.From)*age/w.Over)
}

// TestWarmupBound has a client take as much as it can, and checks the interval between any two of
// its grants against the bound of Warmup.
func TestWarmupBound(t *testing.T) {
	for i, a := range algorithmsOfRules {
		t.Run(string(a), func(t *testing.T) {
			broken, intervals, reached := 0, 0, 0
			for schedule := range 2000 {
				rng := rand.New(rand.NewPCG(uint64(10+i), uint64(schedule)))
				r := drawWarmup(rng, a)
				w, now := startWarmup(t, r), time.Duration(0)
				type grant struct {
					at time.Duration
					n  int
				}
				var grants []grant
				for range 60 {
					n := 1 + rng.IntN(burstOf(r.Rate))
					w.clock.Set(epoch.Add(now))
					res := w.ask("a", n, true)
					if res.Allowed {
						grants = append(grants, grant{now, n})
					}
					switch wait := res.RetryAfter; {
					case wait != ratelimit.Never && rng.IntN(2) == 0:
						now += wait
					default:
						now += time.Duration(rng.IntN(100))
					}
				}
				per, requests := int(r.Rate.Per), r.Rate.Requests
				for end, last := range grants {
					limit, sum := limitAt(r, last.at-grants[0].at), 0
					for begin := end; begin >= 0; begin-- {
						sum += grants[begin].n
						long := int(last.at - grants[begin].at)
						granted, most := sum, limit
						switch {
						case isBucket(a):
							granted, most = sum*per*requests, (burstOf(r.Rate)*per+long*requests)*limit
						case a == ratelimit.AlgorithmFixedWindow:
							if windowOf(last.at, r.Rate.Per) != windowOf(grants[begin].at, r.Rate.Per) {
								continue
							}
						case long >= per:
							continue
						case a == ratelimit.AlgorithmSlidingWindowCounter:
							most = 2*limit - 1
						}
						intervals++
						if granted > most {
							broken++
						}
						if granted == most {
							reached++
						}
					}
				}
			}
			require.Zero(t, broken)
			require.NotZero(t, reached, "the bound is tight")
			t.Logf("%d intervals, bound broken %d, reached %d", intervals, broken, reached)
		})
	}
}

// windowOf returns the number of the window at d after the epoch.
func windowOf(d, per time.Duration) time.Duration {
	return time.Duration(epoch.Add(d).UnixNano()) / per
}

// anHour returns a rule that warms up from 2 to 10 units in an hour.
func anHour(a ratelimit.Algorithm, r ratelimit.Rate) ratelimit.Rule {
	return ratelimit.Rule{Algorithm: a, Rate: r, Warmup: ratelimit.Warmup{From: 2, Over: time.Hour}}
}

// TestWarmup follows one key through its first hour.
func TestWarmup(t *testing.T) {
	w := startWarmup(t, anHour(ratelimit.AlgorithmFixedWindow, ratelimit.PerMinute(10)))
	require.Equal(t, yes(10, 2, 0), w.ask("a", 1, false), "a new key is granted From")
	require.Equal(t, no(10, 2, ratelimit.Never, 0), w.ask("a", 3, true), "it does not age until it is used")
	require.Equal(t, yes(10, 0, time.Hour), w.ask("a", 2, true))
	require.Equal(t, no(10, 0, minute, time.Hour), w.ask("a", 1, true), "the window must end")
	require.Equal(t, no(10, 0, 450*sec, time.Hour), w.ask("a", 3, true), "the limit must grow: by 1 in 7.5 minutes")
	w.clock.Advance(30 * minute)
	require.Equal(t, yes(10, 5, 30*minute), w.ask("a", 1, true), "half of the hour is over")
	w.clock.Advance(30*minute - 1)
	require.Equal(t, yes(10, 9, 1), w.ask("a", 1, false), "a nanosecond before the hour")
	w.clock.Advance(1)
	require.Equal(t, yes(10, 10, 0), w.ask("a", 1, false), "the full limit")
	require.Equal(t, yes(10, 0, minute), w.ask("a", 10, true))
}

// TestBadWarmup proves which errors a wrong Warmup in code gives.
func TestBadWarmup(t *testing.T) {
	inner, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(5))
	require.NoError(t, err)
	hourly := func(n int) ratelimit.Warmup { return ratelimit.Warmup{From: n, Over: time.Hour} }
	rule := func(r ratelimit.Rate, w ratelimit.Warmup) ratelimit.Rule {
		return ratelimit.Rule{Name: "r", Rate: r, Warmup: w}
	}
	window := rule(ratelimit.PerMinute(10), hourly(11))
	window.Algorithm = ratelimit.AlgorithmFixedWindow
	tiered := rule(ratelimit.PerMinute(10), hourly(5))
	tiered.Tiers = map[string]ratelimit.Rate{
		"few": ratelimit.PerMinute(3), "big": ratelimit.PerMinute(100).WithBurst(19), "enough": ratelimit.PerMinute(100).WithBurst(20),
		"all": ratelimit.Unlimited,
	}
	for _, row := range []struct {
		rule ratelimit.Rule
		want string
		why  string
	}{
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{Over: time.Hour}), "ratelimit: rules[0].warmup.from is 0: must be at least 1", "no From"},
		{rule(ratelimit.PerMinute(10), hourly(-1)), "ratelimit: rules[0].warmup.from is -1: must be at least 1", "a From below 1"},
		{rule(ratelimit.PerMinute(10), hourly(11)), "ratelimit: rules[0].warmup.from is 11: must be at most 10, the requests of the rule's rate",
			"a From above the limit"},
		{window, "ratelimit: rules[0].warmup.from is 11: must be at most 10, the requests of the rule's rate", "of a window"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 1}),
			"ratelimit: rules[0].warmup.over is 0s: must be from a microsecond to 366 days", "no Over"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 1, Over: 999}),
			"ratelimit: rules[0].warmup.over is 999ns: must be from a microsecond to 366 days", "an Over below 1 us"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 1, Over: 366*24*time.Hour + 1}),
			"ratelimit: rules[0].warmup.over is 8784h0m0.000000001s: must be from a microsecond to 366 days", "an Over above 366 days"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 12, Over: -1}),
			"ratelimit: rules[0].warmup.over is -1ns: must be from a microsecond to 366 days\nratelimit: rules[0].warmup.from is 12: must be at " +
				"most 10, the requests of the rule's rate", "both"},
		{rule(ratelimit.PerMinute(10).WithBurst(2), hourly(4)),
			"ratelimit: rules[0].warmup.from is 4: must be at least 5: with less, a burst of 2 grants a new key nothing",
			"4 of 10 of a burst of 2 is less than 1"},
		{tiered, "ratelimit: rules[0].tiers[\"big\"].burst is 19: must be at least 20: with less, a warm-up from 5 of 100 grants a new key " +
			"nothing", "the same for a tier; one with a limit below From is right"},
		{ratelimit.Rule{Name: "r", Limiter: inner, Warmup: hourly(1)},
			"ratelimit: rules[0].warmup is {1 1h0m0s}: must be left out: a limiter of one's own has its own rates", "beside a Limiter"},
	} {
		_, err := ratelimit.New([]ratelimit.Rule{row.rule}, nil)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, row.why)
		require.EqualError(t, err, row.want, row.why)
	}
	for _, right := range []ratelimit.Warmup{{1, time.Microsecond}, {10, 366 * 24 * time.Hour}} {
		_, err := ratelimit.New([]ratelimit.Rule{rule(ratelimit.PerMinute(10), right)}, nil)
		require.NoError(t, err)
	}
	_, err = ratelimit.New([]ratelimit.Rule{rule(ratelimit.PerMinute(10).WithBurst(2), hourly(5))}, nil)
	require.NoError(t, err, "5 of 10 of a burst of 2 is 1")
}

// TestWarmupConfig proves that each way to write a warm-up in a config gives the same rule, and how
// it is written as JSON.
func TestWarmupConfig(t *testing.T) {
	want := ratelimit.Warmup{From: 3, Over: 90 * minute}
	config := func(algoConfig fields, warmup any) fields {
		f := fields{"endpoint": "/a", "algorithm": "FixedWindow", "algoConfig": algoConfig}
		if warmup != nil {
			f["WarmUp"] = warmup
		}
		return f
	}
	for _, f := range []fields{
		config(fields{"rate": "10/m"}, fields{"from": 3, "over": "1h30m"}),
		config(fields{"rate": "10/m"}, map[string]string{"FROM": "3"}),
		config(fields{"rate": "10/m"}, fields{"From": 3.0, "OVER": 90 * minute}),
		config(fields{"rate": "10/m", "warmupRequests": 3, "warmupDuration": 5400}, nil),
		config(fields{"rate": "10/m", "WARMUP_REQUESTS": 3, "warmup-duration": json.Number("5.4e3")}, nil),
		{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "10/m", "warmupRequests": 3, "warmupDuration": 5400},
	} {
		if _, text := f["WarmUp"].(map[string]string); text {
			_, err := ratelimit.NewFromConfig([]map[string]any{f}, nil)
			require.EqualError(t, err, "ratelimit: configs[0].WarmUp.over is missing: must be a time with its unit, such as \"90s\"\nratelimit: "+
				"configs[0].WarmUp.FROM is \"3\": must be a number, not a string: drop the quotes")
			continue
		}
		l, err := ratelimit.NewFromConfig([]map[string]any{f}, nil)
		require.NoError(t, err)
		rules, _ := l.Rules()
		require.Equal(t, want, rules[0].Warmup, "Rules reports it")
		text, err := json.Marshal(rules[0])
		require.NoError(t, err)
		require.Contains(t, string(text), `"warmup":{"from":3,"over":"1h30m0s"}`)
		var again ratelimit.Rule
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, want, again.Warmup)
	}
}

// TestCreateRefusesWarmup proves that a limiter without rules cannot warm up.
func TestCreateRefusesWarmup(t *testing.T) {
	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("Own", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) {
		return ratelimit.NewTokenBucket(ratelimit.PerSecond(1))
	}))
	_, err := f.Create(fields{"algorithm": "TokenBucket", "algoConfig": fields{"rate": "10/m", "warmupRequests": 1, "warmup_duration": 60},
		"warmup": fields{"from": 1, "over": "1h"}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: warmup is a map: must be left out: only a rule has a warm-up, see NewFromConfig
ratelimit: algoConfig.warmupRequests is 1: must be left out: only a rule has a warm-up, see NewFromConfig
ratelimit: algoConfig.warmup_duration is 60: must be left out: only a rule has a warm-up, see NewFromConfig`)
	_, err = f.Create(fields{"algorithm": "Own", "algoConfig": fields{"warmupRequests": 1}, "warmup": fields{}})
	require.EqualError(t, err, `ratelimit: warmup is a map: must be left out: only a rule has a warm-up, see NewFromConfig`)
	_, err = ratelimit.NewFromConfig([]map[string]any{{"endpoint": "/a", "algorithm": "Own", "algoConfig": fields{"warmupRequests": 1},
		"warmup": fields{}}}, nil, ratelimit.WithFactory(f))
	require.EqualError(t, err, `ratelimit: configs[0].warmup is a map: must be left out: Own has rates of its own`)
}

// warmRate returns a rate of 10 units that each algorithm accepts.
func warmRate(per time.Duration) ratelimit.Rate { return ratelimit.Rate{Requests: 10, Per: per} }

// warmHour starts a rule of 10 a second that warms up from 2 in an hour.
func warmHour(t *testing.T, a ratelimit.Algorithm) *warmup {
	return startWarmup(t, anHour(a, warmRate(sec)))
}

// eachWarm runs test for each algorithm of rules.
func eachWarm(t *testing.T, test func(t *testing.T, a ratelimit.Algorithm)) {
	for _, a := range algorithmsOfRules {
		t.Run(string(a), func(t *testing.T) { test(t, a) })
	}
}

// TestWarmupIsFullAtOver proves that a key has its full limit exactly Over after its first grant,
// and not earlier.
func TestWarmupIsFullAtOver(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		require.True(t, w.ask("a", 1, true).Allowed)
		w.clock.Advance(minute)
		require.Equal(t, no(10, 2, 59*minute, 59*minute), w.ask("a", 10, true), "the wait ends exactly then")
		w.clock.Advance(59*minute - 1)
		require.Equal(t, no(10, 9, 1, 1), w.ask("a", 10, true), "a nanosecond before")
		w.clock.Advance(1)
		res := w.ask("a", 10, true)
		require.True(t, res.Allowed)
		require.Zero(t, res.Remaining)
	})
}

// TestWarmupForgets proves that a key is new again once it has had its full limit for as long as
// Over, to the nanosecond. So an idle client does not keep its age for ever, and a regular client
// does.
func TestWarmupForgets(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for _, early := range []time.Duration{1, 0} {
			w := warmHour(t, a)
			w.ask("a", 1, true)
			w.clock.Advance(time.Hour)
			res := w.ask("a", 10, true)
			require.True(t, res.Allowed)
			w.clock.Advance(res.ResetAfter + time.Hour - early)
			want := 2 // new
			if early > 0 {
				want = 10 // grown
			}
			require.Equal(t, want, w.ask("a", 1, false).Remaining, "%v before", early)
			require.Equal(t, early == 0, w.ask("a", 3, true).RetryAfter == ratelimit.Never)
		}
	})
}

// TestWarmupAgesByTime proves that a key ages by time and not by use: a key with one used unit is
// as old as a busy one.
func TestWarmupAgesByTime(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		require.True(t, w.ask("lazy", 1, true).Allowed)
		require.True(t, w.ask("busy", 1, true).Allowed)
		for range 1340 {
			w.clock.Advance(sec)
			w.ask("busy", 1, true)
		}
		w.clock.Advance(10 * sec)
		require.Equal(t, 5, w.ask("lazy", 1, false).Remaining)
		require.Equal(t, 5, w.ask("busy", 1, false).Remaining)
		w.clock.Advance(2250 * sec)
		require.Equal(t, 10, w.ask("lazy", 1, false).Remaining, "grown: one unit, a wait, then a burst is what is granted")
	})
}

// TestWarmupDenialsDoNotAge proves that neither a denial nor a look starts the warm-up of a key.
func TestWarmupDenialsDoNotAge(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		for range 10 {
			require.Equal(t, no(10, 2, ratelimit.Never, 0), w.ask("a", 3, true))
			require.Equal(t, yes(10, 2, 0), w.ask("a", 1, false))
			w.clock.Advance(20 * minute)
		}
		stats := w.l.Stats()[0]
		require.Zero(t, stats.LiveKeys)
	})
}

// TestWarmupAcrossAWindow asks at the end of a window for more units than a new key may have. The
// wait goes on after the window ends, because the limit is still too low then.
func TestWarmupAcrossAWindow(t *testing.T) {
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowCounter,
		ratelimit.AlgorithmSlidingWindowLog} {
		w := startWarmup(t, anHour(a, warmRate(minute)))
		w.clock.Advance(59 * sec)
		require.True(t, w.ask("a", 2, true).Allowed)
		res := w.ask("a", 3, true)
		require.Equal(t, no(10, 0, 450*sec, time.Hour), res, "not %v, when the window ends", sec)
		w.clock.Advance(res.RetryAfter - 1)
		require.False(t, w.ask("a", 3, true).Allowed)
		w.clock.Advance(1)
		require.True(t, w.ask("a", 3, true).Allowed)
	}
}

// TestWarmupRetryAfterEndsBeforeForgetting denies a key that is almost forgotten. Its RetryAfter
// must not be an instant at which the key is new.
func TestWarmupRetryAfterEndsBeforeForgetting(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := startWarmup(t, ratelimit.Rule{Algorithm: a, Rate: warmRate(1000), Warmup: ratelimit.Warmup{From: 1, Over: 1500}})
		require.True(t, w.ask("a", 1, true).Allowed)
		w.clock.Advance(1400)
		res := w.ask("a", 10, true)
		require.False(t, res.Allowed)
		if a == ratelimit.AlgorithmSlidingWindowCounter { // the previous window still has a weight then
			require.Equal(t, 600*time.Nanosecond, res.RetryAfter)
		} else {
			require.Equal(t, 100*time.Nanosecond, res.RetryAfter)
		}
		w.clock.Advance(res.RetryAfter)
		require.True(t, w.ask("a", 10, true).Allowed)
	})
}

// TestWarmupClockBack sets the clock back: the key does not age twice over the same time, and is
// not new.
func TestWarmupClockBack(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		w.ask("a", 1, true)
		w.clock.Advance(1350 * sec)
		require.Equal(t, 4, w.ask("a", 1, true).Remaining)
		w.clock.Advance(-20 * minute)
		res := w.ask("a", 10, true)
		require.Equal(t, 4, res.Remaining, "the age is that of the last grant")
		require.Equal(t, 57*minute+30*sec, res.RetryAfter, "the gap is waited for too")
		w.clock.Advance(-40 * minute)
		require.Equal(t, 4, w.ask("a", 1, false).Remaining, "also before the first grant")
		w.clock.Advance(res.RetryAfter + 40*minute - 1)
		require.False(t, w.ask("a", 10, true).Allowed)
		w.clock.Advance(1)
		require.True(t, w.ask("a", 10, true).Allowed)
	})
}

// TestWarmupEviction uses two keys in a table with room for one. A key that gets the room whenever
// it asks must answer as the model does, so that evictions do not show.
func TestWarmupEviction(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		evicted := uint64(0)
		for schedule := range soaked(20, 300) {
			rng := rand.New(rand.NewPCG(30, uint64(schedule)))
			rule := drawWarmup(rng, a)
			w := startWarmup(t, rule, ratelimit.WithMaxKeys(1))
			models := map[string]ratelimittest.Model{}
			now := time.Duration(0)
			for step := range 40 {
				key := []string{"a", "b", "c"}[rng.IntN(3)]
				if models[key] == nil {
					models[key] = ratelimittest.WarmupModel(a, epoch, rule.Rate, rule.Warmup)
				}
				// All other keys are new by then, so there is room for this one.
				now += 2*rule.Rate.Per*time.Duration(1+rule.Rate.Requests) + rule.Warmup.Over
				for range 1 + rng.IntN(4) {
					w.clock.Set(epoch.Add(now))
					n := 1 + rng.IntN(burstOf(rule.Rate))
					require.Equal(t, models[key].Ask(epoch.Add(now), n), w.ask(key, n, true), "schedule %d, step %d", schedule, step)
					now += time.Duration(rng.IntN(int(rule.Warmup.Over)))
				}
			}
			evicted += w.l.Stats()[0].Evicted
		}
		require.NotZero(t, evicted)
	})
}

// TestWarmupOverflow fills the table. A key without a state of its own is as old as a new one,
// however long it was used. Once it gets a state, it has the shared debt and begins to age.
func TestWarmupOverflow(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := startWarmup(t, anHour(a, warmRate(30*minute)), ratelimit.WithMaxKeys(1))
		require.True(t, w.ask("resident", 1, true).Allowed)
		require.Equal(t, 1, w.ask("other", 1, true).Remaining)
		require.Equal(t, 0, w.ask("third", 1, true).Remaining, "they share one debt")
		require.False(t, w.ask("other", 1, true).Allowed)
		require.Equal(t, uint64(2), w.l.Stats()[0].Overflowed)
		for range 4 {
			w.clock.Advance(30 * minute)
			require.True(t, w.ask("resident", 1, true).Allowed)
			w.ask("other", 1, true)
			require.LessOrEqual(t, w.ask("other", 1, false).Remaining, 2, "it does not age")
			require.Equal(t, ratelimit.Never, w.ask("other", 3, true).RetryAfter)
		}
		w.clock.Advance(5 * time.Hour)
		res := w.ask("other", 1, true)
		require.Equal(t, 1, res.Remaining, "it has a state now, in place of the resident")
		require.Equal(t, time.Hour, res.ResetAfter)
		w.clock.Advance(30 * minute)
		require.NotEqual(t, ratelimit.Never, w.ask("other", 10, true).RetryAfter, "and begins to age")
	})
}

// TestWarmupReset proves that a key that was reset is new.
func TestWarmupReset(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		w.ask("a", 2, true)
		w.clock.Advance(time.Hour)
		require.Equal(t, 9, w.ask("a", 1, true).Remaining)
		require.NoError(t, w.l.Reset(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"warm"}}))
		require.Equal(t, yes(10, 2, 0), w.ask("a", 1, false))
	})
}

// TestWarmupChanges proves that a key keeps its age when From, Over or the rate change, and that
// taking the warm-up away and setting it again makes all keys new.
func TestWarmupChanges(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		w.ask("a", 1, true)
		w.clock.Advance(1350 * sec) // three eighths of an hour
		set := func(requests int, warm ratelimit.Warmup) {
			r := w.rule
			r.Name, r.Rate.Requests, r.Warmup = "warm", requests, warm
			require.NoError(t, w.l.SetRule(r))
		}
		left := func() int { return w.ask("a", 1, false).Remaining }
		require.Equal(t, 5, left())
		set(10, ratelimit.Warmup{From: 1, Over: time.Hour})
		require.Equal(t, 4, left(), "another From")
		set(10, ratelimit.Warmup{From: 1, Over: 3 * time.Hour})
		require.Equal(t, 2, left(), "another Over: the key is an eighth grown")
		set(10, ratelimit.Warmup{From: 2, Over: 45 * minute})
		require.NoError(t, w.l.UpdateRate("warm", ratelimit.Rate{Requests: 18, Per: sec}))
		require.GreaterOrEqual(t, left(), 9, "another rate: 10 of 18")
		w.clock.Advance(1350 * sec)
		require.Equal(t, 18, left())
		set(10, ratelimit.Warmup{})
		require.Equal(t, 10, left(), "without a warm-up, a new key has the full limit")
		require.Equal(t, 0, w.ask("a", 10, true).Remaining)
		set(10, ratelimit.Warmup{From: 2, Over: time.Hour})
		require.Equal(t, 2, left(), "with one, all keys are new again")
		require.ErrorIs(t, w.l.UpdateRate("warm", ratelimit.Rate{Requests: 1, Per: sec}), ratelimit.ErrInvalidConfig,
			"the limit may not fall below From")
	})
}

// TestWarmupChangeForgets changes Over when a key is already new again by the old Over: the key is
// new, as it would be if it had been evicted.
func TestWarmupChangeForgets(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for _, rate := range []int{10, 20} {
			w := warmHour(t, a)
			w.ask("a", 1, true)
			w.clock.Advance(2*time.Hour + minute)
			r := w.rule
			r.Name, r.Rate.Requests, r.Warmup.Over = "warm", rate, 10*time.Hour
			require.NoError(t, w.l.SetRule(r))
			require.Equal(t, 2, w.ask("a", 1, false).Remaining, "at %d", rate)
		}
	})
}

// TestWarmupTiers proves that a key grows from From to the limit of its tier.
func TestWarmupTiers(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		r := anHour(a, warmRate(sec))
		r.Tiers = map[string]ratelimit.Rate{"few": {Requests: 1, Per: sec}, "many": {Requests: 40, Per: sec}}
		r.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.Rate{Requests: 100, Per: sec, Burst: map[bool]int{true: 1}[isBucket(a)]}, req.Tier == "resolved"
		}
		w := startWarmup(t, r)
		left := func(tier string) int {
			res, _ := w.l.Peek(t.Context(), ratelimit.Request{Client: "a", Tier: tier, Rules: []string{"warm"}})
			return res.Remaining
		}
		require.Equal(t, []int{1, 2, 2}, []int{left("few"), left(""), left("many")}, "From, or the limit if that is lower")
		w.ask("a", 1, true)
		w.clock.Advance(1350 * sec) // three eighths of an hour
		require.Equal(t, []int{1, 5, 16}, []int{left("few"), left(""), left("many")})
		if isBucket(a) {
			_, err := w.l.Peek(t.Context(), ratelimit.Request{Client: "a", Tier: "resolved", Rules: []string{"warm"}})
			require.EqualError(t, err, `ratelimit: rules["warm"].resolve.burst is 1: must be at least 50: with less, a warm-up from 2 of 100 `+
				`grants a new key nothing`)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.Equal(t, 5, left("resolved"), "the rule's own rate is used")
		} else {
			require.Equal(t, 38, left("resolved"))
		}
	})
}

// TestWarmupShadow proves that keys of a shadow rule warm up too, from the first charge of that
// rule.
func TestWarmupShadow(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	shadow := anHour(ratelimit.AlgorithmFixedWindow, warmRate(minute))
	shadow.Name, shadow.Mode = "warm", ratelimit.ModeShadow
	l, err := ratelimit.New([]ratelimit.Rule{shadow}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	for range 4 {
		require.Equal(t, unlimited, l.Allow("a", "x"))
		_, err := l.Check(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"warm"}})
		require.NoError(t, err)
	}
	require.Equal(t, uint64(2), l.Stats()[0].ShadowDenied, "two of four fit")
}

// TestWarmupWaitersKeepTheirOrder has callers wait for a young key. They are served in order of
// arrival, each at the instant that a newcomer was told, and a request in between does not overtake
// them.
func TestWarmupWaitersKeepTheirOrder(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			r := anHour(a, warmRate(minute))
			r.Name = "warm"
			l, err := ratelimit.New([]ratelimit.Rule{r}, nil, ratelimit.WithClock(clock))
			require.NoError(t, err)
			req := func(n int) ratelimit.Request {
				return ratelimit.Request{Client: "a", Rules: []string{"warm"}, Cost: n}
			}
			require.True(t, check(t, l, req(2)).Allowed)
			costs := []int{1, 4, 2, 5}
			served := make(chan int, len(costs))
			var told []time.Duration // when each newcomer was told that its request would be served
			for i, n := range costs {
				res := check(t, l, req(n))
				require.False(t, res.Allowed)
				told = append(told, res.RetryAfter)
				go func() {
					res, err := l.Wait(context.Background(), req(n))
					if err == nil && res.Allowed {
						served <- i
					}
				}()
				synctest.Wait()
			}
			for i := range costs {
				at := told[i] - clock.Now().Sub(epoch)
				before := l.Stats()[0].Allowed
				clock.Advance(at - 1)
				synctest.Wait()
				require.False(t, check(t, l, req(1)).Allowed, "a request does not overtake")
				require.Equal(t, before, l.Stats()[0].Allowed, "caller %d: a nanosecond early", i)
				clock.Advance(1)
				synctest.Wait()
				require.Equal(t, before+1, l.Stats()[0].Allowed, "caller %d", i)
			}
			clock.Advance(time.Hour) // a leaky bucket holds its callers
			synctest.Wait()
			for i := range costs {
				require.Equal(t, i, <-served)
			}
		})
	})
}

// TestWarmupWaitFailsAtOnce proves that Wait fails at once for a count that a new key is never
// granted.
func TestWarmupWaitFailsAtOnce(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		res, err := w.l.Wait(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"warm"}, Cost: 3})
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit)
		require.Equal(t, ratelimit.Never, res.RetryAfter)
	})
}

// TestWarmupInMemoryStore proves with a random schedule that a rule in a MemoryStore answers as one
// in this process.
func TestWarmupInMemoryStore(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for schedule := range soaked(50, 1000) {
			rng := rand.New(rand.NewPCG(40, uint64(schedule)))
			rule := drawWarmup(rng, a)
			here := startWarmup(t, rule)
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(here.clock))
			require.NoError(t, err)
			there := *here
			rule.Name = "warm"
			there.l = newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithClock(here.clock))
			for step := range 60 {
				if rng.IntN(3) == 0 {
					here.clock.Advance(time.Duration(rng.IntN(2000) - 200))
				}
				client, n := []string{"a", "b"}[rng.IntN(2)], 1+rng.IntN(burstOf(rule.Rate))
				if rng.IntN(20) == 0 {
					require.NoError(t, here.l.Reset(t.Context(), ratelimit.Request{Client: client}))
					require.NoError(t, there.l.Reset(t.Context(), ratelimit.Request{Client: client}))
				}
				require.Equal(t, here.ask(client, n, true), there.ask(client, n, true), "schedule %d, step %d", schedule, step)
				require.Equal(t, here.ask(client, 1, false), there.ask(client, 1, false), "schedule %d, step %d", schedule, step)
			}
		}
	})
}

// TestMemoryStoreAcceptsWarmup proves which values of Warmup each method of a MemoryStore refuses.
func TestMemoryStoreAcceptsWarmup(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	ask := ratelimit.Ask{Rule: "r", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(10).WithBurst(2),
		Warmup: ratelimit.Warmup{From: 5, Over: sec}}
	require.NoError(t, store.Accepts(ask))
	fits := ratelimit.Warmup{From: 4, Over: sec} // these fit other rates
	for _, row := range []struct {
		w    ratelimit.Warmup
		want string
	}{
		{ratelimit.Warmup{From: 0, Over: sec}, "ratelimit: warmup.from is 0: must be at least 1"},
		{ratelimit.Warmup{From: 5}, "ratelimit: warmup.over is 0s: must be from a microsecond to 366 days"},
		{fits, "ratelimit: burst is 2: must be at least 3: with less, a warm-up from 4 of 10 grants a new key nothing"},
	} {
		ask.Warmup = row.w
		require.EqualError(t, store.Accepts(ask), row.want)
		_, err := store.Take(t.Context(), []ratelimit.Ask{ask})
		require.EqualError(t, err, row.want)
		more := ask
		more.Receipt, more.N, more.Charged = 1, 3, 2
		require.EqualError(t, store.Settle(t.Context(), []ratelimit.Ask{more}), row.want)
		if more.N = 1; row.w != fits {
			require.EqualError(t, store.Settle(t.Context(), []ratelimit.Ask{more}), row.want)
		} else {
			require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{more}), "what comes back needs no rate")
		}
	}
}

// TestMemoryStoreChangesWarmup proves that a key keeps its age in a store when From and Over
// change, even if they do not fit the rate of the first Ask, and that asks without a Warmup use
// another state.
func TestMemoryStoreChangesWarmup(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	take := func(r ratelimit.Rate, w ratelimit.Warmup, n int) ratelimit.Result {
		res, err := store.Take(t.Context(), []ratelimit.Ask{{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: r, N: n,
			Warmup: w}})
		require.NoError(t, err)
		return res[0]
	}
	require.True(t, take(ratelimit.PerSecond(10).WithBurst(2), ratelimit.Warmup{From: 5, Over: time.Hour}, 1).Allowed)
	clock.Advance(30 * minute)
	require.Equal(t, 50, take(ratelimit.PerSecond(100), ratelimit.Warmup{From: 20, Over: 80 * minute}, 0).Remaining, "20 + 80 * 3/8")
	require.Equal(t, 25, take(ratelimit.PerSecond(100), ratelimit.Warmup{From: 1, Over: 2 * time.Hour}, 0).Remaining)
	require.Equal(t, 100, take(ratelimit.PerSecond(100), ratelimit.Warmup{}, 0).Remaining)
}

// An oldStore is a store without the optional methods.
type oldStore struct{ store ratelimit.Store }

func (s oldStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	return s.store.Take(ctx, asks)
}

func (s oldStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return s.store.Reset(ctx, asks)
}

// A pickyStore accepts neither a warm-up nor a penalty.
type pickyStore struct{ *ratelimit.MemoryStore }

func (s pickyStore) Accepts(a ratelimit.Ask) error {
	if a.Warmup != (ratelimit.Warmup{}) {
		return errors.New("no warm-up here")
	}
	if a.Penalty != (ratelimit.Penalty{}) {
		return errors.New("no penalties here")
	}
	return s.MemoryStore.Accepts(a)
}

// TestStoreWithoutWarmup proves that a rule with a Warmup is refused if its store does not support
// it.
func TestStoreWithoutWarmup(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	warm := anHour(ratelimit.AlgorithmTokenBucket, ratelimit.PerMinute(10))
	warm.Name = "warm"
	cold := ratelimit.Rule{Name: "warm", Rate: warm.Rate}
	for _, row := range []struct {
		store ratelimit.Store
		want  string
	}{
		{oldStore{memory}, `ratelimit: rules[0].warmup is {2 1h0m0s}: must be left out: the store has no Accepts, to say that it knows warm-up`},
		{pickyStore{memory}, `ratelimit: rules[0].rate is 10/m: is not supported by the store: no warm-up here`},
	} {
		opts := []ratelimit.Option{ratelimit.WithStore(row.store), ratelimit.WithName("n")}
		_, err := ratelimit.New([]ratelimit.Rule{warm}, nil, opts...)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, row.want)
		l, err := ratelimit.New([]ratelimit.Rule{cold}, nil, opts...)
		require.NoError(t, err)
		require.EqualError(t, l.Replace([]ratelimit.Rule{warm}, nil), row.want, "in a change")
	}
}

// TestWarmupOfALocalShare makes the store fail. The keys then warm up with the local share of the
// limit, and are as old as the store has last reported.
func TestWarmupOfALocalShare(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		store := newSettlingStore(t, clock)
		r := ratelimit.Rule{Name: "warm", Algorithm: a, Rate: ratelimit.Rate{Requests: 40, Per: minute},
			Warmup: ratelimit.Warmup{From: 8, Over: time.Hour}, OnStoreError: ratelimit.FailLocal(4)}
		l := newRules(t, []ratelimit.Rule{r}, nil, ratelimit.WithStore(store), ratelimit.WithClock(clock))
		ask := func(client string, n int) ratelimit.Result {
			res, _ := l.Check(t.Context(), ratelimit.Request{Client: client, Rules: []string{"warm"}, Cost: n})
			res.Rule = ""
			return res
		}
		left := func(client string) int {
			res, _ := l.Peek(t.Context(), ratelimit.Request{Client: client, Rules: []string{"warm"}})
			require.True(t, res.Degraded)
			return res.Remaining
		}
		ask("grown", 1)
		clock.Advance(30 * minute)
		ask("half", 1)
		clock.Advance(30 * minute)
		ask("grown", 1)
		ask("half", 1)
		require.Equal(t, 4, ask("young", 4).Remaining)
		store.from(errsBefore)
		require.Equal(t, ratelimit.Never, ask("new", 3).RetryAfter, "a share of From")
		require.Equal(t, []int{2, 1, 5, 9}, []int{left("new"), left("young"), left("half"), left("grown")})
		clock.Advance(30 * minute)
		require.Equal(t, []int{2, 10, 10}, []int{left("new"), left("half"), left("grown")})
		require.Equal(t, 6, left("young"), "24 of 40")
	})
}

// TestWarmupGivesBack has a custom limiter deny requests that a rule with a Warmup has charged. The
// whole charge is given back, and also the age if it was the first charge of the key.
func TestWarmupGivesBack(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for _, stored := range []bool{false, true} {
			for schedule := range soaked(20, 500) {
				rng := rand.New(rand.NewPCG(50, uint64(schedule)))
				clock := ratelimit.NewFakeClock(epoch)
				rule := drawWarmup(rng, a)
				rule.Name, rule.Endpoint, rule.Warmup.Over = "warm", "/e", 20_000 // so that the key is not forgotten
				deny := false
				gate := ratelimit.Rule{Name: "gate", Endpoint: "/e", Limiter: custom(func(_ context.Context, _ string, n int) (ratelimit.Result,
					error) {
					if deny {
						return ratelimit.Result{Limit: 1, RetryAfter: 1}, nil
					}
					return ratelimit.Result{Allowed: true, Limit: 1 << 30, Remaining: 1 << 30}, nil
				})}
				opts := []ratelimit.Option{ratelimit.WithClock(clock)}
				if stored {
					store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
					require.NoError(t, err)
					opts = append(opts, ratelimit.WithStore(store))
				}
				l := newRules(t, []ratelimit.Rule{rule, gate}, nil, opts...)
				alone := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
				for step := range 40 {
					if rng.IntN(3) == 0 {
						clock.Advance(time.Duration(rng.IntN(2000)))
					}
					n := 1 + rng.IntN(burstOf(rule.Rate))
					if deny = rng.IntN(2) == 0; !deny {
						want := check(t, alone, ratelimit.Request{Client: "a", Endpoint: "/e", Cost: n})
						got := check(t, l, ratelimit.Request{Client: "a", Endpoint: "/e", Cost: n})
						require.Equal(t, want, got, "schedule %d, step %d: %d of %#v", schedule, step, n, rule)
					} else {
						require.False(t, check(t, l, ratelimit.Request{Client: "a", Endpoint: "/e", Cost: n}).Allowed)
					}
				}
			}
		}
	})
}

// TestWarmupSettle settles reservations of keys that warm up, for fewer units and for more. The key
// must then answer as one that was charged this many units at the same instants.
func TestWarmupSettle(t *testing.T) {
	for _, a := range algorithmsOfRules {
		for _, actual := range []int{0, 1, 2, 4} {
			t.Run(string(a), func(t *testing.T) {
				inProcessAndStore(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
					rule := ratelimit.Rule{Endpoint: "/", Algorithm: a, Rate: ratelimit.PerHour(100), Warmup: ratelimit.Warmup{From: 10, Over: time.Hour}}
					l := newRules(t, []ratelimit.Rule{rule}, nil, opts...)
					of := func(client string, n int) ratelimit.Request {
						return ratelimit.Request{Client: client, Endpoint: "/", Cost: n}
					}
					r, err := l.Reserve(t.Context(), of("settles", 2), time.Hour)
					require.NoError(t, err)
					require.True(t, r.Result().Allowed)
					if actual > 0 {
						check(t, l, of("knew", min(actual, 2)))
					}
					clock.Advance(7 * minute)
					require.NoError(t, r.Settle(actual))
					if actual > 2 {
						check(t, l, of("knew", actual-2))
					}
					for range 4 {
						require.Equal(t, peek(t, l, of("knew", 1)), peek(t, l, of("settles", 1)), "%d of 2 units", actual)
						require.Equal(t, check(t, l, of("knew", 3)), check(t, l, of("settles", 3)))
						clock.Advance(5 * minute)
					}
				})
			})
		}
	}
}

// TestWarmupCountsTheRoundingOnce checks that a young bucket rounds up the cost of all units of a request once, not the
// cost of each unit.
func TestWarmupCountsTheRoundingOnce(t *testing.T) {
	for _, a := range algorithmsOfRules {
		if !isBucket(a) {
			continue
		}
		w := startWarmup(t, ratelimit.Rule{Algorithm: a, Rate: ratelimit.PerSecond(10), Warmup: ratelimit.Warmup{From: 6, Over: time.Hour}})
		require.Equal(t, 6, w.ask("at once", 6, false).Remaining)
		require.True(t, w.ask("at once", 6, true).Allowed, "%s: a new key has 6 of 10", a)
		require.Equal(t, sec, w.ask("at once", 6, true).RetryAfter, "%s: they took the whole bucket", a)

		res, err := w.l.Reserve(t.Context(), ratelimit.Request{Client: "settled", Rules: []string{"warm"}, Cost: 6}, time.Minute)
		require.NoError(t, err)
		require.NoError(t, res.Settle(2))
		require.Equal(t, w.ask("two", 2, true).Remaining, w.ask("settled", 1, false).Remaining, "%s: as if 2 had been charged", a)
		require.True(t, w.ask("settled", 3, true).Allowed)

		var left []int
		for range 5 { // each of these requests is rounded up
			left = append(left, w.ask("one by one", 1, true).Remaining)
		}
		require.Equal(t, []int{4, 3, 2, 1, 0}, left, a)
	}
}

// TestFailLocalRemembersWhatAYoungKeyHasLeft has a store fail after each number of units. What remains for the policy is
// what the store has said.
func TestFailLocalRemembersWhatAYoungKeyHasLeft(t *testing.T) {
	for _, a := range algorithmsOfRules {
		for _, r := range []ratelimit.Rate{ratelimit.PerSecond(10), {Requests: 10, Per: 10}} { // a token of 10^8 parts, and of 1 part
			for used := range 7 {
				f := newFlapping(t, 1, ratelimit.Rule{Algorithm: a, Rate: r, Warmup: ratelimit.Warmup{From: 6, Over: time.Hour}})
				want := 6
				for range used {
					want = f.ask(t, f.rules[0], 1).Remaining
				}
				f.store.from(errsBefore)
				res, err := f.rules[0].Peek(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"r"}})
				require.ErrorIs(t, err, ratelimit.ErrStore)
				require.True(t, res.Degraded)
				require.Equal(t, want, res.Remaining, "%s, %v: %d units used", a, r, used)
			}
		}
	}
}
