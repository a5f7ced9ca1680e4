package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// beside returns a rule at "/e" with the custom limiter l, a rule at "/e" with algorithm a, and
// rules that show what these two have charged.
func beside(a algorithm, l ratelimit.Limiter, mode ratelimit.Mode) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "custom", Endpoint: "/e", Limiter: l, Mode: mode},
		{Name: "ours", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerMinute(5)},
		{Name: "shadow", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerMinute(9), Mode: ratelimit.ModeShadow,
			Key: ratelimit.KeyGlobal},
		{Name: "watch", Algorithm: a.inRules(), Rate: ratelimit.PerMinute(9), Key: ratelimit.KeyGlobal},
	}
}

// TestCustomLimiterAlone proves that a request with no other rule gets the answer of the custom
// limiter, which is called with the key of the rule and the cost of the request.
func TestCustomLimiterAlone(t *testing.T) {
	type asked struct {
		key string
		n   int
	}
	var got []asked
	answer := yes(7, 3, sec)
	l := newRules(t, []ratelimit.Rule{
		{Endpoint: "/user", Limiter: custom(func(_ context.Context, key string, n int) (ratelimit.Result, error) {
			got = append(got, asked{key, n})
			return answer, nil
		})},
	}, nil)
	req := ratelimit.Request{Client: "c", Endpoint: "/user", Cost: 2}
	for _, row := range []struct {
		answer, want ratelimit.Result
		why          string
	}{
		{yes(7, 3, sec), yes(7, 3, sec), "the custom limiter's answer is the answer"},
		{no(7, 1, sec, minute), no(7, 1, sec, minute), "a denial"},
		{delayed(sec, yes(7, 3, sec)), delayed(sec, yes(7, 3, sec)), "a Delay"},
		{unlimited, unlimited, "no limit applies"},
		{degraded(yes(7, 3, sec)), degraded(yes(7, 3, sec)), "a failure policy of its own has answered"},
		{yes(7, -5, sec), yes(7, -1, sec), "a negative Remaining means that no limit applies"},
		{by("its own", no(7, 1, ratelimit.Never, minute)), no(7, 1, ratelimit.Never, minute), "the rule's name replaces the limiter's own"},
	} {
		answer = row.answer
		got = nil
		res, err := l.Check(t.Context(), req)
		require.NoError(t, err, row.why)
		require.Equal(t, by("/user", row.want), res, row.why)
		res, err = l.Peek(t.Context(), req)
		require.NoError(t, err, row.why)
		require.Equal(t, by("/user", row.want), res, row.why)
		require.Equal(t, by("/user", row.want), l.Allow("c", "/user"), row.why)
		require.Equal(t, []asked{{"c", 2}, {"c", 0}, {"c", 1}}, got, row.why)
	}
}

// TestCustomLimiterIsAskedLast proves that a custom limiter is called only if all other rules
// grant, and that the others get their units back if it denies, in memory and in a store.
func TestCustomLimiterIsAskedLast(t *testing.T) {
	t.Run("here", func(t *testing.T) {
		eachAlgorithm(t, func(t *testing.T, a algorithm) { askedLast(t, a, ratelimit.NewFakeClock(epoch)) })
	})
	t.Run("store", func(t *testing.T) {
		eachAlgorithm(t, func(t *testing.T, a algorithm) {
			store := newSettlingStore(t, ratelimit.NewFakeClock(epoch))
			askedLast(t, a, store.clock, ratelimit.WithStore(store))
			require.Equal(t, 3, store.settled, "each denial of the custom limiter is one call of Settle")
		})
	})
}

// askedLast is TestCustomLimiterIsAskedLast for one algorithm.
func askedLast(t *testing.T, a algorithm, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
	asked := 0
	answer := yes(7, 6, sec)
	l := newRules(t, beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
		asked++
		return answer, nil
	}), ""), nil, append(opts, ratelimit.WithClock(clock))...)
	ours := func() ratelimit.Result { return peekAt(t, l, "ours", "c") }
	watch := func() ratelimit.Result { return peekAt(t, l, "watch", "") }
	ask := func(n int) ratelimit.Result {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e", Cost: n})
		require.NoError(t, err)
		return res
	}
	require.True(t, ask(2).Allowed)
	require.Equal(t, 3, ours().Remaining, "both rules are charged")
	clock.Advance(7 * sec)
	for _, n := range []int{1, 2, 3} {
		before, watched := ours(), watch()
		answer = no(7, 0, minute, minute)
		res := ask(n)
		require.False(t, res.Allowed)
		require.Equal(t, "custom", res.Rule, "it names the longest wait")
		require.Equal(t, minute, res.RetryAfter)
		require.Equal(t, 0, res.Remaining)
		require.Equal(t, before, ours(), "when it denies, the other rules are not charged")
		require.Equal(t, watched, watch())
	}
	asked = 0
	res := ask(4)
	require.False(t, res.Allowed)
	require.Equal(t, "ours", res.Rule)
	require.Zero(t, asked, "it is not asked for what another rule denies")
	answer = yes(7, 6, sec)
	require.True(t, ask(3).Allowed, "units that were given back can be taken")
	require.Equal(t, 0, ours().Remaining)
	require.Equal(t, []ratelimit.RuleStats{
		{Rule: "custom", Allowed: 2, Denied: 3},
		{Rule: "ours", Allowed: 2, Denied: 1, LiveKeys: 1},
		{Rule: "shadow", Allowed: 2, LiveKeys: 1},
		{Rule: "watch"},
	}, l.Stats(), "a charge that was given back is not counted as allowed")
}

