package ratelimit_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestSearchTrace compares whole Results of a token bucket rule and of the default rule.
func TestSearchTrace(t *testing.T) {
	search := ratelimit.Rule{Endpoint: "/search", Rate: ratelimit.PerSecond(1).WithBurst(10)}
	l, clock := rules(t, []ratelimit.Rule{search}, &ratelimit.Rule{Rate: ratelimit.PerMinute(2)})
	require.Equal(t, by("/search", yes(10, 9, sec)), l.Allow("ann", "/search"))
	clock.Advance(500 * ms)
	require.Equal(t, by("/search", yes(10, 8, 1500*ms)), l.Allow("ann", "/search"))
	require.Equal(t, by("default", yes(2, 1, 30*sec)), l.Allow("ann", "/other"), "the default rule decides for an endpoint without a rule")
	require.Equal(t, by("default", yes(2, 0, minute)), l.Allow("ann", "/another"), "a rule by user counts all the endpoints it decides for")
	require.Equal(t, by("default", no(2, 0, 30*sec, minute)), l.Allow("ann", "/other"))
	require.Equal(t, by("default", yes(2, 1, 30*sec)), l.Allow("bob", "/other"))
}

// TestLoginTrace compares whole Results of a fixed window by user and endpoint.
func TestLoginTrace(t *testing.T) {
	login := ratelimit.Rule{
		Endpoint: "/login", Key: ratelimit.KeyUserEndpoint,
		Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(3),
	}
	l, clock := rules(t, []ratelimit.Rule{login}, nil)
	for left := 2; left >= 0; left-- {
		require.Equal(t, by("/login", yes(3, left, minute)), l.Allow("ann", "/login"))
	}
	clock.Advance(20 * sec)
	require.Equal(t, by("/login", no(3, 0, 40*sec, 40*sec)), l.Allow("ann", "/login"), "the fourth attempt within a minute")
	require.Equal(t, by("/login", yes(3, 2, 40*sec)), l.Allow("bob", "/login"), "another user is not affected")
	require.Equal(t, unlimited, l.Allow("ann", "/home"), "without a default rule, other endpoints pass")
}

// TestTwoRules proves that a request with two rules is charged to both or to neither, and gets the
// answer of the binding rule.
func TestTwoRules(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  ratelimit.KeyType
		second ratelimit.KeyType
		other  ratelimit.Request // shares the second rule's key with ann, and not the first one's
	}{
		{"user and endpoint", ratelimit.KeyUser, ratelimit.KeyEndpoint, ratelimit.Request{Client: "bob", Endpoint: "/"}},
		{"user and global", ratelimit.KeyUser, ratelimit.KeyGlobal, ratelimit.Request{Client: "bob", Endpoint: "/"}},
		{"user and IP", ratelimit.KeyUser, ratelimit.KeyIP, ratelimit.Request{Client: "bob", Endpoint: "/", IP: "192.0.2.1"}},
		{"IP and user", ratelimit.KeyIP, ratelimit.KeyUser, ratelimit.Request{Client: "ann", Endpoint: "/", IP: "192.0.2.9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, clock := rules(t, []ratelimit.Rule{
				{Name: "first", Endpoint: "/", Key: tt.first, Rate: ratelimit.PerSecond(1).WithBurst(3)},
				{Name: "second", Endpoint: "/", Key: tt.second, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerMinute(2)},
			}, nil)
			ann := ratelimit.Request{Client: "ann", Endpoint: "/", IP: "192.0.2.1"}
			one := func(name string) ratelimit.Request {
				r := ann
				r.Rules = []string{name}
				return r
			}
			require.Equal(t, by("second", yes(2, 1, minute)), check(t, l, ann), "the second leaves less")
			require.Equal(t, by("second", yes(2, 0, minute)), check(t, l, tt.other))

			before := peek(t, l, one("first"))
			require.Equal(t, by("first", yes(3, 2, sec)), before)
			require.Equal(t, by("second", no(2, 0, minute, minute)), check(t, l, ann), "the second denies")
			require.Equal(t, before, peek(t, l, one("first")), "the first is not charged")

			require.Equal(t, 0, check(t, l, ratelimit.Request{Client: "ann", IP: "192.0.2.1", Endpoint: "/", Rules: []string{"first"},
				Cost: 2}).Remaining)
			require.Equal(t, by("second", no(2, 0, minute, minute)), check(t, l, ann), "both deny: the answer has the longer wait")
			clock.Advance(minute)
			require.Equal(t, by("second", yes(2, 1, minute)), check(t, l, ann), "after exactly that wait, both grant")
		})
	}
}

