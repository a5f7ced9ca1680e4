package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// search returns a rule for /search at the rate r.
func search(r ratelimit.Rate) ratelimit.Rule { return ratelimit.Rule{Endpoint: "/search", Rate: r} }

// TestAddAndRemoveRules proves that AddRule and RemoveRule change one rule and keep the state of
// the others.
func TestAddAndRemoveRules(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{search(ratelimit.PerHour(2))}, nil)
	l.Allow("ann", "/search")
	require.Equal(t, unlimited, l.Allow("ann", "/login"))

	require.NoError(t, l.AddRule(ratelimit.Rule{Endpoint: "/login", Rate: ratelimit.PerHour(5)}))
	require.Equal(t, by("/login", yes(5, 4, 12*minute)), l.Allow("ann", "/login"))
	require.Equal(t, by("/search", yes(2, 0, time.Hour)), l.Allow("ann", "/search"), "the other rule keeps its keys")

	for _, tt := range []struct {
		rule ratelimit.Rule
		want string
		why  string
	}{
		{search(ratelimit.PerHour(9)), `ratelimit: rules[2].endpoint is "/search": is that of rules[0]: rules that share an endpoint need names`,
			"without a name"},
		{ratelimit.Rule{Name: "/login", Rate: ratelimit.PerHour(9)},
			`ratelimit: rules[2].name is "/login": is that of rules[1]: a name occurs once`, "the name is taken"},
		{ratelimit.Rule{Endpoint: "/new"}, "ratelimit: rules[2].rate.requests is 0: must be at least 1\nratelimit: rules[2].rate.per is 0s: " +
			"must be longer than zero", "all that is wrong with the rate"},
	} {
		err := l.AddRule(tt.rule)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
		assert.EqualError(t, err, tt.want, tt.why)
	}
	require.Equal(t, by("/search", no(2, 0, 30*minute, time.Hour)), l.Allow("ann", "/search"), "what is refused changes nothing")

	require.NoError(t, l.RemoveRule("/search"))
	require.Equal(t, unlimited, l.Allow("ann", "/search"))
	assert.ErrorIs(t, l.RemoveRule("/search"), ratelimit.ErrUnknownRule, "it is gone")
	require.NoError(t, l.AddRule(search(ratelimit.PerHour(2))))
	require.Equal(t, by("/search", yes(2, 1, 30*minute)), l.Allow("ann", "/search"), "what was used went with the rule")
}

// TestUpdateRate proves that UpdateRate keeps what each key has used, grants nothing, and does not
// change the rates of tiers.
func TestUpdateRate(t *testing.T) {
	tiered := search(ratelimit.PerHour(10))
	tiered.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(100)}
	l, clock := rules(t, []ratelimit.Rule{tiered}, nil)
	check(t, l, ratelimit.Request{Client: "ann", Endpoint: "/search", Cost: 6})
	check(t, l, ratelimit.Request{Client: "eve", Endpoint: "/search", Cost: 60, Tier: "paid"})

	require.NoError(t, l.UpdateRate("/search", ratelimit.PerHour(20)))
	require.Equal(t, by("/search", yes(20, 3, 51*minute)), l.Allow("ann", "/search"), "a raise has to be earned")
	require.Equal(t, by("/search", yes(100, 39, 36*minute+36*sec)), check(t, l,
		ratelimit.Request{Client: "eve", Endpoint: "/search", Tier: "paid"}),
		"a tier keeps its rate")
	require.NoError(t, l.UpdateRate("/search", ratelimit.PerHour(8)))
	require.Equal(t, by("/search", yes(8, 2, 45*minute)), l.Allow("ann", "/search"), "a cut leaves the three that were left")
	clock.Advance(15 * minute)
	require.Equal(t, by("/search", yes(8, 3, 37*minute+30*sec)), l.Allow("ann", "/search"))

	assert.ErrorIs(t, l.UpdateRate("no such", ratelimit.PerHour(1)), ratelimit.ErrUnknownRule)
	assert.EqualError(t, l.UpdateRate("/serach", ratelimit.PerHour(1)), `ratelimit: unknown rule "/serach"; did you mean "/search"?`)
	assert.EqualError(t, l.RemoveRule("Search"), `ratelimit: unknown rule "Search"; did you mean "/search"?`)
	_, err := l.Check(t.Context(), ratelimit.Request{Rules: []string{"/SEARCH"}})
	assert.EqualError(t, err, `ratelimit: unknown rule "/SEARCH"; did you mean "/search"?`)
	assert.EqualError(t, l.UpdateRate("/search", ratelimit.Rate{Requests: 1}),
		`ratelimit: rules["/search"].rate.per is 0s: must be longer than zero`)
	require.Equal(t, by("/search", yes(8, 2, 45*minute)), l.Allow("ann", "/search"), "what is refused changes nothing")
}