// TestCustomLimiterThatFails proves what a request gets if a custom limiter returns an error: some
// errors are returned to the caller, for others the failure policy of the rule answers, and some
// come with an answer of the limiter. It also tests custom limiters in shadow rules.
func TestCustomLimiterThatFails(t *testing.T) {
	failed := errors.New("no such tenant")
	store := fmt.Errorf("reading: %w", ratelimit.ErrStore)
	granted, refused := degraded(yes(7, 2, sec)), degraded(no(7, 0, sec, sec))
	closed := degraded(no(0, 0, sec, sec))
	inherit, open, shadow := ratelimit.FailurePolicy{}, ratelimit.FailOpen, ratelimit.ModeShadow
	stats := func(allowed, denied, shadowed, degraded, errors uint64) ratelimit.RuleStats {
		return ratelimit.RuleStats{Rule: "custom", Allowed: allowed, Denied: denied, ShadowDenied: shadowed, Degraded: degraded, Errors: errors}
	}
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			mode   ratelimit.Mode
			policy ratelimit.FailurePolicy
			res    ratelimit.Result
			err    error
			want   ratelimit.Result // without what depends on the algorithm beside it
			left   int              // of 5, after a request for 2 and one for 1
			stats  ratelimit.RuleStats
			why    string
		}{
			{"", inherit, ratelimit.Result{}, failed, by("ours", degraded(yes(5, 2, 0))), 2, stats(2, 0, 0, 1, 1),
				"a FailLocal that is inherited is FailOpen"},
			{"", open, ratelimit.Result{}, failed, by("ours", degraded(yes(5, 2, 0))), 2, stats(2, 0, 0, 1, 1), "FailOpen grants"},
			{"", ratelimit.FailClosed, ratelimit.Result{}, failed, by("custom", closed), 3, stats(1, 1, 0, 1, 1),
				"FailClosed denies, and the other rules get their units back"},
			{"", ratelimit.FailClosed, granted, failed, by("custom", closed), 3, stats(1, 1, 0, 1, 1), "what it says beside an error is no answer"},
			{"", ratelimit.FailClosed, yes(7, 2, sec), store, by("custom", closed), 3, stats(1, 1, 0, 1, 1),
				"nor beside ErrStore, if it is not degraded"},
			{"", ratelimit.FailClosed, granted, store, by("custom", granted), 2, stats(2, 0, 0, 1, 1), "its own policy has answered"},
			{"", open, refused, store, by("custom", refused), 3, stats(1, 1, 0, 1, 1), "and may deny"},
			{"", open, ratelimit.Result{}, ratelimit.ErrInvalidCount, ratelimit.Result{}, 3, stats(1, 0, 0, 0, 0),
				"the caller is told that the count is wrong"},
			{"", open, ratelimit.Result{}, ratelimit.ErrExceedsLimit, ratelimit.Result{}, 3, stats(1, 0, 0, 0, 0), "and that it can never fit"},
			{"", open, ratelimit.Result{}, context.Canceled, by("ours", degraded(yes(5, 2, 0))), 2, stats(2, 0, 0, 1, 1),
				"a context of its own is not the caller's"},
			{shadow, open, ratelimit.Result{}, failed, by("ours", yes(5, 2, 0)), 2, stats(2, 0, 0, 1, 1), "a shadow that fails denies nothing"},
			{shadow, ratelimit.FailClosed, ratelimit.Result{}, failed, by("ours", yes(5, 2, 0)), 2, stats(1, 0, 1, 1, 1),
				"a shadow whose policy denies, neither"},
			{shadow, open, refused, store, by("ours", yes(5, 2, 0)), 2, stats(1, 0, 1, 1, 1), "nor one whose own policy denies"},
			{shadow, open, granted, store, by("ours", yes(5, 2, 0)), 2, stats(2, 0, 0, 1, 1), "a shadow whose own policy grants changes nothing"},
			{shadow, open, ratelimit.Result{}, ratelimit.ErrInvalidCount, by("ours", yes(5, 2, 0)), 2, stats(2, 0, 0, 1, 1),
				"no error of a shadow is the caller's"},
		} {
			answer, problem := yes(7, 3, sec), error(nil)
			var seen []ratelimit.Decision
			rules := beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
				return answer, problem
			}), row.mode)
			rules[0].OnStoreError = row.policy
			l := newRules(t, rules, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)),
				ratelimit.WithObserver(observing(func(d ratelimit.Decision) {
					if d.Source == ratelimit.SourcePolicy {
						seen = append(seen, d)
					}
				})))
			req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2}
			check(t, l, req)
			before := peekAt(t, l, "ours", "c")
			require.Equal(t, 3, before.Remaining)

			answer, problem = row.res, row.err
			req.Cost = 1
			res, err := l.Check(t.Context(), req)
			require.ErrorIs(t, err, row.err, row.why)
			require.Equal(t, row.want != ratelimit.Result{}, errors.Is(err, ratelimit.ErrStore), "%s: there is an answer beside ErrStore alone",
				row.why)
			after := peekAt(t, l, "ours", "c")
			require.Equal(t, row.left, after.Remaining, row.why)
			if row.left == 3 {
				require.Equal(t, before, after, row.why)
			}
			if res.Rule == "ours" {
				row.want.ResetAfter = after.ResetAfter
			} else {
				row.want.Remaining = min(row.want.Remaining, after.Remaining)
			}
			res.Delay = 0
			require.Equal(t, row.want, res, row.why)
			require.Equal(t, row.stats, l.Stats()[0], row.why)
			wantSeen := 0
			if row.stats.Degraded > 0 && (res.Rule == "custom" || row.mode == shadow) {
				wantSeen = 1
			}
			require.Len(t, seen, wantSeen, row.why)
			for _, d := range seen {
				require.Equal(t, "custom", d.Rule, row.why)
				require.ErrorIs(t, d.Err, row.err, row.why)
				require.True(t, d.Result.Degraded, row.why)
			}
		}
	})
}

