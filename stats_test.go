package ratelimit_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestStats proves what each request adds to the counters of every rule.
func TestStats(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l := newRules(t, []ratelimit.Rule{
		{Name: "z", Endpoint: "/e", Rate: ratelimit.PerMinute(2)},
		{Name: "b", Endpoint: "/e", Rate: ratelimit.PerMinute(3), Key: ratelimit.KeyGlobal},
		{Name: "s", Endpoint: "/e", Rate: ratelimit.PerMinute(1), Key: ratelimit.KeyGlobal, Mode: ratelimit.ModeShadow},
		{Name: "tiers", Endpoint: "/t", Rate: ratelimit.PerMinute(1), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(2)}},
	}, &ratelimit.Rule{Rate: ratelimit.PerMinute(1)}, ratelimit.WithClock(clock))
	none := func() []ratelimit.RuleStats {
		return []ratelimit.RuleStats{{Rule: "z"}, {Rule: "b"}, {Rule: "s"}, {Rule: "tiers"}, {Rule: "default"}}
	}
	require.Equal(t, none(), l.Stats(), "in the order of the rules, the default rule last")
	want := none()
	for _, row := range []struct {
		client, endpoint string
		change           func()
		why              string
	}{
		{"a", "/e", func() {
			want[0].Allowed++
			want[1].Allowed++
			want[2].Allowed++
			want[0].LiveKeys++
			want[1].LiveKeys++
			want[2].LiveKeys++
		},
			"all are charged"},
		{"a", "/e", func() { want[0].Allowed++; want[1].Allowed++; want[2].ShadowDenied++ }, "the shadow would have denied"},
		{"a", "/e", func() { want[0].Denied++; want[2].ShadowDenied++ }, "z denies; b would grant, and counts nothing"},
		{"b", "/e", func() { want[0].Allowed++; want[0].LiveKeys++; want[1].Allowed++; want[2].ShadowDenied++ }, "another client"},
		{"b", "/e", func() { want[1].Denied++; want[2].ShadowDenied++ }, "b denies"},
		{"a", "/e", func() { want[0].Denied++; want[1].Denied++; want[2].ShadowDenied++ }, "both deny"},
		{"a", "/other", func() { want[4].Allowed++; want[4].LiveKeys++ }, "the default rule"},
		{"a", "/other", func() { want[4].Denied++ }, "the same rule denies"},
		{"a", "/t", func() { want[3].Allowed++; want[3].LiveKeys++ }, "a rule with tiers"},
		{"a", "/t", func() { want[3].Denied++ }, "the same rule denies"},
	} {
		l.Allow(row.client, row.endpoint)
		row.change()
		require.Equal(t, want, l.Stats(), row.why)
	}
	for _, req := range []ratelimit.Request{{Client: "a", Endpoint: "/e"}, {Client: "new", Endpoint: "/t"}} {
		_, err := l.Peek(t.Context(), req)
		require.NoError(t, err)
	}
	_, err := l.Check(canceled(), ratelimit.Request{Endpoint: "/e"})
	require.Error(t, err)
	_, err = l.Check(t.Context(), ratelimit.Request{Endpoint: "/e", Cost: -1})
	require.Error(t, err)
	require.Equal(t, want, l.Stats(), "looks and refused requests are not counted")
	_, err = l.Check(t.Context(), ratelimit.Request{Client: "a", Rules: []string{"z", "z"}, Cost: 9})
	require.NoError(t, err)
	want[0].Denied++
	require.Equal(t, want, l.Stats(), "a request counts once, whatever its cost, and however often it names a rule")

	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/e"}))
	want[0].LiveKeys--
	require.Equal(t, want, l.Stats(), "a reset is not counted")
}

