package verify

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// gatewayRules are the rules of a gateway: requests, tokens and bytes of each client.
func gatewayRules() []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "requests", Endpoint: "/chat", Rate: ratelimit.PerMinute(3)},
		{Name: "tokens", Endpoint: "/chat", Unit: "tokens", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(100)},
		{Name: "bytes", Endpoint: "*", Additional: true, Unit: "bytes", Rate: ratelimit.PerMinute(1000)},
	}
}

// chat is a request of alice that costs these units, beside one request.
func chat(costs ...ratelimit.Cost) ratelimit.Request {
	return ratelimit.Request{Client: "alice", Endpoint: "/chat", Costs: costs}
}

func tokens(n int) ratelimit.Cost { return ratelimit.Cost{Unit: "tokens", N: n} }
func octets(n int) ratelimit.Cost { return ratelimit.Cost{Unit: "bytes", N: n} }

// lefts returns how many units alice has left of the rules that count them: requests, tokens, bytes.
func lefts(t *testing.T, l *ratelimit.RateLimiter) (left [3]int) {
	t.Helper()
	_, each, err := l.CheckAll(t.Context(), ratelimit.Request{
		Client: "alice", Endpoint: "/chat", Cost: 1 << 30, Costs: []ratelimit.Cost{tokens(1 << 30), octets(1 << 30)},
	}, nil)
	require.NoError(t, err)
	require.Len(t, each, 3)
	for i, res := range each {
		left[i] = res.Remaining
	}
	return left
}

// eachGateway runs test with the rules of a gateway: in this process, and in a store.
func eachGateway(t *testing.T, test func(t *testing.T, l *ratelimit.RateLimiter, clock *ratelimit.FakeClock), opts ...ratelimit.Option) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		clock := ratelimit.NewFakeClock(newYear)
		test(t, newRules(t, gatewayRules(), append(opts, ratelimit.WithClock(clock))...), clock)
	})
	t.Run("store", func(t *testing.T) {
		clock := ratelimit.NewFakeClock(newYear)
		st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		test(t, newRules(t, gatewayRules(), append(opts, ratelimit.WithClock(clock), ratelimit.WithStore(st))...), clock)
	})
}

// TestUnits decides on requests that cost several units.
func TestUnits(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		res := check(t, l, chat(tokens(40), octets(900)))
		require.True(t, res.Allowed)
		require.Equal(t, "requests", res.Rule, "of a granted request, a rule that counts requests binds, if there is one")
		require.Equal(t, []int{3, 2}, []int{res.Limit, res.Remaining}, "and Remaining is of its unit")
		require.Equal(t, [3]int{2, 60, 100}, lefts(t, l))

		res = check(t, l, chat(tokens(61), octets(1)))
		require.Equal(t, "tokens", res.Rule)
		require.Equal(t, []int{100, 60}, []int{res.Limit, res.Remaining})
		require.False(t, res.Allowed)
		res = check(t, l, chat(tokens(1), octets(101)))
		require.Equal(t, []any{false, "bytes", 100}, []any{res.Allowed, res.Rule, res.Remaining})
		require.Equal(t, [3]int{2, 60, 100}, lefts(t, l), "a denial changes nothing")

		res = check(t, l, chat(octets(50)))
		require.True(t, res.Allowed, "a rule whose unit the request does not have does not apply")
		require.Equal(t, [3]int{1, 60, 50}, lefts(t, l))
		res = check(t, l, chat(ratelimit.Cost{}, octets(50)))
		require.Equal(t, []any{true, "bytes", 0}, []any{res.Allowed, res.Rule, res.Remaining})
		require.Equal(t, [3]int{1, 60, 0}, lefts(t, l), "an N of 0 of the unit \"\" means that it costs no request")
		res = check(t, l, chat(ratelimit.Cost{N: 2}, tokens(1)))
		require.False(t, res.Allowed, "the unit \"\" replaces Cost")
		require.Equal(t, "requests", res.Rule)

		res = check(t, l, chat(tokens(5), octets(0)))
		require.Equal(t, []any{false, "bytes"}, []any{res.Allowed, res.Rule}, "with 0 of a unit, a rule denies where it would deny one")
		res = check(t, l, chat(tokens(0)))
		require.True(t, res.Allowed)
		require.Equal(t, [3]int{0, 60, 0}, lefts(t, l), "and is charged nothing")
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}, check(t, l, chat(ratelimit.Cost{})), "nothing is limited")
	})
}