// TestCustomLimiterErrorIsCountedAndObserved proves that Allow, which returns no error, answers by
// the failure policy, and that the error is counted and observed.
func TestCustomLimiterErrorIsCountedAndObserved(t *testing.T) {
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		want   ratelimit.Result
		stats  ratelimit.RuleStats
	}{
		{ratelimit.FailurePolicy{}, by("/e", degraded(unlimited)), ratelimit.RuleStats{Rule: "/e", Allowed: 1, Degraded: 1, Errors: 1}},
		{ratelimit.FailClosed, by("/e", degraded(no(4, 0, sec, sec))), ratelimit.RuleStats{Rule: "/e", Denied: 1, Degraded: 1, Errors: 1}},
	} {
		var seen []ratelimit.Decision
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.PerHour(4), Limiter: answering(ratelimit.Result{}, errFault),
			OnStoreError: row.policy}}, nil,
			ratelimit.WithObserver(observing(func(d ratelimit.Decision) { seen = append(seen, d) })))
		require.Equal(t, row.want, l.Allow("c", "/e"))
		require.Equal(t, []ratelimit.RuleStats{row.stats}, l.Stats())
		require.Len(t, seen, 1)
		require.Equal(t, row.want, seen[0].Result)
		require.Equal(t, ratelimit.SourcePolicy, seen[0].Source)
		require.Zero(t, seen[0].Rate, "a custom limiter has a rate of its own")
		require.ErrorIs(t, seen[0].Err, errFault)
		require.EqualError(t, seen[0].Err, `rules["/e"].limiter: ratelimit: store failed: `+errFault.Error())
	}
}

// TestCustomLimiterWhenTheContextEnds proves that the error of the caller's context is not a
// failure of the custom limiter: Check returns it, takes nothing and counts nothing.
func TestCustomLimiterWhenTheContextEnds(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, mode := range []ratelimit.Mode{ratelimit.ModeEnforce, ratelimit.ModeShadow} {
			ctx, cancel := context.WithCancel(t.Context())
			l := newRules(t, beside(a, custom(func(ctx context.Context, _ string, _ int) (ratelimit.Result, error) {
				cancel()
				return ratelimit.Result{}, fmt.Errorf("asking: %w", ctx.Err())
			}), mode), nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
			res, each, err := l.CheckAll(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"}, nil)
			require.Equal(t, context.Canceled, err)
			require.Zero(t, res)
			require.Empty(t, each)
			require.Equal(t, 5, peekAt(t, l, "ours", "c").Remaining)
			require.Equal(t, ratelimit.RuleStats{Rule: "custom"}, l.Stats()[0])
		}
	})
}

// TestPolicyOfACustomLimiter proves that a rule with a custom limiter must not have FailLocal, and
// that it answers as with FailOpen if the RateLimiter has FailLocal.
func TestPolicyOfACustomLimiter(t *testing.T) {
	rule := ratelimit.Rule{Endpoint: "/e", Limiter: answering(unlimited, nil), OnStoreError: ratelimit.FailLocal(2)}
	_, err := ratelimit.New([]ratelimit.Rule{rule}, nil)
	require.EqualError(t, err, "ratelimit: rules[0].onStoreError is local:2: must be open or closed: a limiter of one's own has no share "+
		"for this process")
	rule.OnStoreError = ratelimit.FailurePolicy{}
	for _, row := range []struct{ given, want ratelimit.FailurePolicy }{
		{ratelimit.FailurePolicy{}, ratelimit.FailOpen},
		{ratelimit.FailLocal(4), ratelimit.FailOpen},
		{ratelimit.FailClosed, ratelimit.FailClosed},
		{ratelimit.FailOpen, ratelimit.FailOpen},
	} {
		l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithFailurePolicy(row.given))
		rules, _ := l.Rules()
		require.Equal(t, row.want, rules[0].OnStoreError, "inherited: %v", row.given)
	}
}

// TestCustomLimiterThatPanics proves that the panic of a custom limiter reaches the caller, that
// the other rules get their units back, and that no lock stays held.
func TestCustomLimiterThatPanics(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, mode := range []ratelimit.Mode{ratelimit.ModeEnforce, ratelimit.ModeShadow} {
			clock := ratelimit.NewFakeClock(epoch)
			wrong := true
			l := newRules(t, beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
				if wrong {
					panic(errFault)
				}
				return yes(7, 3, sec), nil
			}), mode), nil, ratelimit.WithClock(clock))
			ours, watch := peekAt(t, l, "ours", "c"), peekAt(t, l, "watch", "")
			for range 3 {
				require.PanicsWithValue(t, errFault, func() { l.Allow("c", "/e") }, "the panic reaches the caller")
			}
			require.Equal(t, ours, peekAt(t, l, "ours", "c"), "%s: the other rules get their units back", mode)
			require.Equal(t, watch, peekAt(t, l, "watch", ""))
			wrong = false
			require.True(t, l.Allow("c", "/e").Allowed, "%s: nothing is left locked", mode)
			require.Equal(t, 4, peekAt(t, l, "ours", "c").Remaining)
		}
	})
}

// TestPanicOfACustomLimiterWakesWaiters proves that a waiter is served at once if it waits for the
// units that the panic of a custom limiter gives back.
func TestPanicOfACustomLimiterWakesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		var w *waiter
		l = newRules(t, []ratelimit.Rule{
			{Name: "ours", Rate: ratelimit.PerHour(1)},
			{Name: "custom", Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
				w = startRuleWait(t.Context(), l, ratelimit.Request{Client: "c", Rules: []string{"ours"}})
				synctest.Wait()
				require.Equal(t, 1, l.InLine(), "the unit is charged")
				panic(errFault)
			})},
		}, nil)
		require.PanicsWithValue(t, errFault, func() {
			_, _ = l.Check(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"ours", "custom"}})
		})
		synctest.Wait()
		require.True(t, w.returned())
	})
}

