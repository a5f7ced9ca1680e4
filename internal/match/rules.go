package match

import "math"

// Rules holds all rules of a limiter, and finds them by their order, by endpoint and by name. A value of the type
// Rules never changes: the method With returns another one, which shares memory with the old one where both are the
// same.
type Rules[R Listed, G any] struct {
	List[R]
	Set[R, G]

	names Map[R]
}

// NewRules returns the Rules of the given rules, which are in no other Rules yet. The default rule, if any, must be the last one. The
// function build makes a value from the rules that apply to an endpoint, see New.
func NewRules[R Listed, G any](rules []R, build func(rules []R) G) Rules[R, G] {
	names := make(map[string]R, len(rules))
	for i, r := range rules {
		m := r.member()
		if m.Index = int32(i); r.Place().Default {
			m.Index = math.MaxInt32
		}
		names[r.RuleName()] = r
	}
	return Rules[R, G]{rules, New(rules, build), MapOf(names)}
}

// Named returns the rule with this name, or the zero R.
func (rs *Rules[R, G]) Named(name string) R {
	r, _ := rs.names.Get(name)
	return r
}

// Names returns the names of all rules, in their order.
func (rs *Rules[R, G]) Names() []string {
	names := make([]string, len(rs.List))
	for i, r := range rs.List {
		names[i] = r.RuleName()
	}
	return names
}

// With returns Rules in which a new rule (the second parameter) takes the place of an old one (the first parameter). The new
// rule must not be in other Rules yet. If there is no old rule (the zero R), the new rule is added after all others, but before
// the default rule. If there is no new rule (the zero R), the old rule is only removed. rs must be the newest Rules.
func (rs *Rules[R, G]) With(from, to R) Rules[R, G] {
	var none R
	next, index := rs.with(from, to)
	names := rs.names
	if from != none {
		names = names.Without(from.RuleName())
	}
	if to != none {
		to.member().Index = index
		names = names.With(to.RuleName(), to)
	}
	return Rules[R, G]{next, rs.Replace(from, to), names}
}