// TestRefusedRequests proves which requests are refused with an error, and that these take
// nothing.
func TestRefusedRequests(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(5)}}, nil)
	res, err := l.Check(t.Context(), ratelimit.Request{Client: "ann", Endpoint: "/", Cost: -1})
	assert.ErrorIs(t, err, ratelimit.ErrInvalidCount)
	assert.Zero(t, res)
	res, err = l.Peek(t.Context(), ratelimit.Request{Client: "ann", Endpoint: "/", Cost: -1})
	assert.ErrorIs(t, err, ratelimit.ErrInvalidCount)
	assert.Zero(t, res)
	for _, ask := range []func(*ratelimit.RateLimiter) error{
		func(l *ratelimit.RateLimiter) error {
			_, err := l.Check(t.Context(), ratelimit.Request{Client: "ann", Rules: []string{"/", "no such"}})
			return err
		},
		func(l *ratelimit.RateLimiter) error {
			_, err := l.Peek(t.Context(), ratelimit.Request{Client: "ann", Rules: []string{"no such"}})
			return err
		},
		func(l *ratelimit.RateLimiter) error {
			_, err := l.Wait(t.Context(), ratelimit.Request{Client: "ann", Rules: []string{"no such"}})
			return err
		},
	} {
		err := ask(l)
		assert.ErrorIs(t, err, ratelimit.ErrUnknownRule)
		assert.EqualError(t, err, `ratelimit: unknown rule "no such"`)
	}
	res, err = l.Check(canceled(), ratelimit.Request{Client: "ann", Endpoint: "/"})
	assert.ErrorIs(t, err, canceled().Err())
	assert.Zero(t, res)
	//lint:ignore SA1012 a nil context never ends
	res, err = l.Check(nil, ratelimit.Request{Client: "ann", Endpoint: "/"}) //nolint:staticcheck // as said
	assert.NoError(t, err)
	assert.Equal(t, by("/", yes(5, 4, 12*minute)), res, "the refused calls took nothing")
}

// TestCosts proves that each rule of a request is charged its cost once.
func TestCosts(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{
		{Name: "small", Endpoint: "/", Rate: ratelimit.PerHour(5)},
		{Name: "large", Endpoint: "/", Rate: ratelimit.PerHour(10)},
	}, nil)
	req := ratelimit.Request{Client: "ann", Endpoint: "/"}
	req.Cost = 6
	require.Equal(t, by("small", no(5, 5, ratelimit.Never, 0)), check(t, l, req), "more than one of the rules ever grants")
	req.Cost = 4
	require.Equal(t, by("small", yes(5, 1, 48*minute)), check(t, l, req))
	require.Equal(t, by("small", yes(5, 1, 48*minute)), peek(t, l, req), "a look is for one unit")
	require.Equal(t, by("small", no(5, 1, 36*minute, 48*minute)), check(t, l, req))
	req.Rules = []string{"large", "large"}
	require.Equal(t, by("large", yes(10, 2, 48*minute)), check(t, l, req), "a rule that is listed twice is charged once")
}

// TestBindingRule proves that the first of two rules binds if they leave equally little.
func TestBindingRule(t *testing.T) {
	named := func(name string, r ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: "/", Rate: r}
	}
	l, _ := rules(t, []ratelimit.Rule{named("a", ratelimit.PerHour(2)), named("b", ratelimit.PerHour(2))}, nil)
	require.Equal(t, by("a", yes(2, 1, 30*minute)), l.Allow("ann", "/"))
	require.Equal(t, by("a", yes(2, 0, time.Hour)), l.Allow("ann", "/"))
	require.Equal(t, by("a", no(2, 0, 30*minute, time.Hour)), l.Allow("ann", "/"))

	require.NoError(t, l.Replace([]ratelimit.Rule{named("b", ratelimit.PerHour(2)), named("a", ratelimit.PerHour(2))}, nil))
	require.Equal(t, by("b", no(2, 0, 30*minute, time.Hour)), l.Allow("ann", "/"),
		"the order of the rules decides, not that in which they were made")
	res := check(t, l, ratelimit.Request{Client: "ann", Rules: []string{"a", "b"}})
	require.Equal(t, "b", res.Rule, "the order in the request does not matter")
}

