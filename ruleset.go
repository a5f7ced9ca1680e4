package ratelimit

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// An activeRule is a rule at work. A change of a rule makes a new activeRule, which shares
// the keys and totals of the old one if it has the same name, key and algorithm.
type activeRule struct {
	Rule // completed

	isDefault bool
	title     string      // the name in results: Name, or empty for a limiter by itself
	index     int         // place in the order of rules
	serial    uint64      // place in the order of locks: that in which the keys were made
	keyed     keyKind     // of Key
	keys      engine.Keys // in this process; nil if the rule has a Limiter, or a store
	remote    *remoteRule // if there is a store
	local     engine.Keys // keys, or those that stand in for the store while it does not answer
	totals    *totals
}

// totals are what is counted of a rule beside its keys.
type totals struct {
	allowed, denied, shadowed atomic.Uint64 // where keys do not count
	degraded, errors          atomic.Uint64
}

// enforces reports whether the rule denies.
func (r *activeRule) enforces() bool { return r.Mode != ModeShadow }

// rates returns what r grants to whom.
func (r *activeRule) rates() engine.Rates {
	windowed := algorithms[r.Algorithm].windowed
	rates := engine.Rates{Base: engine.Rate(r.Rate), MayGrow: r.Resolve != nil, Windows: windowed, SamePer: windowed}
	if len(r.Tiers) > 0 {
		rates.Tiers = make(map[string]engine.Rate, len(r.Tiers))
	}
	for tier, rate := range r.Tiers {
		rates.Tiers[tier] = engine.Rate(rate)
	}
	return rates
}

// A ruleSet is all the rules of a RateLimiter at one time. It does not change.
type ruleSet struct {
	rules  []*activeRule // in order; the default rule last
	byName map[string]*activeRule

	exact    map[string]*ruleGroup
	prefixes []prefix   // sorted by text
	fallback *ruleGroup // of the default rule; empty if there is none
}

// maxPlain is how many rules a plain group has at most.
const maxPlain = 4

// A ruleGroup is the rules that apply to an endpoint.
type ruleGroup struct {
	rules []*activeRule // in the order of locks; those with a Limiter come last

	// plain says that only keys in this process decide, at rates that are known
	// beforehand; see RateLimiter.takePlain.
	plain bool

	// only is the one rule of the group, if that is plain and enforces.
	only *activeRule
}

// A prefix is the group of the endpoints that begin with text.
type prefix struct {
	text   string
	group  *ruleGroup
	parent int // the longest other prefix that text begins with, or -1
}

// newRuleSet returns the set of rules.
func newRuleSet(rules []*activeRule) *ruleSet {
	s := &ruleSet{
		rules:    rules,
		byName:   make(map[string]*activeRule, len(rules)),
		exact:    make(map[string]*ruleGroup),
		fallback: &ruleGroup{},
	}
	prefixes := make(map[string]*ruleGroup)
	for i, r := range rules {
		r.index = i
		s.byName[r.Name] = r
		switch text, isPrefix := strings.CutSuffix(r.Endpoint, "*"); {
		case r.isDefault:
			s.fallback.rules = append(s.fallback.rules, r)
		case isPrefix:
			into(prefixes, text, r)
		case r.Endpoint != "":
			into(s.exact, r.Endpoint, r)
		}
	}
	for text, group := range prefixes {
		s.prefixes = append(s.prefixes, prefix{text, group, -1})
	}
	s.nest()
	s.fallback.classify()
	for _, group := range s.exact {
		group.classify()
	}
	for _, p := range s.prefixes {
		p.group.classify()
	}
	return s
}

// into adds r to the group of text.
func into(groups map[string]*ruleGroup, text string, r *activeRule) {
	if groups[text] == nil {
		groups[text] = new(ruleGroup)
	}
	groups[text].rules = append(groups[text].rules, r)
}

// classify sorts the rules of g and finds out what deciding by them takes.
func (g *ruleGroup) classify() {
	inLockOrder(g.rules)
	g.plain = len(g.rules) > 0 && len(g.rules) <= maxPlain
	for _, r := range g.rules {
		g.plain = g.plain && r.local != nil && r.Resolve == nil
	}
	if g.plain && len(g.rules) == 1 && g.rules[0].enforces() {
		g.only = g.rules[0]
	}
}

// inLockOrder sorts rules so that their keys may be locked one after another: all
// decisions lock in the same order. Those with a Limiter, which lock nothing, come last.
func inLockOrder(rules []*activeRule) {
	slices.SortFunc(rules, func(a, b *activeRule) int {
		if custom := a.Limiter != nil; custom != (b.Limiter != nil) {
			if custom {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.serial, b.serial)
	})
}

// nest sorts the prefixes and finds the parent of each. Sorted, a prefix comes
// before all that begin with it, and they follow one another.
func (s *ruleSet) nest() {
	slices.SortFunc(s.prefixes, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	var stack []int // the prefix before this one, last, and those that it begins with
	for i, p := range s.prefixes {
		for len(stack) > 0 && !strings.HasPrefix(p.text, s.prefixes[stack[len(stack)-1]].text) {
			stack = stack[:len(stack)-1]
		}
		if len(stack) > 0 {
			s.prefixes[i].parent = stack[len(stack)-1]
		}
		stack = append(stack, i)
	}
}

// match returns the rules for endpoint: those of just that, else of the longest
// prefix, else the default one.
func (s *ruleSet) match(endpoint string) *ruleGroup {
	if g := s.exact[endpoint]; g != nil {
		return g
	}
	if len(s.prefixes) == 0 {
		return s.fallback
	}
	// The last prefix that is not after endpoint begins with the longest one
	// that endpoint begins with, or is it.
	i := sort.Search(len(s.prefixes), func(i int) bool { return s.prefixes[i].text > endpoint }) - 1
	for ; i >= 0; i = s.prefixes[i].parent {
		if strings.HasPrefix(endpoint, s.prefixes[i].text) {
			return s.prefixes[i].group
		}
	}
	return s.fallback
}