// TestStatsOfPlainRules proves what each request adds to the counters of two to five plain rules.
func TestStatsOfPlainRules(t *testing.T) {
	for n := 2; n <= 5; n++ { // up to four plain rules need no memory from a pool
		var rules []ratelimit.Rule
		for i := range n {
			rules = append(rules, ratelimit.Rule{Name: strconv.Itoa(i), Endpoint: "/e", Rate: ratelimit.PerMinute(9), Key: ratelimit.KeyGlobal})
		}
		rules[1].Rate = ratelimit.PerMinute(1)
		l := newRules(t, rules, nil, ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		for range 3 {
			l.Allow("c", "/e")
		}
		for i, s := range l.Stats() {
			want := ratelimit.RuleStats{Rule: strconv.Itoa(i), Allowed: 1, LiveKeys: 1}
			if i == 1 {
				want.Denied = 2
			}
			require.Equal(t, want, s, "%d rules: a rule does not count a request that only another rule denied", n)
		}
	}
}

// TestStatsOfUnknownTiers proves that a rule with tiers counts the requests whose tier it does not have, in each way
// in which it decides.
func TestStatsOfUnknownTiers(t *testing.T) {
	tiers := map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(60), "staff": ratelimit.Unlimited}
	own := ratelimit.Rule{Name: "own", Endpoint: "/own", Rate: ratelimit.PerMinute(2), Tiers: tiers}
	all := ratelimit.Rule{Name: "all", Endpoint: "*", Rate: ratelimit.PerMinute(100), Tiers: tiers, Mode: ratelimit.ModeShadow}
	all.Additional = true
	none := ratelimit.Rule{Name: "none", Endpoint: "/none", Rate: ratelimit.PerMinute(100)}
	resolves := ratelimit.Rule{Name: "resolves", Endpoint: "/resolves", Rate: ratelimit.PerMinute(100), Tiers: tiers}
	resolves.Resolve = func(req ratelimit.Request) (ratelimit.Rate, bool) {
		return ratelimit.PerMinute(3), req.Client == "resolved"
	}
	for name, rules := range map[string][]ratelimit.Rule{
		"one plain rule": {own, none, resolves}, "two plain rules": {own, none, resolves, all},
	} {
		for _, stored := range []bool{false, true} {
			clock := ratelimit.WithClock(ratelimit.NewFakeClock(epoch))
			opts := []ratelimit.Option{ratelimit.WithRequestIDs(minute), clock}
			if stored {
				store, err := ratelimit.NewMemoryStore(clock)
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("l"))
			}
			l := newRules(t, rules, nil, opts...)
			counts := func() (counts []uint64) {
				for _, s := range l.Stats() {
					counts = append(counts, s.UnknownTier)
				}
				return counts
			}
			for _, endpoint := range []string{"/own", "/none", "/resolves"} {
				for _, tier := range []string{"", "paid", "staff", "Pro", "Pro", "Pro"} {
					_, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: endpoint, Tier: tier})
					require.NoError(t, err)
				}
				l.Allow("c", endpoint)
				_, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: endpoint, Tier: "Pro"})
				require.NoError(t, err)
				_, err = l.Check(t.Context(), ratelimit.Request{Client: "resolved", Endpoint: endpoint, Tier: "Pro"})
				require.NoError(t, err)
			}
			require.Equal(t, []uint64{4, 0, 3, 9}[:len(rules)], counts(),
				"%s, with a store: %v: neither by Resolve, nor if only another rule denied", name, stored)
			_, err := l.Wait(t.Context(), ratelimit.Request{Client: "w", Endpoint: "/own", Tier: "Pro"})
			require.NoError(t, err)
			rv, err := l.Reserve(t.Context(), ratelimit.Request{Client: "w", Endpoint: "/own", Tier: "Pro"}, minute)
			require.NoError(t, err)
			require.NoError(t, rv.Cancel())
			for range 2 { // the second is answered from the record of the first
				_, err := l.Check(t.Context(), ratelimit.Request{Client: "i", Endpoint: "/own", Tier: "Pro", ID: "id"})
				require.NoError(t, err)
			}
			require.EqualValues(t, 7, counts()[0], "%s, with a store: %v", name, stored)
		}
	}
}