// TestCustomLimiterInShadow proves that a custom limiter in a shadow rule is called, counted and
// observed, and never changes the answer.
func TestCustomLimiterInShadow(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	answer := no(7, 0, minute, minute)
	var seen []ratelimit.Decision
	l := newRules(t, beside(algorithms[0], custom(func(context.Context, string, int) (ratelimit.Result, error) {
		return answer, nil
	}), ratelimit.ModeShadow), nil, ratelimit.WithClock(clock), ratelimit.WithObserver(observing(func(d ratelimit.Decision) {
		seen = append(seen, d)
	})))
	require.Equal(t, by("ours", yes(5, 4, 12*sec)), l.Allow("c", "/e"), "its denial does not deny the request")
	answer = yes(7, 0, minute)
	require.Equal(t, by("ours", yes(5, 3, 24*sec)), l.Allow("c", "/e"), "its smaller Remaining does not bind")
	require.Equal(t, ratelimit.RuleStats{Rule: "custom", Allowed: 1, ShadowDenied: 1}, l.Stats()[0])
	require.Len(t, seen, 6)
	require.Equal(t, by("custom", no(7, 0, minute, minute)), seen[2].Result, "the observer sees what it would have answered")
	require.Equal(t, ratelimit.SourceLimiter, seen[2].Source)
}

// TestTwoCustomLimiters proves that rules and requests are refused if two custom limiters would
// have to decide one request.
func TestTwoCustomLimiters(t *testing.T) {
	a := answering(yes(7, 3, sec), nil)
	one := ratelimit.Rule{Name: "one", Endpoint: "/e", Limiter: a}
	two := ratelimit.Rule{Name: "two", Endpoint: "/e", Limiter: a, Mode: ratelimit.ModeShadow}
	_, err := ratelimit.New([]ratelimit.Rule{one, two}, nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "two custom limiters for one endpoint")
	require.ErrorContains(t, err, "rules[1].limiter")

	two.Endpoint = "/other"
	l := newRules(t, []ratelimit.Rule{one, two}, nil)
	both := ratelimit.Request{Rules: []string{"one", "two"}}
	for _, ask := range []func(context.Context, ratelimit.Request) (ratelimit.Result, error){l.Check, l.Peek, l.Wait} {
		res, err := ask(t.Context(), both)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "two custom limiters named by one request")
		require.Equal(t, ratelimit.Result{}, res)
	}
	two.Endpoint = "/e"
	require.ErrorIs(t, l.Replace([]ratelimit.Rule{one, two}, nil), ratelimit.ErrInvalidConfig)
	two.Name = "three"
	require.ErrorIs(t, l.AddRule(two), ratelimit.ErrInvalidConfig)
	require.Len(t, l.Stats(), 2)
}

// A settlingStore is a faultyStore that can give back units.
type settlingStore struct {
	*faultyStore
	accepts func(a ratelimit.Ask) error
	settled int // calls of Settle
}

func newSettlingStore(t *testing.T, clock *ratelimit.FakeClock) *settlingStore {
	return &settlingStore{faultyStore: newFaultyStore(t, clock), accepts: func(ratelimit.Ask) error { return nil }}
}

func (s *settlingStore) Accepts(a ratelimit.Ask) error { return s.accepts(a) }

func (s *settlingStore) Settle(ctx context.Context, asks []ratelimit.Ask) error {
	s.settled++
	f, memory := s.next(asks)
	switch f {
	case errsBefore:
		return errFault
	case errsAfter:
		return errors.Join(memory.Settle(ctx, asks), errFault)
	case panics:
		panic(errFault)
	}
	return memory.Settle(ctx, asks)
}

// TestStoresThatAllowACustomLimiter proves that a RateLimiter refuses a rule with a custom limiter
// if its store cannot give units back.
func TestStoresThatAllowACustomLimiter(t *testing.T) {
	store := newFaultyStore(t, nil)
	rule := ratelimit.Rule{Name: "one", Endpoint: "/e", Limiter: answering(yes(7, 3, sec), nil)}
	_, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithName("test"))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, `rules[0].limiter is ratelimit_test.custom: must be nil: the store has no Settle and Accepts`)
	l := newRules(t, nil, nil, ratelimit.WithStore(store))
	require.ErrorIs(t, l.AddRule(rule), ratelimit.ErrInvalidConfig)
	byDefault := rule
	byDefault.Endpoint = ""
	require.ErrorIs(t, l.SetDefaultRule(byDefault), ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, l.Replace([]ratelimit.Rule{rule}, nil), ratelimit.ErrInvalidConfig)
	require.Empty(t, l.Stats())

	// This store can give nothing back at the rates of one of the two rules.
	settling := newSettlingStore(t, nil)
	settling.accepts = func(a ratelimit.Ask) error {
		if a.Rate.Requests == 2 && a.Receipt != 0 && a.HoldFor == sec {
			return errors.New("nothing comes back at 2 a second")
		}
		return nil
	}
	one := ratelimit.Rule{Name: "1", Endpoint: "/", Rate: ratelimit.PerSecond(1)}
	two := ratelimit.Rule{Name: "2", Endpoint: "/", Rate: ratelimit.PerSecond(2)}
	refused := func(path string, err error) {
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.ErrorContains(t, err, path+" is 2/s: is not supported by the store: nothing comes back at 2 a second")
	}
	_, err = ratelimit.New([]ratelimit.Rule{rule, two}, nil, ratelimit.WithStore(settling), ratelimit.WithName("test"))
	refused("rules[1].rate", err)
	l = newRules(t, []ratelimit.Rule{one, two}, nil, ratelimit.WithStore(settling))
	refused("rules[1].rate", l.AddRule(rule))
	require.NoError(t, l.RemoveRule("2"))
	require.NoError(t, l.AddRule(rule))
	refused("rules[2].rate", l.AddRule(two))
	refused(`rules["1"].rate`, l.UpdateRate("1", two.Rate))
	refused("rules[0].rate", l.Replace([]ratelimit.Rule{two}, &byDefault))
	require.True(t, l.Allow("c", "/").Allowed)
	require.NoError(t, l.Replace([]ratelimit.Rule{one, two}, nil), "without a custom limiter there is nothing to give back")

	one.Resolve = func(ratelimit.Request) (ratelimit.Rate, bool) { return two.Rate, true }
	require.NoError(t, l.Replace([]ratelimit.Rule{one, rule}, nil))
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "d", Endpoint: "/", Rules: []string{"1"}})
	require.NoError(t, err)
	require.Equal(t, 2, res.Limit)
	res, err = l.Check(t.Context(), ratelimit.Request{Client: "e", Rules: []string{"1", "one"}})
	refused("", err)
	require.Equal(t, 1, res.Limit, "the rule decides by its own rate")
}