// TestChangeOneOfEqualRates proves that a change of one rate converts the keys that were charged at this
// rate by its name, at the instant of the change, and no keys of a tier whose rate is equal. A rate that
// Resolve returns stays as it is.
func TestChangeOneOfEqualRates(t *testing.T) {
	fast, slow := ratelimit.PerSecond(10), ratelimit.PerHour(10)
	rule := func(a ratelimit.Algorithm, base, free, gold ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{
			Endpoint: "/", Algorithm: a, Rate: base, Tiers: map[string]ratelimit.Rate{"free": free, "gold": gold},
			Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) { return fast, r.Client == "by Resolve" },
		}
	}
	base := func(change func(l *ratelimit.RateLimiter, r ratelimit.Rule) error) func(*ratelimit.RateLimiter, ratelimit.Algorithm) error {
		return func(l *ratelimit.RateLimiter, a ratelimit.Algorithm) error {
			return change(l, rule(a, slow, fast, fast))
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(l *ratelimit.RateLimiter, a ratelimit.Algorithm) error
		changes string // the client whose rate changes
	}{
		{"UpdateRate", base(func(l *ratelimit.RateLimiter, r ratelimit.Rule) error { return l.UpdateRate("/", r.Rate) }), "of no tier"},
		{"SetRule", base((*ratelimit.RateLimiter).SetRule), "of no tier"},
		{"Replace", base(func(l *ratelimit.RateLimiter, r ratelimit.Rule) error { return l.Replace([]ratelimit.Rule{r}, nil) }), "of no tier"},
		{"Reload", func(l *ratelimit.RateLimiter, a ratelimit.Algorithm) error {
			return l.Reload([]map[string]any{{"endpoint": "/", "algorithm": string(a), "algoConfig": map[string]any{"rate": "10/h"},
				"tiers": map[string]any{"free": "10/s", "gold": "10/s"}}}, nil)
		}, "of no tier"},
		{"SetRule of a tier", func(l *ratelimit.RateLimiter, a ratelimit.Algorithm) error {
			return l.SetRule(rule(a, fast, slow, fast))
		}, "free"},
	} {
		for _, algorithm := range []ratelimit.Algorithm{ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket} {
			l, clock := rules(t, []ratelimit.Rule{rule(algorithm, fast, fast, fast)}, nil)
			clients := []string{"of no tier", "free", "gold", "by Resolve"}
			ask := func(client string) ratelimit.Request {
				return ratelimit.Request{Client: client, Endpoint: "/", Tier: client, Cost: 10}
			}
			left := func(client string) int {
				res, err := l.Peek(t.Context(), ask(client))
				require.NoError(t, err)
				return res.Remaining
			}
			for _, client := range clients {
				require.True(t, check(t, l, ask(client)).Allowed)
			}
			clock.Advance(sec / 2)
			require.NoError(t, tt.change(l, algorithm))
			for _, client := range clients {
				require.Equal(t, 5, left(client), "%s, %s, %s: at the change, each has earned at the old rate", algorithm, tt.name, client)
			}
			clock.Advance(sec / 2)
			for _, client := range clients {
				want := 10
				if client == tt.changes {
					want = 5
				}
				require.Equal(t, want, left(client), "%s, %s, %s: after the change", algorithm, tt.name, client)
			}
		}
	}
}

// TestReplaceKeepsState proves which changes of a rule by Replace keep the state of its keys.
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
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Rate = ratelimit.Rate{Requests: 2, Per: 30 * minute, Burst: 4} }), yes(4, 0, time.Hour),
			"the same rate in other words"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Algorithm = ratelimit.AlgorithmLeakyBucket }), yes(4, 3, 15*minute),
			"another algorithm: new keys"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Key = ratelimit.KeyUserEndpoint }), yes(4, 3, 15*minute), "another key: new keys"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Name = "other" }), yes(4, 3, 15*minute), "another name: another rule"},
		{with(bucket, func(r *ratelimit.Rule) { r.Name = "/" }), with(bucket, func(r *ratelimit.Rule) { r.Name, r.Endpoint = "/", "*" }),
			yes(4, 0, time.Hour), "another endpoint of the same name"},
		{bucket, with(bucket, func(r *ratelimit.Rule) { r.Tiers = map[string]ratelimit.Rate{"": ratelimit.PerHour(8)} }), yes(8, 0, time.Hour),
			"a tier that was not there"},
		{window(ratelimit.PerHour(4)), window(ratelimit.PerHour(9)), yes(9, 5, time.Hour),
			"a window counts what was used, so a raise leaves more units"},
		{window(ratelimit.PerHour(4)), window(ratelimit.PerHour(2)), no(2, 0, time.Hour, time.Hour), "more is used than the new limit"},
		{window(ratelimit.PerHour(4)), window(ratelimit.PerDay(5)), yes(5, 1, 24*time.Hour),
			"another length: the count goes into the new window of the present instant"},
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
		{Endpoint: "/w", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1).WithBurst(2),
			OnStoreError: ratelimit.FailLocal(0)},
		{Endpoint: "/v", Algorithm: "Bucket", Rate: ratelimit.PerHour(1)},
		{Endpoint: "/t", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1),
			Tiers: map[string]ratelimit.Rate{"b": ratelimit.PerDay(1), "a": {}}},
	}, &ratelimit.Rule{Endpoint: "/d", Rate: ratelimit.PerHour(1)})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.EqualError(t, err, `ratelimit: rules[1].mode is "off": must be one of "enforce", "shadow", "advise"
ratelimit: rules[1].rate.requests is 0: must be at least 1
ratelimit: rules[1].rate.per is 0s: must be longer than zero
ratelimit: rules[2].endpoint is "a*b": must have a "*" at the end only
ratelimit: rules[2].key is "users": must be one of "user", "endpoint", "user_endpoint", "ip", "global", `+
		`"attr:NAME", or several of them joined by "+"
ratelimit: rules[3].endpoint is "": must be set, or a name to ask for the rule by
ratelimit: rules[4].endpoint is "/search": is that of rules[0]: rules that share an endpoint need names
ratelimit: rules[5].onStoreError is local:0: must have at least 1 replica
ratelimit: rules[5].rate.burst is 2: must be 0: a fixed window has no burst
ratelimit: rules[6].algorithm is "Bucket": must be one of "FixedWindow", "InFlight", "LeakyBucket", "SlidingWindowCounter", `+
		`"SlidingWindowLog", "TokenBucket", or the rule have a limiter
ratelimit: rules[7].tiers["a"].requests is 0: must be at least 1
ratelimit: rules[7].tiers["a"].per is 0s: must be longer than zero
ratelimit: rules[7].tiers["a"].per is 0s: must be that of the rule's rate: a window has one length
ratelimit: rules[7].tiers["b"].per is 24h0m0s: must be that of the rule's rate: a window has one length
ratelimit: defaultRule.endpoint is "/d": must be empty: the default rule is for the endpoints that no other matches`)
	require.Equal(t, by("/search", yes(2, 0, time.Hour)), l.Allow("ann", "/search"))
	require.Equal(t, by("default", yes(4, 3, 15*minute)), l.Allow("ann", "/a"))

	many := make([]ratelimit.Rule, 10_001)
	require.EqualError(t, l.Replace(many, nil), "ratelimit: rules is 10001: must be at most 10000")
}

