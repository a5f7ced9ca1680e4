package ratelimit_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

func search(r ratelimit.Rate) ratelimit.Rule { return ratelimit.Rule{Endpoint: "/search", Rate: r} }

// TestAddAndRemoveRules proves that AddRule and RemoveRule change one rule and leave the
// state of the others alone.
func TestAddAndRemoveRules(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{search(ratelimit.PerHour(2))}, nil)
	l.Allow("ann", "/search")
	require.Equal(t, unlimited, l.Allow("ann", "/login"))

	require.NoError(t, l.AddRule(ratelimit.Rule{Endpoint: "/login", Rate: ratelimit.PerHour(5)}))
	require.Equal(t, by("/login", yes(5, 4, 12*mins)), l.Allow("ann", "/login"))
	require.Equal(t, by("/search", yes(2, 0, time.Hour)), l.Allow("ann", "/search"), "the other rule keeps its keys")

	for _, tt := range []struct {
		rule ratelimit.Rule
		want string
		why  string
	}{
		{search(ratelimit.PerHour(9)), `ratelimit: rules[2].endpoint is "/search": is that of rules[0]: rules that share an endpoint need names`, "without a name"},
		{ratelimit.Rule{Name: "/login", Rate: ratelimit.PerHour(9)}, `ratelimit: rules[2].name is "/login": is that of rules[1]: a name occurs once`, "the name is taken"},
		{ratelimit.Rule{Endpoint: "/new"}, "ratelimit: rules[2].rate.requests is 0: must be at least 1\nratelimit: rules[2].rate.per is 0s: must be longer than zero", "all that is wrong with the rate"},
	} {
		err := l.AddRule(tt.rule)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
		assert.EqualError(t, err, tt.want, tt.why)
	}
	require.Equal(t, by("/search", no(2, 0, 30*mins, time.Hour)), l.Allow("ann", "/search"), "what is refused changes nothing")

	require.NoError(t, l.RemoveRule("/search"))
	require.Equal(t, unlimited, l.Allow("ann", "/search"))
	assert.ErrorIs(t, l.RemoveRule("/search"), ratelimit.ErrUnknownRule, "it is gone")
	require.NoError(t, l.AddRule(search(ratelimit.PerHour(2))))
	require.Equal(t, by("/search", yes(2, 1, 30*mins)), l.Allow("ann", "/search"), "what was used went with the rule")
}

// TestDefaultRule proves that the default rule can be set, renamed, changed and removed,
// and that its state belongs to its name.
func TestDefaultRule(t *testing.T) {
	l, _ := rules(t, nil, nil)
	assert.ErrorIs(t, l.RemoveRule("default"), ratelimit.ErrUnknownRule)
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Rate: ratelimit.PerHour(3)}))
	require.Equal(t, by("default", yes(3, 2, 20*mins)), l.Allow("ann", "/a"))
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Name: "default", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, by("default", yes(2, 1, 30*mins)), l.Allow("ann", "/b"), "the same name: two were left")
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, by("rest", yes(2, 1, 30*mins)), l.Allow("ann", "/b"), "another name: another rule")
	require.NoError(t, l.UpdateRate("rest", ratelimit.PerHour(1)))
	require.Equal(t, by("rest", yes(1, 0, time.Hour)), l.Allow("ann", "/b"), "one was left")
	require.NoError(t, l.RemoveRule("rest"))
	require.Equal(t, unlimited, l.Allow("ann", "/b"))
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(2)}))
	require.NoError(t, l.AddRule(ratelimit.Rule{Name: "default", Rate: ratelimit.PerHour(2)}))
	require.NoError(t, l.RemoveRule("default"), "the rule of that name is removed")
	require.Equal(t, "rest", l.Allow("ann", "/b").Rule)
	require.NoError(t, l.RemoveRule("default"), "then \"default\" means the default rule, whatever its name")
	require.Equal(t, unlimited, l.Allow("ann", "/b"))
	err := l.SetDefaultRule(ratelimit.Rule{Endpoint: "/b", Rate: ratelimit.PerHour(1)})
	assert.EqualError(t, err, `ratelimit: defaultRule.endpoint is "/b": must be empty: the default rule is for the endpoints that no other matches`)
}

