package match

import (
	"cmp"
	"math"
	"slices"
)

// An Ordered is a Rule with a place in the order of a List.
type Ordered interface {
	Rule

	// Index returns a number that grows in the order of the rules of a List.
	Index() int
}

// A List is rules in their order, the default rule last. It never changes.
type List[R Ordered] []R

// Usual returns the number of rules that are not the default rule.
func (l List[R]) Usual() int {
	if n := len(l); n > 0 && l[n-1].Place().Default {
		return n - 1
	}
	return len(l)
}

// Default returns the default rule, or the zero R if there is none.
func (l List[R]) Default() (r R) {
	if n := l.Usual(); n < len(l) {
		r = l[n]
	}
	return r
}

// Position returns where r, which must be one of the rules, is in l.
func (l List[R]) Position(r R) int {
	i, _ := slices.BinarySearchFunc(l, r.Index(), func(r R, index int) int { return cmp.Compare(r.Index(), index) })
	return i
}

// With returns the List that has the rule to in place of from. If from is the zero R, it adds to
// after the other rules; if to is the zero R, it removes from. index is what the Index of to must
// be from now on. l must be the newest List.
func (l List[R]) With(from, to R) (next List[R], index int) {
	var none R
	usual := l.Usual()
	switch {
	case to == none:
		i := l.Position(from)
		return slices.Concat(l[:i], l[i+1:]), 0
	case from != none:
		next = slices.Clone(l)
		next[l.Position(from)] = to
		return next, from.Index()
	case to.Place().Default:
		return append(l, to), math.MaxInt // an older List does not see it: it is shorter
	case usual > 0:
		index = l[usual-1].Index() + 1
	}
	if usual == len(l) {
		return append(l, to), index // as above
	}
	return slices.Concat(l[:usual], List[R]{to}, l[usual:]), index
}