// TestRulesAreCopied proves that a RateLimiter copies its rules: later changes of the caller's
// slice and maps do not reach it.
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

// TestSetRule proves that SetRule adds a rule, replaces a rule of the same name in its place, and
// replaces the default rule by its name.
func TestSetRule(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerHour(4)}, {Endpoint: "/b", Rate: ratelimit.PerHour(4)}},
		&ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(4)})
	for _, endpoint := range []string{"/a", "/b", "/x"} {
		l.Allow("ann", endpoint)
	}
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Rate: ratelimit.PerHour(2)}))
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(2)}))
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/c", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, []string{"/a", "/b", "/c", "rest"}, names(l), "a rule keeps its place, and a new one comes after the others")
	require.Equal(t, by("/a", yes(2, 1, 30*minute)), l.Allow("ann", "/a"), "its keys keep their tokens: 3 of 4 are 2 of 2")
	require.Equal(t, by("rest", yes(2, 1, 30*minute)), l.Allow("ann", "/x"), "those of the default rule too")
	require.Equal(t, by("/c", yes(2, 1, 30*minute)), l.Allow("ann", "/c"))

	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "/a", Endpoint: "/moved", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, by("rest", yes(2, 0, time.Hour)), l.Allow("ann", "/a"), "it is for another endpoint now")
	require.Equal(t, by("/a", yes(2, 0, time.Hour)), l.Allow("ann", "/moved"))
	require.NoError(t, l.SetRule(ratelimit.Rule{Name: "default", Rate: ratelimit.PerHour(9)}))
	require.Equal(t, []string{"/a", "/b", "/c", "default", "rest"}, names(l),
		"the default rule has another name, so this one is a rule to be named")

	for _, row := range []struct {
		rule ratelimit.Rule
		want string
	}{
		{ratelimit.Rule{Rate: ratelimit.PerHour(1)}, `ratelimit: rule.endpoint is "": must be set, or a name to ask for the rule by`},
		{ratelimit.Rule{Endpoint: "/b"}, "ratelimit: rule.rate.requests is 0: must be at least 1\nratelimit: rule.rate.per is 0s: must be " +
			"longer than zero"},
		{ratelimit.Rule{Name: "rest", Endpoint: "/b", Rate: ratelimit.PerHour(1)},
			`ratelimit: rule.endpoint is "/b": must be empty: the default rule is for the endpoints that no other matches`},
	} {
		err := l.SetRule(row.rule)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		assert.EqualError(t, err, row.want)
	}
	require.Equal(t, by("/b", yes(4, 2, 30*minute)), l.Allow("ann", "/b"), "what is refused changes nothing")
}

// TestSetConfig proves that SetConfig changes one rule as Reload changes all: the Resolve and the
// Limiter that code has set stay.
func TestSetConfig(t *testing.T) {
	limiter := newGauge()
	l, _ := rules(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerHour(4), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
			return ratelimit.PerHour(3), r.Client == "bob"
		}},
		{Endpoint: "/custom", Limiter: limiter, Rate: ratelimit.PerHour(4)},
	}, &ratelimit.Rule{Rate: ratelimit.PerHour(4)})
	l.Allow("ann", "/a")
	require.NoError(t, l.SetConfig(config("/a", "2/h")))
	require.NoError(t, l.SetConfig(config("/custom", "2/h")))
	require.NoError(t, l.SetConfig(config("/new", "2/h")))
	require.NoError(t, l.SetConfig(map[string]any{"name": "default", "algorithm": "TOKEN_BUCKET",
		"algoConfig": map[string]any{"rate": "2/h"}}))
	require.Equal(t, []string{"/a", "/custom", "/new", "default"}, names(l))
	require.Equal(t, by("/a", yes(2, 1, 30*minute)), l.Allow("ann", "/a"), "its keys keep their state")
	require.Equal(t, 3, l.Allow("bob", "/a").Limit, "the rule keeps its Resolve")
	require.Equal(t, by("/custom", yes(7, 3, sec)), l.Allow("ann", "/custom"), "and its Limiter")
	require.Equal(t, []ratelimit.Rate{ratelimit.PerHour(2)}, limiter.told)
	require.Equal(t, by("default", yes(2, 1, 30*minute)), l.Allow("ann", "/x"))

	assert.EqualError(t, l.SetConfig(config("/a", "1/x")),
		`ratelimit: config.algoConfig.rate is "1/x": its time must be in ns, us, ms, s, m (minutes), h, d or w, or be "month" or "year"`)
	assert.EqualError(t, l.SetConfig(nil), "ratelimit: config is nil: must be a map that has algorithm and algoConfig")
	require.Equal(t, by("/a", yes(2, 0, time.Hour)), l.Allow("ann", "/a"))
}