// TestUpdateRate proves that UpdateRate keeps what each key has used, grants nothing by
// itself, and leaves tiers alone.
func TestUpdateRate(t *testing.T) {
	tiered := search(ratelimit.PerHour(10))
	tiered.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(100)}
	l, clock := rules(t, []ratelimit.Rule{tiered}, nil)
	check(t, l, ratelimit.Request{Client: "ann", Endpoint: "/search", Cost: 6})
	check(t, l, ratelimit.Request{Client: "eve", Endpoint: "/search", Cost: 60, Tier: "paid"})

	require.NoError(t, l.UpdateRate("/search", ratelimit.PerHour(20)))
	require.Equal(t, by("/search", yes(20, 3, 51*mins)), l.Allow("ann", "/search"), "a raise has to be earned")
	require.Equal(t, by("/search", yes(100, 39, 36*mins+36*sec)), check(t, l, ratelimit.Request{Client: "eve", Endpoint: "/search", Tier: "paid"}),
		"a tier keeps its rate")
	require.NoError(t, l.UpdateRate("/search", ratelimit.PerHour(8)))
	require.Equal(t, by("/search", yes(8, 2, 45*mins)), l.Allow("ann", "/search"), "a cut leaves the three that were left")
	clock.Advance(15 * mins)
	require.Equal(t, by("/search", yes(8, 3, 37*mins+30*sec)), l.Allow("ann", "/search"))

	assert.ErrorIs(t, l.UpdateRate("no such", ratelimit.PerHour(1)), ratelimit.ErrUnknownRule)
	assert.EqualError(t, l.UpdateRate("/serach", ratelimit.PerHour(1)), `ratelimit: unknown rule "/serach"; did you mean "/search"?`)
	assert.EqualError(t, l.RemoveRule("Search"), `ratelimit: unknown rule "Search"; did you mean "/search"?`)
	_, err := l.Check(t.Context(), ratelimit.Request{Rules: []string{"/SEARCH"}})
	assert.EqualError(t, err, `ratelimit: unknown rule "/SEARCH"; did you mean "/search"?`)
	assert.EqualError(t, l.UpdateRate("/search", ratelimit.Rate{Requests: 1}), `ratelimit: rules["/search"].rate.per is 0s: must be longer than zero`)
	require.Equal(t, by("/search", yes(8, 2, 45*mins)), l.Allow("ann", "/search"), "what is refused changes nothing")
}

// TestReplaceKeepsState proves, for each kind of change, what Replace keeps of what a key
// had used.
func TestReplaceKeepsState(t *testing.T) {
	window := func(r ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: r}
	}
	bucket := ratelimit.Rule{Endpoint: "/", Rate: ratelimit.PerHour(4)}
	with := func(r ratelimit.Rule, change func(*ratelimit.Rule)) ratelimit.Rule {
		change(&r)
		return r
	}
	for _, tt := range []struct {
		before, after ratelimit.Rule
		want          ratelimit.Result
		why           string
	}{
		{bucket, bucket, yes(4, 0, time.Hour), "the same rule"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Rate = ratelimit.PerHour(6) }), yes(6, 0, time.Hour), "a raise: 1 of 4 was left"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Rate = ratelimit.PerHour(3) }), yes(3, 0, time.Hour), "a cut: 1 of 4 was left"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Rate = ratelimit.Rate{Requests: 2, Per: 30 * mins, Burst: 4} }), yes(4, 0, time.Hour), "the same rate in other words"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Algorithm = ratelimit.AlgorithmLeakyBucket }), yes(4, 3, 15*mins), "another algorithm: new keys"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Key = ratelimit.KeyUserEndpoint }), yes(4, 3, 15*mins), "another key: new keys"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Name = "other" }), yes(4, 3, 15*mins), "another name: another rule"},
		{with(bucket, func(r *ratelimit.Rule) { r.Name = "/" }), with(bucket, func(r *ratelimit.Rule) { r.Name, r.Endpoint = "/", "*" }), yes(4, 0, time.Hour), "another endpoint of the same name"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Tiers = map[string]ratelimit.Rate{"": ratelimit.PerHour(8)} }), yes(8, 0, time.Hour), "a tier that was not there"},
		{window(ratelimit.PerHour(4)), window(ratelimit.PerHour(9)), yes(9, 5, time.Hour), "a window counts what was used, so a raise leaves more units"},
		{window(ratelimit.PerHour(4)), window(ratelimit.PerHour(2)), no(2, 0, time.Hour, time.Hour), "more is used than the new limit"},
		{window(ratelimit.PerHour(4)), window(ratelimit.PerDay(5)), yes(5, 1, 24*time.Hour), "another length: the count goes into the new window of the present instant"},
	} {
		l, _ := rules(t, []ratelimit.Rule{tt.before}, nil)
		check(t, l, ratelimit.Request{Client: "ann", Endpoint: "/", Cost: 3})
		require.NoError(t, l.Replace([]ratelimit.Rule{tt.after}, nil), tt.why)
		name := tt.after.Name
		if name == "" {
			name = "/"
		}
		assert.Equal(t, by(name, tt.want), l.Allow("ann", "/"), tt.why)
	}
}

