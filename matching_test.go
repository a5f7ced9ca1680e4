package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestMatching proves which rule matches an endpoint: the exact one, then the longest prefix, then
// the default rule.
func TestMatching(t *testing.T) {
	var rs []ratelimit.Rule
	for _, endpoint := range []string{"/a", "/a*", "/a/b*", "/a/b/c*", "/a/b/c", "/a/b/d*", "*", "/z/*", "/a/bb", "\x00*", "\xff*"} {
		rs = append(rs, ratelimit.Rule{Endpoint: endpoint, Rate: ratelimit.PerHour(100)})
	}
	rs = append(rs, ratelimit.Rule{Name: "by name", Rate: ratelimit.PerHour(100)})
	l, _ := rules(t, rs, &ratelimit.Rule{Rate: ratelimit.PerHour(100)})
	withoutRest, _ := rules(t, []ratelimit.Rule{{Endpoint: "/a*", Rate: ratelimit.PerHour(100)}},
		&ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(100)})
	for _, tt := range []struct{ endpoint, want, why string }{
		{"/a", "/a", "exact before a prefix"},
		{"/aa", "/a*", "a prefix"},
		{"/a/b", "/a/b*", "a prefix matches itself"},
		{"/a/bb", "/a/bb", "exact, where a prefix would match"},
		{"/a/bbb", "/a/b*", "an exact rule does not match as a prefix"},
		{"/a/b/c", "/a/b/c", "exact, where three prefixes would match"},
		{"/a/b/cc", "/a/b/c*", "the longest"},
		{"/a/b/", "/a/b*", "the longest one does not match"},
		{"/a/b/e", "/a/b*", "an endpoint that sorts after all the longer prefixes"},
		{"/a/b/cz", "/a/b/c*", "an endpoint that sorts right before another prefix"},
		{"/zz", "*", "only the shortest matches"},
		{"/z/", "/z/*", "a prefix that ends in a slash"},
		{"", "*", "the empty endpoint begins with the empty prefix"},
		{"\xff\xff", "\xff*", "any bytes"},
		{"\x00", "\x00*", "any bytes, at the other end"},
		{"by name", "*", "a name is no endpoint"},
		{"/a*", "/a*", "a star is a byte of an endpoint too"},
	} {
		assert.Equal(t, tt.want, l.Allow("ann", tt.endpoint).Rule, "%q: %s", tt.endpoint, tt.why)
	}
	assert.Equal(t, "/a*", withoutRest.Allow("ann", "/ab").Rule)
	assert.Equal(t, "rest", withoutRest.Allow("ann", "/").Rule, "no prefix matches")
	assert.Equal(t, "rest", withoutRest.Allow("ann", "").Rule, "no prefix matches the empty endpoint")
}

// TestNestedPrefixes compares how many nested prefixes match with a search through all of them.
func TestNestedPrefixes(t *testing.T) {
	var rs []ratelimit.Rule
	for n := range 200 {
		text := strings.Repeat("ab", n/2)[:n/2]
		rs = append(rs, ratelimit.Rule{Endpoint: text + []string{"", "c"}[n%2] + "*", Rate: ratelimit.PerHour(1000)})
	}
	l, _ := rules(t, rs, nil)
	for n := range 120 {
		for _, tail := range []string{"", "a", "b", "c", "z"} {
			endpoint, want := strings.Repeat("ab", n)[:n]+tail, ""
			for _, r := range rs {
				if strings.HasPrefix(endpoint, strings.TrimSuffix(r.Endpoint, "*")) && len(r.Endpoint) > len(want) {
					want = r.Endpoint
				}
			}
			require.Equal(t, want, l.Allow("ann", endpoint).Rule, "%q", endpoint)
		}
	}
}

