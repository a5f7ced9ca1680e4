package ratelimit_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// soaked returns n, or many with RATELIMIT_SOAK=1.
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

// isBucket reports whether rates of a have a burst.
func isBucket(a ratelimit.Algorithm) bool {
	return a == ratelimit.AlgorithmTokenBucket || a == ratelimit.AlgorithmLeakyBucket
}

// A warmup is a rule that warms up, with a clock, and the model of its one key.
type warmup struct {
	t     *testing.T
	rule  ratelimit.Rule
	clock *ratelimit.FakeClock
	l     *ratelimit.RateLimiter
	model ratelimittest.Model
}

func startWarmup(t *testing.T, r ratelimit.Rule, opts ...ratelimit.Option) *warmup {
	clock := ratelimit.NewFakeClock(epoch)
	r.Name = "warm"
	l, err := ratelimit.New([]ratelimit.Rule{r}, nil, append([]ratelimit.Option{ratelimit.WithClock(clock)}, opts...)...)
	require.NoError(t, err)
	return &warmup{t, r, clock, l, ratelimittest.WarmupModel(r.Algorithm, epoch, r.Rate, r.Warmup)}
}

// ask asks for n units of the key of client, or looks if take is false.
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

// drawWarmup makes up a rule that warms up over a few microseconds.
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

func burstOf(r ratelimit.Rate) int {
	if r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}

// TestWarmupModel plays random schedules, in which the clock may step back, and compares the
// whole answer to each request with that of the model. It also checks by looks that each
// RetryAfter is exact.
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

// TestWarmupBound has a greedy client take what it can, and checks every interval between two of
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

// windowOf returns the number of the window that lies so long after the epoch.
func windowOf(d, per time.Duration) time.Duration {
	return time.Duration(epoch.Add(d).UnixNano()) / per
}

// anHour is a rule that warms up from 2 to 10 units in an hour.
func anHour(a ratelimit.Algorithm, r ratelimit.Rate) ratelimit.Rule {
	return ratelimit.Rule{Algorithm: a, Rate: r, Warmup: ratelimit.Warmup{From: 2, Over: time.Hour}}
}

// TestWarmup follows one key through its first hour.
func TestWarmup(t *testing.T) {
	w := startWarmup(t, anHour(ratelimit.AlgorithmFixedWindow, ratelimit.PerMinute(10)))
	require.Equal(t, yes(10, 2, 0), w.ask("a", 1, false), "a new key is granted From")
	require.Equal(t, no(10, 2, ratelimit.Never, 0), w.ask("a", 3, true), "it does not age until it is used")
	require.Equal(t, yes(10, 0, time.Hour), w.ask("a", 2, true))
	require.Equal(t, no(10, 0, mins, time.Hour), w.ask("a", 1, true), "the window must end")
	require.Equal(t, no(10, 0, 450*sec, time.Hour), w.ask("a", 3, true), "the limit must grow: by 1 in 7.5 minutes")
	w.clock.Advance(30 * mins)
	require.Equal(t, yes(10, 5, 30*mins), w.ask("a", 1, true), "half of the hour is over")
	w.clock.Advance(30*mins - 1)
	require.Equal(t, yes(10, 9, 1), w.ask("a", 1, false), "a nanosecond before the hour")
	w.clock.Advance(1)
	require.Equal(t, yes(10, 10, 0), w.ask("a", 1, false), "the full limit")
	require.Equal(t, yes(10, 0, mins), w.ask("a", 10, true))
}