// TestZeroRateLimiter proves that the zero RateLimiter allows everything and refuses
// changes.
func TestZeroRateLimiter(t *testing.T) {
	var l ratelimit.RateLimiter
	assert.Equal(t, unlimited, l.Allow("ann", "/"))
	assert.Equal(t, unlimited, check(t, &l, ratelimit.Request{Client: "ann", Cost: 1000}))
	assert.Equal(t, unlimited, peek(t, &l, ratelimit.Request{}))
	res, err := l.Wait(t.Context(), ratelimit.Request{Client: "ann"})
	assert.NoError(t, err)
	assert.Equal(t, unlimited, res)
	assert.Empty(t, l.Stats())
	assert.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "ann", Endpoint: "/"}), ratelimit.ErrNotReset)
	listed, listedDefault := l.Rules()
	assert.Empty(t, listed)
	assert.Nil(t, listedDefault)
	res, each, err := l.CheckAll(t.Context(), ratelimit.Request{Client: "ann"}, nil)
	assert.NoError(t, err)
	assert.Equal(t, unlimited, res)
	assert.Empty(t, each)
	rule := ratelimit.Rule{Endpoint: "/", Rate: ratelimit.PerHour(1)}
	for name, change := range map[string]func() error{
		"AddRule":        func() error { return l.AddRule(rule) },
		"RemoveRule":     func() error { return l.RemoveRule("/") },
		"SetDefaultRule": func() error { return l.SetDefaultRule(ratelimit.Rule{Rate: rule.Rate}) },
		"UpdateRate":     func() error { return l.UpdateRate("/", rule.Rate) },
		"SetRule":        func() error { return l.SetRule(rule) },
		"SetConfig":      func() error { return l.SetConfig(config("/", "1/h")) },
		"Replace":        func() error { return l.Replace([]ratelimit.Rule{rule}, nil) },
		"Reload": func() error {
			return l.Reload(nil, map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "1/s"}})
		},
	} {
		assert.ErrorIs(t, change(), ratelimit.ErrInvalidConfig, name)
	}
	nothing, err := ratelimit.New(nil, nil)
	require.NoError(t, err)
	assert.Equal(t, unlimited, nothing.Allow("ann", "/"))
	assert.NoError(t, nothing.AddRule(rule), "a RateLimiter without rules can be changed")
}

// checkAll calls l.CheckAll, which must not return an error.
func checkAll(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) (ratelimit.Result, []ratelimit.Result) {
	t.Helper()
	res, each, err := l.CheckAll(t.Context(), req, nil)
	require.NoError(t, err)
	return res, each
}

// threeRules are three rules that enforce, and a shadow rule, which all apply to /e.
var threeRules = []ratelimit.Rule{
	{Name: "wide", Endpoint: "/e", Rate: ratelimit.PerHour(10)},
	{Name: "watch", Endpoint: "/e", Rate: ratelimit.PerHour(1), Mode: ratelimit.ModeShadow},
	{Name: "tight", Endpoint: "/e", Rate: ratelimit.PerHour(2), Key: ratelimit.KeyGlobal},
	{Name: "all", Endpoint: "*", Rate: ratelimit.PerHour(4), Additional: true, Key: ratelimit.KeyGlobal},
}