// TestReplaceIsAllOrNothing proves that a Replace with an invalid rule reports every
// problem and changes nothing.
func TestReplaceIsAllOrNothing(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{search(ratelimit.PerHour(2))}, &ratelimit.Rule{Rate: ratelimit.PerHour(4)})
	l.Allow("ann", "/search")
	err := l.Replace([]ratelimit.Rule{
		search(ratelimit.PerHour(100)),
		{Endpoint: "/a", Mode: "off"},
		{Endpoint: "a*b", Key: "users", Rate: ratelimit.PerHour(1)},
		{Rate: ratelimit.PerHour(1)},
		{Endpoint: "/search", Rate: ratelimit.PerHour(1)},
		{Endpoint: "/w", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1).WithBurst(2), OnStoreError: ratelimit.FailLocal(0)},
		{Endpoint: "/v", Algorithm: "Bucket", Rate: ratelimit.PerHour(1)},
		{Endpoint: "/t", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1), Tiers: map[string]ratelimit.Rate{"b": ratelimit.PerDay(1), "a": {}}},
	}, &ratelimit.Rule{Endpoint: "/d", Rate: ratelimit.PerHour(1)})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: rules[1].mode is "off": must be one of "enforce", "shadow"
ratelimit: rules[1].rate.requests is 0: must be at least 1
ratelimit: rules[1].rate.per is 0s: must be longer than zero
ratelimit: rules[2].endpoint is "a*b": must have a "*" at the end only
ratelimit: rules[2].key is "users": must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several of them joined by "+"
ratelimit: rules[3].endpoint is "": must be set, or a name to ask for the rule by
ratelimit: rules[4].endpoint is "/search": is that of rules[0]: rules that share an endpoint need names
ratelimit: rules[5].onStoreError is local:0: must have at least 1 replica
ratelimit: rules[5].rate.burst is 2: must be 0: a fixed window has no burst
ratelimit: rules[6].algorithm is "Bucket": must be one of "FixedWindow", "LeakyBucket", "SlidingWindowCounter", "SlidingWindowLog", "TokenBucket", or the rule have a limiter
ratelimit: rules[7].tiers["a"].requests is 0: must be at least 1
ratelimit: rules[7].tiers["a"].per is 0s: must be longer than zero
ratelimit: rules[7].tiers["a"].per is 0s: must be that of the rule's rate: a window has one length
ratelimit: rules[7].tiers["b"].per is 24h0m0s: must be that of the rule's rate: a window has one length
ratelimit: defaultRule.endpoint is "/d": must be empty: the default rule is for the endpoints that no other matches`)
	require.Equal(t, by("/search", yes(2, 0, time.Hour)), l.Allow("ann", "/search"))
	require.Equal(t, by("default", yes(4, 3, 15*mins)), l.Allow("ann", "/a"))

	many := make([]ratelimit.Rule, 10_001)
	require.EqualError(t, l.Replace(many, nil), "ratelimit: rules is 10001: must be at most 10000")
}

// TestRulesAreCopied proves that a RateLimiter does not see what its caller later changes
// in the rules it was made of.
func TestRulesAreCopied(t *testing.T) {
	tiers := map[string]ratelimit.Rate{"paid": ratelimit.PerHour(5)}
	rs := []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(1), Tiers: tiers}}
	fallback := &ratelimit.Rule{Rate: ratelimit.PerHour(2)}
	l, _ := rules(t, rs, fallback)
	tiers["paid"] = ratelimit.PerHour(9)
	rs[0].Rate, fallback.Rate = ratelimit.PerHour(8), ratelimit.PerHour(8)
	assert.Equal(t, 5, check(t, l, ratelimit.Request{Endpoint: "/", Tier: "paid"}).Limit)
	assert.Equal(t, 1, check(t, l, ratelimit.Request{Endpoint: "/", Client: "bob"}).Limit)
	assert.Equal(t, 2, l.Allow("ann", "/other").Limit)
}

// TestTiers proves that a client's tier sets its rate, and that a change of tier grants
// nothing by itself.
func TestTiers(t *testing.T) {
	l, clock := rules(t, []ratelimit.Rule{{
		Endpoint: "/", Rate: ratelimit.PerMinute(10),
		Tiers: map[string]ratelimit.Rate{"free": ratelimit.PerMinute(60), "paid": ratelimit.PerMinute(600)},
	}}, nil)
	ask := func(client, tier string, cost int) ratelimit.Result {
		return check(t, l, ratelimit.Request{Client: client, Endpoint: "/", Tier: tier, Cost: cost})
	}
	require.Equal(t, by("/", yes(60, 20, 40*sec)), ask("ann", "free", 40))
	require.Equal(t, by("/", yes(600, 560, 4*sec)), ask("bob", "paid", 40))
	require.Equal(t, by("/", yes(10, 9, 6*sec)), ask("eve", "", 1), "no tier is the rule's own rate")
	require.Equal(t, by("/", yes(10, 9, 6*sec)), ask("dan", "gold", 1), "an unknown tier is the rule's own rate too")

	clock.Advance(10 * sec)
	require.Equal(t, by("/", yes(600, 29, 57100*ms)), ask("ann", "paid", 1), "10 s at the old rate have earned 10; a raise grants nothing")
	clock.Advance(10 * sec)
	require.Equal(t, by("/", yes(600, 128, 47200*ms)), ask("ann", "paid", 0), "a cost of 0 is a cost of 1; 10 s at the new rate have earned 100")
}

// TestResolve proves that a rule's Resolve function overrides tiers and the rule's own
// rate, and that an invalid rate of it is reported and not used.
func TestResolve(t *testing.T) {
	rates := map[string]ratelimit.Rate{
		"a": ratelimit.PerHour(2), "b": ratelimit.PerHour(3), "zero": {}, "other window": ratelimit.PerDay(2),
	}
	l, _ := rules(t, []ratelimit.Rule{{
		Endpoint: "/", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(4),
		Tiers:   map[string]ratelimit.Rate{"paid": ratelimit.PerHour(5)},
		Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) { rate, ok := rates[r.Client]; return rate, ok },
	}}, nil)
	for client, want := range map[string]int{"a": 2, "b": 3, "c": 4, "zero": 4, "other window": 4} {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: client, Endpoint: "/"})
		assert.Equal(t, by("/", yes(want, want-1, time.Hour)), res, client)
		if want == 4 && client != "c" {
			assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "the rule's own rate holds, and the error says why")
			assert.ErrorContains(t, err, `ratelimit: rules["/"].resolve.`)
		} else {
			assert.NoError(t, err, client)
		}
	}
	assert.Equal(t, 5, check(t, l, ratelimit.Request{Client: "d", Endpoint: "/", Tier: "paid"}).Limit, "Resolve returns false, so the tier's rate holds")
	assert.Equal(t, 2, check(t, l, ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid"}).Limit, "Resolve goes before the tier")
	_, err := l.Check(t.Context(), ratelimit.Request{Client: "zero", Endpoint: "/"})
	assert.EqualError(t, err, `ratelimit: rules["/"].resolve.requests is 0: must be at least 1