// TestUnitsOrder proves that of a granted request without requests, the first of its Costs that a rule counts binds.
func TestUnitsOrder(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		none := ratelimit.Cost{}
		require.Equal(t, "tokens", check(t, l, chat(none, tokens(1), octets(999))).Rule)
		require.Equal(t, "bytes", check(t, l, chat(octets(1), none, tokens(1))).Rule)
		require.Equal(t, "tokens", check(t, l, chat(ratelimit.Cost{Unit: "words", N: 9}, none, tokens(1))).Rule, "no rule counts words")
	})
	rules := gatewayRules()
	slices.Reverse(rules)
	l := newRules(t, rules, ratelimit.WithClock(ratelimit.NewFakeClock(newYear)))
	one := ratelimit.Cost{N: 1}
	require.Equal(t, "requests", check(t, l, chat(tokens(1), octets(1), one)).Rule, "the order of rules and costs is nothing to requests")
	require.Equal(t, "requests", check(t, l, chat(tokens(1), octets(1))).Rule, "nor is a cost that is not listed")
	rules[1].Mode = ratelimit.ModeShadow
	l = newRules(t, rules, ratelimit.WithClock(ratelimit.NewFakeClock(newYear)))
	require.Equal(t, "bytes", check(t, l, chat(ratelimit.Cost{}, tokens(1), octets(1))).Rule, "a rule that only watches does not bind")
}

// TestUnitsArePeekedAt proves that Peek asks for one of each unit.
func TestUnitsArePeekedAt(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		require.True(t, peekOf(t, l, chat(tokens(5000), octets(0))).Allowed)
		check(t, l, chat(tokens(100)))
		require.True(t, peekOf(t, l, chat(octets(1))).Allowed)
		require.Equal(t, "tokens", peekOf(t, l, chat(tokens(0))).Rule)
		require.Equal(t, [3]int{2, 0, 1000}, lefts(t, l))
	})
}

// TestUnitsNotAsked counts the requests to which a rule does not apply because they lack its unit.
func TestUnitsNotAsked(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		l.Allow("alice", "/chat")
		check(t, l, chat(octets(1)))
		check(t, l, chat(ratelimit.Cost{}, octets(1)))
		check(t, l, chat(ratelimit.Cost{}))
		peekOf(t, l, chat())
		_, err := l.Explain(t.Context(), chat())
		require.NoError(t, err)
		var got [3]uint64
		for i, s := range l.Stats() {
			got[i] = s.NotAsked
		}
		require.Equal(t, [3]uint64{0, 4, 2}, got, "a request that says that it costs no request is not counted by a rule for requests")
		require.EqualValues(t, 2, l.Stats()[0].Allowed)
	})
}

