package ratelimit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestSearchTrace compares whole Results of a token bucket rule and of the default rule
// beside it.
func TestSearchTrace(t *testing.T) {
	search := ratelimit.Rule{Endpoint: "/search", Rate: ratelimit.PerSecond(1).WithBurst(10)}
	l, clock := rules(t, []ratelimit.Rule{search}, &ratelimit.Rule{Rate: ratelimit.PerMinute(2)})
	require.Equal(t, by("/search", yes(10, 9, sec)), l.Allow("ann", "/search"))
	clock.Advance(500 * ms)
	require.Equal(t, by("/search", yes(10, 8, 1500*ms)), l.Allow("ann", "/search"))
	require.Equal(t, by("default", yes(2, 1, 30*sec)), l.Allow("ann", "/other"), "the default rule decides for an endpoint without a rule")
	require.Equal(t, by("default", yes(2, 0, mins)), l.Allow("ann", "/another"), "a rule by user counts all the endpoints it decides for")
	require.Equal(t, by("default", no(2, 0, 30*sec, mins)), l.Allow("ann", "/other"))
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
		require.Equal(t, by("/login", yes(3, left, mins)), l.Allow("ann", "/login"))
	}
	clock.Advance(20 * sec)
	require.Equal(t, by("/login", no(3, 0, 40*sec, 40*sec)), l.Allow("ann", "/login"), "the fourth attempt within a minute")
	require.Equal(t, by("/login", yes(3, 2, 40*sec)), l.Allow("bob", "/login"), "another user is not affected")
	require.Equal(t, unlimited, l.Allow("ann", "/home"), "without a default rule, other endpoints pass")
}

// TestTwoRules proves that a request under two rules is charged to both or to neither, and
// gets the answer of the rule that binds.
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
			require.Equal(t, by("second", yes(2, 1, mins)), check(t, l, ann), "the second leaves less")
			require.Equal(t, by("second", yes(2, 0, mins)), check(t, l, tt.other))

			before := peek(t, l, one("first"))
			require.Equal(t, by("first", yes(3, 2, sec)), before)
			require.Equal(t, by("second", no(2, 0, mins, mins)), check(t, l, ann), "the second denies")
			require.Equal(t, before, peek(t, l, one("first")), "the first is not charged")

			require.Equal(t, 0, check(t, l, ratelimit.Request{Client: "ann", IP: "192.0.2.1", Endpoint: "/", Rules: []string{"first"}, Cost: 2}).Remaining)
			require.Equal(t, by("second", no(2, 0, mins, mins)), check(t, l, ann), "both deny: the answer has the longer wait")
			clock.Advance(mins)
			require.Equal(t, by("second", yes(2, 1, mins)), check(t, l, ann), "after exactly that wait, both grant")
		})
	}
}

// TestMatching proves which rule an endpoint finds: the exact one, then the longest prefix,
// then the default rule.
func TestMatching(t *testing.T) {
	var rs []ratelimit.Rule
	for _, endpoint := range []string{"/a", "/a*", "/a/b*", "/a/b/c*", "/a/b/c", "/a/b/d*", "*", "/z/*", "/a/bb", "\x00*", "\xff*"} {
		rs = append(rs, ratelimit.Rule{Endpoint: endpoint, Rate: ratelimit.PerHour(100)})
	}
	rs = append(rs, ratelimit.Rule{Name: "by name", Rate: ratelimit.PerHour(100)})
	l, _ := rules(t, rs, &ratelimit.Rule{Rate: ratelimit.PerHour(100)})
	withoutRest, _ := rules(t, []ratelimit.Rule{{Endpoint: "/a*", Rate: ratelimit.PerHour(100)}}, &ratelimit.Rule{Name: "rest", Rate: ratelimit.PerHour(100)})
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

// TestNestedPrefixes compares the matching of many nested prefixes with a search through
// all of them.
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
	res, err = l.Check(over(), ratelimit.Request{Client: "ann", Endpoint: "/"})
	assert.ErrorIs(t, err, over().Err())
	assert.Zero(t, res)
	//lint:ignore SA1012 a nil context is never over
	res, err = l.Check(nil, ratelimit.Request{Client: "ann", Endpoint: "/"}) //nolint:staticcheck // as said
	assert.NoError(t, err)
	assert.Equal(t, by("/", yes(5, 4, 12*mins)), res, "the refused calls took nothing")
}

// TestCosts proves that a request's cost is charged to each of its rules, once.
func TestCosts(t *testing.T) {
	l, _ := rules(t, []ratelimit.Rule{
		{Name: "small", Endpoint: "/", Rate: ratelimit.PerHour(5)},
		{Name: "large", Endpoint: "/", Rate: ratelimit.PerHour(10)},
	}, nil)
	req := ratelimit.Request{Client: "ann", Endpoint: "/"}
	req.Cost = 6
	require.Equal(t, by("small", no(5, 5, ratelimit.Never, 0)), check(t, l, req), "more than one of the rules ever grants")
	req.Cost = 4
	require.Equal(t, by("small", yes(5, 1, 48*mins)), check(t, l, req))
	require.Equal(t, by("small", yes(5, 1, 48*mins)), peek(t, l, req), "a look is for one unit")
	require.Equal(t, by("small", no(5, 1, 36*mins, 48*mins)), check(t, l, req))
	req.Rules = []string{"large", "large"}
	require.Equal(t, by("large", yes(10, 2, 48*mins)), check(t, l, req), "a rule that is listed twice is charged once")
}

// TestBindingRule proves that the first rule binds when two leave equally little.
func TestBindingRule(t *testing.T) {
	named := func(name string, r ratelimit.Rate) ratelimit.Rule {
		return ratelimit.Rule{Name: name, Endpoint: "/", Rate: r}
	}
	l, _ := rules(t, []ratelimit.Rule{named("a", ratelimit.PerHour(2)), named("b", ratelimit.PerHour(2))}, nil)
	require.Equal(t, by("a", yes(2, 1, 30*mins)), l.Allow("ann", "/"))
	require.Equal(t, by("a", yes(2, 0, time.Hour)), l.Allow("ann", "/"))
	require.Equal(t, by("a", no(2, 0, 30*mins, time.Hour)), l.Allow("ann", "/"))

	require.NoError(t, l.Replace([]ratelimit.Rule{named("b", ratelimit.PerHour(2)), named("a", ratelimit.PerHour(2))}, nil))
	require.Equal(t, by("b", no(2, 0, 30*mins, time.Hour)), l.Allow("ann", "/"), "the order of the rules decides, not that in which they were made")
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
