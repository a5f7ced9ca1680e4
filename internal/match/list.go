package match

import (
	"cmp"
	"math"
	"slices"
)

// A Member holds what the type Rules needs to know about one rule. The type of the rule embeds Member.
type Member struct {
	// Index orders the rules. The default rule has the Index math.MaxInt32. The type Rules sets Index when it gets the rule.
	Index int32
}

// member returns m. Only a type that embeds Member has this method.
func (m *Member) member() *Member { return m }

// A Listed is a rule that can be in a List: a pointer to a type that embeds Member.
type Listed interface {
	Rule
	member() *Member

	// RuleName returns the name of the rule, which no other rule has. It returns the same name each time.
	RuleName() string
}

// A List holds rules, sorted by their Index, with the default rule last. It never changes.
type List[R Listed] []R

// NumNamed returns the number of rules that are not the default rule.
func (l List[R]) NumNamed() int {
	if n := len(l); n > 0 && l[n-1].Place().Default {
		return n - 1
	}
	return len(l)
}

// Default returns the default rule, or the zero R if there is none.
func (l List[R]) Default() (r R) {
	if n := l.NumNamed(); n < len(l) {
		r = l[n]
	}
	return r
}

// Position returns the position of r in l. r must be one of the rules of l.
func (l List[R]) Position(r R) int {
	i, _ := slices.BinarySearchFunc(l, r.member().Index, func(r R, index int32) int { return cmp.Compare(r.member().Index, index) })
	return i
}

// with returns a List in which one rule (the parameter from) is replaced by another (the parameter to). If the
// rule to replace is the zero R, with only adds a rule, after all others but before the default rule. If the
// new rule is the zero R, with only removes a rule. The second result is the Index that the caller must give
// the new rule. with must be called on the newest List only, because the new List may share memory with l.
func (l List[R]) with(from, to R) (next List[R], index int32) {
	var none R
	named := l.NumNamed()
	switch {
	case to == none:
		i := l.Position(from)
		return slices.Concat(l[:i], l[i+1:]), 0
	case from != none:
		next = slices.Clone(l)
		next[l.Position(from)] = to
		return next, from.member().Index
	case to.Place().Default:
		return append(l, to), math.MaxInt32 // older Lists share the array but are shorter, so they do not see the new rule
	case named > 0:
		index = l[named-1].member().Index + 1
	}
	if named == len(l) {
		return append(l, to), index // older Lists are shorter, so they do not see the new rule
	}
	return slices.Concat(l[:named], List[R]{to}, l[named:]), index
}
