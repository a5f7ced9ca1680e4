package ratelimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestShadowRuleSwitchesNoLimitOff is a regression test: a shadow rule with a longer prefix
// took the place of the rule that enforces, and all 1,000 requests passed.
func TestShadowRuleSwitchesNoLimitOff(t *testing.T) {
	for _, shadow := range []ratelimit.Rule{
		{Endpoint: "/api/*"}, {Endpoint: "/api/x"}, {Name: "shadow", Endpoint: "*"}, {Endpoint: "/api/*", Additional: true},
	} {
		shadow.Rate, shadow.Mode = ratelimit.PerMinute(4), ratelimit.ModeShadow
		l, _ := rules(t, []ratelimit.Rule{{Endpoint: "*", Rate: ratelimit.PerMinute(10)}, shadow}, nil)
		passed := 0
		for range 1000 {
			res := l.Allow("ann", "/api/x")
			require.Equal(t, "*", res.Rule)
			require.Equal(t, 10, res.Limit)
			if res.Allowed {
				passed++
			}
		}
		assert.Equal(t, 10, passed)
		stats := l.Stats()
		assert.Equal(t, []uint64{10, 990}, []uint64{stats[0].Allowed, stats[0].Denied})
		assert.Equal(t, []uint64{4, 996}, []uint64{stats[1].Allowed, stats[1].ShadowDenied}, "%s counts for itself", shadow.Endpoint)
	}
}

// TestShadowRulesThatApply proves which shadow rules apply: those that would if they enforced.
func TestShadowRulesThatApply(t *testing.T) {
	rule := func(name, endpoint string, mode ratelimit.Mode) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: endpoint, Mode: mode, Rate: ratelimit.PerHour(100)}
	}
	const enforce, shadow = ratelimit.ModeEnforce, ratelimit.ModeShadow
	l, _ := rules(t, []ratelimit.Rule{
		rule("wide", "*", shadow), rule("api", "/api/*", enforce), rule("api shadow", "/api/*", shadow),
		rule("deep", "/api/v1/*", shadow), rule("exact", "/api/v1/x", enforce),
		rule("exact shadow", "/api/v1/x", shadow), rule("only named", "", shadow),
	}, &ratelimit.Rule{Mode: shadow, Rate: ratelimit.PerHour(100)})
	before := map[string]uint64{}
	for _, tt := range []struct {
		endpoint string
		names    []string
		binding  string
		want     []string
		why      string
	}{
		{"/api/v1/x", nil, "exact", []string{"exact", "exact shadow"}, "no wider shadow rule would be the best match"},
		{"/api/v1/y", nil, "api", []string{"api", "api shadow", "deep"}, "a narrower one would be, and one that is as narrow"},
		{"/api/v2", nil, "api", []string{"api", "api shadow"}, "one whose prefix does not fit does not"},
		{"/other", nil, "", []string{"wide", "default"}, "nothing enforces: each would be the best match by itself"},
		{"/api/v1/x", []string{"api"}, "api", []string{"api"}, "a request that names rules meets only those"},
		{"/api/v1/x", []string{"only named", "wide"}, "", []string{"wide", "only named"}, "also shadow rules"},
	} {
		res := check(t, l, ratelimit.Request{Client: "ann", Endpoint: tt.endpoint, Rules: tt.names})
		assert.Equal(t, tt.binding, res.Rule, tt.why)
		var met []string
		for _, s := range l.Stats() {
			if s.Allowed > before[s.Rule] {
				met = append(met, s.Rule)
			}
			before[s.Rule] = s.Allowed
		}
		assert.Equal(t, tt.want, met, tt.why)
	}
}

// TestGlobalLimit is a limit on all requests together, beside the limits of the endpoints.
func TestGlobalLimit(t *testing.T) {
	l, clock := rules(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerSecond(3)},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(5)},
		{Name: "named", Rate: ratelimit.PerSecond(100)},
	}, &ratelimit.Rule{Rate: ratelimit.PerSecond(100)})
	require.Equal(t, by("/a", yes(3, 2, sec/3+1)), l.Allow("ann", "/a"), "the endpoint's rule has fewer units left")
	require.Equal(t, by("all", yes(5, 3, 2*sec/5)), l.Allow("bob", "/b"), "beside the default rule")
	require.Equal(t, by("all", yes(5, 2, 3*sec/5)), check(t, l, ratelimit.Request{Rules: []string{"named"}}), "beside a rule that is named")
	require.Equal(t, by("all", yes(5, 1, 4*sec/5)), check(t, l, ratelimit.Request{Rules: []string{"all", "named", "all"}}), "charged once if it is named too")
	require.Equal(t, by("all", yes(5, 0, sec)), l.Allow("", ""), "also for no endpoint")
	for _, endpoint := range []string{"/a", "/b", "/a"} {
		require.Equal(t, by("all", no(5, 0, sec/5, sec)), l.Allow("ann", endpoint))
	}
	clock.Advance(sec / 5)
	require.Equal(t, by("all", yes(5, 0, sec)), l.Allow("ann", "/a"))
	assert.Equal(t, uint64(2), l.Stats()[0].Allowed, "what the global limit denies is not charged to the others")
}

