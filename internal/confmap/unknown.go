package confmap

import (
	"fmt"
	"slices"
	"strings"
)

// notString is what is said of a key that is not a string.
const notString = "must have a string for its key"

// Unknown reports the fields of n that are not among known, and the keys that are not
// strings. A name among elsewhere is that of a field that belongs to another map; hint
// says to which one. A name that is nearly a known one counts as that one misspelt,
// see [Node.Misspelt].
func (r *Reader) Unknown(n *Node, known, elsewhere []string, hint string) {
	var unknown shortlist
	for key, value := range n.all() {
		if name, ok := key.(string); !ok || !slices.Contains(known, name) {
			unknown.add(strayOf(key, value))
		}
	}
	for _, s := range r.listed(&unknown) {
		reason := "unknown field"
		switch {
		case !s.isName:
			reason = notString
		case slices.Contains(elsewhere, s.name):
			reason += "; " + hint
		default:
			if near := Nearest(s.name, known); near != "" {
				n.misspelt(near)
				reason += "; did you mean " + Quote(near) + "?"
			}
		}
		r.Reject(s.path(n), Describe(s.value), reason)
	}
}

// StringKeys reports the keys of n that are not strings, and returns whether all are.
func (r *Reader) StringKeys(n *Node) bool {
	var others shortlist
	for key, value := range n.mixed {
		if _, ok := key.(string); !ok {
			others.add(strayOf(key, value))
		}
	}
	for _, s := range r.listed(&others) {
		r.Reject(s.path(n), Describe(s.value), notString)
	}
	return others.total == 0
}

// A stray is a field that does not belong where it is.
type stray struct {
	name   string // or the description of a key that is not a string
	kind   string // the type of such a key
	isName bool   // whether the key is a string
	value  any
}

// strayOf returns the stray with a key and a value.
func strayOf(key, value any) stray {
	if name, ok := key.(string); ok {
		return stray{name: name, isName: true, value: value}
	}
	return stray{name: Describe(key), kind: fmt.Sprintf("%T", key), value: value}
}

// path returns the path of a stray of n.
func (s stray) path(n *Node) string {
	if s.isName {
		return n.Field(s.name)
	}
	return n.Path + "[" + s.name + "]"
}

// compare orders strays by name, and those of one name by type.
func (s stray) compare(other stray) int {
	if s.name != other.name {
		return strings.Compare(s.name, other.name)
	}
	return strings.Compare(s.kind, other.kind)
}

// A shortlist keeps those of the strays added to it that are to be listed: the first
// MaxProblems in order. A map of a million unknown fields is neither copied nor sorted
// as a whole.
//
// Strays gather behind the first ones until there are four times as many as are
// kept; then they are sorted, and all but the first are dropped. From then on, a stray
// that comes after all of the first is not even added.
type shortlist struct {
	strays []stray
	sorted bool // the first MaxProblems are in order, and come before all dropped
	total  int  // strays that were to be added
}

// add adds s, unless it cannot be among the first.
func (l *shortlist) add(s stray) {
	l.total++
	if l.sorted && s.compare(l.strays[MaxProblems-1]) > 0 {
		return
	}
	l.strays = append(l.strays, s)
	if len(l.strays) == 4*MaxProblems {
		l.trim()
	}
}

// trim sorts the strays and drops all but the first.
func (l *shortlist) trim() {
	slices.SortFunc(l.strays, stray.compare)
	if len(l.strays) > MaxProblems {
		clear(l.strays[MaxProblems:])
		l.strays, l.sorted = l.strays[:MaxProblems], true
	}
}

// listed returns the strays in l that are to be listed, in order. The others are
// counted as problems.
func (r *Reader) listed(l *shortlist) []stray {
	l.trim()
	r.skip(l.total - len(l.strays))
	return l.strays
}
