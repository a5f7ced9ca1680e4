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

// beside returns a rule at "/e" with the custom limiter l, a rule of algorithm a beside
// it, and rules that show what these two have charged.
func beside(a algorithm, l ratelimit.Limiter, mode ratelimit.Mode) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "custom", Endpoint: "/e", Limiter: l, Mode: mode},
		{Name: "ours", Endpoint: "/e", Algorithm: byName[a.name], Rate: ratelimit.PerMinute(5)},
		{Name: "shadow", Endpoint: "/e", Algorithm: byName[a.name], Rate: ratelimit.PerMinute(9), Mode: ratelimit.ModeShadow, Key: ratelimit.KeyGlobal},
		{Name: "watch", Algorithm: byName[a.name], Rate: ratelimit.PerMinute(9), Key: ratelimit.KeyGlobal},
	}
}

// TestCustomLimiterAlone proves that the answer of a custom limiter, asked with the rule's
// key and the request's cost, is the answer of a request that has no other rule.
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
		{no(7, 1, sec, mins), no(7, 1, sec, mins), "a denial"},
		{delayed(sec, yes(7, 3, sec)), delayed(sec, yes(7, 3, sec)), "a Delay"},
		{unlimited, unlimited, "no limit applies"},
		{degraded(yes(7, 3, sec)), degraded(yes(7, 3, sec)), "a failure policy of its own has answered"},
		{yes(7, -5, sec), yes(7, -1, sec), "a negative Remaining means that no limit applies"},
		{by("its own", no(7, 1, ratelimit.Never, mins)), no(7, 1, ratelimit.Never, mins), "the rule's name replaces the limiter's own"},
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

// TestCustomLimiterIsAskedLast proves that a custom limiter is asked only when all other
// rules grant, and that the others get their units back when it denies.
func TestCustomLimiterIsAskedLast(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		asked := 0
		answer := yes(7, 6, sec)
		l := newRules(t, beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
			asked++
			return answer, nil
		}), ""), nil, ratelimit.WithClock(clock))
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
			answer = no(7, 0, mins, mins)
			res := ask(n)
			require.False(t, res.Allowed)
			require.Equal(t, "custom", res.Rule, "it names the longest wait")
			require.Equal(t, mins, res.RetryAfter)
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
	})
}

// TestCustomLimiterThatFails proves what a request gets when a custom limiter returns an
// error, with and without ErrStore, enforcing and in shadow.
func TestCustomLimiterThatFails(t *testing.T) {
	failed := errors.New("no such tenant")
	store := fmt.Errorf("reading: %w", ratelimit.ErrStore)
	granted, refused := degraded(yes(7, 2, sec)), degraded(no(7, 0, sec, sec))
	overAll(t, func(t *testing.T, a algorithm) {
		for _, row := range []struct {
			mode ratelimit.Mode
			res  ratelimit.Result
			err  error
			want ratelimit.Result
			left int // of 5, after a request for 2 and one for 1
			why  string
		}{
			{"", ratelimit.Result{}, failed, ratelimit.Result{}, 3, "the caller gets the error, and the other rules get their units back"},
			{"", granted, store, by("custom", granted), 2, "an error that is ErrStore comes with an answer"},
			{"", refused, store, by("custom", refused), 3, "the answer beside ErrStore may be a denial"},
			{ratelimit.ModeShadow, ratelimit.Result{}, failed, by("ours", yes(5, 2, 0)), 2, "a shadow that fails denies nothing"},
			{ratelimit.ModeShadow, refused, store, by("ours", yes(5, 2, 0)), 2, "a shadow whose policy denies does not deny either"},
			{ratelimit.ModeShadow, granted, store, by("ours", yes(5, 2, 0)), 2, "a shadow whose policy grants changes nothing"},
		} {
			clock := ratelimit.NewFakeClock(epoch)
			answer, problem := yes(7, 3, sec), error(nil)
			l := newRules(t, beside(a, custom(func(context.Context, string, int) (ratelimit.Result, error) {
				return answer, problem
			}), row.mode), nil, ratelimit.WithClock(clock))
			req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2}
			_, err := l.Check(t.Context(), req)
			require.NoError(t, err, row.why)
			before := peekAt(t, l, "ours", "c")
			require.Equal(t, 3, before.Remaining)

			answer, problem = row.res, row.err
			req.Cost = 1
			res, err := l.Check(t.Context(), req)
			require.ErrorIs(t, err, row.err, row.why)
			after := peekAt(t, l, "ours", "c")
			require.Equal(t, row.left, after.Remaining, row.why)
			switch {
			case row.left == 3:
				require.Equal(t, before, after, row.why)
			case row.want.Rule == "ours":
				row.want.ResetAfter = after.ResetAfter
				row.want.Delay = before.Delay
			}
			if row.want.Allowed {
				require.ErrorIs(t, err, ratelimit.ErrStore, "%s: the request is allowed, and the error is there to be logged", row.why)
			}
			if row.want.Rule == "custom" {
				row.want.Remaining = min(row.want.Remaining, after.Remaining)
				res.Delay = 0
			}
			require.Equal(t, row.want, res, row.why)
		}
	})
}

