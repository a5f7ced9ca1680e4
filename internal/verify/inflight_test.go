package verify

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// inFlight is a rule that lets each client run n requests at once, each for at most a minute.
func inFlight(n int) ratelimit.Rule {
	return ratelimit.Rule{
		Name: "running", Endpoint: "*", Additional: true, Algorithm: ratelimit.AlgorithmInFlight,
		Rate: ratelimit.Rate{Requests: n, Per: time.Minute},
	}
}

// eachHolding runs test with these rules: in this process, and in a store.
func eachHolding(t *testing.T, rules []ratelimit.Rule, test func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		clock := ratelimit.NewFakeClock(newYear)
		test(t, newRules(t, rules, ratelimit.WithClock(clock)), clock)
	})
	t.Run("store", func(t *testing.T) {
		clock := ratelimit.NewFakeClock(newYear)
		st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		test(t, newRules(t, rules, ratelimit.WithClock(clock), ratelimit.WithStore(st)), clock)
	})
}

// start reserves one unit for alice.
func start(t *testing.T, l *ratelimit.RateLimiter) *ratelimit.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"}, time.Hour)
	require.NoError(t, err)
	return r
}

func TestInFlight(t *testing.T) {
	eachHolding(t, []ratelimit.Rule{inFlight(2)}, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		first := start(t, l)
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: 2, Remaining: 1, ResetAfter: time.Minute, Rule: "running"}, first.Result())
		clock.Advance(time.Second)
		second := start(t, l)
		require.True(t, second.Result().Allowed)
		busy := ratelimit.Result{
			Limit: 2, RetryAfter: 59 * time.Second, ResetAfter: time.Minute, Rule: "running", Reason: ratelimit.ReasonBusy,
		}
		denied := start(t, l)
		require.Equal(t, busy, denied.Result(), "until the first is over by itself")
		require.Equal(t, []ratelimit.Result{busy}, denied.Results())
		require.NoError(t, denied.Done())
		require.ErrorIs(t, denied.Extend(), ratelimit.ErrSettled)

		require.NoError(t, first.Settle(1))
		third := start(t, l)
		require.True(t, third.Result().Allowed, "Settle ends what is running")
		require.False(t, start(t, l).Result().Allowed)
		require.ErrorIs(t, first.Settle(1), ratelimit.ErrSettled)
		require.NoError(t, first.Done(), "there is nothing left to do")
		require.False(t, start(t, l).Result().Allowed, "an end counts once")

		require.NoError(t, second.SettleCosts(ratelimit.Cost{N: 5}))
		require.False(t, start(t, l).Result().Allowed, "SettleCosts leaves what is running")
		require.ErrorIs(t, second.SettleCosts(ratelimit.Cost{N: 5}), ratelimit.ErrSettled)
		require.NoError(t, second.Done())
		fourth := start(t, l)
		require.True(t, fourth.Result().Allowed, "Done ends it")

		require.NoError(t, third.Cancel())
		fifth := start(t, l)
		require.True(t, fifth.Result().Allowed, "Cancel ends it")

		clock.Advance(time.Minute - 1)
		require.False(t, start(t, l).Result().Allowed)
		require.NoError(t, fourth.Extend(), "it lasts for a minute from now")
		clock.Advance(1)
		require.ErrorIs(t, fifth.Extend(), ratelimit.ErrSettled, "it is over after Per")
		sixth := start(t, l)
		require.True(t, sixth.Result().Allowed, "the fifth is over")
		require.NoError(t, fifth.Done(), "a late end")
		require.False(t, start(t, l).Result().Allowed, "a late end ends nothing")
		clock.Advance(time.Minute - 1)
		require.ErrorIs(t, fourth.Extend(), ratelimit.ErrSettled)
		require.NoError(t, sixth.Extend())
		require.NoError(t, sixth.Done())
		require.ErrorIs(t, sixth.Extend(), ratelimit.ErrSettled)
		require.Equal(t, 2, start(t, l).Result().Remaining+1, "nothing is held any more")
		require.Zero(t, l.Stats()[0].GivenBack, "an end gives no units back")
	})
}

