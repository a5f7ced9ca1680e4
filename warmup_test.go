package ratelimit_test

import (
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