// TestKeys proves for each kind of key which requests share a budget.
func TestKeys(t *testing.T) {
	type request = ratelimit.Request
	first := request{Client: "ann", Endpoint: "/a", IP: "192.0.2.1"}
	for _, tt := range []struct {
		key   ratelimit.KeyType
		other request
		share bool
		why   string
	}{
		{ratelimit.KeyUser, request{Client: "ann", Endpoint: "/b", IP: "192.0.2.2"}, true, "the client alone counts"},
		{ratelimit.KeyUser, request{Client: "ann\x00", Endpoint: "/a"}, false, "any byte counts"},
		{ratelimit.KeyUser, request{Endpoint: "/a"}, false, "an empty client is a client of its own"},
		{ratelimit.KeyEndpoint, request{Client: "bob", Endpoint: "/a"}, true, "the endpoint alone counts"},
		{ratelimit.KeyEndpoint, request{Client: "ann", Endpoint: "/b"}, false, "the request's endpoint counts, not the rule's"},
		{ratelimit.KeyUserEndpoint, request{Client: "ann", Endpoint: "/a", IP: "192.0.2.2"}, true, "the pair counts"},
		{ratelimit.KeyUserEndpoint, request{Client: "ann/", Endpoint: "a"}, false, "it counts where the client ends"},
		{ratelimit.KeyUserEndpoint, request{Client: "/a", Endpoint: "ann"}, false, "it counts which of the two is the client"},
		{ratelimit.KeyUserEndpoint, request{Client: "ann/a"}, false, "the pair with an empty endpoint is another pair"},
		{ratelimit.KeyIP, request{Client: "bob", Endpoint: "/b", IP: "192.0.2.1"}, true, "the address alone counts"},
		{ratelimit.KeyIP, request{Client: "ann", Endpoint: "/a"}, false, "an empty address is an address of its own"},
		{ratelimit.KeyGlobal, request{}, true, "all share one"},
	} {
		for _, exact := range []bool{false, true} { // with and without a shadow rule, which are decided by different code
			rs := []ratelimit.Rule{{Endpoint: "*", Key: tt.key, Rate: ratelimit.PerHour(10)}}
			if !exact {
				rs = append(rs, ratelimit.Rule{Name: "shadow", Endpoint: "*", Mode: ratelimit.ModeShadow, Rate: ratelimit.PerHour(1)})
			}
			l, _ := rules(t, rs, nil)
			check(t, l, first)
			want := 9
			if tt.share {
				want = 8
			}
			got := check(t, l, tt.other).Remaining
			assert.Equal(t, want, got, "%s: %s", tt.key, tt.why)
			if tt.other.IP == "" {
				assert.Equal(t, want-1, l.Allow(tt.other.Client, tt.other.Endpoint).Remaining, "Allow and Check share the key")
			}
		}
	}
}

// TestShadowRuleDoesNotReplaceAnEnforcingRule is a regression test: a shadow rule with a longer
// prefix replaced the enforcing rule, and all 1,000 requests were granted.
func TestShadowRuleDoesNotReplaceAnEnforcingRule(t *testing.T) {
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

// TestShadowRulesThatApply proves that a shadow rule applies where it would apply if it enforced.
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

// TestGlobalLimit proves that one limit on all requests applies along with the limits of the
// endpoints.
func TestGlobalLimit(t *testing.T) {
	l, clock := rules(t, []ratelimit.Rule{
		{Endpoint: "/a", Rate: ratelimit.PerSecond(3)},
		{Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(5)},
		{Name: "named", Rate: ratelimit.PerSecond(100)},
	}, &ratelimit.Rule{Rate: ratelimit.PerSecond(100)})
	require.Equal(t, by("/a", yes(3, 2, sec/3+1)), l.Allow("ann", "/a"), "the endpoint's rule has fewer units left")
	require.Equal(t, by("all", yes(5, 3, 2*sec/5)), l.Allow("bob", "/b"), "beside the default rule")
	require.Equal(t, by("all", yes(5, 2, 3*sec/5)), check(t, l, ratelimit.Request{Rules: []string{"named"}}), "beside a rule that is named")
	require.Equal(t, by("all", yes(5, 1, 4*sec/5)), check(t, l, ratelimit.Request{Rules: []string{"all", "named", "all"}}),
		"charged once if it is named too")
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
	require.EqualError(t, err,
		"ratelimit: rules[0].additional is true: must be false, or the rule have an endpoint: it applies to what that covers\n"+
			"ratelimit: defaultRule.additional is true: must be false: the default rule is for what no other rule matches; "+
			`for all endpoints, add a rule with the endpoint "*"`)
}

// TestTwoCustomLimitersInOneDecision proves that two rules with custom limiters are refused if one
// request could match both.
func TestTwoCustomLimitersInOneDecision(t *testing.T) {
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
	for key, own := range map[ratelimit.KeyType][]string{ // the fields in which requests with different budgets differ
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
		ratelimit.KeyAttr(""): `must have the name of the attribute after "attr:", and the name has no "+"`,
		ratelimit.KeyAttr("a+user"): `must have a part on both sides of each "+"; the name of an attribute ` +
			`has no "+"`,
		ratelimit.KeyOf(ratelimit.KeyUser, ratelimit.KeyUser): `must list each part once, and "user" is there twice`,
		ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyGlobal): `must have nothing beside "global": all requests share one key`,
		"ip+user_endpoint+endpoint":                           `must list each part once, and "endpoint" is there twice`,
		ratelimit.KeyOf(ratelimit.KeyIP, ratelimit.KeyType("x")): `must be one of "user", "endpoint", "user_endpoint", "ip", "global", ` +
			`"attr:NAME", or several of them joined by "+"`,
	} {
		err := ratelimit.CheckRules([]ratelimit.Rule{{Endpoint: "*", Key: key, Rate: ratelimit.PerHour(1)}}, nil)
		assert.EqualError(t, err, fmt.Sprintf("ratelimit: rules[0].key is %q: %s", key, reason))
	}
}