// TestRules proves that Rules returns rules with all defaults filled in, that a later change does
// not alter the returned rules, and that Rules does not allocate.
func TestRules(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerHour(4),
		Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(9)}}},
		&ratelimit.Rule{Rate: ratelimit.PerHour(5), OnStoreError: ratelimit.FailClosed},
		ratelimit.WithStore(store), ratelimit.WithName("shop"), ratelimit.WithFailurePolicy(ratelimit.FailLocal(3)))
	want := ratelimit.Rule{Name: "/a", Endpoint: "/a", Key: ratelimit.KeyUser, Algorithm: ratelimit.AlgorithmTokenBucket,
		Rate:  ratelimit.PerHour(4),
		Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(9)}, Mode: ratelimit.ModeEnforce, OnStoreError: ratelimit.FailLocal(3)}
	wantDefault := ratelimit.Rule{Name: "default", Key: ratelimit.KeyUser, Algorithm: ratelimit.AlgorithmTokenBucket,
		Rate: ratelimit.PerHour(5),
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

// A tally is a custom limiter that grants limit units in all.
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

// TestReloadOfCustomAlgorithms proves that Reload keeps a custom limiter, and its state, if its
// algoConfig is unchanged.
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
	require.NoError(t, l.Reload([]map[string]any{{"endpoint": "/", "algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "2/h"}}},
		nil))
	require.Equal(t, by("/", yes(2, 1, 30*minute)), l.Allow("ann", "/"), "an algorithm of this package in place of it")

	_, err = ratelimit.NewFromConfig(config(5), nil)
	require.ErrorContains(t, err, `unknown algorithm`, "without the factory nobody knows it")
	_, err = ratelimit.NewFromConfig(config(5), nil, ratelimit.WithFactory(nil))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
}

// inBubble runs test in a synctest bubble. A call that hangs is then a deadlock, which fails the
// test at once.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			test(t)
		}()
		<-done
	})
}

// A gauge is a custom limiter with a method SetRate. It records the rates that it is given, and how
// often it was closed.
type gauge struct {
	custom
	told   []ratelimit.Rate
	closed int
	tell   func(r ratelimit.Rate) error // called by SetRate, if it is not nil
	close  func()                       // called by Close, if it is not nil
}

func (g *gauge) SetRate(r ratelimit.Rate) error {
	g.told = append(g.told, r)
	if g.tell != nil {
		return g.tell(r)
	}
	return nil
}

func (g *gauge) Close() error {
	g.closed++
	if g.close != nil {
		g.close()
	}
	return errFault
}

// newGauge returns a gauge that grants every request.
func newGauge() *gauge { return &gauge{custom: answering(yes(7, 3, sec), nil)} }

// gauges returns a Factory with the algorithm Gauge, and the list of the gauges that it has made.
// It calls hook, if hook is not nil, before it makes a gauge.
func gauges(t *testing.T, hook func(config map[string]any) error) (*ratelimit.Factory, *[]*gauge) {
	made := new([]*gauge)
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Gauge", func(config map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		if hook != nil {
			if err := hook(config); err != nil {
				return nil, err
			}
		}
		*made = append(*made, newGauge())
		return (*made)[len(*made)-1], nil
	}))
	return factory, made
}

// gaugeConfig returns the config of a rule of the algorithm Gauge.
func gaugeConfig(endpoint string, limit any) map[string]any {
	return map[string]any{"endpoint": endpoint, "algorithm": "Gauge", "algoConfig": map[string]any{"limit": limit}}
}

// closed returns how often each of made was closed.
func closed(made []*gauge) (times []int) {
	for _, g := range made {
		times = append(times, g.closed)
	}
	return times
}

// names returns the names of the rules of l, the default rule last.
func names(l *ratelimit.RateLimiter) (names []string) {
	rules, defaultRule := l.Rules()
	for _, r := range rules {
		names = append(names, r.Name)
	}
	if defaultRule != nil {
		names = append(names, defaultRule.Name)
	}
	return names
}

// TestBuildFuncThatChangesRules proves that a BuildFunc may change the rules while a change of the
// rules calls it. The change of the BuildFunc is made first, and the BuildFunc is called once.
func TestBuildFuncThatChangesRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		factory, made := gauges(t, func(map[string]any) error {
			if l == nil {
				return nil
			}
			return l.AddRule(ratelimit.Rule{Name: fmt.Sprintf("inner%d", len(names(l))), Rate: ratelimit.PerHour(1)})
		})
		l = newRules(t, nil, nil, ratelimit.WithFactory(factory))
		require.NoError(t, l.SetConfig(gaugeConfig("/a", 1)))
		require.Equal(t, []string{"inner0", "/a"}, names(l), "the inner change is made before the outer one")
		require.NoError(t, l.SetConfig(gaugeConfig("/a", 2)))
		require.Equal(t, []string{"inner0", "/a", "inner2"}, names(l))
		require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", 3), gaugeConfig("/b", 3)}, nil))
		require.Equal(t, []string{"/a", "/b"}, names(l), "a Reload replaces what its own BuildFuncs have added")
		require.Equal(t, []int{1, 1, 0, 0}, closed(*made))
	})
}