// TestBadWarmup has everything that can be wrong with a Warmup in code.
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
		"few": ratelimit.PerMinute(3), "big": ratelimit.PerMinute(100).WithBurst(19), "enough": ratelimit.PerMinute(100).WithBurst(20), "all": ratelimit.Unlimited,
	}
	for _, row := range []struct {
		rule ratelimit.Rule
		want string
		why  string
	}{
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{Over: time.Hour}), "ratelimit: rules[0].warmup.from is 0: must be at least 1", "no From"},
		{rule(ratelimit.PerMinute(10), hourly(-1)), "ratelimit: rules[0].warmup.from is -1: must be at least 1", "a From below 1"},
		{rule(ratelimit.PerMinute(10), hourly(11)), "ratelimit: rules[0].warmup.from is 11: must be at most 10, the requests of the rule's rate", "a From above the limit"},
		{window, "ratelimit: rules[0].warmup.from is 11: must be at most 10, the requests of the rule's rate", "of a window"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 1}), "ratelimit: rules[0].warmup.over is 0s: must be from a microsecond to 366 days", "no Over"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 1, Over: 999}), "ratelimit: rules[0].warmup.over is 999ns: must be from a microsecond to 366 days", "an Over below 1 us"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 1, Over: 366*24*time.Hour + 1}), "ratelimit: rules[0].warmup.over is 8784h0m0.000000001s: must be from a microsecond to 366 days", "an Over above 366 days"},
		{rule(ratelimit.PerMinute(10), ratelimit.Warmup{From: 12, Over: -1}), "ratelimit: rules[0].warmup.over is -1ns: must be from a microsecond to 366 days\nratelimit: rules[0].warmup.from is 12: must be at most 10, the requests of the rule's rate", "both"},
		{rule(ratelimit.PerMinute(10).WithBurst(2), hourly(4)), "ratelimit: rules[0].warmup.from is 4: must be at least 5: with less, a burst of 2 grants a new key nothing", "4 of 10 of a burst of 2 is less than 1"},
		{tiered, "ratelimit: rules[0].tiers[\"big\"].burst is 19: must be at least 20: with less, a warm-up from 5 of 100 grants a new key nothing", "the same for a tier; one with a limit below From is right"},
		{ratelimit.Rule{Name: "r", Limiter: inner, Warmup: hourly(1)}, "ratelimit: rules[0].warmup is {1 1h0m0s}: must be left out: a limiter of one's own has its own rates", "beside a Limiter"},
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

// TestWarmupConfig reads the same warm-up written in all ways, and writes it as JSON.
func TestWarmupConfig(t *testing.T) {
	want := ratelimit.Warmup{From: 3, Over: 90 * mins}
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
		config(fields{"rate": "10/m"}, fields{"From": 3.0, "OVER": 90 * mins}),
		config(fields{"rate": "10/m", "warmupRequests": 3, "warmupDuration": 5400}, nil),
		config(fields{"rate": "10/m", "WARMUP_REQUESTS": 3, "warmup-duration": json.Number("5.4e3")}, nil),
		{"endpoint": "/a", "algorithm": "FixedWindow", "rate": "10/m", "warmupRequests": 3, "warmupDuration": 5400},
	} {
		if _, text := f["WarmUp"].(map[string]string); text {
			_, err := ratelimit.NewFromConfig([]map[string]any{f}, nil)
			require.EqualError(t, err, "ratelimit: configs[0].WarmUp.over is missing: must be a time with its unit, such as \"90s\"\nratelimit: configs[0].WarmUp.FROM is \"3\": must be a number, not a string: drop the quotes")
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

// TestCreateRefusesWarmup proves that a limiter by itself cannot warm up: its keys belong to no
// rule.
func TestCreateRefusesWarmup(t *testing.T) {
	f := ratelimit.NewFactory()
	require.NoError(t, f.Register("Own", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) {
		return ratelimit.NewTokenBucket(ratelimit.PerSecond(1))
	}))
	_, err := f.Create(fields{"algorithm": "TokenBucket", "algoConfig": fields{"rate": "10/m", "warmupRequests": 1, "warmup_duration": 60}, "warmup": fields{"from": 1, "over": "1h"}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: warmup is a map: must be left out: only a rule has a warm-up, see NewFromConfig
ratelimit: algoConfig.warmupRequests is 1: must be left out: only a rule has a warm-up, see NewFromConfig
ratelimit: algoConfig.warmup_duration is 60: must be left out: only a rule has a warm-up, see NewFromConfig`)
	_, err = f.Create(fields{"algorithm": "Own", "algoConfig": fields{"warmupRequests": 1}, "warmup": fields{}})
	require.EqualError(t, err, `ratelimit: warmup is a map: must be left out: only a rule has a warm-up, see NewFromConfig`)
	_, err = ratelimit.NewFromConfig([]map[string]any{{"endpoint": "/a", "algorithm": "Own", "algoConfig": fields{"warmupRequests": 1}, "warmup": fields{}}}, nil, ratelimit.WithFactory(f))
	require.EqualError(t, err, `ratelimit: configs[0].warmup is a map: must be left out: Own has rates of its own`)
}