// TestCheckAll proves that CheckAll answers as Check does, and appends the answer of each enforcing
// rule in the order of the rules, in memory and in a store.
func TestCheckAll(t *testing.T) {
	hour := time.Hour
	for _, stored := range []bool{false, true} {
		clock := ratelimit.NewFakeClock(epoch)
		opts := []ratelimit.Option{ratelimit.WithClock(clock)}
		if stored {
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("shop"))
		}
		l := newRules(t, threeRules[:1], nil, opts...)
		require.NoError(t, l.Replace([]ratelimit.Rule{threeRules[3], threeRules[2], threeRules[1], threeRules[0]},
			&ratelimit.Rule{Rate: ratelimit.PerHour(5)}))
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		for _, row := range []struct {
			cost int
			want ratelimit.Result
			each []ratelimit.Result
			why  string
		}{
			{2, by("tight", yes(2, 0, hour)), []ratelimit.Result{
				by("all", yes(4, 2, hour/2)), by("tight", yes(2, 0, hour)), by("wide", yes(10, 8, 12*minute)),
			}, "granted: each is charged"},
			{1, by("tight", no(2, 0, 30*minute, hour)), []ratelimit.Result{
				by("all", yes(4, 2, hour/2)), by("tight", no(2, 0, 30*minute, hour)), by("wide", yes(10, 8, 12*minute)),
			}, "denied: the others would grant it, and have what they had"},
			{3, by("tight", no(2, 0, ratelimit.Never, hour)), []ratelimit.Result{
				by("all", no(4, 2, 15*minute, hour/2)), by("tight", no(2, 0, ratelimit.Never, hour)), by("wide", yes(10, 8, 12*minute)),
			}, "denied by two"},
		} {
			req.Cost = row.cost
			res, each := checkAll(t, l, req)
			require.Equal(t, row.want, res, row.why)
			require.Equal(t, row.each, each, "%s, stored: %v", row.why, stored)
		}
		res, each := checkAll(t, l, ratelimit.Request{Client: "c", Endpoint: "/x"})
		require.Equal(t, by("all", yes(4, 1, 45*minute)), res)
		require.Equal(t, []ratelimit.Result{by("all", yes(4, 1, 45*minute)), by("default", yes(5, 4, 12*minute))}, each,
			"the default rule comes last")

		given := []ratelimit.Result{by("mine", no(1, 1, 1, 1))}
		for _, bad := range []ratelimit.Request{{Cost: -1}, {Rules: []string{"no such"}}} {
			res, each, err := l.CheckAll(t.Context(), bad, given)
			require.Error(t, err)
			require.Zero(t, res)
			require.Equal(t, given, each, "nothing was decided")
		}
		res, each, err := l.CheckAll(canceled(), req, given)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, res)
		require.Equal(t, given, each)
		_, each, err = l.CheckAll(t.Context(), req, given)
		require.NoError(t, err)
		require.Equal(t, given[0], each[0], "it appends")
		require.Len(t, each, 4)
	}
	exempting := threeRules[2]
	exempting.Tiers = map[string]ratelimit.Rate{"staff": ratelimit.Unlimited}
	l := newRules(t, []ratelimit.Rule{exempting, threeRules[0]}, nil)
	_, each := checkAll(t, l, ratelimit.Request{Client: "c", Endpoint: "/e", Tier: "staff", Cost: 10})
	require.Equal(t, []ratelimit.Result{by("tight", unlimited), by("wide", yes(10, 0, hour))}, each, "a rule that does not limit the request")
	l = newRules(t, threeRules[1:2], nil)
	res, each := checkAll(t, l, ratelimit.Request{Client: "c", Endpoint: "/e"})
	require.Equal(t, unlimited, res)
	require.Empty(t, each, "a shadow rule has no part in it")
}

// TestCheckAllAnswersAsCheck proves that CheckAll charges and answers as Check does, and that each
// appended Result is what its rule alone would answer.
func TestCheckAllAnswersAsCheck(t *testing.T) {
	overTwins(t, func(t *testing.T, one, two *ratelimit.RateLimiter, req ratelimit.Request) bool {
		_, before := checkAll(t, two, ratelimit.Request{Client: req.Client, Endpoint: req.Endpoint, Cost: 1000})
		want := check(t, one, req)
		res, each := checkAll(t, two, req)
		require.Equal(t, want, res)
		require.Len(t, each, len(before))
		least := math.MaxInt
		for i, r := range each {
			left := before[i].Remaining
			if res.Allowed {
				left -= req.Cost
			}
			require.Equal(t, left, r.Remaining)
			require.Equal(t, res.Allowed || left >= req.Cost, r.Allowed)
			least = min(least, left)
		}
		require.Equal(t, least, res.Remaining)
		return res.Allowed
	})
}

// overTwins runs test with two equal RateLimiters of threeRules for each algorithm. It calls test
// for 300 requests, and advances both clocks in between. test returns whether the request was
// granted; more than 20 must be denied.
func overTwins(t *testing.T, test func(t *testing.T, one, two *ratelimit.RateLimiter, req ratelimit.Request) (granted bool)) {
	t.Helper()
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		rules := make([]ratelimit.Rule, len(threeRules))
		for i, r := range threeRules {
			r.Algorithm = a.inRules()
			rules[i] = r
		}
		one, oneClock := buildRules(t, rules)
		two, twoClock := buildRules(t, rules)
		denials := 0
		for i := range 300 {
			oneClock.Advance(time.Duration(i%7) * minute)
			twoClock.Advance(time.Duration(i%7) * minute)
			if !test(t, one, two, ratelimit.Request{Client: fmt.Sprint(i % 3), Endpoint: []string{"/e", "/x"}[i%5/4], Cost: i%4 + 1}) {
				denials++
			}
		}
		require.Greater(t, denials, 20)
	})
}