func TestInFlightReset(t *testing.T) {
	eachHolding(t, []ratelimit.Rule{inFlight(1)}, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		first := start(t, l)
		require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "alice"}))
		second := start(t, l)
		require.True(t, second.Result().Allowed, "Reset ends all")
		require.NoError(t, first.Done())
		require.False(t, start(t, l).Result().Allowed, "the late end of the first ends nothing")
		require.ErrorIs(t, first.Extend(), ratelimit.ErrSettled)

		require.NoError(t, l.UpdateRate("running", ratelimit.Rate{Requests: 3, Per: time.Minute}))
		third := start(t, l)
		require.Equal(t, 1, third.Result().Remaining, "with a larger limit, more may run")
		require.NoError(t, l.UpdateRate("running", ratelimit.Rate{Requests: 1, Per: time.Minute}))
		require.NoError(t, second.Done())
		require.False(t, start(t, l).Result().Allowed, "with a smaller limit, what runs goes on")
		require.NoError(t, third.Done())
		fourth := start(t, l)
		require.True(t, fourth.Result().Allowed)

		require.NoError(t, l.RemoveRule("running"))
		require.NoError(t, fourth.Done(), "the rule is gone")
		require.Equal(t, -1, start(t, l).Result().Limit)
	})
}

// TestInFlightExplained lists what a key has in flight in this process, and says that Check decides without the rule.
func TestInFlightExplained(t *testing.T) {
	rule := inFlight(3)
	tokens := ratelimit.Rule{Name: "tokens", Endpoint: "*", Additional: true, Unit: "tokens", Algorithm: rule.Algorithm, Rate: rule.Rate}
	clock := ratelimit.NewFakeClock(newYear)
	l := newRules(t, []ratelimit.Rule{rule, tokens}, ratelimit.WithClock(clock))
	explain := func(client string) ratelimit.Explanation {
		e, err := l.Explain(t.Context(), ratelimit.Request{Client: client, Endpoint: "/"})
		require.NoError(t, err)
		return e
	}
	none := ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}
	require.Equal(t, none, explain("alice").Result)
	none.Rule = "running"
	want := ratelimit.RuleExplanation{
		Name: "running", Match: "additional", Pattern: "*", KeyType: ratelimit.KeyUser, Key: "alice", Algorithm: ratelimit.AlgorithmInFlight,
		Mode: ratelimit.ModeEnforce, Rate: rule.Rate, RateFrom: "rule", AnsweredBy: "unheld", Result: none, MaxIn: -1,
	}
	require.Equal(t, want, explain("alice").Rules[0])
	first := start(t, l)
	clock.Advance(10 * time.Second)
	second := start(t, l)
	clock.Advance(5 * time.Second)
	want.Held = ratelimit.Held{N: 2, Oldest: 15 * time.Second}
	e := explain("alice")
	require.Equal(t, want, e.Rules[0])
	require.Equal(t, ratelimit.AnsweredBy("uncounted"), e.Rules[1].AnsweredBy)
	require.Zero(t, e.Rules[1].Held)
	require.Zero(t, explain("bob").Rules[0].Held)
	require.Equal(t, `"alice" for "/", cost 1: allowed, no limit applies (none)
rule       match       key           algorithm  rate  from  state      limit  left  retry after  reset after  at most
"running"  additional  user "alice"  InFlight   3/m   rule  unheld     -      -     0s           0s           -
"tokens"   additional  user "alice"  InFlight   3/m   rule  uncounted  -      -     0s           0s           -
"running": 2 in flight, the oldest for 15s
`, e.String())
	data, err := e.MarshalJSON()
	require.NoError(t, err)
	require.Contains(t, string(data), `"answeredBy":"unheld","held":{"n":2,"oldest":"15s"},"result"`)
	require.Equal(t, 1, strings.Count(string(data), `"held"`), "left out where it is zero")
	var back ratelimit.Explanation
	require.NoError(t, back.UnmarshalJSON(data))
	require.Equal(t, e, back)

	require.NoError(t, first.Extend())
	require.Equal(t, ratelimit.Held{N: 2, Oldest: 5 * time.Second}, explain("alice").Rules[0].Held, "the second is the oldest now")
	require.NoError(t, second.Done())
	require.Equal(t, ratelimit.Held{N: 1}, explain("alice").Rules[0].Held, "extended just now")
	clock.Advance(time.Minute - 1)
	require.Equal(t, ratelimit.Held{N: 1, Oldest: time.Minute - 1}, explain("alice").Rules[0].Held)
	clock.Advance(1)
	require.Zero(t, explain("alice").Rules[0].Held, "it is over")

	start(t, l)
	clock.Advance(10 * time.Second)
	second = start(t, l)
	clock.Advance(10 * time.Second)
	start(t, l)
	require.NoError(t, second.Done())
	clock.Advance(40 * time.Second)
	require.Equal(t, ratelimit.Held{N: 1, Oldest: 40 * time.Second}, explain("alice").Rules[0].Held, "the first is over, the second has ended")
}

