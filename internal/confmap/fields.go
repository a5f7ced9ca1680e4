package confmap

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The methods below read one field each. form says what a good value is, for the
// error of a field that has another.

// Child returns the map in a field. A field that is missing, or is no map, is
// reported.
func (r *Reader) Child(n *Node, name, form string) (child *Node, ok bool) {
	v, given := n.Get(name)
	if !given {
		if !n.Misspelt(name) {
			r.Reject(n.Field(name), "missing", form)
		}
		return nil, false
	}
	if child, ok = NodeOf(n.Field(name), v); !ok {
		r.Reject(n.Field(name), Describe(v), form)
		return nil, false
	}
	return child, true
}

// Text returns a copy of the string in a field, which may be missing: then it is
// empty, and ok is true. A value that is no string, or a long one, is reported.
func (r *Reader) Text(n *Node, name string) (s string, ok bool) {
	v, given := n.Get(name)
	if !given {
		return "", true
	}
	s, ok = TextOf(v)
	switch {
	case !ok:
		r.Reject(n.Field(name), Describe(v), "must be a string")
	case len(s) > MaxText:
		r.Reject(n.Field(name), Describe(v), fmt.Sprintf("must be at most %d bytes long", MaxText))
		return "", false
	}
	return strings.Clone(s), ok // the document that s is a part of need not stay in memory
}

// Choice returns the one of names that a field has, in any spelling, see [Fold]. The
// field may be missing: then the choice is empty, and ok is true unless the field is
// there misspelt. A value that is not among names is reported.
func Choice[S ~string](r *Reader, n *Node, name, form string, names []S) (chosen S, ok bool) {
	v, given := n.Get(name)
	if !given {
		return "", !n.Misspelt(name)
	}
	text, ok := TextOf(v)
	if !ok {
		r.Reject(n.Field(name), Describe(v), form)
		return "", false
	}
	if len(text) <= MaxName {
		for _, s := range names {
			if Fold(text) == Fold(string(s)) {
				return s, true
			}
		}
	}
	if near := Nearest(text, names); near != "" {
		form = "unknown " + name + "; did you mean " + Quote(string(near)) + "?"
	}
	r.Reject(n.Field(name), Quote(text), form)
	return "", false
}

// Number returns the number in a field that the node has, which must be above 0; ok
// is false if it is not, and that is reported. form is for a value that is no number,
// tooSmall for a number that is not above 0.
func (r *Reader) Number(n *Node, name, form, tooSmall string) (x Decimal, ok bool) {
	v, _ := n.Get(name)
	x, isNumber := NumberOf(v)
	switch text, isText := TextOf(v); {
	case isNumber && x.Positive():
		return x, true
	case isNumber:
		form = tooSmall
	case isText:
		if _, ok := parseDecimal(strings.TrimSpace(text)); ok {
			form = "must be a number, not a string: drop the quotes"
		}
	}
	r.Reject(n.Field(name), Describe(v), form)
	return Decimal{}, false
}

// Count returns the whole number in a field that the node has, which is from 1 to the
// largest int. It is 0 if the field has another value, which is reported.
func (r *Reader) Count(n *Node, name string) int {
	const form = "must be a whole number, at least 1"
	x, ok := r.Number(n, name, form, "must be at least 1")
	if !ok {
		return 0
	}
	count, whole, fits := x.Scaled(0, math.MaxInt)
	switch {
	case !fits:
		r.Reject(n.Field(name), x.String(), "must be at most "+strconv.Itoa(math.MaxInt))
	case !whole:
		r.Reject(n.Field(name), x.String(), form)
	}
	return int(count)
}