// TestCustomLimiterThatPanics proves that the panic of a custom limiter reaches the caller,
// gives the units of other rules back, and leaves nothing locked.
func TestCustomLimiterThatPanics(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
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

// TestCustomLimiterInShadow proves that a custom limiter in shadow is asked, counted and
// observed, and never changes the answer.
func TestCustomLimiterInShadow(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	answer := no(7, 0, mins, mins)
	var seen []ratelimit.Decision
	l := newRules(t, beside(algorithms[0], custom(func(context.Context, string, int) (ratelimit.Result, error) {
		return answer, nil
	}), ratelimit.ModeShadow), nil, ratelimit.WithClock(clock), ratelimit.WithObserver(observing(func(d ratelimit.Decision) {
		seen = append(seen, d)
	})))
	require.Equal(t, by("ours", yes(5, 4, 12*sec)), l.Allow("c", "/e"), "its denial does not deny the request")
	answer = yes(7, 0, mins)
	require.Equal(t, by("ours", yes(5, 3, 24*sec)), l.Allow("c", "/e"), "its smaller Remaining does not bind")
	require.Equal(t, ratelimit.RuleStats{Rule: "custom", Allowed: 1, ShadowDenied: 1}, l.Stats()[0])
	require.Len(t, seen, 6)
	require.Equal(t, by("custom", no(7, 0, mins, mins)), seen[2].Result, "the observer sees what it would have answered")
	require.Equal(t, ratelimit.SourceLimiter, seen[2].Source)
}

// TestTwoCustomLimiters proves that two custom limiters can never decide one request: rules
// and requests that would need it are refused.
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

// TestCustomLimiterBesideAStore proves that a rule with a custom limiter is refused where
// the other rules are in a store.
func TestCustomLimiterBesideAStore(t *testing.T) {
	store := newFaultyStore(t, nil)
	rule := ratelimit.Rule{Name: "one", Endpoint: "/e", Limiter: answering(yes(7, 3, sec), nil)}
	_, err := ratelimit.New([]ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithName("test"))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	l := newRules(t, nil, nil, ratelimit.WithStore(store))
	require.ErrorIs(t, l.AddRule(rule), ratelimit.ErrInvalidConfig)
	rule.Endpoint = ""
	require.ErrorIs(t, l.SetDefaultRule(rule), ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, l.Replace([]ratelimit.Rule{rule}, nil), ratelimit.ErrInvalidConfig)
	require.Empty(t, l.Stats())
}

// A resettable is a custom limiter that can be reset.
type resettable struct {
	custom
	keys []string
	err  error
}

func (r *resettable) Reset(key string) error {
	r.keys = append(r.keys, key)
	return r.err
}

// TestResetReachesCustomLimiters proves that Reset resets a custom limiter that can be
// reset, under the key of the rule.
func TestResetReachesCustomLimiters(t *testing.T) {
	limiter := func() *resettable { return &resettable{custom: answering(yes(7, 3, sec), nil)} }
	user, pair, global, plain := limiter(), limiter(), limiter(), answering(yes(7, 3, sec), nil)
	l := newRules(t, []ratelimit.Rule{
		{Endpoint: "/user", Limiter: user},
		{Endpoint: "/pair", Limiter: pair, Key: ratelimit.KeyUserEndpoint},
		{Endpoint: "/global", Limiter: global, Key: ratelimit.KeyGlobal},
		{Endpoint: "/plain", Limiter: plain},
	}, nil)
	for _, endpoint := range []string{"/user", "/pair", "/global", "/plain"} {
		require.NoError(t, l.Reset("c", endpoint))
	}
	require.Equal(t, []string{"c"}, user.keys)
	require.Equal(t, []string{"1:c/pair"}, pair.keys, "Reset uses the key that Take is called with")
	require.Empty(t, global.keys, "a reset reaches the client's own state only")
	user.err = errFault
	require.ErrorIs(t, l.Reset("c", "/user"), errFault)
}

// TestWaitForACustomLimiter proves that a RateLimiter's Wait waits for a custom limiter,
// and that failed attempts take and count nothing.
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
		require.Equal(t, []ratelimit.RuleStats{{Rule: "custom", Allowed: 2}, {Rule: "ours", Allowed: 2, LiveKeys: 1},
			{Rule: "shadow", Allowed: 2, LiveKeys: 1}, {Rule: "watch"}}, l.Stats(), "failed attempts are not counted")
	})
}

