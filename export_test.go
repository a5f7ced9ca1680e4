package ratelimit

import (
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// Waiting returns how many calls of Wait are waiting, over all keys.
func (k *keyed[S, C]) Waiting() (n int) { return k.waiters.Len() }

// Walked returns how many waiters were charged on a copy of their key so far, to foretell when a
// later one is served.
func (k *keyed[S, C]) Walked() int { return k.waiters.Walked() }

// InLine returns how many calls of Wait are waiting, over all rules and keys.
func (l *RateLimiter) InLine() (n int) { return l.waiters.Len() + l.retries.Len() }

// Records returns how many answers to requests with an ID this process keeps.
func (l *RateLimiter) Records() int { return l.records.Len() }

// Share returns the rate of one replica under FailLocal, where the store would grant r.
func (p FailurePolicy) Share(r Rate, windowed bool) Rate {
	return rateOf(engine.Rate(r.data()).Share(p.is.Replicas, windowed, false))
}

// Alarms returns how many alarms of the clock have not rung yet.
func (c *FakeClock) Alarms() int { return c.clock.Alarms() }

// Counts returns how many decisions the limiter has made.
func (k *keyed[S, C]) Counts() keytable.Counts { return k.engine.Counts() }

// CheckRules returns the error that New returns for these rules.
func CheckRules(rules []Rule, defaultRule *Rule, opts ...Option) error {
	set, err := newSettings(opts)
	if err != nil {
		return err
	}
	return newRuleCheck(set.store).addAll(allGiven(rules, defaultRule))
}

// CustomOf returns the Limiter of a rule that a Factory made, and the algoConfig that it was made
// of.
func CustomOf(r Rule) (algoConfig map[string]any, l Limiter) {
	return r.custom.Config, r.custom.Value.(Limiter)
}

// What a config may have at most.
const (
	MaxRules    = maxRules
	MaxTiers    = ruleconfig.MaxTiers
	MaxProblems = confmap.MaxProblems
	MaxDepth    = confmap.MaxDepth
)