// TestSupportsThatChangesRules proves that the Supports method of a store may change the rules
// while a change of the rules calls it.
func TestSupportsThatChangesRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		asked := 0
		store := &askedStore{faultyStore: newFaultyStore(t, nil), supports: func(ratelimit.Algorithm, ratelimit.Rate) error {
			if asked++; l != nil && asked < 10 {
				return errors.Join(l.RemoveRule("gone"), l.AddRule(ratelimit.Rule{Name: fmt.Sprint("inner", asked), Rate: ratelimit.PerHour(asked)}))
			}
			return nil
		}}
		rule := ratelimit.Rule{Name: "gone", Rate: ratelimit.PerHour(1)}
		first := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithName("shop"))
		require.Equal(t, 1, asked)
		asked, l = 8, first
		require.NoError(t, l.AddRule(ratelimit.Rule{Name: "outer", Rate: ratelimit.PerHour(100)}))
		require.Equal(t, []string{"inner9", "outer"}, names(l))
		require.Equal(t, 10, asked, "once for each rate")
	})
}

// TestSetRateThatChangesRules proves that SetRate of a custom limiter may change the rules while a
// change of the rules calls it. In the end the rule and its limiter have the same rate.
func TestSetRateThatChangesRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGauge()
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: ratelimit.PerHour(1)}}, nil)
		inner := 0
		g.tell = func(ratelimit.Rate) error {
			if inner++; inner == 1 {
				return errors.Join(l.UpdateRate("/a", ratelimit.PerHour(2)), l.SetDefaultRule(ratelimit.Rule{Rate: ratelimit.PerHour(9)}))
			}
			return nil
		}
		require.NoError(t, l.UpdateRate("/a", ratelimit.PerHour(5)))
		require.Equal(t, []ratelimit.Rate{ratelimit.PerHour(5), ratelimit.PerHour(2), ratelimit.PerHour(5)}, g.told,
			"the inner change has told another rate, so the outer one tells its own again")
		rules, _ := l.Rules()
		require.Equal(t, ratelimit.PerHour(5), rules[0].Rate)
		require.Equal(t, []string{"/a", "default"}, names(l))
	})
}

// TestSetRateThatAlwaysChangesItsRule proves that a change fails, and does not go on for ever, if
// SetRate changes its own rule each time it is called.
func TestSetRateThatAlwaysChangesItsRule(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g := newGauge()
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: ratelimit.PerHour(1)}}, nil)
		g.tell = func(r ratelimit.Rate) error {
			if r == ratelimit.PerHour(5) {
				return l.UpdateRate("/a", ratelimit.PerHour(2))
			}
			return nil
		}
		err := l.UpdateRate("/a", ratelimit.PerHour(5))
		require.EqualError(t, err, "ratelimit: rules is changed 100 times: must not be changed by each SetRate that the change calls")
		rules, _ := l.Rules()
		require.Equal(t, ratelimit.PerHour(2), rules[0].Rate)
		require.Equal(t, ratelimit.PerHour(2), g.told[len(g.told)-1], "the limiter has the rate of its rule")
	})
}

// TestResolveAndCloseThatChangeRules proves that Resolve may change the rules during a decision,
// and that Close may during a change, after the new rules are in force.
func TestResolveAndCloseThatChangeRules(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		factory, made := gauges(t, nil)
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/r", Rate: ratelimit.PerHour(3)}}, nil, ratelimit.WithFactory(factory))
		rule := ratelimit.Rule{Endpoint: "/r", Rate: ratelimit.PerHour(3), Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) {
			_ = l.RemoveRule("/r")
			return ratelimit.Rate{}, false
		}}
		require.NoError(t, l.SetRule(rule))
		require.Equal(t, "/r", l.Allow("c", "/r").Rule, "a decision goes by the rules that it began with")
		require.Equal(t, unlimited, l.Allow("c", "/r"))

		require.NoError(t, l.SetConfig(gaugeConfig("/a", 1)))
		(*made)[0].close = func() {
			require.Empty(t, names(l), "the change is made")
			require.NoError(t, l.AddRule(ratelimit.Rule{Name: "by Close", Rate: ratelimit.PerHour(1)}))
			panic(errFault)
		}
		require.NoError(t, l.RemoveRule("/a"), "neither the error nor the panic of Close undoes it")
		require.Equal(t, []string{"by Close"}, names(l))
		require.Equal(t, []int{1}, closed(*made))
	})
}

// TestHooksThatPanic proves that the panic of a function that a change calls reaches the caller of
// the change, that no rule has changed, and that no lock stays held.
func TestHooksThatPanic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		g, other := newGauge(), newGauge()
		l := newRules(t, []ratelimit.Rule{
			{Endpoint: "/other", Limiter: other, Rate: ratelimit.PerHour(1)},
			{Endpoint: "/a", Limiter: g, Rate: ratelimit.PerHour(1)},
		}, nil)
		g.tell = func(r ratelimit.Rate) error {
			if r == ratelimit.PerHour(5) {
				panic(errFault)
			}
			return nil
		}
		rules, _ := l.Rules()
		changed := []ratelimit.Rule{rules[0], rules[1]}
		changed[0].Rate, changed[1].Rate = ratelimit.PerHour(5), ratelimit.PerHour(5)
		require.PanicsWithValue(t, errFault, func() { _ = l.Replace(changed, nil) })
		after, _ := l.Rules()
		require.Equal(t, ratelimit.PerHour(1), after[0].Rate)
		require.Equal(t, []ratelimit.Rate{ratelimit.PerHour(5), ratelimit.PerHour(1)}, other.told, "a rate that was told is taken back")
		require.NoError(t, l.UpdateRate("/a", ratelimit.PerHour(6)), "nothing is left locked")
	})
}

