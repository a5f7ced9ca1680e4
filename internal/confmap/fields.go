package confmap

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Each of the methods below reads one field. The parameter form says what a good value of the field is;
// it becomes the reason in the error for a wrong value.

// Child returns the map in a field. If the field is missing or not a map, it reports that, and ok
// is false.
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
// string, and ok is true. If the value is not a string, or is longer than MaxText, it reports that,
// and ok is false.
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
	return strings.Clone(s), ok // a copy, because s may be part of a large document and would keep the document in memory
}

// Choice returns the value of a field that must be one of the given strings. Capital letters, "_" and "-" in the
// value do not matter, see [Fold]. If the value is none of these strings, Choice reports that, and ok is false.
// If the field is missing, chosen is empty. Then ok is true, unless the field was probably given under a wrong
// name, see [Node.Misspelt].
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
	if hint := DidYouMean(text, names); hint != "" {
		form = "unknown " + name + hint
	}
	r.Reject(n.Field(name), Quote(text), form)
	return "", false
}

// Bool returns the value of a field that is true or false. If the field is missing, it returns false.
// If the value is neither true nor false, Bool reports that.
func (r *Reader) Bool(n *Node, name string) bool {
	v, given := n.Get(name)
	b := reflect.ValueOf(v)
	if !given || b.Kind() == reflect.Bool {
		return given && b.Bool()
	}
	r.Reject(n.Field(name), Describe(v), "must be true or false")
	return false
}

// Int returns the whole number in a field, which may be 0 or negative. If the value is not such a
// number, Int reports that and returns 0. The node n must have the field.
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

// Float returns the number in a field. If the value is not a number, or is too large for a float64,
// Float reports that and returns 0. The node n must have the field.
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

// The method number returns the number in a field. If the value is not a number, the method reports that,
// and ok is false. The parameter form is the reason in the error. The node n must have the field.
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

// Number returns the number in a field, which must be above 0. If the value is not such a number, the
// method reports that, and ok is false. The parameter form is the reason in the error for a value that is
// not a number, and tooSmall is the reason for a number that is not above 0. The node n must have the field.
func (r *Reader) Number(n *Node, name, form, tooSmall string) (x Decimal, ok bool) {
	if x, ok = r.number(n, name, form); ok && !x.Positive() {
		r.Reject(n.Field(name), n.Describe(name), tooSmall)
		return Decimal{}, false
	}
	return x, ok
}

// Count returns the whole number in a field, which must be from 1 to the largest int. If the value is
// not such a number, Count reports that and returns 0. The node n must have the field.
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