// buildRules makes a RateLimiter on a FakeClock, and returns both.
func buildRules(t *testing.T, rs []ratelimit.Rule) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	t.Helper()
	return rules(t, rs, nil)
}

// TestCheckAllWhileTheStoreFails proves that a Result which a failure policy gave is marked as
// degraded.
func TestCheckAllWhileTheStoreFails(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store := newFaultyStore(t, clock)
	store.from(errsBefore)
	l := newRules(t, []ratelimit.Rule{
		{Name: "open", Endpoint: "/e", Rate: ratelimit.PerHour(5), OnStoreError: ratelimit.FailOpen},
		{Name: "local", Endpoint: "/e", Rate: ratelimit.PerHour(5), OnStoreError: ratelimit.FailLocal(5)},
		{Name: "closed", Rate: ratelimit.PerHour(5), OnStoreError: ratelimit.FailClosed},
	}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("shop"))
	req := ratelimit.Request{Client: "c", Endpoint: "/e"}
	res, each, err := l.CheckAll(t.Context(), req, nil)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.Equal(t, by("local", degraded(yes(1, 0, time.Hour))), res)
	require.Equal(t, []ratelimit.Result{by("open", degraded(unlimited)), by("local", degraded(yes(1, 0, time.Hour)))}, each)
	req.Rules = []string{"closed", "open"}
	res, each, err = l.CheckAll(t.Context(), req, nil)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.Equal(t, by("closed", degraded(no(5, 0, sec, sec))), res)
	require.Equal(t, []ratelimit.Result{by("open", degraded(unlimited)), by("closed", degraded(no(5, 0, sec, sec)))}, each)
}

// TestCheckAllWithACustomLimiter proves that a custom limiter is not charged if another rule denies
// the request, and that its own denial does not charge the other rules.
func TestCheckAllWithACustomLimiter(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		var asked []int
		answer, problem := yes(7, 3, sec), error(nil)
		l := newRules(t, beside(a, custom(func(_ context.Context, _ string, n int) (ratelimit.Result, error) {
			asked = append(asked, n)
			return answer, problem
		}), ""), nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		req := ratelimit.Request{Client: "c", Endpoint: "/e", Cost: 2}
		_, each := checkAll(t, l, req)
		require.Equal(t, []int{2}, asked)
		require.Equal(t, by("custom", yes(7, 3, sec)), each[0])
		require.Equal(t, 3, each[1].Remaining)
		ours := peekAt(t, l, "ours", "c")

		answer = no(7, 1, minute, minute)
		res, each := checkAll(t, l, req)
		require.Equal(t, "custom", res.Rule)
		require.Equal(t, by("custom", answer), each[0])
		require.True(t, each[1].Allowed)
		require.Equal(t, ours.Remaining, each[1].Remaining, "what was given back is there again")
		require.Equal(t, ours, peekAt(t, l, "ours", "c"))

		asked, answer = nil, yes(7, 4, sec)
		req.Cost = 4
		res, each = checkAll(t, l, req)
		require.Equal(t, []int{0}, asked, "it is looked at")
		require.Equal(t, "ours", res.Rule)
		require.Equal(t, 3, res.Remaining, "the look has no part in the answer")
		require.Equal(t, by("custom", yes(7, 4, sec)), each[0])
		require.False(t, each[1].Allowed)

		problem = errFault
		res, each, err := l.CheckAll(t.Context(), req, nil)
		require.NoError(t, err, "the answer is that of Check")
		require.False(t, res.Degraded)
		require.Equal(t, by("custom", degraded(unlimited)), each[0], "its policy answers")
		require.EqualValues(t, 1, l.Stats()[0].Errors, "and the error is counted")

		for i, kind := range []error{ratelimit.ErrInvalidCount, ratelimit.ErrExceedsLimit} {
			problem = kind
			_, each, err = l.CheckAll(nil, req, nil) //nolint:staticcheck // a nil context is never over
			require.NoError(t, err, kind.Error())
			require.Equal(t, by("custom", degraded(unlimited)), each[0], kind)
			require.EqualValues(t, 2+i, l.Stats()[0].Errors, kind)
		}
		ctx, leave := context.WithCancel(t.Context())
		l = newRules(t, beside(a, custom(func(ctx context.Context, _ string, _ int) (ratelimit.Result, error) {
			leave()
			return ratelimit.Result{}, ctx.Err()
		}), ""), nil)
		req.Cost = 6
		_, each, err = l.CheckAll(ctx, req, nil)
		require.NoError(t, err)
		require.Equal(t, by("custom", degraded(unlimited)), each[0], "the caller has left during the look")
		require.Zero(t, l.Stats()[0].Errors, "which is no failure")
	})
}

