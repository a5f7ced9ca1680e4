package ratelimit

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// An activeRule is a rule and what it decides by. A change of a rule makes a new
// activeRule, which shares the keys and totals of the old one if the rule still has the
// same name, key type and algorithm.
type activeRule struct {
	Rule // with its defaults filled in

	isDefault  bool
	resultName string      // Result.Rule: the rule's name, or empty for a limiter outside a RateLimiter
	index      int         // place among the rules, in the order in which they were given
	serial     uint64      // keys are locked in the order of serials: the one made first has the lowest
	key        keyMaker    // of Key
	keys       engine.Keys // the rule's state in this process; nil if it has a Limiter or a store
	remote     *remoteRule // nil without a store
	local      engine.Keys // keys, or with a store the keys for FailLocal; nil if there are neither
	totals     *totals
}

// totals are the counts of a rule that its keys do not keep.
type totals struct {
	allowed, denied, shadowed atomic.Uint64 // decisions of a store or of a custom Limiter
	degraded, errors          atomic.Uint64
}

// count counts a decision of a store or a custom limiter.
func (t *totals) count(shadow, allowed bool) {
	switch {
	case allowed:
		t.allowed.Add(1)
	case shadow:
		t.shadowed.Add(1)
	default:
		t.denied.Add(1)
	}
}

// enforces reports whether the rule denies.
func (r *activeRule) enforces() bool { return r.Mode != ModeShadow }

// rates returns the rates of r and of its tiers, as the engine has them.
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

// A ruleSet is all the rules of a RateLimiter at one time. It never changes: a change of
// the rules makes another one, so a decision that has loaded a ruleSet needs no lock.
type ruleSet struct {
	rules  []*activeRule // in order; the default rule last
	byName map[string]*activeRule

	exact    map[string]*ruleGroup
	prefixes []prefix   // sorted by text
	fallback *ruleGroup // the default rule alone; empty if there is no default rule
}

// maxPlain is the largest number of rules in a plain group.
const maxPlain = 4

// A ruleGroup is the rules that apply to an endpoint.
type ruleGroup struct {
	rules []*activeRule // in the order of inLockOrder

	// plain is true if the group has 1 to maxPlain rules and keys in this process can
	// decide by each of them without code of the user's; see RateLimiter.takePlain.
	plain bool

	// only is the group's rule if the group is plain and has exactly one, which
	// enforces. It is nil otherwise.
	only *activeRule
}

// A prefix is the group of rules for the endpoints that begin with text.
type prefix struct {
	text   string
	group  *ruleGroup
	parent int // index of the longest other prefix that text begins with, or -1
}

// newRuleSet returns the set of these rules, and sets their indexes.
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
			addTo(prefixes, text, r)
		case r.Endpoint != "":
			addTo(s.exact, r.Endpoint, r)
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

// addTo adds r to the group of text.
func addTo(groups map[string]*ruleGroup, text string, r *activeRule) {
	if groups[text] == nil {
		groups[text] = new(ruleGroup)
	}
	groups[text].rules = append(groups[text].rules, r)
}

// classify sorts the rules of g and sets plain and only.
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

// inLockOrder sorts rules into the one order in which all decisions lock keys, so that no
// two decisions wait for each other. Rules with a Limiter lock nothing and come last.
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

// nest sorts the prefixes and finds the parent of each. In sorted order, all prefixes that
// begin with a given prefix follow it directly.
func (s *ruleSet) nest() {
	slices.SortFunc(s.prefixes, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	var stack []int // the previous prefix, on top, and below it the prefixes that it begins with
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

// match returns the rules for endpoint: those of exactly this endpoint; if there are none,
// those of the longest prefix that it begins with; otherwise the default rule.
func (s *ruleSet) match(endpoint string) *ruleGroup {
	if g := s.exact[endpoint]; g != nil {
		return g
	}
	if len(s.prefixes) == 0 {
		return s.fallback
	}
	// Sorted, the last prefix that does not come after endpoint is the longest one that
	// endpoint begins with, or a prefix that begins with that one: a parent is the answer.
	i := sort.Search(len(s.prefixes), func(i int) bool { return s.prefixes[i].text > endpoint }) - 1
	for ; i >= 0; i = s.prefixes[i].parent {
		if strings.HasPrefix(endpoint, s.prefixes[i].text) {
			return s.prefixes[i].group
		}
	}
	return s.fallback
}
