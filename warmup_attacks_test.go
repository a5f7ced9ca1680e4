package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// warmRate is a rate of 10 units that each algorithm can have.
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

// TestWarmupIsFullAtOver proves that a key has its full limit exactly Over after its first grant.
func TestWarmupIsFullAtOver(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		require.True(t, w.ask("a", 1, true).Allowed)
		w.clock.Advance(mins)
		require.Equal(t, no(10, 2, 59*mins, 59*mins), w.ask("a", 10, true), "the wait ends exactly then")
		w.clock.Advance(59*mins - 1)
		left := 9
		if isBucket(a) { // which charges 10/9 of a token for each, rounded up
			left = 8
		}
		require.Equal(t, no(10, left, 1, 1), w.ask("a", 10, true), "a nanosecond before")
		w.clock.Advance(1)
		res := w.ask("a", 10, true)
		require.True(t, res.Allowed)
		require.Zero(t, res.Remaining)
	})
}

// TestWarmupForgets proves that a key is new again once it has been as good as new for Over, and not
// a nanosecond sooner. So an idle client cannot keep its age for ever, and regulars keep theirs.
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

// TestWarmupAgesByTime proves that use does not age a key, and that a key with one unit used and
// one that was busy are of the same age.
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

// TestWarmupDenialsDoNotAge proves that neither a denial nor a look starts the growth of a key.
func TestWarmupDenialsDoNotAge(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		for range 10 {
			require.Equal(t, no(10, 2, ratelimit.Never, 0), w.ask("a", 3, true))
			require.Equal(t, yes(10, 2, 0), w.ask("a", 1, false))
			w.clock.Advance(20 * mins)
		}
		stats := w.l.Stats()[0]
		require.Zero(t, stats.LiveKeys)
	})
}

// TestWarmupAcrossAWindow asks for more units than a new key may have, at a window's end: the wait
// does not end when the window does, because the limit is then still too low.
func TestWarmupAcrossAWindow(t *testing.T) {
	for _, a := range []ratelimit.Algorithm{ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmSlidingWindowLog} {
		w := startWarmup(t, anHour(a, warmRate(mins)))
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

// TestWarmupRetryAfterEndsBeforeForgetting denies a key that is nearly forgotten: the wait that it
// is told is not one at whose end it is new.
func TestWarmupRetryAfterEndsBeforeForgetting(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := startWarmup(t, ratelimit.Rule{Algorithm: a, Rate: warmRate(1000), Warmup: ratelimit.Warmup{From: 1, Over: 1500}})
		require.True(t, w.ask("a", 1, true).Allowed)
		w.clock.Advance(1400)
		res := w.ask("a", 10, true)
		require.False(t, res.Allowed)
		if a == ratelimit.AlgorithmSlidingWindowCounter { // the window before has still a weight then
			require.Equal(t, 600*time.Nanosecond, res.RetryAfter)
		} else {
			require.Equal(t, 100*time.Nanosecond, res.RetryAfter)
		}
		w.clock.Advance(res.RetryAfter)
		require.True(t, w.ask("a", 10, true).Allowed)
	})
}

// TestWarmupClockBack sets the clock back: the key does not grow in that time twice, and is not new.
func TestWarmupClockBack(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		w.ask("a", 1, true)
		w.clock.Advance(1350 * sec)
		require.Equal(t, 4, w.ask("a", 1, true).Remaining)
		w.clock.Advance(-20 * mins)
		res := w.ask("a", 10, true)
		require.Equal(t, 4, res.Remaining, "the age is that of the last grant")
		require.Equal(t, 57*mins+30*sec, res.RetryAfter, "the gap is waited for too")
		w.clock.Advance(-40 * mins)
		require.Equal(t, 4, w.ask("a", 1, false).Remaining, "also before the first grant")
		w.clock.Advance(res.RetryAfter + 40*mins - 1)
		require.False(t, w.ask("a", 10, true).Allowed)
		w.clock.Advance(1)
		require.True(t, w.ask("a", 10, true).Allowed)
	})
}

// TestWarmupEviction plays two keys on a table with room for one, and compares a key that gets the
// room whenever it asks with the model: eviction is invisible.
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
				// Everybody else is new by then, so the key has room.
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