// TestUnitsBadInput lists what a request and a rule must not have.
func TestUnitsBadInput(t *testing.T) {
	var many []ratelimit.Cost
	for i := range 17 {
		many = append(many, ratelimit.Cost{Unit: fmt.Sprint("u", i), N: 1})
	}
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		for _, row := range []struct {
			costs []ratelimit.Cost
			is    error
			want  string
		}{
			{many, ratelimit.ErrInvalidConfig, "ratelimit: costs is 17: must have at most 16 units"},
			{[]ratelimit.Cost{tokens(-1)}, ratelimit.ErrInvalidCount, "ratelimit: count must not be negative, nor above 1125899906842624"},
			{[]ratelimit.Cost{tokens(1), octets(1), tokens(2)}, ratelimit.ErrInvalidConfig,
				`ratelimit: costs[2].unit is "tokens": must not be given twice`},
			{[]ratelimit.Cost{{}, {Unit: "Tokens", N: 1}}, ratelimit.ErrInvalidConfig,
				`ratelimit: costs[1].unit is "Tokens": must have at most 64 bytes: lower-case letters, digits, "-", "_" and "."`},
		} {
			_, err := l.Check(t.Context(), chat(row.costs...))
			require.ErrorIs(t, err, row.is)
			require.EqualError(t, err, row.want)
			_, err = l.Reserve(t.Context(), chat(row.costs...), time.Hour)
			require.EqualError(t, err, row.want)
			_, err = l.Wait(t.Context(), chat(row.costs...))
			require.EqualError(t, err, row.want)
			_, err = l.Explain(t.Context(), chat(row.costs...))
			require.EqualError(t, err, row.want)
		}
		require.Equal(t, [3]int{3, 100, 1000}, lefts(t, l))
		require.NoError(t, func() error { _, err := l.Check(t.Context(), chat(many[1:]...)); return err }(), "16 units are accepted")
	})
	rule := ratelimit.Rule{Endpoint: "/chat", Unit: "to ken", Rate: ratelimit.PerMinute(1)}
	_, err := ratelimit.New([]ratelimit.Rule{rule}, nil)
	require.EqualError(t, err, `ratelimit: rules[0].unit is "to ken": must have at most 64 bytes: lower-case letters, digits, "-", "_" and "."`)
}

// TestUnitsSettle settles reservations of several units.
func TestUnitsSettle(t *testing.T) {
	reserve := func(t *testing.T, l *ratelimit.RateLimiter, costs ...ratelimit.Cost) *ratelimit.Reservation {
		t.Helper()
		r, err := l.Reserve(t.Context(), chat(costs...), time.Hour)
		require.NoError(t, err)
		require.True(t, r.Result().Allowed)
		return r
	}
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		r := reserve(t, l, tokens(50), octets(0))
		require.Equal(t, [3]int{2, 50, 1000}, lefts(t, l))
		err := r.Settle(1)
		require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
		require.EqualError(t, err, "ratelimit: count must not be negative: the request has 3 units; call SettleCosts")
		for want, costs := range map[string][]ratelimit.Cost{
			"the request does not have the unit \"words\"": {tokens(1), {Unit: "words", N: 1}},
			"the unit \"tokens\" is given twice":           {tokens(1), tokens(1)},
		} {
			err = r.SettleCosts(costs...)
			require.ErrorIs(t, err, ratelimit.ErrInvalidCount)
			require.ErrorContains(t, err, want)
		}
		require.ErrorIs(t, r.SettleCosts(octets(-1)), ratelimit.ErrInvalidCount)
		require.Equal(t, [3]int{2, 50, 1000}, lefts(t, l), "nothing is settled, and it is still open")
		require.NoError(t, r.SettleCosts(tokens(20), octets(300)))
		require.Equal(t, [3]int{2, 80, 700}, lefts(t, l), "fewer tokens and more bytes; the request stays charged")
		require.ErrorIs(t, r.SettleCosts(tokens(1)), ratelimit.ErrSettled)
		require.NoError(t, r.Done())
		require.NoError(t, r.Cancel())
		require.Equal(t, [3]int{2, 80, 700}, lefts(t, l))

		r = reserve(t, l, tokens(30), octets(100))
		require.NoError(t, r.SettleCosts(tokens(200)))
		require.Equal(t, [3]int{1, 0, 600}, lefts(t, l), "more than is left")
		r = reserve(t, l, octets(100))
		require.NoError(t, r.Cancel())
		require.Equal(t, [3]int{1, 0, 600}, lefts(t, l), "all units are back")
		r = reserve(t, l, octets(100))
		require.NoError(t, r.Done())
		require.ErrorIs(t, r.SettleCosts(octets(0)), ratelimit.ErrSettled)
		require.NoError(t, r.Cancel())
		require.Equal(t, [3]int{0, 0, 500}, lefts(t, l), "what was not settled stays charged")
		r = reserve(t, l, ratelimit.Cost{}, octets(100))
		require.NoError(t, r.Settle(1), "the request has one unit")
		require.Equal(t, [3]int{0, 0, 499}, lefts(t, l))
	})
	var none *ratelimit.Reservation
	require.NoError(t, none.Done())
	require.ErrorIs(t, none.SettleCosts(tokens(1)), ratelimit.ErrSettled)
}