// TestRatesOfCustomLimiters proves when SetRate of a custom limiter is called with the rate of its
// rule, and that a change of the rate is refused if the limiter has no SetRate.
func TestRatesOfCustomLimiters(t *testing.T) {
	one, five := ratelimit.PerHour(1), ratelimit.PerHour(5)
	deaf := answering(yes(7, 3, sec), nil)
	for _, row := range []struct {
		change func(l *ratelimit.RateLimiter, r ratelimit.Rule) error
		told   []ratelimit.Rate
		why    string
	}{
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error { return l.UpdateRate("/a", five) }, []ratelimit.Rate{five}, "UpdateRate"},
		{func(l *ratelimit.RateLimiter, r ratelimit.Rule) error { return l.SetRule(r) }, []ratelimit.Rate{five}, "SetRule"},
		{func(l *ratelimit.RateLimiter, r ratelimit.Rule) error { return l.Replace([]ratelimit.Rule{r}, nil) }, []ratelimit.Rate{five},
			"Replace"},
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error { return l.SetConfig(config("/a", "5/h")) }, []ratelimit.Rate{five}, "SetConfig"},
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error {
			return l.Reload([]map[string]any{config("/a", "5/h")}, nil)
		}, []ratelimit.Rate{five}, "Reload"},
		{func(l *ratelimit.RateLimiter, _ ratelimit.Rule) error { return l.UpdateRate("/a", one) }, []ratelimit.Rate{one},
			"UpdateRate to the same rate: the limiter may have another one"},
	} {
		g := newGauge()
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: one}}, nil)
		require.NoError(t, row.change(l, ratelimit.Rule{Endpoint: "/a", Limiter: g, Rate: five}), row.why)
		require.Equal(t, row.told, g.told, row.why)
		rules, _ := l.Rules()
		require.Equal(t, row.told[0], rules[0].Rate, row.why)

		g.tell = func(ratelimit.Rate) error { return errFault }
		err := l.UpdateRate("/a", ratelimit.PerHour(7))
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "%s: a rate that it refuses", row.why)
		require.ErrorIs(t, err, errFault, row.why)
		rules, _ = l.Rules()
		require.Equal(t, row.told[0], rules[0].Rate, row.why)

		require.EqualError(t, l.UpdateRate("/a", ratelimit.Rate{}), `ratelimit: rules["/a"].rate.requests is 0: must be at least 1
ratelimit: rules["/a"].rate.per is 0s: must be longer than zero`, "no rate")
		for _, invalid := range []ratelimit.Rate{{Requests: -1, Per: sec}, ratelimit.Unlimited} {
			require.ErrorIs(t, l.UpdateRate("/a", invalid), ratelimit.ErrInvalidConfig, invalid)
			require.ErrorIs(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: g, Rate: invalid}), ratelimit.ErrInvalidConfig, invalid)
		}
		require.Len(t, g.told, 2, "%s: an invalid rate is not told", row.why)

		l = newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: deaf, Rate: one}}, nil)
		err = row.change(l, ratelimit.Rule{Endpoint: "/a", Limiter: deaf, Rate: five})
		require.EqualError(t, err, `ratelimit: rules["/a"].limiter is ratelimit_test.custom: must have a method SetRate(Rate) error: the rule `+
			`gets another rate`, row.why)
	}

	g, next := newGauge(), newGauge()
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/a", Limiter: g, Rate: one}}, nil)
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: g}))
	rules, _ := l.Rules()
	require.Equal(t, one, rules[0].Rate, "a rule that gives no rate keeps that which its limiter has")
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: g, Rate: one}))
	require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: next, Rate: five}))
	require.Empty(t, g.told, "the same rate is not told")
	require.Empty(t, next.told, "nor is a limiter that is new: it has its own")
}

// TestFailedChangeRestoresRates proves that custom limiters get their old rates again if the change
// that gave them new ones fails.
func TestFailedChangeRestoresRates(t *testing.T) {
	g, refusing := newGauge(), newGauge()
	refusing.tell = func(ratelimit.Rate) error { return errFault }
	bucket, err := ratelimit.NewTokenBucket(ratelimit.PerHour(3))
	require.NoError(t, err)
	one, five := ratelimit.PerHour(1), ratelimit.PerHour(5)
	rules := func(r ratelimit.Rate) []ratelimit.Rule {
		return []ratelimit.Rule{{Endpoint: "/g", Limiter: g, Rate: r}, {Endpoint: "/bucket", Limiter: bucket, Rate: r},
			{Endpoint: "/no", Limiter: refusing, Rate: r}}
	}
	l := newRules(t, rules(one), nil)
	require.ErrorIs(t, l.Replace(rules(five), nil), errFault)
	require.Equal(t, []ratelimit.Rate{five, one}, g.told, "the rate of its rule")
	require.Equal(t, ratelimit.PerHour(3), bucket.Rate(), "the rate that it had")
	require.ErrorIs(t, l.Replace(append(rules(five)[:2], ratelimit.Rule{}), nil), ratelimit.ErrInvalidConfig)
	require.Len(t, g.told, 2, "nothing is told if anything else is wrong")
}