ratelimit: rules["/"].resolve.per is 0s: must be longer than zero`)
}

// TestResetOfAClient proves that Reset clears the client's own state and nothing that it
// shares with other clients or endpoints.
func TestResetOfAClient(t *testing.T) {
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

// TestSetRule proves that SetRule adds a rule, replaces one in its place, and replaces the
// default rule by its name.
func TestSetRule(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerHour(4)}, {Endpoint: "/b", Rate: ratelimit.PerHour(4)}}, &ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(4)})
	for _, endpoint := range []string{"/a", "/b", "/x"} {
		l.Allow("ann", endpoint)
	}
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Rate: ratelimit.PerHour(2)}))
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(2)}))
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/c", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, []string{"/a", "/b", "/c", "rest"}, names(l), "a rule keeps its place, and a new one comes after the others")
	require.Equal(t, by("/a", yes(2, 1, 30*mins)), l.Allow("ann", "/a"), "its keys keep their tokens: 3 of 4 are 2 of 2")
	require.Equal(t, by("rest", yes(2, 1, 30*mins)), l.Allow("ann", "/x"), "those of the default rule too")
	require.Equal(t, by("/c", yes(2, 1, 30*mins)), l.Allow("ann", "/c"))

	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "/a", Endpoint: "/moved", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, by("rest", yes(2, 0, time.Hour)), l.Allow("ann", "/a"), "it is for another endpoint now")
	require.Equal(t, by("/a", yes(2, 0, time.Hour)), l.Allow("ann", "/moved"))
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "default", Rate: ratelimit.PerHour(9)}))
	require.Equal(t, []string{"/a", "/b", "/c", "default", "rest"}, names(l), "the default rule has another name, so this one is a rule to be named")

	for _, row := range []struct {
		rule ratelimit.Rule
		want string
	}{
		{ratelimit.Rule{Rate: ratelimit.PerHour(1)}, `ratelimit: rule.endpoint is "": must be set, or a name to ask for the rule by`},
		{ratelimit.Rule{Endpoint: "/b"}, "ratelimit: rule.rate.requests is 0: must be at least 1\nratelimit: rule.rate.per is 0s: must be longer than zero"},
		{ratelimit.Rule{Name: "rest", Endpoint: "/b", Rate: ratelimit.PerHour(1)}, `ratelimit: rule.endpoint is "/b": must be empty: the default rule is for the endpoints that no other matches`},
	} {
		err := l.SetRule(row.rule)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		assert.EqualError(t, err, row.want)
	}
	require.Equal(t, by("/b", yes(4, 2, 30*mins)), l.Allow("ann", "/b"), "what is refused changes nothing")
}

// TestSetConfig proves that SetConfig sets one rule as Reload sets all: with what code has given.
func TestSetConfig(t *testing.T) {
	limiter := newGauge()
	l, _ := rules(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerHour(4), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(3), r.Client == "bob" }},
		{Endpoint: "/custom", Limiter: limiter, Rate: ratelimit.PerHour(4)},
	}, &ratelimit.Rule{Rate: ratelimit.PerHour(4)})
	l.Allow("ann", "/a")
	require.NoError(t, l.SetConfig(config("/a", "2/h")))
	require.NoError(t, l.SetConfig(config("/custom", "2/h")))
	require.NoError(t, l.SetConfig(config("/new", "2/h")))
	require.NoError(t, l.SetConfig(map[string]any{"name": "default", "algorithm": "TOKEN_BUCKET", "algoConfig": map[string]any{"rate": "2/h"}}))
	require.Equal(t, []string{"/a", "/custom", "/new", "default"}, names(l))
	require.Equal(t, by("/a", yes(2, 1, 30*mins)), l.Allow("ann", "/a"), "its keys keep their state")
	require.Equal(t, 3, l.Allow("bob", "/a").Limit, "the rule keeps its Resolve")
	require.Equal(t, by("/custom", yes(7, 3, sec)), l.Allow("ann", "/custom"), "and its Limiter")
	require.Equal(t, []ratelimit.Rate{ratelimit.PerHour(2)}, limiter.told)
	require.Equal(t, by("default", yes(2, 1, 30*mins)), l.Allow("ann", "/x"))

	assert.EqualError(t, l.SetConfig(config("/a", "1/x")), `ratelimit: config.algoConfig.rate is "1/x": its time must be in ns, us, ms, s, m (minutes), h, d or w`)
	assert.EqualError(t, l.SetConfig(nil), "ratelimit: config is nil: must be a map that has algorithm and algoConfig")
	require.Equal(t, by("/a", yes(2, 0, time.Hour)), l.Allow("ann", "/a"))
}

// TestRules proves that Rules returns complete rules, that a change does not change what it has
// returned, and that it allocates nothing.
func TestRules(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerHour(4), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(9)}}},
		&ratelimit.Rule{Rate: ratelimit.PerHour(5), OnStoreError: ratelimit.FailClosed},
		ratelimit.WithStore(store), ratelimit.WithName("shop"), ratelimit.WithFailurePolicy(ratelimit.FailLocal(3)))
	want := ratelimit.Rule{Name: "/a", Endpoint: "/a", Key: ratelimit.KeyUser, Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerHour(4),
		Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(9)}, Mode: ratelimit.ModeEnforce, OnStoreError: ratelimit.FailLocal(3)}
	wantDefault := ratelimit.Rule{Name: "default", Key: ratelimit.KeyUser, Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerHour(5),
		Mode: ratelimit.ModeEnforce, OnStoreError: ratelimit.FailClosed}
	rules, defaultRule := l.Rules()
	require.Equal(t, []ratelimit.Rule{want}, rules)
	require.Equal(t, &wantDefault, defaultRule)

	require.NoError(t, l.UpdateRate("/a", ratelimit.PerHour(6)))
	require.NoError(t, l.AddRule(ratelimit.Rule{Endpoint: "/b", Rate: ratelimit.PerHour(1)}))
	require.NoError(t, l.RemoveRule("default"))
	require.Equal(t, []ratelimit.Rule{want}, rules, "what was returned is of its time")
	require.Equal(t, &wantDefault, defaultRule)
	rules, defaultRule = l.Rules()
	require.Equal(t, ratelimit.PerHour(6), rules[0].Rate)
	require.Equal(t, []string{"/a", "/b"}, names(l))
	require.Nil(t, defaultRule)
	require.NoError(t, l.Replace(rules, defaultRule), "they can be given back")
	if !raceEnabled {
		require.Zero(t, testing.AllocsPerRun(100, func() { rules, defaultRule = l.Rules() }))
	}
}

// TestRequiredRules proves that no change drops a rule that must exist.
func TestRequiredRules(t *testing.T) {
	const want = `ratelimit: rules["login"] is missing: must exist: WithRequiredRules names it`
	login, rest := ratelimit.Rule{Name: "login", Rate: ratelimit.PerHour(2)}, ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(2)}
	_, err := ratelimit.New(nil, nil, ratelimit.WithRequiredRules("login", "rest"))
	require.EqualError(t, err, want+"\n"+`ratelimit: rules["rest"] is missing: must exist: WithRequiredRules names it`)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	l := newRules(t, []ratelimit.Rule{login}, &rest, ratelimit.WithRequiredRules("login"), ratelimit.WithRequiredRules("rest"))
	check(t, l, ratelimit.Request{Client: "c", Rules: []string{"login"}})
	for name, change := range map[string]func() error{
		"RemoveRule": func() error { return l.RemoveRule("login") },
		"Replace":    func() error { return l.Replace(nil, &rest) },
		"Reload": func() error {
			return l.Reload([]map[string]any{config("/login", "1/h")}, map[string]any{"name": "rest", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "1/h"}})
		},
	} {
		err := change()
		assert.EqualError(t, err, want, name)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, name)
	}
	assert.ErrorContains(t, l.RemoveRule("default"), `"rest"`)
	assert.ErrorContains(t, l.SetDefaultRule(ratelimit.Rule{Rate: ratelimit.PerHour(9)}), `"rest"`, "the default rule would have another name")
	require.Equal(t, []string{"login", "rest"}, names(l))
	require.Equal(t, 1, peekAt(t, l, "login", "c").Remaining, "what is refused changes nothing")
	require.NoError(t, l.Replace([]ratelimit.Rule{rest, login}, nil), "it may be any rule")
	_, err = ratelimit.NewTokenBucket(ratelimit.PerHour(1), ratelimit.WithRequiredRules("login"), ratelimit.WithObserver(observing(func(ratelimit.Decision) {})))
	require.NoError(t, err, "a limiter by itself has no rules")
}

// TestManyRules proves that a change costs what it changes: it asks Supports of the store about
// the rates of its own rule alone, and allocates about as much with many rules as with few.
func TestManyRules(t *testing.T) {
	asked := 0
	store := &askedStore{faultyStore: newFaultyStore(t, nil), supports: func(ratelimit.Algorithm, ratelimit.Rate) error {
		asked++
		return nil
	}}
	rule := func(i int) ratelimit.Rule {
		return ratelimit.Rule{Endpoint: "/" + strconv.Itoa(i), Rate: ratelimit.PerHour(i + 1)}
	}
	l := newRules(t, nil, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
	changes := func() float64 {
		n := 20_000
		return testing.AllocsPerRun(20, func() {
			n++
			require.NoError(t, errors.Join(l.AddRule(rule(n)), l.UpdateRate("/1", ratelimit.PerHour(n)), l.RemoveRule("/"+strconv.Itoa(n))))
		})
	}
	for i := range 10 {
		require.NoError(t, l.AddRule(rule(i)))
	}
	few := changes()
	for i := 10; i < 4_999; i++ {
		require.NoError(t, l.AddRule(rule(i)))
	}
	asked = 0
	many := changes()
	require.Equal(t, 21*2, asked, "once for AddRule and once for UpdateRate, in 21 rounds")
	require.Less(t, many, 2*few+100, "with 10 rules, a round allocates %v times", few)
	require.NoError(t, l.RemoveRule("/3"))
	require.EqualError(t, l.AddRule(rule(4_000)), `ratelimit: rules[4998].endpoint is "/4000": is that of rules[3999]: rules that share an endpoint need names`)

	full := make([]ratelimit.Rule, 10_000)
	for i := range full {
		full[i] = rule(i)
	}
	l = newRules(t, full, nil)
	require.EqualError(t, l.AddRule(rule(10_000)), "ratelimit: rules is 10001: must be at most 10000")
	require.NoError(t, l.SetRule(rule(1)), "a rule that is replaced is none more")
}

// config returns a config of a token bucket.
func config(endpoint, rate string) map[string]any {
	return map[string]any{"endpoint": endpoint, "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": rate}}
}

func TestNewFromConfig(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l, err := ratelimit.NewFromConfig([]map[string]any{
		{"endpoint": "/search", "algorithm": "TokenBucket", "algoConfig": map[string]any{"capacity": 10, "refillRatePerSecond": 1}},
		{"endpoint": "/login", "key": "user_endpoint", "algorithm": "FIXED_WINDOW", "algoConfig": map[string]any{"maxRequests": 3, "windowMs": 60_000}},
		{"endpoint": "/shadow", "mode": "shadow", "algorithm": "leaky-bucket", "algoConfig": map[string]any{"rate": "1/h"}},
	}, map[string]any{"algorithm": "SlidingLog", "algoConfig": map[string]any{"limit": 2, "windowMs": 1000}}, ratelimit.WithClock(clock))
	require.NoError(t, err)
	require.Equal(t, by("/search", yes(10, 9, sec)), l.Allow("ann", "/search"))
	clock.Advance(500 * ms)
	require.Equal(t, by("/search", yes(10, 8, 1500*ms)), l.Allow("ann", "/search"))
	require.Equal(t, by("/login", yes(3, 2, 59500*ms)), l.Allow("ann", "/login"))
	require.Equal(t, by("default", yes(2, 1, sec)), l.Allow("bob", "/shadow"), "a shadow rule does not stand in for the default rule")
	require.Equal(t, by("default", yes(2, 1, sec)), l.Allow("ann", "/"))

	onlyDefault, err := ratelimit.NewFromConfig(nil, map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "1/h"}})
	require.NoError(t, err)
	assert.Equal(t, 1, onlyDefault.Allow("ann", "/").Limit)

	for _, tt := range []struct {
		configs []map[string]any
		opts    []ratelimit.Option
		want    string
		why     string
	}{
		{nil, nil, "ratelimit: configs is empty: must have at least one config, or there be a default config", "nothing at all"},
		{[]map[string]any{config("/a", "1/x")}, []ratelimit.Option{ratelimit.WithMaxKeys(0)},
			"ratelimit: maxKeys is 0: must be at least 1\nratelimit: configs[0].algoConfig.rate is \"1/x\": its time must be in ns, us, ms, s, m (minutes), h, d or w", "options and rules"},
	} {
		l, err := ratelimit.NewFromConfig(tt.configs, nil, tt.opts...)
		assert.Nil(t, l, tt.why)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
		assert.EqualError(t, err, tt.want, tt.why)
	}
}

// TestReloadKeepsCode reloads a limiter whose rules have code.
func TestReloadKeepsCode(t *testing.T) {
	configs := []map[string]any{config("/resolved", "10/h"), config("/custom", "10/h"), config("/plain", "10/h")}
	fallback := map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "10/h"}}
	rs, def, err := ratelimit.DecodeRules(configs, fallback)
	require.NoError(t, err)
	resolve := func(r ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(3), r.Client == "ann" }
	rs[0].Resolve, def.Resolve = resolve, resolve
	custom, err := ratelimit.NewTokenBucket(ratelimit.PerHour(7))
	require.NoError(t, err)
	rs[1].Limiter = custom
	l, _ := rules(t, rs, def)
	for _, endpoint := range []string{"/resolved", "/custom", "/plain", "/other"} {
		l.Allow("ann", endpoint)
	}

	changed := []map[string]any{config("/plain", "20/h"), config("/resolved", "20/h"), config("/custom", "20/h"), config("/new", "20/h")}
	require.NoError(t, l.Reload(changed, fallback))
	assert.Equal(t, 3, l.Allow("ann", "/resolved").Limit, "the code of the rule of that name")
	assert.Equal(t, 20, l.Allow("bob", "/resolved").Limit, "beside the new rate")
	assert.Equal(t, 20, l.Allow("ann", "/custom").Limit, "a limiter that code has given is told the new rate")
	assert.Equal(t, by("/plain", yes(20, 8, 36*mins)), l.Allow("ann", "/plain"))
	assert.Equal(t, by("/new", yes(20, 19, 3*mins)), l.Allow("ann", "/new"))
	assert.Equal(t, 3, l.Allow("ann", "/other").Limit)

	err = l.Reload([]map[string]any{config("/plain", "30/h"), config("/plain", "40/h"), {"endpoint": "/b"}}, nil)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "configs[1].endpoint")
	require.ErrorContains(t, err, "configs[2].algorithm")
	assert.Equal(t, by("/plain", yes(20, 7, 39*mins)), l.Allow("ann", "/plain"), "what is refused changes nothing")
}

// A tally grants so many units, ever.
type tally struct{ limit, used int }

func (c *tally) Allow(key string) ratelimit.Result {
	res, _ := c.Take(context.Background(), key, 1)
	return res
}

func (c *tally) Take(_ context.Context, _ string, n int) (ratelimit.Result, error) {
	if c.used+n > c.limit {
		return ratelimit.Result{Limit: c.limit, Remaining: c.limit - c.used, RetryAfter: ratelimit.Never}, nil
	}
	c.used += n
	return ratelimit.Result{Allowed: true, Limit: c.limit, Remaining: c.limit - c.used}, nil
}

// TestReloadOfCustomAlgorithms keeps a limiter that would be made of the same config.
func TestReloadOfCustomAlgorithms(t *testing.T) {
	factory := ratelimit.NewFactory()
	made := 0
	require.NoError(t, factory.Register("Tally", func(c map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		return &tally{limit: c["limit"].(int)}, nil
	}))
	config := func(limit int) []map[string]any {
		return []map[string]any{{"endpoint": "/", "algorithm": "tally", "algoConfig": map[string]any{"limit": limit}}}
	}
	l, err := ratelimit.NewFromConfig(config(5), nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	require.Equal(t, 4, l.Allow("ann", "/").Remaining)
	require.NoError(t, l.Reload(config(5), nil))
	require.Equal(t, 3, l.Allow("ann", "/").Remaining, "the same config: the same limiter")
	require.NoError(t, l.Reload(config(6), nil))
	require.Equal(t, 5, l.Allow("ann", "/").Remaining, "another config: another limiter")
	require.NoError(t, l.Reload([]map[string]any{{"endpoint": "/", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "2/h"}}}, nil))
	require.Equal(t, by("/", yes(2, 1, 30*mins)), l.Allow("ann", "/"), "an algorithm of this package in place of it")

	_, err = ratelimit.NewFromConfig(config(5), nil)
	require.ErrorContains(t, err, `unknown algorithm`, "without the factory nobody knows it")
	_, err = ratelimit.NewFromConfig(config(5), nil, ratelimit.WithFactory(nil))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
}

// TestFactoryWithAStore makes two limiters that share what is in a store.
func TestFactoryWithAStore(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	factory := ratelimit.NewFactory(ratelimit.WithStore(store), ratelimit.WithClock(clock))
	bucket := map[string]any{"rate": "3/h"}
	_, err = factory.Create(map[string]any{"algorithm": "TokenBucket", "algoConfig": bucket})
	require.ErrorContains(t, err, "ratelimit: name is missing", "a limiter in a store needs a name")
	for left := 2; left >= 0; left-- {
		l, err := factory.Create(map[string]any{"name": "mail", "algorithm": "TokenBucket", "algoConfig": bucket})
		require.NoError(t, err)
		require.Equal(t, yes(3, left, time.Duration(3-left)*20*mins), l.Allow("ann"))
	}
	named := ratelimit.NewFactory(ratelimit.WithStore(store), ratelimit.WithClock(clock), ratelimit.WithName("mail"))
	l, err := named.Create(map[string]any{"algorithm": "TokenBucket", "algoConfig": bucket})
	require.NoError(t, err)
	require.Equal(t, no(3, 0, 20*mins, time.Hour), l.Allow("ann"), "of the same name")
}
