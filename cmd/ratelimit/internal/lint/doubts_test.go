package lint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/lint"
)

// TestAttemptsAreWholeWords requires that RL001 is found for words of a path, and not for parts of words.
func TestAttemptsAreWholeWords(t *testing.T) {
	for endpoint, want := range map[string]bool{
		"/login": true, "/v1/log-in": true, "/auth/token": true, "/resetPassword": true, "/user_login*": true, "/users/{id}/verify": true,
		"POST /Login": true, "/oauth/code": true, "/LOGIN": true,
		"/authors": false, "/catalog-index": false, "/blog-in": false, "/passwordless-docs": false, "/author": false,
		"/api/tokens/usage": false, "/logout": false, "/verifyer": false,
	} {
		found := check(t, lint.Options{}, &ratelimit.Rule{Rate: perMinute}, ratelimit.Rule{Endpoint: endpoint, Algorithm: window, Rate: perMinute,
			Key: ratelimit.KeyIP})
		require.Equal(t, want, found[0].Code == "RL001", "%s: %v", endpoint, found)
	}
}

// TestCodesOfDoubts has rules that do what they say, and probably not what their author wants.
func TestCodesOfDoubts(t *testing.T) {
	byDefault := &ratelimit.Rule{Rate: perMinute}
	tiers := func(tiers map[string]ratelimit.Rate) []ratelimit.Rule {
		return []ratelimit.Rule{{Endpoint: "/a", Rate: ratelimit.PerMinute(10), Tiers: tiers}}
	}
	for _, row := range []codesRow{
		{"a query", lint.Options{}, byDefault, []ratelimit.Rule{{Endpoint: "/a?x=1", Rate: perMinute}}, []string{"RL019 0"}},
		{"a login by user", lint.Options{}, byDefault, []ratelimit.Rule{{Endpoint: "/login", Rate: perMinute}}, []string{"RL020 0"}},
		{"a login by address", lint.Options{}, byDefault, []ratelimit.Rule{{Endpoint: "/login", Key: ratelimit.KeyIP, Rate: perMinute}}, nil},
		{"a tier that costs more and grants less", lint.Options{}, byDefault,
			tiers(map[string]ratelimit.Rate{"pro": ratelimit.PerMinute(9)}), []string{"RL021 0"}},
		{"less than a free tier", lint.Options{}, byDefault,
			tiers(map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(20), "free": ratelimit.PerMinute(30)}), []string{"RL021 0"}},
		{"less than no limit", lint.Options{}, byDefault,
			tiers(map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(20), "free": ratelimit.Unlimited}), []string{"RL021 0"}},
		{"tiers in order", lint.Options{}, byDefault, tiers(map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(20),
			"enterprise": ratelimit.Unlimited, "free": ratelimit.PerMinute(5), "bot": ratelimit.PerMinute(1)}), nil},
	} {
		row.run(t)
	}
}

func TestNoDefault(t *testing.T) {
	codes := func(byDefault *ratelimit.Rule, rules ...ratelimit.Rule) (codes []string) {
		l, err := ratelimit.New(rules, byDefault, ratelimit.WithFailurePolicy(ratelimit.FailClosed))
		require.NoError(t, err)
		found, err := lint.Check(l, lint.Options{MaxKeys: 1000})
		require.NoError(t, err)
		for _, f := range found {
			codes = append(codes, f.Code)
		}
		return codes
	}
	a, all := ratelimit.Rule{Endpoint: "/a", Rate: perMinute}, ratelimit.Rule{Endpoint: "*", Rate: perMinute}
	require.Equal(t, []string{"RL018"}, codes(nil, a))
	require.Empty(t, codes(&ratelimit.Rule{Rate: perMinute}, a))
	require.Empty(t, codes(nil, a, all))
	all.Mode = ratelimit.ModeShadow
	require.Equal(t, []string{"RL018"}, codes(nil, a, all), "a rule in shadow mode limits nothing")
}