// TestCheckAllWhileOthersWait proves that CheckAll appends an unlimited Result for a rule of which
// the store was not asked, because other callers wait for another rule of the request.
func TestCheckAllWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, []ratelimit.Rule{
			{Name: "many", Endpoint: "/e", Rate: ratelimit.PerMinute(100)},
			{Name: "one", Endpoint: "/e", Rate: ratelimit.PerMinute(1)},
		}, nil, ratelimit.WithStore(must(ratelimit.NewMemoryStore())), ratelimit.WithName("n"))
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		require.True(t, l.Allow("c", "/e").Allowed)
		w := startRuleWait(t.Context(), l, req)
		synctest.Wait()
		res, each := checkAll(t, l, req)
		require.Equal(t, by("one", no(1, 0, 2*minute, 2*minute)), res)
		require.Equal(t, []ratelimit.Result{by("many", unlimited), res}, each)
		advanceMachine(minute)
		synctest.Wait()
		require.True(t, w.returned())
	})
}

// TestCheckAllAllocatesNothing proves that CheckAll does not allocate if the slice has room for the
// Results.
func TestCheckAllAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes calls allocate")
	}
	l := newRules(t, threeRules, nil)
	each := make([]ratelimit.Result, 0, 4)
	ctx, req := t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"}
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		_, each, _ = l.CheckAll(ctx, req, each[:0])
	}))
	require.Len(t, each, 3)
}

// resetRules returns rules with each kind of key.
func resetRules(a ratelimit.Algorithm) []ratelimit.Rule {
	hour := ratelimit.PerHour(2)
	return []ratelimit.Rule{
		{Name: "user", Endpoint: "/e", Algorithm: a, Rate: hour},
		{Name: "pair", Endpoint: "/e", Algorithm: a, Rate: hour, Key: ratelimit.KeyUserEndpoint},
		{Name: "ip", Endpoint: "/e", Algorithm: a, Rate: hour, Key: ratelimit.KeyIP},
		{Name: "tenant", Endpoint: "/e", Algorithm: a, Rate: hour, Key: ratelimit.KeyAttr("tenant")},
		{Name: "tenant+user", Endpoint: "/e", Algorithm: a, Rate: hour, Key: ratelimit.KeyOf(ratelimit.KeyAttr("tenant"), ratelimit.KeyUser)},
		{Name: "endpoint", Endpoint: "/e", Algorithm: a, Rate: hour, Key: ratelimit.KeyEndpoint},
		{Name: "global", Endpoint: "/e", Algorithm: a, Rate: hour, Key: ratelimit.KeyGlobal},
		{Name: "shadow", Endpoint: "/e", Algorithm: a, Rate: hour, Mode: ratelimit.ModeShadow},
		{Name: "other", Endpoint: "/o", Algorithm: a, Rate: hour},
		{Name: "named", Algorithm: a, Rate: hour},
		{Name: "beside", Endpoint: "*", Algorithm: a, Rate: hour, Key: ratelimit.KeyIP, Additional: true},
		{Name: "prefix", Endpoint: "/api/*", Algorithm: a, Rate: hour, Key: ratelimit.KeyUserEndpoint},
	}
}