// TestRefusedRequestReportsThatTheStoreKeptItsUnits proves that the error of a refused request says
// so if the store has failed to give its units back.
func TestRefusedRequestReportsThatTheStoreKeptItsUnits(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		store := newSettlingStore(t, ratelimit.NewFakeClock(epoch))
		l := newRules(t, beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
			store.from(errsBefore)
			return ratelimit.Result{}, ratelimit.ErrExceedsLimit
		}), ""), nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
		require.ErrorIs(t, err, ratelimit.ErrExceedsLimit)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.Zero(t, res)
	})
}

// TestCustomLimiterDeniesWhileTheStoreFails proves what happens if a store, or a failure policy,
// has granted a request, a custom limiter denies it, and the store fails to give the units back.
func TestCustomLimiterDeniesWhileTheStoreFails(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			faults []fault // of Take, of Settle, and of the look at what is left
			policy ratelimit.FailurePolicy
			want   ratelimit.Result // by the custom limiter, or a policy
			fails  bool             // whether the error says so
			asked  int              // how often the custom limiter is asked
			left   int              // of 5, after a request for 2
			stats  ratelimit.RuleStats
			why    string
		}{
			{[]fault{sound, sound, sound}, ratelimit.FailOpen, by("custom", no(7, 0, minute, minute)), false, 1, 5, ratelimit.RuleStats{},
				"the units come back"},
			{[]fault{sound, errsBefore, sound}, ratelimit.FailOpen, by("custom", no(7, 0, minute, minute)), true, 1, 3,
				ratelimit.RuleStats{Errors: 1}, "they do not, and the denial stands"},
			{[]fault{sound, errsAfter, sound}, ratelimit.FailOpen, by("custom", no(7, 0, minute, minute)), true, 1, 5,
				ratelimit.RuleStats{Errors: 1}, "only the reply was lost"},
			{[]fault{errsBefore, errsBefore}, ratelimit.FailLocal(1), degraded(by("custom", no(7, 0, minute, minute))), true, 1, 5,
				ratelimit.RuleStats{Errors: 2}, "the share gets its units back"},
			{[]fault{errsBefore, sound}, ratelimit.FailOpen, degraded(by("custom", no(7, 0, minute, minute))), true, 1, 5,
				ratelimit.RuleStats{Errors: 1}, "a store that has not granted is not asked to give back"},
			{[]fault{errsBefore, sound}, ratelimit.FailClosed, degraded(by("ours", no(5, 0, sec, sec))), true, 0, 5,
				ratelimit.RuleStats{Errors: 1, Denied: 1, Degraded: 1}, "what a policy denies, the custom limiter is not asked for"},
		} {
			store, asked, seen := newSettlingStore(t, ratelimit.NewFakeClock(epoch)), 0, []ratelimit.Decision(nil)
			rules := []ratelimit.Rule{
				{Name: "ours", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerMinute(5), OnStoreError: row.policy},
				{Name: "custom", Endpoint: "/e", Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
					asked++
					return no(7, 0, minute, minute), nil
				})},
			}
			l := newRules(t, rules, nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock),
				ratelimit.WithObserver(observing(func(d ratelimit.Decision) { seen = append(seen, d) })))
			store.do(row.faults...)
			res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2})
			if row.want.Rule == "custom" && !row.want.Allowed {
				row.want.Reason = ratelimit.ReasonLimit // the custom limiter has denied the request, not a policy
			}
			require.Equal(t, row.want, res, row.why)
			require.Equal(t, row.fails, errors.Is(err, ratelimit.ErrStore), row.why)
			require.Len(t, seen, 1, row.why)
			require.Equal(t, row.fails, seen[0].Err != nil, row.why)
			require.Equal(t, row.asked, asked, row.why)
			look, _ := l.Peek(t.Context(), ratelimit.Request{Client: "c", Rules: []string{"ours"}})
			require.Equal(t, row.left, look.Remaining, row.why)
			stats := l.Stats()[0]
			stats.LiveKeys = 0
			row.stats.Rule = "ours"
			require.Equal(t, row.stats, stats, row.why)
		}
	})
}