// TestAdditionalRules proves to which requests additional rules apply.
func TestAdditionalRules(t *testing.T) {
	rule := func(name, endpoint string, additional bool, mode ratelimit.Mode) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: endpoint, Additional: additional, Mode: mode, Rate: ratelimit.PerHour(100)}
	}
	all := []ratelimit.Rule{
		rule("wide", "/a*", true, ""), rule("deep", "/a/b/*", true, ""), rule("exact too", "/a/b/c", true, ""),
		rule("watching", "/a/b*", true, ratelimit.ModeShadow), rule("exact", "/a/b/c", false, ""), rule("prefix", "/a/*", false, ""),
	}
	changed, _ := rules(t, nil, nil)
	for _, r := range all {
		require.NoError(t, changed.AddRule(r))
	}
	made, _ := rules(t, all, nil)
	for _, l := range []*ratelimit.RateLimiter{made, changed} {
		before := map[string]uint64{}
		for _, tt := range []struct {
			endpoint string
			want     []string
			why      string
		}{
			{"/a/b/c", []string{"wide", "deep", "exact too", "watching", "exact"}, "all that cover it, and the best match"},
			{"/a/b/d", []string{"wide", "deep", "watching", "prefix"}, "beside a prefix"},
			{"/ab", []string{"wide"}, "without a best match"},
			{"/x", nil, "none covers it"},
		} {
			res := l.Allow("ann", tt.endpoint)
			assert.Equal(t, tt.want == nil, res.Limit < 0, tt.why)
			var met []string
			for _, s := range l.Stats() {
				if s.Allowed > before[s.Rule] {
					met = append(met, s.Rule)
				}
				before[s.Rule] = s.Allowed
			}
			assert.Equal(t, tt.want, met, tt.why)
		}
	}

	err := ratelimit.CheckRules([]ratelimit.Rule{rule("a", "", true, "")}, &ratelimit.Rule{Additional: true, Rate: ratelimit.PerHour(1)})
	require.EqualError(t, err, `ratelimit: rules[0].additional is true: must be false, or the rule have an endpoint: it applies to what that covers
ratelimit: defaultRule.additional is true: must be false: the default rule is for what no other rule matches; for all endpoints, add a rule with the endpoint "*"`)
}

// TestTwoCustomLimitersThatMeet proves that two rules with custom limiters are refused where
// one decision could have to ask both.
func TestTwoCustomLimitersThatMeet(t *testing.T) {
	custom := func(name, endpoint string, additional bool, mode ratelimit.Mode) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: endpoint, Additional: additional, Mode: mode, Limiter: answering(yes(1, 1, 0), nil)}
	}
	const shadow = ratelimit.ModeShadow
	for _, tt := range []struct {
		a, b ratelimit.Rule
		meet bool
		why  string
	}{
		{custom("a", "/e", false, ""), custom("b", "/e", false, ""), true, "one endpoint"},
		{custom("a", "/e", false, ""), custom("b", "/f", false, ""), false, "two endpoints"},
		{custom("a", "/e", false, ""), custom("b", "/*", false, ""), false, "the better match takes the other's place"},
		{custom("a", "/e", false, ""), custom("b", "/*", true, ""), true, "additional, and covers the other"},
		{custom("a", "/e/*", false, ""), custom("b", "/e/f", true, ""), true, "additional, and covered by the other"},
		{custom("a", "/e", true, ""), custom("b", "/f", true, ""), false, "additional, for two endpoints"},
		{custom("a", "/*", false, ""), custom("b", "/e", false, shadow), true, "a narrower shadow rule is asked too"},
		{custom("a", "/*", false, shadow), custom("b", "/e", false, ""), false, "a wider one is not"},
		{custom("a", "/*", false, shadow), custom("b", "/e", false, shadow), true, "two shadow rules are judged by themselves"},
		{custom("a", "", false, ""), custom("b", "*", true, ""), false, "who names a rule is told at the request"},
	} {
		for _, pair := range [][]ratelimit.Rule{{tt.a, tt.b}, {tt.b, tt.a}} {
			err := ratelimit.CheckRules(pair, nil)
			l, _ := rules(t, pair[:1], nil)
			added := l.AddRule(pair[1])
			if !tt.meet {
				require.NoError(t, err, tt.why)
				require.NoError(t, added, tt.why)
				continue
			}
			var e *ratelimit.ConfigError
			require.ErrorAs(t, err, &e, tt.why)
			require.Equal(t, "rules[1].limiter", e.Field)
			require.Contains(t, e.Reason, "rules[0], ", "it names the other")
			require.ErrorIs(t, added, ratelimit.ErrInvalidConfig, tt.why)
			require.Len(t, l.Stats(), 1)
		}
	}
	fallback := custom("", "", false, "")
	require.ErrorContains(t, ratelimit.CheckRules([]ratelimit.Rule{custom("a", "/e*", true, "")}, &fallback),
		"must be nil: rules[0], which may apply to the same request, has a limiter too, and a decision asks one")
	require.NoError(t, ratelimit.CheckRules([]ratelimit.Rule{custom("a", "/e*", false, "")}, &fallback))

	named, _ := rules(t, []ratelimit.Rule{custom("a", "", false, ""), custom("b", "*", true, "")}, nil)
	_, err := named.Check(t.Context(), ratelimit.Request{Rules: []string{"a"}})
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "the additional rule applies beside the named one")
}