// A storeFunc is a Store whose Take is a function.
type storeFunc func(asks []ratelimit.Ask) ([]ratelimit.Result, error)

func (f storeFunc) Take(_ context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	return f(asks)
}

func (f storeFunc) Reset(context.Context, []ratelimit.Ask) error { return nil }

// TestCompositeKeysInAStore proves which text a store gets for a key of several parts, and that it
// gets the client of keys that belong to one client.
func TestCompositeKeysInAStore(t *testing.T) {
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

// TestUnlimited proves what a request gets that its rule does not limit.
func TestUnlimited(t *testing.T) {
	var seen []ratelimit.Decision
	clock := ratelimit.NewFakeClock(epoch)
	vip := ratelimit.Rule{Name: "vip", Endpoint: "/e", Rate: ratelimit.PerHour(1),
		Tiers: map[string]ratelimit.Rate{"vip": ratelimit.Unlimited, "paid": ratelimit.PerHour(5)}}
	resolving := ratelimit.Rule{Name: "resolving", Endpoint: "/r", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(1),
		Resolve: func(r ratelimit.Request) (ratelimit.Rate, bool) {
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
	assert.Equal(t, []uint64{6, 0, 0}, []uint64{stats[0].Allowed, stats[0].Denied, uint64(stats[4].LiveKeys)},
		"three, one of any cost, one that waited, and one that was charged")
	assert.Equal(t, uint64(2), stats[2].Allowed, "a request that another rule denies is not counted")
	assert.Equal(t, uint64(3), stats[4].Allowed, "in shadow too")
}

// TestStoreIsNotAskedForUnlimitedRules proves that no store is called, and no failure policy
// answers, for a rule that does not limit the request.
func TestStoreIsNotAskedForUnlimitedRules(t *testing.T) {
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

// TestUnlimitedRate proves where Unlimited is refused, and how it is written.
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

// TestDefaultRule proves that the default rule can be set, renamed, changed and removed,
// and that its state belongs to its name.
func TestDefaultRule(t *testing.T) {
	l, _ := rules(t, nil, nil)
	assert.ErrorIs(t, l.RemoveRule("default"), ratelimit.ErrUnknownRule)
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Rate: ratelimit.PerHour(3)}))
	require.Equal(t, by("default", yes(3, 2, 20*minute)), l.Allow("ann", "/a"))
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Name: "default", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, by("default", yes(2, 1, 30*minute)), l.Allow("ann", "/b"), "the same name: two were left")
	require.NoError(t, l.SetDefaultRule(ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(2)}))
	require.Equal(t, by("rest", yes(2, 1, 30*minute)), l.Allow("ann", "/b"), "another name: another rule")
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
	assert.EqualError(t, err, `ratelimit: defaultRule.endpoint is "/b": must be empty: the default rule is for the endpoints that no other `+
		`matches`)
}

// TestTiers proves that the tier of a request sets its rate, and that a change of the tier grants
// nothing.
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
	require.Equal(t, by("/", yes(600, 128, 47200*ms)), ask("ann", "paid", 0),
		"a cost of 0 is a cost of 1; 10 s at the new rate have earned 100")
}

// TestResolve proves that Resolve takes precedence over tiers and over the rate of the rule, and
// that an invalid rate from it is reported and not used.
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
	assert.Equal(t, 5, check(t, l, ratelimit.Request{Client: "d", Endpoint: "/", Tier: "paid"}).Limit,
		"Resolve returns false, so the tier's rate holds")
	assert.Equal(t, 2, check(t, l, ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid"}).Limit, "Resolve goes before the tier")
	_, err := l.Check(t.Context(), ratelimit.Request{Client: "zero", Endpoint: "/"})
	assert.EqualError(t, err, `ratelimit: rules["/"].resolve.requests is 0: must be at least 1
ratelimit: rules["/"].resolve.per is 0s: must be longer than zero`)
}

// TestManyRules proves that the cost of a change does not depend on the number of other rules: it
// calls the store's Supports for the changed rule alone, and allocates about as much with many
// rules as with few.
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
	require.EqualError(t, l.AddRule(rule(4_000)),
		`ratelimit: rules[4998].endpoint is "/4000": is that of rules[3999]: rules that share an endpoint need names`)

	full := make([]ratelimit.Rule, 10_000)
	for i := range full {
		full[i] = rule(i)
	}
	l = newRules(t, full, nil)
	require.EqualError(t, l.AddRule(rule(10_000)), "ratelimit: rules is 10001: must be at most 10000")
	require.NoError(t, l.SetRule(rule(1)), "a rule that is replaced is none more")
}
