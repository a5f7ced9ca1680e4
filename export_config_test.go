package ratelimit

import "github.com/ratelimit-go/ratelimit/internal/confmap"

// CheckRules returns what is wrong with rules, as a RateLimiter that is made of them
// finds it.
func CheckRules(rules []Rule, defaultRule *Rule, opts ...Option) error {
	set, err := newSettings(opts)
	if err != nil {
		return err
	}
	return checkRules(rules, defaultRule, &set)
}

// CustomOf returns what a Factory made the Limiter of r from, and that Limiter.
func CustomOf(r Rule) (algoConfig map[string]any, l Limiter) {
	return r.custom.algoConfig, r.custom.limiter
}

// What a config may have at most.
const (
	MaxRules    = maxRules
	MaxTiers    = maxTiers
	MaxProblems = confmap.MaxProblems
	MaxDepth    = confmap.MaxDepth
)
