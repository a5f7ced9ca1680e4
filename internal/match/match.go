// Package match finds the rules for an endpoint.
//
// A rule has a pattern: one endpoint, a prefix of endpoints, or the default. The patterns that
// cover an endpoint nest, from the default, the widest, to the endpoint itself, the narrowest.
// So the narrowest pattern that covers an endpoint determines which rules apply to it, and all
// endpoints with the same narrowest pattern share one group of rules.
package match

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Place says to which endpoints a rule applies, and how.
type Place struct {
	Endpoint   string // the endpoint or, with a "*" at its end, the prefix; empty if the rule has none
	Default    bool   // applies to the endpoints that no other rule matches
	Additional bool   // applies beside the best match
	Shadow     bool   // denies nothing
}

// enforces reports whether a rule at p can be the best match.
func (p Place) enforces() bool { return !p.Shadow && !p.Additional }

// depth returns the text of the pattern without a "*" and a number that is larger for narrower
// patterns: of two patterns that cover one endpoint, the one with the larger number is narrower.
// The number is 0 if the rule has no pattern.
func (p Place) depth() (text string, depth int) {
	text, isPrefix := strings.CutSuffix(p.Endpoint, "*")
	switch {
	case p.Default:
		return "", 1
	case isPrefix:
		return text, 2 + len(text)
	case text != "":
		return text, math.MaxInt
	}
	return "", 0
}

// Meet reports whether there may be an endpoint to which two rules at a and b both apply,
// whatever other rules there are. Rules without a pattern are not known to meet any.
func Meet(a, b Place) bool {
	textA, depthA := a.depth()
	textB, depthB := b.depth()
	if depthA > depthB {
		a, b, textA, textB, depthA, depthB = b, a, textB, textA, depthB, depthA
	}
	switch {
	case depthA == 0:
		return false
	case depthA == math.MaxInt:
		return textA == textB
	case !strings.HasPrefix(textB, textA):
		return false
	}
	// The pattern of a covers that of b. If b enforces, a gives way to it, unless it is
	// additional or has the same pattern.
	return depthA == depthB || a.Additional || b.Additional || b.Shadow
}

// A Rule is what this package needs to know of a rule.
type Rule interface {
	comparable

	// Place returns to which endpoints the rule applies. It never changes.
	Place() Place
}

// A Group is the rules with one pattern, and the G that is made of all rules that apply to the
// endpoints of which this is the narrowest pattern.
//
// A change of rules replaces the groups whose G it changes, and no others. So G can be made
// when it is first needed, by any Set that has the group.
type Group[R Rule, G any] struct {
	ready atomic.Bool // whether value is made; beside it, because both are read together
	value G
	mu    sync.Mutex // held while value is made

	text     string // the pattern, without a "*"
	exact    bool   // whether the pattern is one endpoint
	own      []R    // the rules with this pattern
	enforces bool   // whether one of them can be the best match
}

// anew returns a group like g with the value still to be made.
func (g *Group[R, G]) anew() *Group[R, G] {
	return &Group[R, G]{text: g.text, exact: g.exact, own: g.own, enforces: g.enforces}
}

// replace returns g with the rule to in place of from, each of which may be the zero R for
// none. It returns nil if no rule is left.
func (g *Group[R, G]) replace(from, to R) *Group[R, G] {
	var none R
	own := make([]R, 0, len(g.own)+1)
	for _, r := range g.own {
		if r != from {
			own = append(own, r)
		}
	}
	if to != none {
		own = append(own, to)
	}
	if len(own) == 0 {
		return nil
	}
	return (&Group[R, G]{text: g.text, exact: g.exact, own: own}).counted()
}

// counted returns g after setting enforces.
func (g *Group[R, G]) counted() *Group[R, G] {
	g.enforces = slices.ContainsFunc(g.own, func(r R) bool { return r.Place().enforces() })
	return g
}

// A Set is all rules of a limiter that have a pattern. It never changes: a change makes
// another Set, which shares with the old one what is the same in both.
type Set[R Rule, G any] struct {
	exact    Map[*Group[R, G]]
	root     *node[R, G] // of the tree of all patterns but the default
	fallback *Group[R, G]
	build    func(rules, additional []R) G
}