// TestReloadBuildsOnlyChangedLimiters proves that equal algoConfigs share one limiter, whatever the
// types of their numbers are, and that a limiter that is no longer used is closed once.
func TestReloadBuildsOnlyChangedLimiters(t *testing.T) {
	factory, made := gauges(t, func(config map[string]any) error {
		if config["limit"] == "bad" {
			return errFault
		}
		return nil
	})
	l, err := ratelimit.NewFromConfig([]map[string]any{gaugeConfig("/a", 10)}, gaugeConfig("", 10), ratelimit.WithFactory(factory))
	require.NoError(t, err)
	require.Len(t, *made, 2)
	for _, limit := range []any{10, int64(10), uint8(10), 10.0, float32(10)} {
		require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", limit)}, gaugeConfig("", limit)))
		require.Len(t, *made, 2, "%T: it has not changed", limit)
	}
	require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", 11)}, gaugeConfig("", 10)))
	require.Equal(t, []int{1, 0, 0}, closed(*made), "the one that has changed")
	require.ErrorIs(t, l.Reload([]map[string]any{gaugeConfig("/a", 12), gaugeConfig("/b", "bad")}, nil), errFault)
	require.Equal(t, []int{1, 0, 0, 1}, closed(*made), "what was made for a Reload that fails")
	require.ErrorIs(t, l.Reload([]map[string]any{gaugeConfig("/a", 12), {"endpoint": "/b"}}, nil), ratelimit.ErrInvalidConfig)
	require.ErrorIs(t, l.SetConfig(map[string]any{"endpoint": "*x", "algorithm": "Gauge", "algoConfig": map[string]any{}}),
		ratelimit.ErrInvalidConfig)
	require.Equal(t, []int{1, 0, 0, 1, 1, 1}, closed(*made))
	require.NoError(t, l.SetConfig(gaugeConfig("/a", 11)))
	require.NoError(t, l.RemoveRule("/a"))
	require.NoError(t, l.RemoveRule("default"))
	require.Equal(t, []int{1, 1, 1, 1, 1, 1}, closed(*made), "with their rules")

	_, err = ratelimit.NewFromConfig([]map[string]any{gaugeConfig("/a", 10)}, nil, ratelimit.WithFactory(factory),
		ratelimit.WithRequiredRules("b"))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, _, err = ratelimit.DecodeRules([]map[string]any{gaugeConfig("/a", 10)}, nil, ratelimit.WithFactory(factory), ratelimit.WithMaxKeys(0))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	_, err = factory.Create(map[string]any{"algorithm": "Gauge", "algoConfig": map[string]any{}, "burst": 1})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	for _, g := range *made {
		require.Equal(t, 1, g.closed, "what was made for nothing")
	}
}

// TestSharedLimitersAreClosedLast proves that a limiter of several rules or RateLimiters is closed
// when the last one no longer uses it.
func TestSharedLimitersAreClosedLast(t *testing.T) {
	factory, made := gauges(t, nil)
	rules, _, err := ratelimit.DecodeRules([]map[string]any{gaugeConfig("/a", 10)}, nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	first, second := newRules(t, rules, nil), newRules(t, rules, nil)
	twin := rules[0]
	twin.Endpoint = "/twin"
	require.NoError(t, first.AddRule(twin))
	require.NoError(t, first.RemoveRule("/a"))
	require.NoError(t, first.RemoveRule("/twin"))
	require.Zero(t, (*made)[0].closed, "the other RateLimiter has it")
	mine := newGauge()
	require.NoError(t, second.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: mine}))
	require.Equal(t, 1, (*made)[0].closed)
	require.NoError(t, second.RemoveRule("/a"))
	require.Zero(t, mine.closed, "a limiter that no BuildFunc has made is not closed")

	once := newGauge()
	require.NoError(t, factory.Register("One", func(map[string]any, ratelimit.Env) (ratelimit.Limiter, error) { return once, nil }))
	config := func(limit int) []map[string]any {
		return []map[string]any{{"endpoint": "/a", "algorithm": "One", "algoConfig": map[string]any{"limit": limit}}}
	}
	l, err := ratelimit.NewFromConfig(config(1), nil, ratelimit.WithFactory(factory))
	require.NoError(t, err)
	require.NoError(t, l.Reload(config(2), nil))
	require.Zero(t, once.closed, "the BuildFunc has returned the same limiter again")
	require.NoError(t, l.RemoveRule("/a"))
	require.Equal(t, 1, once.closed)
}

// An uncomparable is a limiter of a type that cannot be compared by ==.
type uncomparable struct {
	limits []int
	custom
}

