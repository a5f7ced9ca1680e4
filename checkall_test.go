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

// checkAll calls l.CheckAll, which must not return an error.
func checkAll(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) (ratelimit.Result, []ratelimit.Result) {
	t.Helper()
	res, each, err := l.CheckAll(t.Context(), req, nil)
	require.NoError(t, err)
	return res, each
}

// threeRules are rules for /e, in an order that is not that of their making.
var threeRules = []ratelimit.Rule{
	{Name: "wide", Endpoint: "/e", Rate: ratelimit.PerHour(10)},
	{Name: "watch", Endpoint: "/e", Rate: ratelimit.PerHour(1), Mode: ratelimit.ModeShadow},
	{Name: "tight", Endpoint: "/e", Rate: ratelimit.PerHour(2), Key: ratelimit.KeyGlobal},
	{Name: "all", Endpoint: "*", Rate: ratelimit.PerHour(4), Additional: true, Key: ratelimit.KeyGlobal},
}

// TestCheckAll proves that CheckAll answers as Check, and appends the answer of each rule that
// enforces, in the order of the rules, in memory and over a store.
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
		require.NoError(t, l.Replace([]ratelimit.Rule{threeRules[3], threeRules[2], threeRules[1], threeRules[0]}, &ratelimit.Rule{Rate: ratelimit.PerHour(5)}))
		req := ratelimit.Request{Client: "c", Endpoint: "/e"}
		for _, row := range []struct {
			cost int
			want ratelimit.Result
			each []ratelimit.Result
			why  string
		}{
			{2, by("tight", yes(2, 0, hour)), []ratelimit.Result{
				by("all", yes(4, 2, hour/2)), by("tight", yes(2, 0, hour)), by("wide", yes(10, 8, 12*mins)),
			}, "granted: each is charged"},
			{1, by("tight", no(2, 0, 30*mins, hour)), []ratelimit.Result{
				by("all", yes(4, 2, hour/2)), by("tight", no(2, 0, 30*mins, hour)), by("wide", yes(10, 8, 12*mins)),
			}, "denied: the others would grant it, and have what they had"},
			{3, by("tight", no(2, 0, ratelimit.Never, hour)), []ratelimit.Result{
				by("all", no(4, 2, 15*mins, hour/2)), by("tight", no(2, 0, ratelimit.Never, hour)), by("wide", yes(10, 8, 12*mins)),
			}, "denied by two"},
		} {
			req.Cost = row.cost
			res, each := checkAll(t, l, req)
			require.Equal(t, row.want, res, row.why)
			require.Equal(t, row.each, each, "%s, stored: %v", row.why, stored)
		}
		res, each := checkAll(t, l, ratelimit.Request{Client: "c", Endpoint: "/x"})
		require.Equal(t, by("all", yes(4, 1, 45*mins)), res)
		require.Equal(t, []ratelimit.Result{by("all", yes(4, 1, 45*mins)), by("default", yes(5, 4, 12*mins))}, each, "the default rule comes last")

		given := []ratelimit.Result{by("mine", no(1, 1, 1, 1))}
		for _, bad := range []ratelimit.Request{{Cost: -1}, {Rules: []string{"no such"}}} {
			res, each, err := l.CheckAll(t.Context(), bad, given)
			require.Error(t, err)
			require.Zero(t, res)
			require.Equal(t, given, each, "nothing was decided")
		}
		res, each, err := l.CheckAll(over(), req, given)
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

// TestCheckAllAnswersAsCheck proves for random requests that CheckAll charges and answers as
// Check does, and that its entries are what the rules say one by one.
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

// overTwins runs test with two RateLimiters of threeRules, by each algorithm, for 300 requests, with
// time between them that is the same for both. test reports whether the request was granted; some
// must be denied.
func overTwins(t *testing.T, test func(t *testing.T, one, two *ratelimit.RateLimiter, req ratelimit.Request) (granted bool)) {
	t.Helper()
	overAll(t, func(t *testing.T, a algorithm) {
		rules := make([]ratelimit.Rule, len(threeRules))
		for i, r := range threeRules {
			r.Algorithm = byName[a.name]
			rules[i] = r
		}
		one, oneClock := buildRules(t, rules)
		two, twoClock := buildRules(t, rules)
		denials := 0
		for i := range 300 {
			oneClock.Advance(time.Duration(i%7) * mins)
			twoClock.Advance(time.Duration(i%7) * mins)
			if !test(t, one, two, ratelimit.Request{Client: fmt.Sprint(i % 3), Endpoint: []string{"/e", "/x"}[i%5/4], Cost: i%4 + 1}) {
				denials++
			}
		}
		require.Greater(t, denials, 20)
	})
}

