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
	ready    atomic.Bool // whether value is made; beside it, because both are read together
	exact    bool        // whether the pattern is one endpoint
	enforces bool        // whether one of the rules with the pattern can be the best match
	value    G
	*members[R]
}

// The members of a Group are what is needed of it less often.
type members[R Rule] struct {
	text       string     // the pattern, without a "*"
	own        []R        // the rules with this pattern
	mu         sync.Mutex // held while the value is made
	additional []R        // the additional rules among all that apply; made with the value
}

func newGroup[R Rule, G any](text string, exact bool, own []R) *Group[R, G] {
	return (&Group[R, G]{exact: exact, members: &members[R]{text: text, own: own}}).counted()
}

// Value returns the G of g, or nil if it is not made yet.
func (g *Group[R, G]) Value() *G {
	if g.ready.Load() {
		return &g.value
	}
	return nil
}

// anew returns a group like g with the value still to be made.
func (g *Group[R, G]) anew() *Group[R, G] { return newGroup[R, G](g.text, g.exact, g.own) }

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
	return newGroup[R, G](g.text, g.exact, own)
}

// counted returns g after setting enforces.
func (g *Group[R, G]) counted() *Group[R, G] {
	g.enforces = slices.ContainsFunc(g.own, func(r R) bool { return r.Place().enforces() })
	return g
}

// A Set is all rules of a limiter that have a pattern. It never changes: a change makes
// another Set, which shares with the old one what is the same in both.
type Set[R Rule, G any] struct {
	Exact Map[*Group[R, G]] // by endpoint, those of single endpoints

	root     *node[R, G] // of the tree of all patterns but the default
	fallback *Group[R, G]
	build    func(rules []R) G
}

// New returns the Set of rules. build makes a G of the rules that apply to an endpoint. It is
// called when the G is first needed.
func New[R Rule, G any](rules []R, build func(rules []R) G) Set[R, G] {
	s := Set[R, G]{root: new(node[R, G]), fallback: newGroup[R, G]("", false, nil), build: build}
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
				n.prefix = newGroup[R, G](text, false, nil)
			}
			n.prefix.own = append(n.prefix.own, r)
		case text != "":
			n := s.root.insert(text)
			if n.exact == nil {
				n.exact = newGroup[R, G](text, true, nil)
				exact[text] = n.exact
			}
			n.exact.own = append(n.exact.own, r)
		}
	}
	s.fallback.counted()
	s.root.countAll()
	s.Exact = MapOf(exact)
	return s
}

// Find returns the G for endpoint.
func (s *Set[R, G]) Find(endpoint string) *G { return &s.group(endpoint).value }

// Additional returns the additional rules for endpoint.
func (s *Set[R, G]) Additional(endpoint string) []R { return s.group(endpoint).additional }

// FindElsewhere is Find for an endpoint that Exact.Whole does not have.
func (s *Set[R, G]) FindElsewhere(endpoint string) *G { return &s.elsewhere(endpoint).value }

// group returns the group for endpoint, with its value made.
func (s *Set[R, G]) group(endpoint string) *Group[R, G] {
	if g := s.Exact.Whole[endpoint]; g != nil {
		return s.made(g)
	}
	return s.elsewhere(endpoint)
}

// elsewhere is group for an endpoint that Exact.Whole does not have.
func (s *Set[R, G]) elsewhere(endpoint string) *Group[R, G] {
	if s.Exact.parts != nil {
		if g, ok := s.Exact.getInParts(endpoint); ok {
			return s.made(g)
		}
	}
	if s.root.prefixes == 0 {
		return s.made(s.fallback)
	}
	return s.made(s.root.find(endpoint, s.fallback))
}

// made returns g after its value was made.
func (s *Set[R, G]) made(g *Group[R, G]) *Group[R, G] {
	if !g.ready.Load() {
		s.make(g)
	}
	return g
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
	g.value, g.additional = s.build(append(rules, additional...)), additional
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
			s.fallback = newGroup[R, G]("", false, nil)
		}
		s.root = r.node(s.root)
	case isPrefix:
		s.root = s.root.with(text, func(n *node[R, G]) {
			if n.prefix == nil {
				n.prefix = newGroup[R, G](text, false, nil)
			}
			n.prefix = n.prefix.replace(from, to)
			r.below(n)
		})
	case text != "":
		s.root = s.root.with(text, func(n *node[R, G]) {
			if n.exact == nil {
				n.exact = newGroup[R, G](text, true, nil)
			}
			if n.exact = n.exact.replace(from, to); n.exact == nil {
				s.Exact = s.Exact.Without(text)
				return
			}
			r.groups = append(r.groups, n.exact)
		})
	}
	if s.root == nil {
		s.root = new(node[R, G])
	}
	s.Exact = s.Exact.WithAll(r.groups, func(g *Group[R, G]) string { return g.text })
}

// isAdditional reports whether r is an additional rule; the zero R is none.
func isAdditional[R Rule](r R) bool {
	var none R
	return r != none && r.Place().Additional
}