// TestStatsOfUnknownTiersOfReservations proves that a Reserve by a single rule counts an unknown tier once, with and without
// an observer.
func TestStatsOfUnknownTiersOfReservations(t *testing.T) {
	tiers := map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(60)}
	for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithObserver(&record{})}} {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerMinute(2), Tiers: tiers}}, nil, opts...)
		for _, tier := range []string{"", "paid", "Pro", "Pro"} {
			_, err := l.Reserve(t.Context(), ratelimit.Request{Client: "c", Tier: tier}, minute)
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, l.Stats()[0].UnknownTier)
	}
}

// TestStatsAreKeptThroughChanges proves which changes of a rule keep its counters.
func TestStatsAreKeptThroughChanges(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	rule := ratelimit.Rule{Name: "a", Endpoint: "/e", Rate: ratelimit.PerMinute(2), Mode: ratelimit.ModeShadow}
	l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
	for range 3 {
		require.Equal(t, unlimited, l.Allow("c", "/e"), "a shadow rule does not change the Result")
	}
	want := ratelimit.RuleStats{Rule: "a", Allowed: 2, ShadowDenied: 1, LiveKeys: 1}
	require.Equal(t, []ratelimit.RuleStats{want}, l.Stats())

	rule.Mode = ratelimit.ModeEnforce
	require.NoError(t, l.Replace([]ratelimit.Rule{rule}, nil))
	require.Equal(t, []ratelimit.RuleStats{want}, l.Stats(), "from shadow to enforce")
	require.Equal(t, by("a", no(2, 0, 30*sec, minute)), l.Allow("c", "/e"), "the keys have used their units before")
	want.Denied++
	require.NoError(t, l.UpdateRate("a", ratelimit.PerMinute(9)))
	require.Equal(t, []ratelimit.RuleStats{want}, l.Stats(), "a new rate")
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "b", Endpoint: "/b", Rate: ratelimit.PerMinute(9)}))
	require.Equal(t, []ratelimit.RuleStats{want, {Rule: "b"}}, l.Stats(), "another rule is added")
	rule.Endpoint = "/moved"
	require.NoError(t, l.Replace([]ratelimit.Rule{rule}, nil))
	require.Equal(t, []ratelimit.RuleStats{want}, l.Stats(), "another endpoint is the same rule")

	rule.Key = ratelimit.KeyGlobal
	require.NoError(t, l.Replace([]ratelimit.Rule{rule}, nil))
	require.Equal(t, []ratelimit.RuleStats{{Rule: "a"}}, l.Stats(), "another key type starts from zero")
	l.Allow("c", "/moved")
	require.NoError(t, l.RemoveRule("a"))
	require.Empty(t, l.Stats())
	require.NoError(t, l.AddRule(rule))
	require.Equal(t, []ratelimit.RuleStats{{Rule: "a"}}, l.Stats(), "a rule that was removed and added starts from zero")
	require.Nil(t, new(ratelimit.RateLimiter).Stats())
}