// TestResetRequest proves which keys a Reset clears, in memory and in a store.
func TestResetRequest(t *testing.T) {
	type request = ratelimit.Request
	tenant := map[string]string{"tenant": "t"}
	full := request{Client: "c", IP: "i", Attrs: tenant}
	for _, row := range []struct {
		req  request
		want []string // rules whose keys are reset
		err  error
		why  string
	}{
		{request{Client: "c", Endpoint: "/e"}, []string{"user", "pair", "shadow"}, nil, "the client's own, for an endpoint"},
		{request{IP: "i", Endpoint: "/e"}, []string{"ip", "beside"}, nil, "those by address, and one that applies beside"},
		{request{Attrs: tenant, Endpoint: "/e"}, []string{"tenant"}, nil, "those by an attribute"},
		{request{Client: "c", Attrs: tenant, Endpoint: "/e"}, []string{"user", "pair", "tenant", "tenant+user", "shadow"}, nil,
			"and those by both"},
		{request{Client: "c", IP: "i", Attrs: tenant, Endpoint: "/e"}, []string{"user", "pair", "ip", "tenant", "tenant+user", "shadow",
			"beside"}, nil, "all that are the sender's own"},
		{request{Client: "c", Endpoint: "/o"}, []string{"other"}, nil, "another endpoint"},
		{request{Client: "c", Endpoint: "/x"}, []string{"default"}, nil, "the default rule"},
		{request{Client: "c", Endpoint: "/api/x"}, []string{"prefix"}, nil, "a prefix"},
		{request{Client: "c", Endpoint: "/api/*"}, nil, nil, "the text of a prefix is an endpoint: its key was never used"},
		{request{Client: "c"}, []string{"user", "shadow", "other", "named", "default"}, nil, "the client everywhere"},
		{request{IP: "i"}, []string{"ip", "beside"}, nil, "the address everywhere"},
		{full, []string{"user", "ip", "tenant", "tenant+user", "shadow", "other", "named", "beside", "default"}, nil, "all of it everywhere"},
		{request{Client: "c", Rules: []string{"named", "user"}}, []string{"user", "named"}, nil, "named rules"},
		{request{Rules: []string{"global"}}, []string{"global"}, nil, "a shared budget, where it is named"},
		{request{Rules: []string{"endpoint"}, Endpoint: "/e"}, []string{"endpoint"}, nil, "one of an endpoint"},
		{request{Client: "c", Rules: []string{"endpoint", "user", "ip"}}, []string{"user"}, nil,
			"rules that need what the request lacks are skipped"},
		{request{Client: "c", Rules: []string{"pair"}}, nil, ratelimit.ErrNotReset, "a pair without an endpoint"},
		{request{Rules: []string{"named"}}, nil, ratelimit.ErrNotReset, "a client's rule without a client"},
		{request{Endpoint: "/e"}, nil, ratelimit.ErrNotReset, "shared budgets that are not named"},
		{request{}, nil, ratelimit.ErrNotReset, "nothing is given"},
		{request{Tier: "paid"}, nil, ratelimit.ErrNotReset, "a tier is no part of a key"},
		{request{Attrs: map[string]string{"region": "t"}}, nil, ratelimit.ErrNotReset, "another attribute"},
		{request{Client: "c", Rules: []string{"no such", "user"}}, nil, ratelimit.ErrUnknownRule, "a rule that does not exist"},
		{request{Client: "never seen"}, nil, nil, "a key that was never used"},
	} {
		for _, stored := range []bool{false, true} {
			clock := ratelimit.NewFakeClock(epoch)
			opts := []ratelimit.Option{ratelimit.WithClock(clock)}
			if stored {
				opts = append(opts, ratelimit.WithStore(newFaultyStore(t, clock)), ratelimit.WithName("shop"))
			}
			l := newRules(t, resetRules(""), &ratelimit.Rule{Rate: ratelimit.PerHour(2)}, opts...)
			spend := func(req request) {
				req.Client, req.IP, req.Attrs = full.Client, full.IP, full.Attrs
				require.True(t, check(t, l, req).Allowed)
			}
			spend(request{Endpoint: "/e", Rules: []string{"user", "pair", "ip", "tenant", "tenant+user", "endpoint", "global", "shadow", "other",
				"named", "default"}})
			spend(request{Endpoint: "/api/x", Rules: []string{"prefix"}})
			before := leftOfEach(t, l)
			require.Len(t, before, 13)
			require.ErrorIs(t, l.Reset(t.Context(), row.req), row.err, row.why)
			after := leftOfEach(t, l)
			var renewed []string
			for _, name := range names(l) {
				if after[name] != before[name] {
					renewed = append(renewed, name)
					require.Equal(t, 2, after[name], "%s: %s", row.why, name)
				}
			}
			require.Equal(t, row.want, renewed, "%s, stored: %v", row.why, stored)
		}
	}
}

// leftOfEach returns how many units each of resetRules has left for the client c.
func leftOfEach(t *testing.T, l *ratelimit.RateLimiter) map[string]int {
	t.Helper()
	enforcing := resetRules("")[7]
	shadow := enforcing
	enforcing.Mode = ""
	require.NoError(t, l.SetRule(enforcing), "it keeps its keys, and can be looked at")
	left := make(map[string]int)
	for _, name := range names(l) {
		req := ratelimit.Request{Client: "c", IP: "i", Attrs: map[string]string{"tenant": "t"}, Endpoint: "/e", Rules: []string{name}, Cost: 3}
		if name == "prefix" {
			req.Endpoint = "/api/x"
		}
		_, each := checkAll(t, l, req) // it is denied, and takes nothing
		for _, res := range each {
			left[res.Rule] = res.Remaining
		}
	}
	require.NoError(t, l.SetRule(shadow))
	return left
}