// buildRules makes a RateLimiter on a clock of its own.
func buildRules(t *testing.T, rs []ratelimit.Rule) (*ratelimit.RateLimiter, *ratelimit.FakeClock) {
	t.Helper()
	return rules(t, rs, nil)
}

// TestCheckAllWhileTheStoreFails proves that each rule's own answer says that its policy gave it.
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

// TestCheckAllBesideACustomLimiter proves that a custom limiter is only looked at where another
// rule denies, and that its denial leaves the others what they had.
func TestCheckAllBesideACustomLimiter(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
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

		answer = no(7, 1, mins, mins)
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

// TestCheckAllBehindWaiters proves that nothing is said about the rules of which a store was not
// asked because others wait for it.
func TestCheckAllBehindWaiters(t *testing.T) {
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
		require.Equal(t, by("one", no(1, 0, 2*mins, 2*mins)), res)
		require.Equal(t, []ratelimit.Result{by("many", unlimited), res}, each)
		pass(mins)
		synctest.Wait()
		require.True(t, w.over())
	})
}

// TestCheckAllAllocatesNothing measures CheckAll into a slice that has the room.
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

// resetRules are rules of each kind of key.
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

// TestResetOfRequests proves which keys a Reset resets, in memory and over a store.
func TestResetOfRequests(t *testing.T) {
	type request = ratelimit.Request
	tenant := map[string]string{"tenant": "t"}
	full := request{Client: "c", IP: "i", Attrs: tenant}
	for _, row := range []struct {
		req  request
		want []string // rules whose keys are as new
		err  error
		why  string
	}{
		{request{Client: "c", Endpoint: "/e"}, []string{"user", "pair", "shadow"}, nil, "the client's own, for an endpoint"},
		{request{IP: "i", Endpoint: "/e"}, []string{"ip", "beside"}, nil, "those by address, and one that applies beside"},
		{request{Attrs: tenant, Endpoint: "/e"}, []string{"tenant"}, nil, "those by an attribute"},
		{request{Client: "c", Attrs: tenant, Endpoint: "/e"}, []string{"user", "pair", "tenant", "tenant+user", "shadow"}, nil, "and those by both"},
		{request{Client: "c", IP: "i", Attrs: tenant, Endpoint: "/e"}, []string{"user", "pair", "ip", "tenant", "tenant+user", "shadow", "beside"}, nil, "all that are the sender's own"},
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
		{request{Client: "c", Rules: []string{"endpoint", "user", "ip"}}, []string{"user"}, nil, "rules that need what the request lacks are skipped"},
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
			spend(request{Endpoint: "/e", Rules: []string{"user", "pair", "ip", "tenant", "tenant+user", "endpoint", "global", "shadow", "other", "named", "default"}})
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

// leftOfEach returns what each of resetRules has left for the client c.
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

// TestNotReset proves that a Reset which could not do what it was asked for says so, and resets
// the other keys all the same.
func TestNotReset(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		for _, stored := range []bool{false, true} {
			clock := ratelimit.NewFakeClock(epoch)
			opts := []ratelimit.Option{ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1)}
			if stored {
				store, err := ratelimit.NewMemoryStore(opts...)
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("shop"))
			}
			l := newRules(t, []ratelimit.Rule{
				{Name: "user", Endpoint: "/e", Algorithm: byName[a.name], Rate: ratelimit.PerHour(2)},
				{Name: "pair", Endpoint: "/e", Algorithm: byName[a.name], Rate: ratelimit.PerHour(2), Key: ratelimit.KeyUserEndpoint},
				{Name: "ip", Endpoint: "/e", Algorithm: byName[a.name], Rate: ratelimit.PerHour(3), Key: ratelimit.KeyIP},
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
	require.ErrorIs(t, l.Reset(over(), ratelimit.Request{Client: "c", Endpoint: "/e"}), context.Canceled)
	require.NoError(t, l.Reset(nil, ratelimit.Request{Client: "c", Endpoint: "/e"})) //nolint:staticcheck
	require.ErrorIs(t, l.Reset(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/none"}), ratelimit.ErrNotReset, "no rule applies")
}