// TestUnitsSettleMuch settles 2^50 units, which no limit has.
func TestUnitsSettleMuch(t *testing.T) {
	if most := int64(1) << 50; int64(int(most)) != most {
		t.Skip("an int has 32 bits")
	}
	for _, a := range ratelimit.Algorithms() {
		for _, stored := range []bool{false, true} {
			clock := ratelimit.NewFakeClock(newYear)
			opts := []ratelimit.Option{ratelimit.WithClock(clock)}
			if stored {
				st, err := ratelimit.NewMemoryStore(opts...)
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(st))
			}
			l := newRules(t, []ratelimit.Rule{{Endpoint: "/chat", Unit: "bytes", Algorithm: a, Rate: ratelimit.PerMinute(1000)}}, opts...)
			var open []*ratelimit.Reservation
			for range 9000 { // 2^63 units and more
				r, err := l.Reserve(t.Context(), chat(ratelimit.Cost{}, octets(0)), time.Hour)
				require.NoError(t, err)
				open = append(open, r)
			}
			for i, r := range open {
				n := int64(1) << 50
				require.NoError(t, r.Settle(int(n)))
				if i%1000 > 0 {
					continue
				}
				res := check(t, l, chat(octets(1)))
				require.False(t, res.Allowed, "%s", a)
				require.Zero(t, res.Remaining, "%s", a)
				require.Positive(t, res.RetryAfter, "%s", a)
			}
		}
	}
}

// TestUnitsAndIDs proves that the numbers of units are part of what identifies a request.
func TestUnitsAndIDs(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		req := chat(tokens(10), octets(0), ratelimit.Cost{Unit: "words", N: 3})
		req.ID = "1"
		first := check(t, l, req)
		require.Equal(t, first, check(t, l, req))
		req.Costs = []ratelimit.Cost{octets(0), {N: 1}, tokens(10)}
		require.Equal(t, first, check(t, l, req), "a unit that no rule counts is not part of it, nor is the order")
		require.Equal(t, [3]int{2, 90, 1000}, lefts(t, l))
		req.Costs = []ratelimit.Cost{tokens(11), octets(0)}
		check(t, l, req)
		require.Equal(t, [3]int{1, 79, 1000}, lefts(t, l), "another number of tokens is another request")
		req.Costs = []ratelimit.Cost{tokens(11), octets(1)}
		check(t, l, req)
		require.Equal(t, [3]int{0, 68, 999}, lefts(t, l))
	}, ratelimit.WithRequestIDs(time.Hour))
}

// TestUnitsExplained shows the units of each rule.
func TestUnitsExplained(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		e, err := l.Explain(t.Context(), chat(tokens(7)))
		require.NoError(t, err)
		require.Len(t, e.Rules, 3)
		for i, want := range []string{" 1", "tokens 7", "bytes 0 uncounted"} {
			r := e.Rules[i]
			got := fmt.Sprint(r.Unit, " ", r.Cost)
			if r.AnsweredBy == "uncounted" {
				got += " uncounted"
			}
			require.Equal(t, want, got)
		}
		require.Equal(t, ratelimit.PerMinute(1000), e.Rules[2].Rate)
		data, err := e.MarshalJSON()
		require.NoError(t, err)
		var back ratelimit.Explanation
		require.NoError(t, back.UnmarshalJSON(data))
		require.Equal(t, e, back)
	})
}