// TestResetThatFails proves that Reset returns ErrNotReset if it could not clear a key, and that it
// clears the other keys all the same.
func TestResetThatFails(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a algorithm) {
		for _, stored := range []bool{false, true} {
			clock := ratelimit.NewFakeClock(epoch)
			opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1)}
			if stored {
				store, err := ratelimit.NewMemoryStore(opts...)
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("shop"))
			}
			l := newRules(t, []ratelimit.Rule{
				{Name: "user", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerHour(2)},
				{Name: "pair", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerHour(2), Key: ratelimit.KeyUserEndpoint},
				{Name: "ip", Endpoint: "/e", Algorithm: a.inRules(), Rate: ratelimit.PerHour(3), Key: ratelimit.KeyIP},
			}, nil, opts...)
			ask := func(client string) ratelimit.Result {
				return check(t, l, ratelimit.Request{Client: client, IP: "i", Endpoint: "/e"})
			}
			require.True(t, ask("first").Allowed)
			require.True(t, ask("second").Allowed)
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "third", Endpoint: "/e"}), "a key without a state that has units left")
			require.True(t, ask("third").Allowed)
			require.False(t, ask("second").Allowed)
			err := l.Reset(t.Context(), ratelimit.Request{Client: "second", IP: "i", Endpoint: "/e"})
			require.ErrorIs(t, err, ratelimit.ErrNotReset, "the debt that it shares denies it")
			require.NotErrorIs(t, err, ratelimit.ErrStore)
			require.ErrorContains(t, err, "user")
			require.ErrorContains(t, err, "pair")
			require.Equal(t, 3, peek(t, l, ratelimit.Request{IP: "i", Rules: []string{"ip"}}).Remaining, "its other key is reset")
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "first", Endpoint: "/e"}), "a key with a state")
		}
	})
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.PerHour(1)}}, nil)
	require.ErrorIs(t, l.Reset(canceled(), ratelimit.Request{Client: "c", Endpoint: "/e"}), context.Canceled)
	require.NoError(t, l.Reset(nil, ratelimit.Request{Client: "c", Endpoint: "/e"})) //nolint:staticcheck // a nil context is what is tested
	require.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/none"}), ratelimit.ErrNotReset, "no rule applies")
}

// TestResetClient proves that Reset clears the state of one client, and no state that the client
// shares with others.
func TestResetClient(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{
		{Name: "user", Endpoint: "/", Rate: ratelimit.PerHour(5)},
		{Name: "both", Endpoint: "/", Key: ratelimit.KeyUserEndpoint, Rate: ratelimit.PerHour(5)},
		{Name: "endpoint", Endpoint: "/", Key: ratelimit.KeyEndpoint, Rate: ratelimit.PerHour(5)},
		{Name: "ip", Endpoint: "/", Key: ratelimit.KeyIP, Rate: ratelimit.PerHour(5)},
		{Name: "global", Endpoint: "/", Key: ratelimit.KeyGlobal, Rate: ratelimit.PerHour(5)},
		{Name: "elsewhere", Endpoint: "/b", Rate: ratelimit.PerHour(5)},
	}, nil)
	l.Allow("ann", "/")
	l.Allow("bob", "/")
	l.Allow("ann", "/b")
	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "ann", Endpoint: "/"}))
	left := func(client, endpoint, rule string) int {
		return peek(t, l, ratelimit.Request{Client: client, Endpoint: endpoint, Rules: []string{rule}}).Remaining
	}
	assert.Equal(t, 5, left("ann", "/", "user"))
	assert.Equal(t, 5, left("ann", "/", "both"))
	assert.Equal(t, 4, left("bob", "/", "user"))
	assert.Equal(t, 4, left("bob", "/", "both"))
	assert.Equal(t, 3, left("ann", "/", "endpoint"), "a budget that clients share is not reset")
	assert.Equal(t, 3, left("ann", "/", "ip"))
	assert.Equal(t, 3, left("ann", "/", "global"))
	assert.Equal(t, 4, left("ann", "/b", "elsewhere"), "another endpoint's rule keeps its count")
}