// TestStoreGetsUnitsBackFromACustomLimiter proves that a store gets its units back if a custom
// limiter panics, if the caller's context ends, and if the Delay is too long.
func TestStoreGetsUnitsBackFromACustomLimiter(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store := newSettlingStore(t, clock)
	var answer func() ratelimit.Result
	l := newRules(t, beside(algorithms[0], custom(func(ctx context.Context, _ string, _ int) (ratelimit.Result, error) {
		return answer(), ctx.Err()
	}), ""), nil,
		ratelimit.WithStore(store), ratelimit.WithClock(clock))
	req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2}
	answer = func() ratelimit.Result { panic(errFault) }
	require.Panics(t, func() { _, _ = l.Check(t.Context(), req) })
	ctx, cancel := context.WithCancel(t.Context())
	answer = func() ratelimit.Result {
		cancel()
		return yes(7, 6, sec)
	}
	_, err := l.Check(ctx, req)
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithDeadline(t.Context(), time.Now().Add(time.Hour))
	defer cancel()
	answer = func() ratelimit.Result { return delayed(2*time.Hour, yes(7, 6, sec)) }
	_, err = l.Wait(ctx, req)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, 3, store.settled)
	require.Equal(t, 5, peekAt(t, l, "ours", "c").Remaining)

	answer = func() ratelimit.Result { return no(7, 0, minute, minute) }
	_, each, err := l.CheckAll(t.Context(), req, nil)
	require.NoError(t, err)
	require.Equal(t, 5, each[1].Remaining, "a rule that alone would allow has its units")
	answer = func() ratelimit.Result { return yes(7, 6, sec) }
	require.True(t, checked(l.Check(t.Context(), req)).Allowed)
	require.Equal(t, 3, peekAt(t, l, "ours", "c").Remaining)
	require.Equal(t, 4, store.settled, "what is granted is not settled")
	require.NoError(t, l.Reset(t.Context(), req))
}

// TestStoreThatPanicsWhileItGivesUnitsBack proves that nothing is counted and observed if a custom
// limiter denies and the store panics while it gives units back.
func TestStoreThatPanicsWhileItGivesUnitsBack(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, seen := newSettlingStore(t, clock), 0
	l := newRules(t, beside(algorithms[0], answering(no(7, 0, minute, minute), nil), ""), nil, ratelimit.WithStore(store),
		ratelimit.WithFailurePolicy(ratelimit.FailOpen), ratelimit.WithClock(clock),
		ratelimit.WithObserver(observing(func(ratelimit.Decision) { seen++ })))
	store.do(sound, panics)
	require.PanicsWithValue(t, errFault, func() { l.Allow("c", "/e") })
	require.Equal(t, 1, store.settled)
	require.Zero(t, seen)
	for _, stats := range l.Stats() {
		require.Equal(t, ratelimit.RuleStats{Rule: stats.Rule}, stats, "there is no answer")
	}
	require.False(t, l.Allow("c", "/e").Allowed, "nothing is left locked")
}

// A resettable is a custom limiter that has a method Reset.
type resettable struct {
	custom
	keys []string
	err  error
}

func (r *resettable) Reset(key string) error {
	r.keys = append(r.keys, key)
	return r.err
}

// TestResetReachesCustomLimiters proves that Reset calls the Reset of a custom limiter that has
// one, with the key of the rule.
func TestResetReachesCustomLimiters(t *testing.T) {
	limiter := func() *resettable { return &resettable{custom: answering(yes(7, 3, sec), nil)} }
	user, pair, global, plain := limiter(), limiter(), limiter(), answering(yes(7, 3, sec), nil)
	l := newRules(t, []ratelimit.Rule{
		{Endpoint: "/user", Limiter: user},
		{Endpoint: "/pair", Limiter: pair, Key: ratelimit.KeyUserEndpoint},
		{Endpoint: "/global", Limiter: global, Key: ratelimit.KeyGlobal},
		{Endpoint: "/plain", Limiter: plain},
	}, nil)
	for endpoint, want := range map[string]error{"/user": nil, "/pair": nil, "/global": ratelimit.ErrNotReset,
		"/plain": ratelimit.ErrNotReset} {
		require.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: endpoint}), want, endpoint)
	}
	require.Equal(t, []string{"c"}, user.keys)
	require.Equal(t, []string{"1:c/pair"}, pair.keys, "Reset uses the key that Take is called with")
	require.Empty(t, global.keys, "a reset reaches the client's own state only")
	user.err = errFault
	require.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/user"}), errFault)
}

// TestWaitForACustomLimiter proves that Wait waits for a custom limiter, that a refused Wait takes
// nothing and is counted, and that further tries of one Wait are not counted.
func TestWaitForACustomLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := ratelimit.NewFixedWindow(ratelimit.Rate{Requests: 1, Per: 10 * sec})
		require.NoError(t, err)
		l := newRules(t, beside(algorithms[0], inner, ""), nil)
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		require.True(t, l.Allow("c", "/e").Allowed)
		before := peekAt(t, l, "ours", "c")
		wait := inner.Peek("c").RetryAfter
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), wait-1)
		defer cancel()
		_, err = l.Wait(short, req)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, began, time.Now(), "Wait fails at once")
		require.Equal(t, before, peekAt(t, l, "ours", "c"), "nothing is taken")
		res, err := l.Wait(t.Context(), req)
		require.NoError(t, err)
		require.True(t, res.Allowed)
		require.Equal(t, wait, time.Since(began))
		require.Equal(t, []ratelimit.RuleStats{{Rule: "custom", Allowed: 2, Denied: 1}, {Rule: "ours", Allowed: 2, LiveKeys: 1},
			{Rule: "shadow", Allowed: 2, LiveKeys: 1}, {Rule: "watch"}}, l.Stats(), "the refusal is counted once, and asking again is not")
	})
}