// TestUnitsObserved shows the unit of the rule in a Decision.
func TestUnitsObserved(t *testing.T) {
	var seen []string
	o := observing(func(d ratelimit.Decision) { seen = append(seen, fmt.Sprint(d.Rule, " ", d.Cost, " ", d.Unit)) })
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		seen = nil
		check(t, l, chat(tokens(7)))
		check(t, l, chat(ratelimit.Cost{}, octets(2)))
		check(t, l, chat(tokens(700)))
		check(t, l, chat(ratelimit.Cost{}))
		require.Equal(t, []string{"requests 1 ", "bytes 2 bytes", "tokens 700 tokens", " 1 "}, seen)
	}, ratelimit.WithObserver(o))
}

// TestUnitsWaited waits for the unit that is lacking.
func TestUnitsWaited(t *testing.T) {
	for _, stored := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var opts []ratelimit.Option
			if stored {
				st, err := ratelimit.NewMemoryStore()
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(st))
			}
			l := newRules(t, []ratelimit.Rule{
				{Name: "requests", Endpoint: "/chat", Rate: ratelimit.PerSecond(100)},
				{Name: "tokens", Endpoint: "/chat", Unit: "tokens", Rate: ratelimit.PerSecond(100)},
			}, opts...)
			began := time.Now()
			costs := []int{100, 50, 30, 20, 10, 0} // 200 callers would take 2 s if each unit were a request
			ends := make([]time.Duration, len(costs))
			var all sync.WaitGroup
			for i, n := range costs {
				all.Go(func() {
					_, err := l.Wait(t.Context(), chat(tokens(n)))
					assert.NoError(t, err)
					ends[i] = time.Since(began)
				})
				synctest.Wait()
			}
			all.Wait()
			const ms = time.Millisecond
			require.Equal(t, []time.Duration{0, 500 * ms, 800 * ms, 1000 * ms, 1100 * ms, 1110 * ms}, ends)
		})
	}
}

// TestUnitsWaitInLongLines has 500 callers wait, each for 1 request and 10 tokens, and a newcomer that sees how long.
func TestUnitsWaitInLongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, []ratelimit.Rule{
			{Name: "requests", Endpoint: "/chat", Rate: ratelimit.PerSecond(1000)},
			{Name: "tokens", Endpoint: "/chat", Unit: "tokens", Rate: ratelimit.PerSecond(1000)},
		})
		r, err := l.Reserve(t.Context(), chat(tokens(10)), time.Minute)
		require.NoError(t, err)
		check(t, l, chat(tokens(990)))
		for range 500 {
			go func() {
				_, err := l.Wait(t.Context(), chat(tokens(10)))
				require.NoError(t, err)
			}()
		}
		synctest.Wait()
		res := check(t, l, chat(tokens(10)))
		require.Equal(t, []any{false, "tokens", 5010 * time.Millisecond}, []any{res.Allowed, res.Rule, res.RetryAfter})
		res = check(t, l, chat(tokens(1000)))
		require.Equal(t, 6*time.Second, res.RetryAfter)
		ctx, cancel := context.WithTimeout(t.Context(), 5011*time.Millisecond)
		defer cancel()
		require.NoError(t, r.SettleCosts(tokens(0)))
		synctest.Wait()
		res = check(t, l, chat(tokens(10)))
		require.Equal(t, 5*time.Second, res.RetryAfter, "the first has got what was given back, and the others are counted anew")
		_, err = l.Wait(ctx, chat(tokens(20)))
		require.NoError(t, err, "a caller whose deadline is just late enough waits")
		require.Equal(t, [2]int{999, 0}, func() (left [2]int) {
			_, each, err := l.CheckAll(t.Context(), chat(tokens(10)), nil)
			require.NoError(t, err)
			return [2]int{each[0].Remaining, each[1].Remaining}
		}())
	})
}

