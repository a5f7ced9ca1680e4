package verify

import (
	"fmt"

	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
)

// algorithmNames are the names of the five algorithms, the default first.
var algorithmNames = []ratelimit.Algorithm{
	ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmFixedWindow, ratelimit.AlgorithmSlidingWindowLog,
	ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmLeakyBucket,
}

var keyTypes = []ratelimit.KeyType{
	ratelimit.KeyUser, ratelimit.KeyEndpoint, ratelimit.KeyUserEndpoint, ratelimit.KeyIP, ratelimit.KeyGlobal,
}

// Parts of requests. A table keeps fewKeys keys without forgetting any; requests with few
// keys are made of the first two of each part.
var (
	clients   = []string{"", "ann", "bob", "\xff\x00", "eve", "/a"}
	endpoints = []string{"/a", "/a/b", "/a/bc", "/b", ""}
	addresses = []string{"", "10.0.0.1", "::1"}
	patterns  = []string{"/a", "/a", "/a", "/a/*", "/a/*", "/a/b*", "/a*", "*", "/a/b", ""}
)

// aFew returns one of all or, if few is true, one of the first two.
func aFew[V any](t *rapid.T, few bool, all []V, label string) V {
	if few {
		all = all[:2]
	}
	return rapid.SampledFrom(all).Draw(t, label)
}

// drawRules returns 2 to 5 rules, some of which have the same endpoint.
func drawRules(t *rapid.T) (rules []bookRule) {
	some := rapid.IntRange(2, 5).Draw(t, "rules")
	special := rapid.Bool().Draw(t, "special")
	withDefault := rapid.Bool().Draw(t, "default")
	pattern := rapid.SampledFrom(patterns).Draw(t, "pattern")
	for i := range some {
		r := bookRule{isDefault: withDefault && i == some-1}
		r.Name = fmt.Sprint("r", i)
		if r.isDefault {
			r.Name = "default"
		} else {
			r.Endpoint = pattern
			if rapid.IntRange(0, 2).Draw(t, "other") == 0 {
				r.Endpoint = rapid.SampledFrom(patterns).Draw(t, "pattern")
			}
		}
		r.Algorithm = rapid.SampledFrom(algorithmNames).Draw(t, "algorithm")
		r.Key = rapid.SampledFrom(keyTypes).Draw(t, "key")
		r.Mode = ratelimit.ModeEnforce
		r.Rate = drawRate(t, r.Algorithm)
		if special {
			makeSpecial(t, &r)
			r.Additional = r.Endpoint != "" && rapid.IntRange(0, 3).Draw(t, "additional") == 0
		}
		rules = append(rules, r)
	}
	return rules
}

func drawRate(t *rapid.T, a ratelimit.Algorithm) ratelimit.Rate {
	return named(a).rate(rapid.SampledFrom(everydayRates[:12]).Draw(t, "rate"))
}

// makeSpecial sometimes makes r a rule that the short way does not decide.
func makeSpecial(t *rapid.T, r *bookRule) {
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0, 1:
		r.Mode = ratelimit.ModeShadow
	case 2:
		r.Tiers = map[string]ratelimit.Rate{"": r.Rate}
	case 3:
		rate := r.Rate
		r.Resolve = func(ratelimit.Request) (ratelimit.Rate, bool) { return rate, true }
	}
}

// written returns the rules as a user may write them, without values that are the default.
func written(rules []bookRule) (list []ratelimit.Rule, defaultRule *ratelimit.Rule) {
	for _, r := range rules {
		rule := r.Rule
		if rule.Key == ratelimit.KeyUser {
			rule.Key = ""
		}
		if rule.Algorithm == ratelimit.AlgorithmTokenBucket {
			rule.Algorithm = ""
		}
		if rule.Mode == ratelimit.ModeEnforce {
			rule.Mode = ""
		}
		if r.isDefault {
			rule.Name = ""
			defaultRule = &rule
			continue
		}
		list = append(list, rule)
	}
	return list, defaultRule
}
