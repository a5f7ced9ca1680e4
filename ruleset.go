package ratelimit

import (
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// An activeRule is a rule at work. What changes of a rule of the same name is a new
// activeRule that shares the states and totals of the old one.
type activeRule struct {
	Rule // completed

	isDefault bool
	index     int    // place in the order of rules
	serial    uint64 // place in the order of locks: that of the states' making
	keyed     keyKind
	states    states      // in this process; nil if the rule has a Limiter, or a store
	remote    *remoteRule // if there is a store
	here      states      // states, or what stands in for them while the store does not answer
	totals    *totals
}

// totals are what is counted of a rule beside its states.
type totals struct {
	allowed, denied, shadowed atomic.Uint64 // where states do not count
	degraded, errors          atomic.Uint64
}

// A keyKind is a KeyType.
type keyKind uint8

const (
	byUser keyKind = iota
	byEndpoint
	byUserEndpoint
	byIP
	globally
)

func kindOf(k KeyType) keyKind { return keyKind(slices.Index(keyTypes, k)) }

// globalHash is the identity of the one key of a global rule.
var globalHash = keytable.Hash{Hi: 1}

// hash returns the identity of the key that a request takes from.
func (r *activeRule) hash(client, endpoint, ip string) keytable.Hash {
	switch r.keyed {
	case byUser:
		return keytable.HashOf(client)
	case byEndpoint:
		return keytable.HashOf(endpoint)
	case byUserEndpoint:
		return keytable.HashOfPair(client, endpoint)
	case byIP:
		return keytable.HashOf(ip)
	}
	return globalHash
}

// enforces reports whether the rule denies.
func (r *activeRule) enforces() bool { return r.Mode != ModeShadow }

// A ruleSet is all the rules of a RateLimiter at one time. It does not change.
type ruleSet struct {
	rules  []*activeRule // in order; the default rule last
	byName map[string]*activeRule

	exact    map[string]*ruleGroup
	prefixes []prefix   // sorted by text
	fallback *ruleGroup // of the default rule; nobody's if there is none
}

// A ruleGroup is the rules that apply to an endpoint.
type ruleGroup struct {
	rules []*activeRule // in the order of locks

	// alone is the only rule, if plain.
	alone *activeRule

	// plain says that nothing but the rules' states is to be asked, at the
	// rules' own rates, and nobody to be told: a decision goes the short way.
	plain bool
}

// A prefix is the group of the endpoints that begin with text.
type prefix struct {
	text   string
	group  *ruleGroup
	parent int // the longest other prefix that text begins with, or -1
}

// newRuleSet returns the set of rules. observed says that somebody is to be told of
// decisions.
func newRuleSet(rules []*activeRule, observed bool) *ruleSet {
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
	s.fallback.finish(observed)
	for _, group := range s.exact {
		group.finish(observed)
	}
	for _, p := range s.prefixes {
		p.group.finish(observed)
	}
	return s
}

func into(groups map[string]*ruleGroup, text string, r *activeRule) {
	if groups[text] == nil {
		groups[text] = new(ruleGroup)
	}
	groups[text].rules = append(groups[text].rules, r)
}

func (g *ruleGroup) finish(observed bool) {
	sortBySerial(g.rules)
	if g.plain = !observed && len(g.rules) > 0 && len(g.rules) <= maxShort; !g.plain {
		return
	}
	for _, r := range g.rules {
		if r.here == nil || !r.enforces() || len(r.Tiers) > 0 || r.Resolve != nil {
			g.plain = false
			return
		}
	}
	if len(g.rules) == 1 {
		g.alone = g.rules[0]
	}
}

func sortBySerial(rules []*activeRule) {
	slices.SortFunc(rules, func(a, b *activeRule) int {
		switch {
		case a.serial < b.serial:
			return -1
		case a.serial > b.serial:
			return 1
		}
		return 0
	})
}

// nest sorts the prefixes and finds the parent of each. Sorted, a prefix comes
// before all that begin with it, and they follow one another.
func (s *ruleSet) nest() {
	slices.SortFunc(s.prefixes, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	var open []int // the prefixes of the one before, from the shortest on, and it
	for i, p := range s.prefixes {
		for len(open) > 0 && !strings.HasPrefix(p.text, s.prefixes[open[len(open)-1]].text) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			s.prefixes[i].parent = open[len(open)-1]
		}
		open = append(open, i)
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