// TestUnitsChange proves that a rule whose Unit changes has new keys, and that others keep theirs.
func TestUnitsChange(t *testing.T) {
	eachGateway(t, func(t *testing.T, l *ratelimit.RateLimiter, _ *ratelimit.FakeClock) {
		check(t, l, chat(tokens(60), octets(600)))
		next := gatewayRules()
		next[2].Unit = "kilobytes"
		require.NoError(t, l.Replace(next, nil))
		_, each, err := l.CheckAll(t.Context(), chat(tokens(1), ratelimit.Cost{Unit: "kilobytes", N: 1}), nil)
		require.NoError(t, err)
		require.Equal(t, []int{1, 39, 999}, []int{each[0].Remaining, each[1].Remaining, each[2].Remaining})
	})
}

// TestUnitsAreConserved draws requests, reservations and settlements of three units in windows that do not end, and
// compares with a model: what is denied has charged nothing, and what is settled is what was used.
func TestUnitsAreConserved(t *testing.T) {
	limits := map[string]int{"": 60, "tokens": 3000, "bytes": 30_000}
	var set []ratelimit.Rule
	for unit, limit := range limits {
		set = append(set, ratelimit.Rule{Name: "all " + unit, Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Unit: unit,
			Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.Rate{Requests: limit, Per: 24 * time.Hour}})
	}
	slices.SortFunc(set, func(a, b ratelimit.Rule) int { return len(a.Name) - len(b.Name) })
	for _, stored := range []bool{false, true} {
		clock := ratelimit.NewFakeClock(newYear)
		opts := []ratelimit.Option{ratelimit.WithClock(clock)}
		if stored {
			st, err := ratelimit.NewMemoryStore(opts...)
			require.NoError(t, err)
			opts = append(opts, ratelimit.WithStore(st))
		}
		l := newRules(t, set, opts...)
		r := rand.New(rand.NewPCG(1, 2))
		used, denied := map[string]int{}, 0
		type open struct {
			*ratelimit.Reservation
			costs map[string]int
		}
		var opens []open
		for step := range 20_000 {
			if len(opens) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(opens))
				o := opens[i]
				opens = slices.Delete(opens, i, i+1)
				var actual []ratelimit.Cost
				for unit, n := range o.costs {
					if r.IntN(3) > 0 {
						c := ratelimit.Cost{Unit: unit, N: r.IntN(2*n + 2)}
						actual = append(actual, c)
						used[unit] += c.N - n
					}
				}
				require.NoError(t, o.SettleCosts(actual...))
				continue
			}
			costs := map[string]int{"": r.IntN(4), "tokens": r.IntN(200), "bytes": r.IntN(2000)}
			if r.IntN(3) == 0 {
				delete(costs, "bytes")
			}
			var req ratelimit.Request
			fits := true
			for _, unit := range slices.Sorted(maps.Keys(costs)) {
				n := costs[unit]
				req.Costs = append(req.Costs, ratelimit.Cost{Unit: unit, N: n})
				if unit == "" && n == 0 {
					delete(costs, unit)
					continue
				}
				fits = fits && used[unit]+max(n, 1) <= limits[unit]
			}
			res, err := l.Reserve(t.Context(), req, time.Hour)
			require.NoError(t, err)
			require.Equal(t, fits, res.Result().Allowed, "step %d", step)
			if !fits {
				denied++
				require.NoError(t, res.Cancel())
				continue
			}
			for unit, n := range costs {
				used[unit] += n
			}
			opens = append(opens, open{res, costs})
			if step%97 == 0 { // make room
				for _, rule := range set {
					require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Rules: []string{rule.Name}}))
					used[rule.Unit] = 0
				}
				opens = nil
			}
		}
		require.Greater(t, denied, 1000)
	}
}