// TestWaitForAFailingCustomLimiter proves that Wait returns at once if a custom limiter fails, or
// denies with Never.
func TestWaitForAFailingCustomLimiter(t *testing.T) {
	for _, row := range []struct {
		limiter ratelimit.Limiter
		err     error
		left    int
		why     string
	}{
		{new(ratelimit.TokenBucket), ratelimit.ErrInvalidConfig, 4, "the zero limiter: its policy grants"},
		{answering(ratelimit.Result{}, errFault), errFault, 4, "an error of its own: its policy grants"},
		{answering(ratelimit.Result{}, ratelimit.ErrExceedsLimit), ratelimit.ErrExceedsLimit, 5, "an error that is the caller's"},
		{answering(no(1, 0, ratelimit.Never, 0), nil), ratelimit.ErrExceedsLimit, 5, "a denial for ever"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newRules(t, beside(algorithms[0], row.limiter, ""), nil)
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			defer cancel()
			began := time.Now()
			_, err := l.Wait(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"})
			require.ErrorIs(t, err, row.err, row.why)
			require.Equal(t, began, time.Now(), "%s: Wait returns at once", row.why)
			require.Equal(t, row.left, peekAt(t, l, "ours", "c").Remaining, row.why)
		})
	}
}

// TestWaitForACustomLimiterWithoutRetryAfter proves that Wait tries again after a millisecond if a
// denial has no RetryAfter.
func TestWaitForACustomLimiterWithoutRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := newRules(t, nil, &ratelimit.Rule{Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
			if asked++; asked <= 3 {
				return ratelimit.Result{Limit: 1}, nil
			}
			return yes(1, 0, sec), nil
		})})
		began := time.Now()
		_, err := l.Wait(t.Context(), ratelimit.Request{})
		require.NoError(t, err)
		require.Equal(t, 3*ms, time.Since(began), "a millisecond passes between two calls")
	})
}

// TestWaitForACustomLeakyBucket proves that Wait holds a request for the Delay of a custom leaky
// bucket, and charges nothing if the Delay would end after the deadline.
func TestWaitForACustomLeakyBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leaky := startLeaky(t, 5)
		l := newRules(t, beside(algorithms[0], leaky, ""), nil)
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		spend(t, leaky, "c", 3)
		look, ours := leaky.Peek("c"), peekAt(t, l, "ours", "c")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*sec-1)
		res, err := l.Wait(ctx, req)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded, "the Delay outlasts the deadline")
		require.False(t, res.Allowed)
		require.Equal(t, began, time.Now(), "Wait fails at once")
		require.Equal(t, look, leaky.Peek("c"), "nothing is taken")
		require.Equal(t, ours, peekAt(t, l, "ours", "c"))
		require.Zero(t, l.Stats()[1].Allowed)

		ctx, cancel = context.WithTimeout(t.Context(), 3*sec+1)
		defer cancel()
		res, err = l.Wait(ctx, req)
		require.NoError(t, err)
		require.Zero(t, res.Delay)
		require.Equal(t, 3*sec, time.Since(began), "Wait has waited out the Delay")
	})
}

// TestManyClientsWithACustomLimiter proves that a rule serves many clients at an endpoint that also
// has a custom limiter: the table of keys grows while keys are charged.
func TestManyClientsWithACustomLimiter(t *testing.T) {
	custom, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(5))
	require.NoError(t, err)
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "a", Endpoint: "/a", Rate: ratelimit.PerSecond(5)},
		{Name: "b", Endpoint: "/a", Limiter: custom},
	}, nil)
	require.NoError(t, err)
	for i := range 1000 {
		require.True(t, l.Allow(strconv.Itoa(i), "/a").Allowed, i)
	}
}

// TestCustomLimiterErrorAtTheEndOfTime proves that Wait returns what the failure policy answers to
// an error of a custom limiter, even if the clock is at its last instant.
func TestCustomLimiterErrorAtTheEndOfTime(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	boom := errors.New("boom")
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
		return ratelimit.Result{}, boom
	})}}, nil, ratelimit.WithClock(clock))
	clock.Advance(math.MaxInt64)
	res, err := l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
	require.ErrorIs(t, err, boom)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.Equal(t, by("/e", degraded(unlimited)), res, "its policy, which is FailOpen, has answered")
}

// TestFailLocalAfterACustomLimiterDenies proves that FailLocal does not start from an outdated
// answer of the store after a custom limiter has denied a request.
func TestFailLocalAfterACustomLimiterDenies(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		store, plain := newSettlingStore(t, ratelimit.NewFakeClock(epoch)), ratelimit.Request{Client: "c", Rules: []string{"ours"}}
		var l *ratelimit.RateLimiter
		l = newRules(t, beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
			for range 4 {
				require.True(t, checked(l.Check(t.Context(), plain)).Allowed)
			}
			return no(7, 0, minute, minute), nil
		}), ""), nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		require.False(t, checked(l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})).Allowed)
		store.from(errsBefore)
		granted := 0
		for range 10 {
			if res, _ := l.Check(t.Context(), plain); res.Allowed {
				granted++
			}
		}
		require.LessOrEqual(t, granted, 1, "one of 5 was left")
	})
}

// A revoker is a RateLimiter of the rule "ours" and of a custom limiter that calls during and then
// denies, so that "ours" gets its units back.
type revoker struct {
	*ratelimit.RateLimiter
	clock  *ratelimit.FakeClock
	during func()
	answer ratelimit.Result
}

// newRevoker makes a revoker, whose rule "ours" is ours.
func newRevoker(t *testing.T, ours ratelimit.Rule, opts ...ratelimit.Option) *revoker {
	r := &revoker{clock: ratelimit.NewFakeClock(epoch), answer: no(1, 0, minute, minute)}
	ours.Name = "ours"
	limiter := custom(func(context.Context, string, int) (ratelimit.Result, error) {
		r.during()
		return r.answer, nil
	})
	rules := []ratelimit.Rule{ours, {Name: "custom", Limiter: limiter}}
	r.RateLimiter = newRules(t, rules, nil, append(opts, ratelimit.WithClock(r.clock))...)
	return r
}