// TestInFlightExplainedByAStore shows that Explain does not know what a store has in flight.
func TestInFlightExplainedByAStore(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	l := newRules(t, []ratelimit.Rule{inFlight(3)}, ratelimit.WithClock(clock), ratelimit.WithStore(st))
	start(t, l)
	e, err := l.Explain(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"})
	require.NoError(t, err)
	require.Equal(t, ratelimit.AnsweredBy("unheld"), e.Rules[0].AnsweredBy)
	require.Zero(t, e.Rules[0].Held)
}

// TestInFlightBesideOthers takes part in decisions with other rules: all are charged, or none is.
func TestInFlightBesideOthers(t *testing.T) {
	rules := []ratelimit.Rule{{Name: "requests", Endpoint: "/", Rate: ratelimit.PerMinute(3)}, inFlight(1)}
	eachHolding(t, rules, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		first := start(t, l)
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: 1, ResetAfter: time.Minute, Rule: "running"}, first.Result())
		each := first.Results()
		require.Equal(t, []int{2, 0}, []int{each[0].Remaining, each[1].Remaining})
		second := start(t, l)
		require.Equal(t, ratelimit.ReasonBusy, second.Result().Reason)
		require.Equal(t, 2, second.Results()[0].Remaining, "what cannot run now is not charged")
		require.True(t, second.Results()[0].Allowed)
		require.Empty(t, second.Results()[0].Reason)

		res, err := l.Check(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"})
		require.NoError(t, err)
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: 40 * time.Second, Rule: "requests"}, res)
		require.True(t, l.Allow("alice", "/").Allowed)
		require.Equal(t, []uint64{0, 2}, []uint64{l.Stats()[0].Unheld, l.Stats()[1].Unheld}, "nobody could end what Check holds")
		res, err = l.Peek(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"})
		require.NoError(t, err)
		require.Equal(t, "requests", res.Rule)

		both := start(t, l)
		require.Equal(t, "requests", both.Result().Rule, "a denial for a time that is known binds")
		require.Equal(t, 20*time.Second, both.Result().RetryAfter)
		require.Equal(t, ratelimit.ReasonLimit, both.Result().Reason)
		require.Equal(t, ratelimit.ReasonBusy, both.Results()[1].Reason)
		require.Equal(t, 1, both.Results()[1].Limit)

		require.NoError(t, first.Done())
		require.False(t, start(t, l).Result().Allowed)
		clock.Advance(20 * time.Second)
		require.True(t, start(t, l).Result().Allowed, "the denial by requests has held nothing")
	})
}