// TestKeyTypes proves which requests share a budget, for keys of several parts.
func TestKeyTypes(t *testing.T) {
	tenant := ratelimit.KeyAttr("tenant")
	require.Equal(t, ratelimit.KeyUserEndpoint, ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyEndpoint))
	require.Equal(t, ratelimit.KeyUserEndpoint, ratelimit.KeyOf(ratelimit.KeyEndpoint, ratelimit.KeyUser), "the order has no meaning")
	require.Equal(t, ratelimit.KeyType("ip+endpoint"), ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyEndpoint))
	require.Equal(t, ratelimit.KeyType("attr:tenant+user"), ratelimit.KeyOf(ratelimit.KeyUser, tenant))
	require.Equal(t, ratelimit.KeyIP, ratelimit.KeyOf(ratelimit.KeyIP))

	a := ratelimit.Request{Client: "ann", Endpoint: "/e", IP: "::1", Attrs: map[string]string{"tenant": "acme", "other": "x"}}
	others := map[string]ratelimit.Request{"client": a, "endpoint": a, "ip": a, "tenant": a, "no tenant": a, "other": a}
	for name, change := range map[string]func(r *ratelimit.Request){
		"client":    func(r *ratelimit.Request) { r.Client = "bob" },
		"endpoint":  func(r *ratelimit.Request) { r.Endpoint = "/f" },
		"ip":        func(r *ratelimit.Request) { r.IP = "::2" },
		"tenant":    func(r *ratelimit.Request) { r.Attrs = map[string]string{"tenant": "beta"} },
		"no tenant": func(r *ratelimit.Request) { r.Attrs = nil },
		"other":     func(r *ratelimit.Request) { r.Attrs = map[string]string{"tenant": "acme", "other": "y"} },
	} {
		r := others[name]
		change(&r)
		others[name] = r
	}
	for key, own := range map[ratelimit.KeyType][]string{ // in what a request must differ to have another budget
		tenant: {"tenant", "no tenant"},
		ratelimit.KeyOf(tenant, ratelimit.KeyUser):              {"tenant", "no tenant", "client"},
		ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyEndpoint): {"ip", "endpoint"},
		"endpoint+ip": {"ip", "endpoint"},
		ratelimit.KeyOf(ratelimit.KeyUserEndpoint, ratelimit.KeyIP):                        {"client", "endpoint", "ip"},
		ratelimit.KeyOf(ratelimit.KeyAttr("other"), tenant):                                {"tenant", "no tenant", "other"},
		ratelimit.KeyOf(ratelimit.KeyAttr("endpoint")):                                     {},
		ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyEndpoint, ratelimit.KeyIP, tenant): {"client", "endpoint", "ip", "tenant", "no tenant"},
		ratelimit.KeyOf(tenant, ratelimit.KeyEndpoint):                                     {"tenant", "no tenant", "endpoint"},
	} {
		l, _ := rules(t, []ratelimit.Rule{{Endpoint: "*", Key: key, Rate: ratelimit.PerHour(1)}}, nil)
		require.True(t, check(t, l, a).Allowed)
		require.False(t, check(t, l, a).Allowed)
		for name, other := range others {
			differs := false
			for _, part := range own {
				differs = differs || part == name
			}
			assert.Equal(t, differs, check(t, l, other).Allowed, "%s: another %s", key, name)
		}
	}

	for key, reason := range map[ratelimit.KeyType]string{
		ratelimit.KeyAttr(""):                                    `must have the name of the attribute after "attr:", and the name has no "+"`,
		ratelimit.KeyAttr("a+user"):                              `must have a part on both sides of each "+"; the name of an attribute has no "+"`,
		ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyUser):    `must list each part once, and "user" is there twice`,
		ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyGlobal):    `must have nothing beside "global": all requests share one key`,
		"ip+user_endpoint+endpoint":                              `must list each part once, and "endpoint" is there twice`,
		ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyType("x")): `must be one of "user", "endpoint", "user_endpoint", "ip", "global", "attr:NAME", or several of them joined by "+"`,
	} {
		err := ratelimit.CheckRules([]ratelimit.Rule{{Endpoint: "*", Key: key, Rate: ratelimit.PerHour(1)}}, nil)
		assert.EqualError(t, err, fmt.Sprintf("ratelimit: rules[0].key is %q: %s", key, reason))
	}
}