// New returns the Set of rules. build makes a G of the rules that apply to an endpoint and of
// those among them that are additional. It is called when the G is first needed.
func New[R Rule, G any](rules []R, build func(rules, additional []R) G) Set[R, G] {
	s := Set[R, G]{root: new(node[R, G]), fallback: new(Group[R, G]), build: build}
	exact := make(map[string]*Group[R, G])
	for _, r := range rules {
		place := r.Place()
		text, isPrefix := strings.CutSuffix(place.Endpoint, "*")
		switch {
		case place.Default:
			s.fallback.own = append(s.fallback.own, r)
		case isPrefix:
			n := s.root.insert(text)
			if n.prefix == nil {
				n.prefix = &Group[R, G]{text: text}
			}
			n.prefix.own = append(n.prefix.own, r)
		case text != "":
			n := s.root.insert(text)
			if n.exact == nil {
				n.exact = &Group[R, G]{text: text, exact: true}
				exact[text] = n.exact
			}
			n.exact.own = append(n.exact.own, r)
		}
	}
	s.fallback.counted()
	s.root.countAll()
	s.exact = MapOf(exact)
	return s
}

// Find returns the G for endpoint.
func (s *Set[R, G]) Find(endpoint string) *G {
	g, ok := s.exact.Get(endpoint)
	if !ok {
		g = s.fallback
		if s.root.prefixes > 0 {
			g = s.root.find(endpoint, g)
		}
	}
	if !g.ready.Load() {
		s.make(g)
	}
	return &g.value
}

// make makes the value of g.
func (s *Set[R, G]) make(g *Group[R, G]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ready.Load() {
		return
	}
	var rules, additional []R
	chain := s.chain(g)
	for i, best := len(chain)-1, false; i >= 0; i-- { // from the narrowest pattern to the widest
		for _, r := range chain[i].own {
			switch {
			case r.Place().Additional:
				additional = append(additional, r)
			case !best:
				rules = append(rules, r)
			}
		}
		best = best || chain[i].enforces
	}
	g.value = s.build(append(rules, additional...), additional)
	g.ready.Store(true)
}

// chain returns the groups whose patterns cover that of g, from the widest to g itself.
func (s *Set[R, G]) chain(g *Group[R, G]) []*Group[R, G] {
	chain := []*Group[R, G]{s.fallback}
	if g == s.fallback {
		return chain
	}
	for n, text := s.root, g.text; n != nil; n, text = n.child(text) {
		if n.prefix != nil {
			chain = append(chain, n.prefix)
		}
	}
	if g.exact {
		chain = append(chain, g)
	}
	return chain
}

// Replace returns the Set that has the rule to in place of from, each of which may be the zero
// R for none. It makes anew only the groups that this changes.
func (s *Set[R, G]) Replace(from, to R) Set[R, G] {
	var none R
	after := *s
	switch {
	case from == none:
		after.change(to.Place(), from, to)
	case to == none:
		after.change(from.Place(), from, to)
	case from.Place().Endpoint == to.Place().Endpoint && from.Place().Default == to.Place().Default:
		after.change(to.Place(), from, to)
	default:
		after.change(from.Place(), from, none)
		after.change(to.Place(), none, to)
	}
	return after
}

// change changes s, which is a copy that nobody else has: the rule to takes the place of from
// at the pattern of place.
func (s *Set[R, G]) change(place Place, from, to R) {
	r := refresh[R, G]{all: isAdditional(from) || isAdditional(to)}
	text, isPrefix := strings.CutSuffix(place.Endpoint, "*")
	switch {
	case place.Default:
		if s.fallback = s.fallback.replace(from, to); s.fallback == nil {
			s.fallback = new(Group[R, G])
		}
		s.root = r.node(s.root)
	case isPrefix:
		s.root = s.root.with(text, func(n *node[R, G]) {
			if n.prefix == nil {
				n.prefix = &Group[R, G]{text: text}
			}
			n.prefix = n.prefix.replace(from, to)
			r.below(n)
		})
	case text != "":
		s.root = s.root.with(text, func(n *node[R, G]) {
			if n.exact == nil {
				n.exact = &Group[R, G]{text: text, exact: true}
			}
			if n.exact = n.exact.replace(from, to); n.exact == nil {
				s.exact = s.exact.Without(text)
				return
			}
			r.groups = append(r.groups, n.exact)
		})
	}
	if s.root == nil {
		s.root = new(node[R, G])
	}
	s.exact = s.exact.WithAll(r.groups, func(g *Group[R, G]) string { return g.text })
}

// isAdditional reports whether r is an additional rule; the zero R is none.
func isAdditional[R Rule](r R) bool {
	var none R
	return r != none && r.Place().Additional
}