// TestInFlightUnits lets a rule bound the tokens that run at once.
func TestInFlightUnits(t *testing.T) {
	running := inFlight(100)
	running.Unit = "tokens"
	eachHolding(t, []ratelimit.Rule{running}, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		reserve := func(costs ...ratelimit.Cost) *ratelimit.Reservation {
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", Costs: costs}, time.Hour)
			require.NoError(t, err)
			return r
		}
		first := reserve(tokens(70))
		require.Equal(t, 30, first.Result().Remaining)
		require.False(t, reserve(tokens(31)).Result().Allowed)
		require.Equal(t, ratelimit.Never, reserve(tokens(101)).Result().RetryAfter)
		second := reserve(tokens(30))
		require.True(t, second.Result().Allowed)
		require.False(t, reserve(tokens(0)).Result().Allowed, "0 units are denied where one is")
		require.NoError(t, first.SettleCosts(tokens(500)))
		require.NoError(t, first.Done())
		require.Equal(t, 30, reserve(tokens(40)).Result().Remaining, "an end gives all units back, whatever was used")
		require.Equal(t, 30, reserve(tokens(0)).Result().Remaining)
		require.Equal(t, -1, reserve().Result().Limit, "a request without tokens")
		require.EqualValues(t, 1, l.Stats()[0].NotAsked)
		require.Zero(t, l.Stats()[0].Unheld)
	})
}

func TestInFlightBadRules(t *testing.T) {
	custom, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(1))
	require.NoError(t, err)
	for _, row := range []struct {
		change func(r *ratelimit.Rule)
		others []ratelimit.Rule
		want   string
	}{
		{func(r *ratelimit.Rule) { r.Rate.Burst = 3 }, nil, `rules[0].rate.burst is 3: must be 0: a rule with InFlight has no burst`},
		{func(r *ratelimit.Rule) { r.Rate.Per = 25 * time.Hour }, nil, `rules[0].rate.per is 25h0m0s: must be from a microsecond to 24 hours`},
		{func(r *ratelimit.Rule) { r.Rate.Requests = 0 }, nil, `rules[0].rate.requests is 0: must be at least 1`},
		{
			func(r *ratelimit.Rule) { r.Warmup = ratelimit.Warmup{From: 1, Over: time.Hour} }, nil,
			`rules[0].warmup is {1 1h0m0s}: must be left out: a rule that counts what is running has none`,
		},
		{
			func(r *ratelimit.Rule) { r.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(5)} }, nil,
			`rules[0].tiers["paid"].per is 1h0m0s: must be that of the rule's rate: a window has one length`,
		},
		{
			func(*ratelimit.Rule) {}, []ratelimit.Rule{{Endpoint: "/a", Limiter: custom}},
			`rules[1].limiter is *ratelimit.TokenBucket: must be nil: rules[0], which may apply to the same request, counts what is running`,
		},
		{
			func(r *ratelimit.Rule) { *r = ratelimit.Rule{Endpoint: "/a", Limiter: custom} }, []ratelimit.Rule{inFlight(1)},
			`rules[1].algorithm is "InFlight": must be another: rules[0], which may apply to the same request, has a limiter of its own`,
		},
	} {
		r := inFlight(5)
		row.change(&r)
		_, err := ratelimit.New(append([]ratelimit.Rule{r}, row.others...), nil)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		assert.EqualError(t, err, "ratelimit: "+row.want)
	}
	_, err = new(ratelimit.Factory).Create(map[string]any{"algorithm": "in_flight", "algoConfig": map[string]any{"rate": "3/m"}})
	require.EqualError(t, err, `ratelimit: algorithm is "InFlight": must be that of a limiter: InFlight is for rules, see Reserve`)
	rules, _, err := ratelimit.DecodeRules([]map[string]any{{"name": "x", "algorithm": "in_flight", "rate": "3/m"}}, nil)
	require.NoError(t, err)
	require.Equal(t, ratelimit.AlgorithmInFlight, rules[0].Algorithm)
	require.Equal(t, ratelimit.PerMinute(3), rules[0].Rate)
}

