package ratelimit

import (
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// Waiting returns how many calls of Wait stand in line, for whatever key.
func (k *keyed[S, C]) Waiting() (n int) { return k.waiters.Len() }

// Walked returns how many callers of Wait were charged again so far, to foretell when one that
// comes later is served.
func (k *keyed[S, C]) Walked() int { return k.waiters.Walked() }

// InLine returns how many calls of Wait stand in line, for whatever rules and keys.
func (l *RateLimiter) InLine() (n int) { return l.waiters.Len() + l.asking.Len() }

// Records returns how many answers to requests with an ID are kept in this process.
func (l *RateLimiter) Records() int { return l.records.Len() }

// Alarms returns how many alarms the clock has yet to ring.
func (c *FakeClock) Alarms() int { return c.clock.Alarms() }

// Counts returns how many decisions the limiter has made.
func (k *keyed[S, C]) Counts() keytable.Counts { return k.engine.Counts() }

// CheckRules returns what is wrong with rules, as a RateLimiter that is made of them
// finds it.
func CheckRules(rules []Rule, defaultRule *Rule, opts ...Option) error {
	set, err := newSettings(opts)
	if err != nil {
		return err
	}
	return checkRules(newRuleCheck(&set), rules, defaultRule)
}

// CustomOf returns what a Factory made the Limiter of r from, and that Limiter.
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