// TestWarmupOverflow fills the table. A key without a state of its own is as old as a new one, however
// long it was used; once it gets a state, it has the shared debt, and begins to age.
func TestWarmupOverflow(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := startWarmup(t, anHour(a, warmRate(30*mins)), ratelimit.WithMaxKeys(1))
		require.True(t, w.ask("resident", 1, true).Allowed)
		require.Equal(t, 1, w.ask("other", 1, true).Remaining)
		require.Equal(t, 0, w.ask("third", 1, true).Remaining, "they share one debt")
		require.False(t, w.ask("other", 1, true).Allowed)
		require.Equal(t, uint64(2), w.l.Stats()[0].Overflowed)
		for range 4 {
			w.clock.Advance(30 * mins)
			require.True(t, w.ask("resident", 1, true).Allowed)
			w.ask("other", 1, true)
			require.LessOrEqual(t, w.ask("other", 1, false).Remaining, 2, "it does not age")
			require.Equal(t, ratelimit.Never, w.ask("other", 3, true).RetryAfter)
		}
		w.clock.Advance(5 * time.Hour)
		res := w.ask("other", 1, true)
		require.Equal(t, 1, res.Remaining, "it has a state now, in place of the resident")
		require.Equal(t, time.Hour, res.ResetAfter)
		w.clock.Advance(30 * mins)
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

// TestWarmupChanges changes From, Over and the rate, which leaves a key its age, and takes the
// warm-up away and gives it back, which makes all keys new.
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
		set(10, ratelimit.Warmup{From: 2, Over: 45 * mins})
		require.NoError(t, w.l.UpdateRate("warm", ratelimit.Rate{Requests: 18, Per: sec}))
		if a == ratelimit.AlgorithmLeakyBucket {
			require.Equal(t, 5, left(), "another rate: 10 of 18, and a raise adds nothing to the room")
		} else {
			require.GreaterOrEqual(t, left(), 9, "another rate: 10 of 18")
		}
		w.clock.Advance(1350 * sec)
		require.Equal(t, 18, left())
		set(10, ratelimit.Warmup{})
		require.Equal(t, 10, left(), "without a warm-up, a new key has the full limit")
		require.Equal(t, 0, w.ask("a", 10, true).Remaining)
		set(10, ratelimit.Warmup{From: 2, Over: time.Hour})
		require.Equal(t, 2, left(), "with one, all keys are new again")
		require.ErrorIs(t, w.l.UpdateRate("warm", ratelimit.Rate{Requests: 1, Per: sec}), ratelimit.ErrInvalidConfig, "the limit may not fall below From")
	})
}

// TestWarmupChangeForgets changes Over of a key that is new again by the old one: it is new, as it
// would be if it had been evicted.
func TestWarmupChangeForgets(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for _, rate := range []int{10, 20} {
			w := warmHour(t, a)
			w.ask("a", 1, true)
			w.clock.Advance(2*time.Hour + mins)
			r := w.rule
			r.Name, r.Rate.Requests, r.Warmup.Over = "warm", rate, 10*time.Hour
			require.NoError(t, w.l.SetRule(r))
			want := 2
			if a == ratelimit.AlgorithmLeakyBucket && rate == 20 {
				want = 1 // a raise adds nothing to its room
			}
			require.Equal(t, want, w.ask("a", 1, false).Remaining, "at %d", rate)
		}
	})
}

// TestWarmupTiers gives a key the limit of its tier: it grows from From to that.
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
		want := []int{1, 5, 16}
		if a == ratelimit.AlgorithmLeakyBucket {
			want[2] = 4 // a raise adds nothing to its room
		}
		require.Equal(t, want, []int{left("few"), left(""), left("many")})
		if isBucket(a) {
			_, err := w.l.Peek(t.Context(), ratelimit.Request{Client: "a", Tier: "resolved", Rules: []string{"warm"}})
			require.EqualError(t, err, `ratelimit: rules["warm"].resolve.burst is 1: must be at least 50: with less, a warm-up from 2 of 100 grants a new key nothing`)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.Equal(t, 5, left("resolved"), "the rule's own rate is used")
		} else {
			require.Equal(t, 38, left("resolved"))
		}
	})
}

// TestWarmupShadow proves that a shadow rule warms up by itself, and that its first charge begins it.
func TestWarmupShadow(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	shadow := anHour(ratelimit.AlgorithmFixedWindow, warmRate(mins))
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

// TestWarmupNobodyOvertakes has callers wait for a young key. They are served in order of arrival,
// each at the instant that a newcomer was told, and a request in between does not overtake.
func TestWarmupNobodyOvertakes(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		synctest.Test(t, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			r := anHour(a, warmRate(mins))
			r.Name = "warm"
			l, err := ratelimit.New([]ratelimit.Rule{r}, nil, ratelimit.WithClock(clock))
			require.NoError(t, err)
			req := func(n int) ratelimit.Request {
				return ratelimit.Request{Client: "a", Rules: []string{"warm"}, Cost: n}
			}
			require.True(t, check(t, l, req(2)).Allowed)
			costs := []int{1, 4, 2, 5}
			served := make(chan int, len(costs))
			var told []time.Duration // when a request of that cost would be served, if it came in its place
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

// TestWarmupWaitForNever proves that Wait fails at once for what a new key is never granted.
func TestWarmupWaitForNever(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		w := warmHour(t, a)
		res, err := w.l.Wait(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"warm"}, Cost: 3})
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit)
		require.Equal(t, ratelimit.Never, res.RetryAfter)
	})
}
