// Package match finds the rules for an endpoint.
//
// A rule has a pattern: one endpoint, a prefix of endpoints, or the default. Several patterns
// can cover the same endpoint. The default is the widest of them, a longer prefix is narrower
// than a shorter prefix, and the endpoint itself is the narrowest pattern. The narrowest
// pattern that covers an endpoint determines which rules apply to the endpoint. So all
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
	Endpoint   string // the endpoint or, with a "*" at its end, the prefix; empty if the rule has no pattern
	Default    bool   // whether the rule applies to the endpoints that no other rule matches
	Additional bool   // whether the rule applies in addition to the best match, the narrowest rule that may deny
	Shadow     bool   // whether the rule is in shadow mode, so that it denies nothing
}

// Check checks the fields Endpoint and Additional of a rule at the place p. It returns a text for each of the
// two fields: what a good value is, or "" if the value is good. The parameter named says whether the rule has
// a name. A request can ask for a rule by its name, so a rule with a name needs no endpoint.
func (p Place) Check(named bool) (endpoint, additional string) {
	switch {
	case p.Default && p.Endpoint != "":
		endpoint = "must be empty: the default rule is for the endpoints that no other matches"
	case !p.Default && p.Endpoint == "" && !named:
		endpoint = "must be set, or a name to ask for the rule by"
	case strings.Contains(strings.TrimSuffix(p.Endpoint, "*"), "*"):
		endpoint = `must have a "*" at the end only`
	}
	switch {
	case p.Additional && p.Default:
		additional = "must be false: the default rule is for what no other rule matches; " +
			`for all endpoints, add a rule with the endpoint "*"`
	case p.Additional && p.Endpoint == "":
		additional = "must be false, or the rule have an endpoint: it applies to what that covers"
	}
	return endpoint, additional
}

// enforces reports whether a rule at the place p can be the best match for an endpoint: the narrowest
// rule that may deny. Rules with a wider pattern than the best match do not apply, except additional
// rules.
func (p Place) enforces() bool { return !p.Shadow && !p.Additional }

// Kind says how a rule at the place p applies to an endpoint: "exact", "prefix", "default" or "additional".
func (p Place) Kind() string {
	switch {
	case p.Additional:
		return "additional"
	case p.Default:
		return "default"
	case strings.HasSuffix(p.Endpoint, "*"):
		return "prefix"
	}
	return "exact"
}

// depth returns the text of the pattern of p without a "*", and a number that says how narrow the
// pattern is. If two patterns cover the same endpoint, the narrower pattern has the larger number. The
// number is 0 if the rule has no pattern.
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

// Meet reports whether two rules with the given places may both apply to one endpoint. Meet looks only at
// these two rules: a third rule may still have the effect that one of them does not apply. Meet returns false
// if one of the two rules has no pattern.
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
	// Here the pattern of the first rule covers the pattern of the second rule. If the patterns are equal
	// or the first rule is additional, both rules may apply. Otherwise, both may apply only if the second
	// rule cannot be the best match.
	return depthA == depthB || a.Additional || b.Additional || b.Shadow
}

// A Rule is a rule of the package that imports this one. Only its Place matters here.
type Rule interface {
	comparable

	// Place says to which endpoints the rule applies. It returns the same value each time.
	Place() Place
}

// A Group holds the rules with one pattern. It also holds a value of type G, which is made from all
// rules that apply to the endpoints whose narrowest pattern this is.
//
// A change of the rules replaces only the groups whose value has to change. A Set that has the group
// makes the value when the value is first needed.
type Group[R Rule, G any] struct {
	ready    atomic.Bool // whether the field value is set; stored close to value, because both are read together
	exact    bool        // whether the pattern is one endpoint
	enforces bool        // whether a rule in own can deny requests and is not Additional
	value    G
	*members[R]
}

// members holds the fields of a Group that are needed less often than the others.
type members[R Rule] struct {
	text       string     // the pattern, without a "*"
	own        []R        // the rules with this pattern
	mu         sync.Mutex // held while Group.value is made
	additional []R        // the additional rules among the rules that Group.value is made from; set together with Group.value
}

func newGroup[R Rule, G any](text string, exact bool, own []R) *Group[R, G] {
	return (&Group[R, G]{exact: exact, members: &members[R]{text: text, own: own}}).counted()
}

// Value returns the value of g, or nil if the value has not been made yet.
func (g *Group[R, G]) Value() *G {
	if g.ready.Load() {
		return &g.value
	}
	return nil
}

// The method anew returns a copy of g without its value. The value is made again when it is needed.
func (g *Group[R, G]) anew() *Group[R, G] { return newGroup[R, G](g.text, g.exact, g.own) }

// replace returns a copy of g in which one rule (the parameter from) is replaced by another (the parameter
// to). If the first is the zero R, a rule is only added; if the second is the zero R, a rule is only removed.
// replace returns nil if no rule is left.
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

// counted sets g.enforces from the rules of g, and returns g.
func (g *Group[R, G]) counted() *Group[R, G] {
	g.enforces = slices.ContainsFunc(g.own, func(r R) bool { return r.Place().enforces() })
	return g
}

// A Set holds all rules of a limiter that have a pattern. It never changes: the method Replace returns
// another Set, which shares memory with the old Set where the two Sets are the same.
type Set[R Rule, G any] struct {
	Exact Map[*Group[R, G]] // the groups of single endpoints, by endpoint

	root     *node[R, G]       // root of the tree of all patterns except the default
	fallback *Group[R, G]      // the group of the default pattern
	build    func(rules []R) G // makes the value of a group
}

// New returns the Set of rules. The function build makes a value from the rules that apply to an
// endpoint. It is called when that value is first needed.
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

// Find returns the value that build made from the rules for endpoint.
func (s *Set[R, G]) Find(endpoint string) *G { return &s.group(endpoint).value }

// Additional returns the rules that apply to endpoint in addition to the best match.
func (s *Set[R, G]) Additional(endpoint string) []R { return s.group(endpoint).additional }

// FindElsewhere does the same as Find, but is faster, because it does not search the map Exact.Whole. Call
// it only for an endpoint that is not in this map.
func (s *Set[R, G]) FindElsewhere(endpoint string) *G { return &s.elsewhere(endpoint).value }

// group returns the group for endpoint, after it has made the value of the group.
func (s *Set[R, G]) group(endpoint string) *Group[R, G] {
	if g := s.Exact.Whole[endpoint]; g != nil {
		return s.made(g)
	}
	return s.elsewhere(endpoint)
}

// elsewhere does the same as group, but does not search the map Exact.Whole. The endpoint must not be in
// this map.
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

// The method made makes the value of the group g if it is not made yet, and returns g.
func (s *Set[R, G]) made(g *Group[R, G]) *Group[R, G] {
	if !g.ready.Load() {
		s.make(g)
	}
	return g
}

// The method make makes the value of the group g, unless another goroutine has made it meanwhile.
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

// chain returns the groups whose patterns cover the pattern of the group g, from the widest to g
// itself.
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

// Replace returns a Set in which one rule (the parameter from) is replaced by another (the parameter to).
// If the first is the zero R, a rule is only added; if the second is the zero R, a rule is only removed.
// Replace makes a new group only if the rules that apply to the endpoints of the group change.
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

// The method change replaces one rule of the Set s (the parameter from) by another (the parameter to), as
// Replace describes it. Both rules have the pattern of the given place; one of them may be the zero R. The
// Set s must be a copy that only the caller has.
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

// isAdditional reports whether r is an additional rule. The zero R is not.
func isAdditional[R Rule](r R) bool {
	var none R
	return r != none && r.Place().Additional
}