// TestReloadOfUncomparableLimiters proves that limiters that cannot be compared by == are kept and
// replaced as others are.
func TestReloadOfUncomparableLimiters(t *testing.T) {
	made := 0
	factory := ratelimit.NewFactory()
	require.NoError(t, factory.Register("Struct", func(c map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		return uncomparable{limits: []int{c["limit"].(int)}, custom: answering(yes(c["limit"].(int), 0, 0), nil)}, nil
	}))
	require.NoError(t, factory.Register("Func", func(c map[string]any, _ ratelimit.Env) (ratelimit.Limiter, error) {
		made++
		return answering(yes(c["limit"].(int), 0, 0), nil), nil
	}))
	for _, name := range []string{"Struct", "Func"} {
		config := func(limit int) []map[string]any {
			return []map[string]any{{"endpoint": "/a", "algorithm": name, "algoConfig": map[string]any{"limit": limit}}}
		}
		made = 0
		l, err := ratelimit.NewFromConfig(config(1), nil, ratelimit.WithFactory(factory))
		require.NoError(t, err)
		require.NoError(t, l.Reload(config(1), nil))
		require.Equal(t, 1, made, "%s: it has not changed", name)
		require.NoError(t, l.Reload(config(2), nil))
		require.Equal(t, 2, made, name)
		require.Equal(t, 2, l.Allow("c", "/a").Limit, name)
		mine := uncomparable{limits: []int{9}, custom: answering(yes(9, 0, 0), nil)}
		require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: mine}))
		require.NoError(t, l.SetRule(ratelimit.Rule{Endpoint: "/a", Limiter: mine}))
		require.NoError(t, l.Reload(config(3), nil))
		require.Equal(t, 9, l.Allow("c", "/a").Limit, "%s: code has given it", name)
		require.Equal(t, 2, made, "%s: and no other one is made", name)
	}
}

// TestReloadWhileItsLimiterIsDropped proves that a rule gets a limiter of its own config, even if
// another change has meanwhile dropped the limiter that Reload would have kept.
func TestReloadWhileItsLimiterIsDropped(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var l *ratelimit.RateLimiter
		factory, made := gauges(t, func(config map[string]any) error {
			if l != nil && config["limit"] == 5 {
				return l.SetConfig(gaugeConfig("/a", 6))
			}
			return nil
		})
		l = newRules(t, nil, nil, ratelimit.WithFactory(factory))
		require.NoError(t, l.SetConfig(gaugeConfig("/a", 1)))
		require.NoError(t, l.Reload([]map[string]any{gaugeConfig("/a", 1), gaugeConfig("/b", 5)}, nil))
		require.Equal(t, []int{1, 1, 0, 0}, closed(*made), "those of 1, of 6, of 5, and of 1 again")
		rules, _ := l.Rules()
		assert.Same(t, (*made)[3], rules[0].Limiter)
		assert.Same(t, (*made)[2], rules[1].Limiter)
	})
}

// TestReloadIf asks whether to accept the new rules, which are complete and not yet in force. What is refused
// changes nothing, and closes the limiters that were made for it.
func TestReloadIf(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		factory, made := gauges(t, nil)
		l := newRules(t, nil, nil, ratelimit.WithFactory(factory), ratelimit.WithFailurePolicy(ratelimit.FailClosed))
		require.NoError(t, l.SetConfig(config("/old", "1/h")))
		old, _ := l.Rules()
		configs := []map[string]any{config("/a", "10/h"), gaugeConfig("/b", 1)}
		fallback := map[string]any{"algorithm": "TokenBucket", "algoConfig": map[string]any{"rate": "10/h"}}
		var seen []ratelimit.Rule
		refused := errors.New("refused")
		answer := refused
		accept := func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
			now, _ := l.Rules()
			assert.Equal(t, old, now, "they are not in force")
			assert.NoError(t, l.UpdateRate("/old", ratelimit.PerHour(2)), "there is no lock")
			old, _ = l.Rules()
			seen = append(slices.Clone(rules), *defaultRule)
			return answer
		}
		assert.Same(t, refused, l.ReloadIf(configs, fallback, accept))
		now, rest := l.Rules()
		assert.Equal(t, old, now)
		assert.Nil(t, rest)
		require.Len(t, seen, 3)
		assert.Equal(t, []string{"/a", "/b", "default"}, []string{seen[0].Name, seen[1].Name, seen[2].Name})
		assert.Equal(t, ratelimit.FailClosed, seen[0].OnStoreError, "what is inherited is filled in")
		assert.Same(t, (*made)[0], seen[1].Limiter)
		assert.Equal(t, []int{1}, closed(*made))

		answer = nil
		require.NoError(t, l.ReloadIf(configs, fallback, accept))
		now, rest = l.Rules()
		assert.Equal(t, seen, append(slices.Clone(now), *rest), "what was accepted")
		assert.Equal(t, []int{1, 0}, closed(*made))

		require.ErrorIs(t, l.ReloadIf([]map[string]any{{"endpoint": "/a"}}, nil, func([]ratelimit.Rule, *ratelimit.Rule) error {
			t.Error("nobody is asked about what is wrong")
			return nil
		}), ratelimit.ErrInvalidConfig)
	})
}

// An askedStore is a store whose Supports method is a function.
type askedStore struct {
	*faultyStore
	supports func(a ratelimit.Algorithm, r ratelimit.Rate) error
}

func (s *askedStore) Supports(a ratelimit.Algorithm, r ratelimit.Rate) error { return s.supports(a, r) }

// TestRequiredRules proves that no change can remove a rule that WithRequiredRules names.
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
			return l.Reload([]map[string]any{config("/login", "1/h")}, map[string]any{"name": "rest", "algorithm": "TokenBucket",
				"algoConfig": map[string]any{"rate": "1/h"}})
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
	_, err = ratelimit.NewTokenBucket(ratelimit.PerHour(1), ratelimit.WithRequiredRules("login"),
		ratelimit.WithObserver(observing(func(ratelimit.Decision) {})))
	require.NoError(t, err, "a limiter by itself has no rules")
}