// TestAdvise lets a rule say that it would deny, and serve all the same.
func TestAdvise(t *testing.T) {
	rules := []ratelimit.Rule{
		{Name: "soft", Endpoint: "/chat", Mode: ratelimit.ModeAdvise, Rate: ratelimit.PerMinute(2)},
		{Name: "hard", Endpoint: "/chat", Rate: ratelimit.PerMinute(4)},
	}
	ask := ratelimit.Request{Client: "alice", Endpoint: "/chat"}
	test := func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		t.Helper()
		var told []ratelimit.Decision
		o := observing(func(d ratelimit.Decision) { told = append(told, d) })
		l := newRules(t, rules, append(opts, ratelimit.WithClock(clock), ratelimit.WithObserver(o), ratelimit.WithRequestIDs(time.Hour))...)
		for range 2 {
			require.False(t, l.Allow("alice", "/chat").Advised)
		}
		res, each, err := l.CheckAll(t.Context(), ask, nil)
		require.NoError(t, err)
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: 4, Remaining: 1, ResetAfter: 45 * time.Second, Rule: "hard", Advised: true}, res)
		require.Equal(t, ratelimit.Result{
			Limit: 2, RetryAfter: 30 * time.Second, ResetAfter: time.Minute, Rule: "soft", Advised: true, Reason: ratelimit.ReasonLimit,
		}, each[0])
		require.False(t, each[1].Advised)
		require.Equal(t, ratelimit.ModeAdvise, told[len(told)-1].Mode)
		require.False(t, told[len(told)-1].Result.Allowed)

		res, err = l.Peek(t.Context(), ask)
		require.NoError(t, err)
		require.True(t, res.Advised)
		e, err := l.Explain(t.Context(), ask)
		require.NoError(t, err)
		require.True(t, e.Result.Advised)
		require.Equal(t, ratelimit.ModeAdvise, e.Rules[0].Mode)
		require.Contains(t, e.String(), `"soft" (advise)`)
		r, err := l.Reserve(t.Context(), ask, time.Minute)
		require.NoError(t, err)
		require.True(t, r.Result().Advised)
		require.True(t, r.Results()[0].Advised)
		require.NoError(t, r.Cancel())
		again := ask
		again.ID = "a"
		for range 2 { // the second is a replay
			res, err = l.Check(t.Context(), again)
			require.NoError(t, err)
			require.True(t, res.Allowed && res.Advised)
		}
		res, err = l.Check(t.Context(), ask)
		require.NoError(t, err)
		require.False(t, res.Allowed)
		require.Equal(t, "hard", res.Rule)
		require.True(t, res.Advised)
		s := l.Stats()[0]
		require.Equal(t, []uint64{2, 0, 0, 4}, []uint64{s.Allowed, s.Denied, s.ShadowDenied, s.Advised})
		require.NoError(t, l.SetRule(ratelimit.Rule{Name: "soft", Endpoint: "/chat", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(2)}))
		require.False(t, l.Allow("alice", "/chat").Advised)
		s = l.Stats()[0]
		require.Equal(t, []uint64{1, 4}, []uint64{s.ShadowDenied, s.Advised})
		clock.Advance(30 * time.Second)
		require.NoError(t, l.SetRule(rules[0]))
		res, err = l.Wait(t.Context(), ask)
		require.NoError(t, err)
		require.False(t, res.Advised, "it was charged only for what it granted")
	}
	clock := ratelimit.NewFakeClock(newYear)
	t.Run("memory", func(t *testing.T) { test(t, clock) })
	t.Run("store", func(t *testing.T) {
		st, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		test(t, clock, ratelimit.WithStore(st))
	})
	t.Run("store down", func(t *testing.T) {
		l := newRules(t, rules[:1], ratelimit.WithStore(deadStore{}), ratelimit.WithFailurePolicy(ratelimit.FailClosed))
		res, err := l.Check(t.Context(), ask)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.True(t, res.Allowed && res.Advised, "FailClosed advises")
	})
}