// take takes n units by the rule "ours" alone.
func (r *revoker) take(t *testing.T, client string, n int) ratelimit.Result {
	return check(t, r.RateLimiter, ratelimit.Request{Client: client, Rules: []string{"ours"}, Cost: n})
}

// revoked takes n units for the client a by both rules. The custom limiter calls during, and then
// denies.
func (r *revoker) revoked(t *testing.T, n int, during func()) {
	r.during = during
	require.False(t, check(t, r.RateLimiter, ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}, Cost: n}).Allowed)
}

// more takes single units until one is denied, and returns how many were granted.
func (r *revoker) more(t *testing.T, client string) (n int) {
	for r.take(t, client, 1).Allowed {
		n++
	}
	return n
}

// TestGiveBackReturnsOnlyItsOwnCharge proves that a denial by a custom limiter gives back what its
// own request was charged, and nothing else, whatever happened while the limiter decided.
func TestGiveBackReturnsOnlyItsOwnCharge(t *testing.T) {
	t.Run("evicted", func(t *testing.T) {
		r := newRevoker(t, ratelimit.Rule{Rate: ratelimit.PerSecond(1).WithBurst(10)}, ratelimit.WithMaxKeys(1))
		r.revoked(t, 4, func() {
			r.clock.Advance(1)
			require.True(t, r.take(t, "x", 10).Allowed, "of the shared budget")
			r.clock.Advance(4 * sec)
			require.True(t, r.take(t, "b", 1).Allowed, "b has the slot of a now, and owes what x took")
		})
		require.Equal(t, 4, r.more(t, "x"), "4 s after 10 of burst 10 at 1/s")
	})
	t.Run("a lower rate", func(t *testing.T) {
		r := newRevoker(t, ratelimit.Rule{Rate: ratelimit.PerSecond(5)})
		r.revoked(t, 5, func() {
			r.clock.Advance(sec)
			require.True(t, r.take(t, "a", 5).Allowed, "all were back")
			require.NoError(t, r.UpdateRate("ours", ratelimit.PerHour(5)))
		})
		require.Zero(t, r.more(t, "a"), "at the same instant")
	})
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		r := newRevoker(t, ratelimit.Rule{Endpoint: "/a", Algorithm: a.inRules(), Rate: ratelimit.PerHour(8)})
		r.revoked(t, 5, func() {
			require.NoError(t, r.Reset(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/a"}))
			require.True(t, r.take(t, "a", 8).Allowed)
		})
		require.Zero(t, r.more(t, "a"), "8 later units after a Reset")
	})
	t.Run("a place in a queue", func(t *testing.T) {
		r := newRevoker(t, ratelimit.Rule{Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(10)})
		var told ratelimit.Result
		r.revoked(t, 3, func() { told = r.take(t, "a", 2) })
		require.Equal(t, 3*sec, told.Delay)
		next := r.take(t, "a", 1)
		require.Equal(t, 5*sec, next.Delay, "nobody leaves with the two that keep their place")
		require.Equal(t, 7, next.Remaining, "but there is room for three more")
		r.revoked(t, 3, func() {})
		require.Equal(t, 6*sec, r.take(t, "a", 1).Delay, "if nothing came after it, the queue is as if it had not been")
	})
}

// TestGiveBackIsExact proves that a key answers as if the charge that was given back had not been
// made.
func TestGiveBackIsExact(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		rule := ratelimit.Rule{Endpoint: "/a", Algorithm: a.inRules(), Rate: ratelimit.PerMinute(9)}
		r, other := newRevoker(t, rule), newRevoker(t, rule)
		for _, x := range []*revoker{r, other} {
			x.take(t, "a", 2)
			x.clock.Advance(sec)
		}
		r.revoked(t, 3, func() { r.revoked(t, 1, func() {}) })
		require.Equal(t, other.take(t, "a", 1), r.take(t, "a", 1))
		r.revoked(t, 6, func() {})
		require.Equal(t, other.more(t, "a"), r.more(t, "a"))
		stats := func(x *revoker) ratelimit.RuleStats { return x.Stats()[0] }
		require.Equal(t, stats(other), stats(r), "what was given back is not counted as allowed")
	})
}

// TestPanicGivesBack proves that a request is not charged if its custom limiter panics, and is
// charged if it grants.
func TestPanicGivesBack(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		r := newRevoker(t, ratelimit.Rule{Algorithm: a.inRules(), Rate: ratelimit.PerHour(5)})
		both := ratelimit.Request{Client: "a", Rules: []string{"ours", "custom"}, Cost: 2}
		r.during = func() { panic("custom") }
		require.PanicsWithValue(t, "custom", func() { _, _ = r.Check(t.Context(), both) })
		require.Equal(t, 5, check(t, r.RateLimiter, ratelimit.Request{Client: "a", Rules: []string{"ours"}, Cost: 1}).Remaining+1)
		r.during, r.answer = func() {}, yes(9, 9, 0)
		require.True(t, check(t, r.RateLimiter, both).Allowed)
		require.Equal(t, 2, r.more(t, "a"))
	})
}

// TestStoreAnswersAreNotCountedAsOverflow proves that Overflowed counts charges only. Here a rule
// with room for one key cannot remember the store's answers for all keys, and this is not counted.
func TestStoreAnswersAreNotCountedAsOverflow(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	l, err := ratelimit.New(nil, &ratelimit.Rule{Rate: ratelimit.PerHour(10)}, ratelimit.WithStore(store),
		ratelimit.WithName("n"), ratelimit.WithMaxKeys(1), ratelimit.WithClock(clock))
	require.NoError(t, err)
	for i := range 100 {
		require.True(t, l.Allow(fmt.Sprint(i), "/").Allowed)
	}
	require.Equal(t, []ratelimit.RuleStats{{Rule: "default", Allowed: 100, LiveKeys: 1}}, l.Stats())
}