// TestInFlightSchedules compares with a model: a list of what is running, in the order of the grants.
func TestInFlightSchedules(t *testing.T) {
	schedules := 2000
	if testing.Short() {
		schedules = 100
	}
	for seed := range schedules {
		eachHolding(t, []ratelimit.Rule{inFlight(3)}, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
			playHolds(t, l, clock, rand.New(rand.NewPCG(uint64(seed), 1)))
		})
	}
}

// A running is one hold in the model.
type running struct {
	r     *ratelimit.Reservation
	n     int
	until time.Time
}

// playHolds plays a schedule for one client.
func playHolds(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock, rnd *rand.Rand) {
	t.Helper()
	limit, per := 3, time.Minute
	var live []running // those that hold units, in the order of their ends by time
	var all []*ratelimit.Reservation
	expire := func() {
		live = slices.DeleteFunc(live, func(h running) bool { return !h.until.After(clock.Now()) })
	}
	for range 60 {
		expire()
		held := 0
		for _, h := range live {
			held += h.n
		}
		of := rnd.IntN(max(len(all), 1))
		at := -1
		if len(all) > 0 {
			at = slices.IndexFunc(live, func(h running) bool { return h.r == all[of] })
		}
		switch op := rnd.IntN(16); {
		case op < 6:
			n := 1 + rnd.IntN(4)
			r, err := l.Reserve(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", Cost: n}, time.Hour)
			require.NoError(t, err)
			want := ratelimit.Result{Limit: limit, Remaining: max(limit-held, 0), Rule: "running"}
			switch {
			case n > limit:
				want.RetryAfter, want.Reason = ratelimit.Never, ratelimit.ReasonBusy
			case n > limit-held:
				want.Reason = ratelimit.ReasonBusy
				for need := held + n - limit; need > 0; {
					for _, h := range live {
						if need > 0 {
							need -= h.n
							want.RetryAfter = h.until.Sub(clock.Now())
						}
					}
				}
			default:
				want.Allowed = true
				want.Remaining -= n
				live = append(live, running{r, n, clock.Now().Add(per)})
				all = append(all, r)
			}
			if len(live) > 0 {
				want.ResetAfter = live[len(live)-1].until.Sub(clock.Now())
			}
			require.Equal(t, want, r.Result())
		case op < 10 && len(all) > 0:
			end := []func() error{all[of].Done, all[of].Cancel}[rnd.IntN(2)]
			require.NoError(t, end())
			if at >= 0 {
				live = slices.Delete(live, at, at+1)
			}
		case op < 12 && len(all) > 0:
			if err := all[of].Extend(); at < 0 {
				require.ErrorIs(t, err, ratelimit.ErrSettled)
			} else {
				require.NoError(t, err)
				h := live[at]
				h.until = clock.Now().Add(per)
				live = append(slices.Delete(live, at, at+1), h)
			}
		case op == 12:
			limit = 1 + rnd.IntN(6)
			require.NoError(t, l.UpdateRate("running", ratelimit.Rate{Requests: limit, Per: per}))
		case op == 13 && rnd.IntN(3) == 0:
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "alice"}))
			live = nil
		default:
			clock.Advance(time.Duration(rnd.Int64N(int64(per) / 3)))
		}
	}
	for _, r := range all {
		require.NoError(t, r.Done())
	}
	require.Equal(t, limit, start(t, l).Result().Remaining+1, "0 held at the end")
}

// TestInFlightMany fills one key: 65,536 holds are the most, and each can be ended.
func TestInFlightMany(t *testing.T) {
	const most = 1 << 16
	eachHolding(t, []ratelimit.Rule{inFlight(1 << 20)}, func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock) {
		all := make([]*ratelimit.Reservation, most)
		for i := range all {
			all[i] = start(t, l)
			clock.Advance(1)
		}
		require.True(t, all[most-1].Result().Allowed)
		denied := start(t, l).Result()
		require.False(t, denied.Allowed)
		require.Equal(t, time.Minute-most, denied.RetryAfter, "until the oldest is over")
		rand.Shuffle(most, func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, r := range all[:most-5] {
			require.NoError(t, r.Done())
		}
		require.Equal(t, 1<<20-6, start(t, l).Result().Remaining)
		clock.Advance(time.Minute)
		require.Equal(t, 1<<20-1, start(t, l).Result().Remaining)
	})
}

