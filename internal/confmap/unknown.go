package confmap

import (
	"fmt"
	"slices"
	"strings"
)

// notString is the reason in the error for a key that is not a string.
const notString = "must have a string for its key"

// A Hint returns the reason why a key that names no field is refused, or an empty text for the
// usual reason. meant are the fields that were probably meant: they count as misspelt, see
// [Node.Misspelt].
type Hint func(name string, value any) (reason string, meant []string)

// Unknown reports the keys of n that name no field, those that are not strings, and the fields
// that are given twice. [Node.Match] has found them. A name that is nearly one of known counts as
// that field misspelt.
func (r *Reader) Unknown(n *Node, known []string, hint Hint) {
	for _, s := range r.listed(&n.strays) {
		if !s.isName {
			r.Reject(s.path(n), Describe(s.value), notString)
			continue
		}
		value, _ := n.value(s.name)
		reason, meant := hint(s.name, value)
		first, twice := n.given[s.field]
		switch {
		case reason != "":
		case twice:
			reason = "must not stand beside " + first + ": give one of them"
		default:
			reason = "unknown field"
			if near := Nearest(s.name, known); near != "" {
				meant = []string{near}
				reason += "; did you mean " + Quote(near) + "?"
			}
		}
		for _, field := range meant {
			n.misspelt(field)
		}
		r.Reject(s.path(n), Describe(value), reason)
	}
}

// StringKeys reports the keys of n that are not strings. It returns true if there are none.
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

// A stray is a field of a map that must not have it.
type stray struct {
	name   string // the key or, if it is not a string, its description
	kind   string // the type of a key that is not a string
	isName bool   // whether the key is a string
	field  string // the field that the key names, if it is given twice or dropped
	value  any    // of a key that is not a string
}

// strayOf returns the stray with this key and value.
func strayOf(key, value any) stray {
	if name, ok := key.(string); ok {
		return stray{name: name, isName: true, value: value}
	}
	return stray{name: Describe(key), kind: fmt.Sprintf("%T", key), value: value}
}

// path returns the path of a stray of n.
func (s stray) path(n *Node) string {
	if s.isName {
		return n.path(s.name)
	}
	return n.Path + "[" + s.name + "]"
}

// compare orders strays by name, and those with the same name by the type of the key.
func (s stray) compare(other stray) int {
	if s.name != other.name {
		return strings.Compare(s.name, other.name)
	}
	return strings.Compare(s.kind, other.kind)
}

// A shortlist keeps the strays that an error lists: of all that are added, the first MaxProblems
// in sorted order. So a map with a million unknown fields is neither copied nor sorted as a
// whole.
//
// When the list has four times as many strays as it must keep, it sorts them and drops all but
// the first MaxProblems. From then on, it does not add a stray that comes after all of these.
type shortlist struct {
	strays []stray
	sorted bool // the first MaxProblems are sorted, and come before all that were dropped
	total  int  // calls of add
}

// add adds s, unless the list has MaxProblems that come before it.
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

// trim sorts the strays and drops all but the first MaxProblems.
func (l *shortlist) trim() {
	slices.SortFunc(l.strays, stray.compare)
	if len(l.strays) > MaxProblems {
		clear(l.strays[MaxProblems:])
		l.strays, l.sorted = l.strays[:MaxProblems], true
	}
}

// listed returns the strays of l that are to be listed, sorted. It counts the others as problems
// that are not listed.
func (r *Reader) listed(l *shortlist) []stray {
	l.trim()
	r.skip(l.total - len(l.strays))
	return l.strays
}
