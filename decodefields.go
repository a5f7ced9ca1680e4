package ratelimit

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
)

// A node is a map of a config: one of fields and mixed.
type node struct {
	path   string
	fields map[string]any
	mixed  map[any]any     // as old YAML decoders make them
	inline bool            // the path is that of the only field
	meant  map[string]bool // fields that are there, misspelt
}

// mapOf returns v as a node without a path.
func mapOf(v any) (*node, bool) {
	switch m := v.(type) {
	case map[string]any:
		return &node{fields: m}, m != nil
	case map[any]any:
		return &node{mixed: m}, m != nil
	}
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Map || r.IsNil() {
		return nil, false
	}
	for _, as := range []reflect.Type{reflect.TypeFor[map[string]any](), reflect.TypeFor[map[any]any]()} {
		if r.CanConvert(as) {
			return mapOf(r.Convert(as).Interface())
		}
	}
	return nil, false
}

func (n *node) get(name string) (v any, ok bool) {
	if n.mixed != nil {
		v, ok = n.mixed[name]
		return v, ok
	}
	v, ok = n.fields[name]
	return v, ok
}

func (n *node) len() int { return len(n.fields) + len(n.mixed) }

// all returns the keys and values of n in no order.
func (n *node) all() iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		for key, value := range n.fields {
			if !yield(key, value) {
				return
			}
		}
		for key, value := range n.mixed {
			if !yield(key, value) {
				return
			}
		}
	}
}

// field returns the path of the field with name.
func (n *node) field(name string) string {
	switch {
	case n.inline:
		return n.path
	case len(name) > 40 || name == "" || strings.Trim(name, "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") != "":
		return n.path + "[" + quoted(name) + "]"
	case n.path == "":
		return name
	}
	return n.path + "." + name
}

// shown returns what is said of the value of a field.
func (n *node) shown(name string) string {
	v, _ := n.get(name)
	return shown(v)
}

// child returns the map in a field, which is required and must be as form says.
func (d *decoder) child(n *node, name, form string) (*node, bool) {
	v, ok := n.get(name)
	if !ok {
		if !n.meant[name] {
			d.bad(n.field(name), "missing", form)
		}
		return nil, false
	}
	child, ok := mapOf(v)
	if !ok {
		d.bad(n.field(name), shown(v), form)
		return nil, false
	}
	child.path = n.field(name)
	return child, true
}

// text reads a string, which is empty if it is missing, and reports whether it is
// one.
func (d *decoder) text(n *node, name string) (s string, ok bool) {
	v, given := n.get(name)
	if !given {
		return "", true
	}
	s, ok = textOf(v)
	switch {
	case !ok:
		d.bad(n.field(name), shown(v), "must be a string")
	case len(s) > maxText:
		d.bad(n.field(name), shown(v), fmt.Sprintf("must be at most %d bytes long", maxText))
		return "", false
	}
	return strings.Clone(s), ok
}

// choice reads one of several names, in any spelling. It is empty if it is missing.
func choice[S ~string](d *decoder, n *node, name string, of []S) (chosen S, ok bool) {
	v, given := n.get(name)
	if !given {
		return "", !n.meant[name]
	}
	text, ok := textOf(v)
	if !ok {
		d.bad(n.field(name), shown(v), "must be one of "+list(of))
		return "", false
	}
	for _, s := range of {
		if len(text) <= maxName && plain(text) == plain(string(s)) {
			return s, true
		}
	}
	reason := "must be one of " + list(of)
	if meant := nearest(text, of); meant != "" {
		reason = "unknown " + name + "; did you mean " + quoted(string(meant)) + "?"
	}
	d.bad(n.field(name), quoted(text), reason)
	return "", false
}

// A stray is a field that is not known.
type stray struct {
	name, kind string
	text       bool
	value      any
}

// unknown reports the fields of n that are not among known. Those among elsewhere
// stand in a wrong place, and hint says where they belong.
func (d *decoder) unknown(n *node, known, elsewhere []string, hint string) {
	for i, s := range d.strays(n, known) {
		if i == maxProblems {
			break
		}
		field, reason := n.field(s.name), "unknown field"
		switch {
		case !s.text:
			field, reason = n.path+"["+s.name+"]", "must have a string for its key"
		case slices.Contains(elsewhere, s.name):
			reason += "; " + hint
		default:
			if meant := nearest(s.name, known); meant != "" {
				if n.meant == nil {
					n.meant = make(map[string]bool)
				}
				n.meant[meant] = true
				reason += "; did you mean " + quoted(meant) + "?"
			}
		}
		d.bad(field, shown(s.value), reason)
	}
}

// stringKeys reports the keys of n that are no strings, and whether there are none.
func (d *decoder) stringKeys(n *node) bool {
	before := d.found()
	for _, s := range d.strays(n, nil) {
		if !s.text {
			d.bad(n.path+"["+s.name+"]", shown(s.value), "must have a string for its key")
		}
	}
	return d.found() == before
}

// strays returns the fields of n that are not among known, as many as are listed,
// in order; with nil for known, the keys that are no strings. It counts the others.
func (d *decoder) strays(n *node, known []string) []stray {
	if known == nil && n.mixed == nil {
		return nil
	}
	compare := func(a, b stray) int {
		if a.name != b.name {
			return strings.Compare(a.name, b.name)
		}
		return strings.Compare(a.kind, b.kind)
	}
	var all []stray
	total, trimmed := 0, false // down to the first maxProblems, which only smaller ones replace
	for key, value := range n.all() {
		s := stray{value: value}
		if s.name, s.text = key.(string); s.text && (known == nil || slices.Contains(known, s.name)) {
			continue
		}
		if !s.text {
			s.name, s.kind = shown(key), fmt.Sprintf("%T", key)
		}
		total++
		if trimmed && compare(s, all[maxProblems-1]) > 0 {
			continue
		}
		if all = append(all, s); len(all) == 4*maxProblems {
			slices.SortFunc(all, compare)
			all, trimmed = slices.Delete(all, maxProblems, len(all)), true
		}
	}
	slices.SortFunc(all, compare)
	all = all[:min(len(all), maxProblems)]
	d.hidden(total - len(all))
	return all
}