// TestStatsWithAStore proves what is counted while the store fails, under each failure
// policy.
func TestStatsWithAStore(t *testing.T) {
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		down   ratelimit.RuleStats // what three requests add while the store is down, if two of three units were used
		why    string
	}{
		{ratelimit.FailLocal(1), ratelimit.RuleStats{Allowed: 1, Denied: 2, Degraded: 3}, "the share has one unit left"},
		{ratelimit.FailOpen, ratelimit.RuleStats{Allowed: 3, Degraded: 3}, "all three pass"},
		{ratelimit.FailClosed, ratelimit.RuleStats{Denied: 3, Degraded: 3}, "none passes"},
	} {
		store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
		l := newRules(t, []ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(3), OnStoreError: row.policy}}, nil,
			ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		stats := func() ratelimit.RuleStats {
			s := l.Stats()[0]
			s.LiveKeys = 0
			return s
		}
		l.Allow("c", "/e")
		l.Allow("c", "/e")
		require.Equal(t, ratelimit.RuleStats{Rule: "a", Allowed: 2}, stats(), row.why)
		store.from(errsBefore)
		for range 3 {
			l.Allow("c", "/e")
		}
		want := row.down
		want.Rule, want.Allowed, want.Errors = "a", want.Allowed+2, 3
		require.Equal(t, want, stats(), row.why)
		_, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/e"})
		require.ErrorIs(t, err, ratelimit.ErrStore)
		want.Errors++
		require.Equal(t, want, stats(), "%s: a look that fails counts as an error, and not as a decision", row.why)

		for _, policy := range []ratelimit.FailurePolicy{ratelimit.FailLocal(2), ratelimit.FailOpen, row.policy} {
			require.NoError(t, l.Replace([]ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(3), OnStoreError: policy}}, nil))
			require.Equal(t, want, stats(), "%s: another policy keeps the counters", row.why)
		}
	}
}

// TestStatsOfWaitsThatAPolicyRefuses proves that Degraded counts each Wait that a failure policy
// refuses, and each request that is denied because another caller waits for the store.
func TestStatsOfWaitsThatAPolicyRefuses(t *testing.T) {
	for _, policy := range []ratelimit.FailurePolicy{ratelimit.FailLocal(1), ratelimit.FailClosed} {
		synctest.Test(t, func(t *testing.T) {
			store := newFaultyStore(t, nil)
			l := newRules(t, []ratelimit.Rule{{Name: "a", Endpoint: "/e", Rate: ratelimit.PerHour(1), OnStoreError: policy}}, nil,
				ratelimit.WithStore(store))
			require.True(t, l.Allow("c", "/e").Allowed)
			store.from(errsBefore)
			req, want := ratelimit.Request{Client: "c", Endpoint: "/e"}, ratelimit.RuleStats{Rule: "a", Allowed: 1}
			denied := func(why string) {
				t.Helper()
				want.Denied++
				want.Degraded++
				stats := l.Stats()[0]
				stats.Errors, stats.LiveKeys = 0, 0
				require.Equal(t, want, stats, "%v: %s", policy, why)
			}
			refused := func(why string) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), sec/2)
				defer cancel()
				res, err := l.Wait(ctx, req)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.True(t, res.Degraded)
				denied(why)
			}
			refused("it would end too late")
			ctx, cancel := context.WithCancel(t.Context())
			w := startRuleWait(ctx, l, req)
			synctest.Wait()
			require.False(t, w.returned())
			require.True(t, check(t, l, req).Degraded, "the answer is that to the caller who waits")
			denied("behind a caller who waits")
			refused("behind a caller who waits, it would end too late")
			cancel()
			synctest.Wait()
			require.True(t, w.returned())
		})
	}
}