// A storeFunc is a Store that is its method Take.
type storeFunc func(asks []ratelimit.Ask) ([]ratelimit.Result, error)

func (f storeFunc) Take(_ context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	return f(asks)
}

func (f storeFunc) Reset(context.Context, []ratelimit.Ask) error { return nil }

// TestKeysOfPartsInAStore proves that a store is asked for one text for each key, and is told
// the client of keys that belong to one.
func TestKeysOfPartsInAStore(t *testing.T) {
	var asked []ratelimit.Ask
	store := storeFunc(func(asks []ratelimit.Ask) ([]ratelimit.Result, error) {
		asked = append(asked, asks...)
		return make([]ratelimit.Result, len(asks)), nil
	})
	tenant := ratelimit.KeyAttr("tenant")
	rs := []ratelimit.Rule{
		{Name: "one", Endpoint: "*", Key: tenant, Rate: ratelimit.PerHour(1)},
		{Name: "two", Endpoint: "*", Key: ratelimit.KeyOf(ratelimit.KeyUser, tenant), Rate: ratelimit.PerHour(1)},
		{Name: "three", Endpoint: "*", Key: ratelimit.KeyOf(ratelimit.KeyUserEndpoint, ratelimit.KeyIP), Rate: ratelimit.PerHour(1)},
		{Name: "four", Endpoint: "*", Key: ratelimit.KeyOf(ratelimit.KeyEndpoint, ratelimit.KeyIP), Rate: ratelimit.PerHour(1)},
	}
	l := newRules(t, rs, nil, ratelimit.WithStore(store), ratelimit.WithName("n"), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
	_, err := l.Check(t.Context(), ratelimit.Request{Client: "ann", Endpoint: "/e", IP: "::1", Attrs: map[string]string{"tenant": "ac:me"}})
	require.NoError(t, err)
	var got [][3]string
	for _, a := range asked {
		got = append(got, [3]string{a.Rule, a.Key, a.Client})
	}
	assert.Equal(t, [][3]string{
		{"n:one", "ac:me", ""}, {"n:two", "5:ac:meann", "ann"}, {"n:three", "3:::13:ann/e", "ann"}, {"n:four", "3:::1/e", ""},
	}, got)
}

// TestUnlimited proves what a request gets that a rule does not limit.
func TestUnlimited(t *testing.T) {
	var seen []ratelimit.Decision
	clock := ratelimit.NewFakeClock(epoch)
	vip := ratelimit.Rule{Name: "vip", Endpoint: "/e", Rate: ratelimit.PerHour(1), Tiers: map[string]ratelimit.Rate{"vip": ratelimit.Unlimited, "paid": ratelimit.PerHour(5)}}
	resolving := ratelimit.Rule{Name: "resolving", Endpoint: "/r", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1), Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
		return ratelimit.Unlimited, r.Client == "root"
	}}
	other := ratelimit.Rule{Name: "other", Endpoint: "/both", Rate: ratelimit.PerHour(2)}
	both := vip
	both.Name, both.Endpoint = "both", "/both"
	watching := vip
	watching.Name, watching.Endpoint, watching.Mode = "watching", "/w", ratelimit.ModeShadow
	l := newRules(t, []ratelimit.Rule{vip, resolving, both, other, watching}, nil, ratelimit.WithClock(clock),
		ratelimit.WithObserver(observing(func(d ratelimit.Decision) { seen = append(seen, d) })))
	ask := func(client, endpoint, tier string) ratelimit.Result {
		return check(t, l, ratelimit.Request{Client: client, Endpoint: endpoint, Tier: tier, Cost: 1})
	}
	for range 3 {
		require.Equal(t, unlimited, ask("ann", "/e", "vip"))
		require.Equal(t, unlimited, ask("root", "/r", ""))
		require.Equal(t, unlimited, ask("ann", "/w", "vip"))
	}
	for _, d := range seen {
		require.Equal(t, ratelimit.SourceNone, d.Source)
		require.Equal(t, unlimited, d.Result)
	}
	require.Len(t, seen, 9)
	require.Equal(t, unlimited, check(t, l, ratelimit.Request{Client: "ann", Endpoint: "/e", Tier: "vip", Cost: 1 << 30}), "any cost")
	require.Equal(t, unlimited, peek(t, l, ratelimit.Request{Client: "ann", Endpoint: "/e", Tier: "vip"}))
	res, err := l.Wait(t.Context(), ratelimit.Request{Client: "ann", Endpoint: "/e", Tier: "vip"})
	require.NoError(t, err)
	require.Equal(t, unlimited, res)
	require.Equal(t, by("vip", yes(5, 4, 720*sec)), ask("ann", "/e", "paid"), "nothing was charged")
	require.Equal(t, by("resolving", yes(1, 0, time.Hour)), ask("ann", "/r", ""))
	require.Equal(t, by("resolving", no(1, 0, time.Hour, time.Hour)), ask("ann", "/r", ""))

	require.Equal(t, by("other", yes(2, 1, 1800*sec)), ask("ann", "/both", "vip"), "the other rule decides")
	require.Equal(t, by("other", yes(2, 0, 3600*sec)), ask("ann", "/both", "vip"))
	require.Equal(t, by("other", no(2, 0, 1800*sec, 3600*sec)), ask("ann", "/both", "vip"))
	stats := l.Stats()
	assert.Equal(t, []uint64{6, 0, 0}, []uint64{stats[0].Allowed, stats[0].Denied, uint64(stats[4].LiveKeys)}, "three, one of any cost, one that waited, and one that was charged")
	assert.Equal(t, uint64(2), stats[2].Allowed, "a request that another rule denies is not counted")
	assert.Equal(t, uint64(3), stats[4].Allowed, "in shadow too")
}