// TestWaitForACustomLimiterThatDoesNotWork proves that Wait returns at once when a custom
// limiter fails or denies for ever.
func TestWaitForACustomLimiterThatDoesNotWork(t *testing.T) {
	for _, row := range []struct {
		limiter ratelimit.Limiter
		err     error
		why     string
	}{
		{new(ratelimit.TokenBucket), ratelimit.ErrInvalidConfig, "the zero limiter"},
		{answering(ratelimit.Result{}, errFault), errFault, "an error of its own"},
		{answering(no(1, 0, ratelimit.Never, 0), nil), ratelimit.ErrExceedsLimit, "a denial for ever"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newRules(t, beside(algorithms[0], row.limiter, ""), nil)
			ctx, cancel := context.WithTimeout(t.Context(), ms)
			defer cancel()
			began := time.Now()
			_, err := l.Wait(ctx, ratelimit.Request{Client: "c", Endpoint: "/e"})
			require.ErrorIs(t, err, row.err, row.why)
			require.Equal(t, began, time.Now(), "%s: Wait returns at once", row.why)
			require.Equal(t, 5, peekAt(t, l, "ours", "c").Remaining, row.why)
		})
	}
}

// TestWaitForACustomLimiterThatNamesNoTime proves that Wait pauses for a millisecond when a
// denial names no RetryAfter.
func TestWaitForACustomLimiterThatNamesNoTime(t *testing.T) {
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

// TestWaitForACustomLeakyBucket proves that Wait holds a request for the Delay of a custom
// leaky bucket, and charges nothing if the deadline does not allow that.
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

// TestManyClientsBesideACustomLimiter proves that a rule of this package beside a custom limiter
// serves many clients: their states make the table of keys grow while they are charged.
func TestManyClientsBesideACustomLimiter(t *testing.T) {
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

// TestACustomLimitersErrorAtTheEndOfTheClock proves that Wait returns the error of a custom
// limiter as it is, also where the clock cannot move on.
func TestACustomLimitersErrorAtTheEndOfTheClock(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	boom := errors.New("boom")
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Limiter: custom(func(context.Context, string, int) (ratelimit.Result, error) {
		return ratelimit.Result{}, boom
	})}}, nil, ratelimit.WithClock(clock))
	clock.Advance(math.MaxInt64)
	res, err := l.Wait(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
	require.Equal(t, boom, err)
	require.Zero(t, res)
}
