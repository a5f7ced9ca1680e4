package confmap

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// The methods below read one field each. Their parameter form is the reason in the error for a
// field that is wrong: it says what a good value is.

// Child returns the map in a field. It reports a field that is missing or no map, and then ok is
// false.
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

// Text returns a copy of the string in a field. If the field is missing, it returns the empty
// string, and ok is true. It reports a value that is no string or a long one, and then ok is
// false.
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
	return strings.Clone(s), ok // s may be a part of a large document, which can now be freed
}

// Choice returns the one of names that is the value of a field, in any spelling that [Fold] makes
// equal. If the field is missing, the choice is empty, and ok is true unless a misspelt name was
// taken for the field. Choice reports a value that is not among names, and then ok is false.
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

// Bool returns the truth value in a field, and false if the field is missing. It reports any other
// value.
func (r *Reader) Bool(n *Node, name string) bool {
	v, given := n.Get(name)
	b := reflect.ValueOf(v)
	if !given || b.Kind() == reflect.Bool {
		return given && b.Bool()
	}
	r.Reject(n.Field(name), Describe(v), "must be true or false")
	return false
}

// Int returns the whole number in a field that n has, which may be 0 or negative. It reports any
// other value and returns 0.
func (r *Reader) Int(n *Node, name string) int {
	x, ok := r.number(n, name, "must be a whole number")
	if !ok || x.digits == "" {
		return 0
	}
	i, whole, fits := x.Scaled(0, math.MaxInt)
	switch {
	case !fits:
		r.Reject(n.Field(name), x.String(), "must be closer to 0: it is beyond what can be counted")
	case !whole:
		r.Reject(n.Field(name), x.String(), "must be a whole number")
	case x.neg:
		return -int(i)
	}
	return int(i)
}

// Float returns the number in a field that n has. It reports any other value, and a number that is
// too large for a float64, and returns 0.
func (r *Reader) Float(n *Node, name string) float64 {
	x, ok := r.number(n, name, "must be a number")
	if !ok {
		return 0
	}
	f, err := x.Float()
	if err != nil {
		r.Reject(n.Field(name), x.String(), "must be closer to 0")
		return 0
	}
	return f
}

// number returns the number in a field that n has. It reports any other value, with this reason,
// and then ok is false.
func (r *Reader) number(n *Node, name, form string) (x Decimal, ok bool) {
	v, _ := n.Get(name)
	if x, ok = NumberOf(v); ok {
		return x, true
	}
	if text, isText := TextOf(v); isText {
		if _, ok := parseDecimal(strings.TrimSpace(text)); ok {
			form = "must be a number, not a string: drop the quotes"
		}
	}
	r.Reject(n.Field(name), Describe(v), form)
	return Decimal{}, false
}

// Number returns the number in a field that n has. It must be above 0. Number reports any other
// value, and then ok is false. form is the reason for a value that is no number, and tooSmall for
// a number that is not above 0.
func (r *Reader) Number(n *Node, name, form, tooSmall string) (x Decimal, ok bool) {
	if x, ok = r.number(n, name, form); ok && !x.Positive() {
		r.Reject(n.Field(name), n.Describe(name), tooSmall)
		return Decimal{}, false
	}
	return x, ok
}

// Count returns the whole number in a field that n has. It must be from 1 to the largest int.
// Count reports any other value and returns 0.
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