// TestUnlimitedIsNotAsked proves that a store is not asked for a rule that does not limit the
// request, and that no failure policy answers for it.
func TestUnlimitedIsNotAsked(t *testing.T) {
	tiers := map[string]ratelimit.Rate{"vip": ratelimit.Unlimited}
	for _, policy := range []ratelimit.FailurePolicy{ratelimit.FailClosed, ratelimit.FailLocal(2)} {
		calls := 0
		store := storeFunc(func([]ratelimit.Ask) ([]ratelimit.Result, error) {
			calls++
			return nil, errFault
		})
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.PerHour(1), Tiers: tiers}}, nil, ratelimit.WithStore(store),
			ratelimit.WithName("n"), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithFailurePolicy(policy))
		for range 10 {
			res, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/e", Tier: "vip"})
			require.NoError(t, err)
			require.Equal(t, unlimited, res)
		}
		require.Zero(t, calls)
		_, err := l.Check(t.Context(), ratelimit.Request{Endpoint: "/e"})
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.Equal(t, 1, calls)
	}
}

// TestUnlimitedRate proves where Unlimited is refused, and its text.
func TestUnlimitedRate(t *testing.T) {
	assert.Equal(t, "unlimited", ratelimit.Unlimited.String())
	parsed, err := ratelimit.ParseRate("unlimited")
	require.NoError(t, err)
	assert.Equal(t, ratelimit.Unlimited, parsed)
	text, err := ratelimit.Unlimited.MarshalText()
	require.NoError(t, err)
	assert.Equal(t, "unlimited", string(text))
	require.NoError(t, parsed.UnmarshalText([]byte("1/h")))
	require.NoError(t, parsed.UnmarshalText(text))
	assert.Equal(t, ratelimit.Unlimited, parsed)
	for _, a := range algorithms {
		_, err := a.make(ratelimit.Unlimited)
		assert.ErrorIs(t, err, ratelimit.ErrInvalidConfig, a.name)
	}
	err = ratelimit.CheckRules([]ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.Unlimited}}, nil)
	assert.EqualError(t, err, "ratelimit: rules[0].rate is unlimited: must be a limit: only a tier, or Resolve, makes a request unlimited")
	l, _ := rules(t, []ratelimit.Rule{{Endpoint: "/e", Rate: ratelimit.PerHour(1)}}, nil)
	assert.ErrorIs(t, l.UpdateRate("/e", ratelimit.Unlimited), ratelimit.ErrInvalidConfig)
}
