package confmap

import (
	"fmt"
	"slices"
	"strings"
)

// notString is the reason in the error for a key that is not a string.
const notString = "must have a string for its key"

// A Hint returns the reason in the error for a key that names no field, or an empty text for the
// default reason. The second result lists the fields that the key was probably meant to be. These fields
// count as misspelt: they are not reported as missing too.
type Hint func(name string, value any) (reason string, meant []string)

// Unknown reports the keys of n that name no field, the keys that are not strings, and the fields that
// are given twice. [Node.Match] must have been called. The second parameter lists the names of fields. If a
// key is similar to one of them, the error suggests that name, and the field counts as misspelt, see
// [Node.Misspelt].
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

// StringKeys reports each key of n that is not a string as a problem. It returns true if all keys are strings.
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

// A stray is a key of a map that must be reported as a problem: the key is not a string, names no field,
// names a field for which the map has two keys, or names a field that [Node.Drop] has removed.
type stray struct {
	name   string // the key or, if it is not a string, its description
	kind   string // the type of the key, if it is not a string
	isName bool   // whether the key is a string
	field  string // the field that the key names, if the map has two keys for that field or Drop removed it
	value  any    // the value that the map has for the key
}

// strayOf returns the stray with this key and value.
func strayOf(key, value any) stray {
	if name, ok := key.(string); ok {
		return stray{name: name, isName: true, value: value}
	}
	return stray{name: Describe(key), kind: fmt.Sprintf("%T", key), value: value}
}

// path returns the path of s, which is a key of the node n.
func (s stray) path(n *Node) string {
	if s.isName {
		return n.path(s.name)
	}
	return n.Path + "[" + s.name + "]"
}

// compare orders strays by name, and strays with the same name by the type of the key.
func (s stray) compare(other stray) int {
	if s.name != other.name {
		return strings.Compare(s.name, other.name)
	}
	return strings.Compare(s.kind, other.kind)
}

// A shortlist holds the strays (keys that must be reported) that an error lists: the first MaxProblems,
// in sorted order, of all strays that were added. So a map with a million unknown fields need not be
// copied and sorted as a whole.
//
// When the list has 4·MaxProblems strays, it sorts them and drops all but the first MaxProblems. From
// then on, it does not store a stray that comes after these MaxProblems strays in the order.
type shortlist struct {
	strays []stray
	sorted bool // whether the first MaxProblems strays are sorted, and come before all strays that were dropped
	total  int  // number of calls of the method add
}

// add adds s to the list, unless the list already has MaxProblems strays that come before s.
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

// listed returns the strays that an error lists, sorted. It counts all further strays as problems.
func (r *Reader) listed(l *shortlist) []stray {
	l.trim()
	r.skip(l.total - len(l.strays))
	return l.strays
}