// TestInFlightOverflow shares what is running among the keys that have no state of their own.
func TestInFlightOverflow(t *testing.T) {
	clock := ratelimit.NewFakeClock(newYear)
	l := newRules(t, []ratelimit.Rule{inFlight(2)}, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
	reserve := func(client string) *ratelimit.Reservation {
		r, err := l.Reserve(t.Context(), ratelimit.Request{Client: client, Endpoint: "/"}, time.Hour)
		require.NoError(t, err)
		return r
	}
	own := reserve("alice")
	bob := reserve("bob")
	carol := reserve("carol")
	require.True(t, carol.Result().Allowed)
	require.False(t, reserve("dave").Result().Allowed, "bob and carol share one count")
	require.NoError(t, bob.Done())
	require.True(t, reserve("dave").Result().Allowed, "holds of the shared count come back too")
	require.NoError(t, own.Done())
	eve := reserve("eve")
	require.False(t, eve.Result().Allowed, "a new key begins with the shared count")
	clock.Advance(time.Minute)
	require.True(t, reserve("eve").Result().Allowed)
}

// TestReserveWaitInOrder lets callers wait for what is running: each end wakes the next one, in the order of arrival.
func TestReserveWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, []ratelimit.Rule{inFlight(2)})
		first, second := start(t, l), start(t, l)
		got := make(chan int)
		var ends [5]*ratelimit.Reservation
		for i := range 5 {
			go func() {
				r, err := l.ReserveWait(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/"}, time.Hour)
				assert.NoError(t, err)
				ends[i] = r
				got <- i
			}()
			synctest.Wait()
		}
		denied := start(t, l)
		require.False(t, denied.Result().Allowed, "nobody overtakes those who wait")
		require.Equal(t, ratelimit.ReasonBusy, denied.Result().Reason)
		require.NoError(t, first.Done())
		require.Equal(t, 0, <-got)
		require.False(t, start(t, l).Result().Allowed)
		require.NoError(t, second.Settle(1))
		require.Equal(t, 1, <-got)
		require.NoError(t, ends[1].Cancel())
		require.Equal(t, 2, <-got)
		began := time.Now()
		require.Equal(t, 3, <-got, "the first of those that run is over after Per")
		require.Equal(t, time.Minute, time.Since(began))
		require.Equal(t, 4, <-got)
		require.Equal(t, time.Minute, time.Since(began))
		for _, r := range ends {
			require.NoError(t, r.Done())
		}
		require.Equal(t, 1, start(t, l).Result().Remaining)
	})
}

// TestReserveWaitDeadline never refuses because of a time that is only a bound.
func TestReserveWaitDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []ratelimit.Rule{{Name: "requests", Endpoint: "/", Rate: ratelimit.PerMinute(4)}, inFlight(3)}
		l := newRules(t, rules)
		reserve := func(cost int, within time.Duration) (*ratelimit.Reservation, error) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			return l.ReserveWait(ctx, ratelimit.Request{Client: "alice", Endpoint: "/", Cost: cost}, time.Hour)
		}
		began := time.Now()
		first, err := reserve(3, time.Second)
		require.NoError(t, err)
		r, err := reserve(1, 5*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Nil(t, r, "it waits until its deadline")
		require.Equal(t, 5*time.Second, time.Since(began))
		require.NoError(t, first.Done())

		r, err = reserve(3, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "requests", r.Result().Rule, "this time is known")
		require.Equal(t, 5*time.Second, time.Since(began), "it is refused at once")
		r, err = reserve(4, time.Hour)
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit)
		require.False(t, r.Result().Allowed)

		r, err = reserve(1, time.Second)
		require.NoError(t, err)
		require.True(t, r.Result().Allowed)
		require.Equal(t, "requests", r.Results()[0].Rule)
		require.NoError(t, r.Done())
	})
}