// TestStatsOfRequestsThatAnotherRuleDenies proves that a rule whose failure policy grants does not
// count a request that another rule denies.
func TestStatsOfRequestsThatAnotherRuleDenies(t *testing.T) {
	for _, policy := range []ratelimit.FailurePolicy{ratelimit.FailLocal(1), ratelimit.FailOpen} {
		store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
		store.from(errsBefore)
		l := newRules(t, []ratelimit.Rule{
			{Name: "grants", Endpoint: "/e", Rate: ratelimit.PerHour(3), OnStoreError: policy},
			{Name: "denies", Endpoint: "/e", Rate: ratelimit.PerHour(3), OnStoreError: ratelimit.FailClosed},
		}, nil, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
		require.False(t, l.Allow("c", "/e").Allowed)
		require.Equal(t, []ratelimit.RuleStats{
			{Rule: "grants", Errors: 1}, {Rule: "denies", Denied: 1, Degraded: 1, Errors: 1},
		}, l.Stats(), "%v: only the rule that denied counts the request", policy)
	}
}

// TestStatsAtTheBoundOnKeys proves that keys beyond WithMaxKeys, and keys that were dropped to make
// room, are counted.
func TestStatsAtTheBoundOnKeys(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l := newRules(t, nil, &ratelimit.Rule{Rate: ratelimit.PerMinute(2)}, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(4))
	for i := range 5 {
		require.True(t, l.Allow(strconv.Itoa(i), "").Allowed)
	}
	require.Equal(t, []ratelimit.RuleStats{{Rule: "default", Allowed: 5, LiveKeys: 4, Overflowed: 1}}, l.Stats(),
		"the fifth key finds no room")
	clock.Advance(minute)
	require.True(t, l.Allow("6", "").Allowed)
	require.Equal(t, []ratelimit.RuleStats{{Rule: "default", Allowed: 6, LiveKeys: 4, Overflowed: 1, Evicted: 1}}, l.Stats(),
		"an idle key makes room")
}

// TestStoreStats proves that StoreStats says which breakers are open, how often they have opened,
// and why they last did.
func TestStoreStats(t *testing.T) {
	var zero ratelimit.RateLimiter
	require.Zero(t, zero.StoreStats())
	rule := ratelimit.Rule{Rate: ratelimit.PerSecond(1000)}
	require.Zero(t, newRules(t, nil, &rule).StoreStats(), "without a store")

	store := newFaultyStore(t, ratelimit.NewFakeClock(epoch))
	l := newRules(t, nil, &rule, ratelimit.WithStore(store), ratelimit.WithClock(store.clock))
	require.Zero(t, l.StoreStats(), "no request has been made yet")
	l.Allow("c", "")
	require.Equal(t, ratelimit.StoreStats{Parts: 1}, l.StoreStats())
	store.from(errsBefore)
	for range 4 {
		l.Allow("c", "")
	}
	failures := []ratelimit.StoreFailures{{Class: "other", Calls: 4}}
	require.Equal(t, ratelimit.StoreStats{Parts: 1, Failures: failures}, l.StoreStats(), "after four failures the store is still asked")
	l.Allow("c", "")
	for range 2 {
		failures[0].Calls++
		stats := l.StoreStats()
		require.ErrorIs(t, stats.LastError, errFault)
		require.True(t, strings.HasPrefix(stats.LastError.Error(), "ratelimit: "), stats.LastError)
		stats.LastError = nil
		require.Equal(t, ratelimit.StoreStats{Parts: 1, Open: 1, Opened: 1, Failures: failures}, stats)
		store.clock.Advance(time.Second)
		l.Allow("c", "") // a probe that fails opens nothing
	}
	store.from(sound)
	store.clock.Advance(time.Second)
	l.Allow("c", "")
	stats := l.StoreStats()
	require.ErrorIs(t, stats.LastError, errFault, "the last error is kept after the store is back")
	require.Zero(t, stats.Open)
}

// TestStatsOfARuleThatWasNotAsked proves that a custom limiter which comes to apply to a waiting request, in
// shadow mode, is not counted: the request is granted without asking it.
func TestStatsOfARuleThatWasNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.PerHour(1)}}, nil)
		req := ratelimit.Request{Client: "alice", Endpoint: "/e"}
		ok(t, checked(l.Check(t.Context(), req)), true)
		var res ratelimit.Result
		var err error
		go func() { res, err = l.Wait(t.Context(), req) }()
		synctest.Wait()
		limiter, problem := ratelimit.NewTokenBucket(ratelimit.PerHour(1))
		require.NoError(t, problem)
		require.NoError(t, l.Replace([]ratelimit.Rule{{Name: "tried", Endpoint: "*", Mode: ratelimit.ModeShadow, Limiter: limiter}}, nil))
		synctest.Wait()
		require.NoError(t, err)
		require.Equal(t, ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}, res)
		require.Equal(t, []ratelimit.RuleStats{{Rule: "tried"}}, l.Stats())
		require.Zero(t, limiter.Len(), "it was not asked")
	})
}
