package confmap

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// A Node is one map of a config: a map[string]any, a map[any]any, which older YAML decoders make, or
// another map whose keys are strings, such as a map[string]int. The map is never changed.
type Node struct {
	// Path is the path of the map in the config, such as
	// "configs[3].algoConfig". It is empty if the map is the whole config.
	Path string

	fields map[string]any    // the map, if its type is map[string]any
	mixed  map[any]any       // the map, if its type is map[any]any, whose keys need not be strings
	typed  reflect.Value     // the map, if it has another type
	inline bool              // whether the config has a plain value in the place of the map, see Inline
	given  map[string]string // for each field, the name that the map uses for the field; nil until Match is called
	strays shortlist         // the keys of the map that Match does not take as fields
	typos  map[string]bool   // the fields that were probably given by a misspelt name, see Misspelt
}

// NodeOf returns a Node for the map v. It reports whether v is a map of a type that a Node can hold. A
// nil map is refused.
func NodeOf(path string, v any) (*Node, bool) {
	switch m := v.(type) {
	case map[string]any:
		return &Node{Path: path, fields: m}, m != nil
	case map[any]any:
		return &Node{Path: path, mixed: m}, m != nil
	}
	r := reflect.ValueOf(v)
	switch {
	case r.Kind() != reflect.Map || r.IsNil():
		return nil, false
	case r.CanConvert(reflect.TypeFor[map[any]any]()): // v has a named type, such as type Config map[any]any
		return NodeOf(path, r.Convert(reflect.TypeFor[map[any]any]()).Interface())
	case r.Type().Key().Kind() == reflect.String:
		return &Node{Path: path, typed: r}, true
	}
	return nil, false
}

// Inline returns a Node with one field. It is for a config in which a plain value stands in the place
// of a map with only that field. Problems with the field are reported for path itself, because the
// config does not name the field.
func Inline(path, name string, value any) *Node {
	return &Node{Path: path, fields: map[string]any{name: value}, inline: true}
}

// Get returns the value of a field, and reports whether the node has that field.
func (n *Node) Get(name string) (v any, ok bool) {
	if n.given != nil {
		if name, ok = n.given[name]; !ok {
			return nil, false
		}
	}
	return n.value(name)
}

// value returns the value of the key with this name in the map, and reports whether the map has that
// key.
func (n *Node) value(name string) (v any, ok bool) {
	switch {
	case n.mixed != nil:
		v, ok = n.mixed[name]
	case n.typed.IsValid():
		value := n.typed.MapIndex(reflect.ValueOf(name).Convert(n.typed.Type().Key()))
		if ok = value.IsValid(); ok {
			v = value.Interface()
		}
	default:
		v, ok = n.fields[name]
	}
	return v, ok
}

// Has reports whether the node has a field.
func (n *Node) Has(name string) bool {
	_, ok := n.Get(name)
	return ok
}

// Written returns the name that the config uses for a field, such as "max_requests" for maxRequests. If
// the node does not have the field, Written returns the field's own name.
func (n *Node) Written(name string) string {
	if written, ok := n.given[name]; ok {
		return written
	}
	return name
}

// First returns the first name in names that is the name of a field of the node. It reports whether
// there is one.
func (n *Node) First(names []string) (name string, ok bool) {
	for _, name := range names {
		if n.Has(name) {
			return name, true
		}
	}
	return "", false
}

// Len returns the number of fields of the node.
func (n *Node) Len() int {
	if n.typed.IsValid() {
		return n.typed.Len()
	}
	return len(n.fields) + len(n.mixed)
}

// Names returns the names of the fields of the node, sorted. It omits keys that are not strings.
func (n *Node) Names() []string {
	var names []string
	for key := range n.all() {
		if name, ok := key.(string); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// all yields the keys and values of the map, in no particular order.
func (n *Node) all() iter.Seq2[any, any] {
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
		if !n.typed.IsValid() {
			return
		}
		for it := n.typed.MapRange(); it.Next(); {
			if !yield(it.Key().String(), it.Value().Interface()) {
				return
			}
		}
	}
}

// longestInPath is the largest length, in bytes, of a name that a path shows without quotes.
const longestInPath = 40

// Field returns the path of a field, with the name that the config uses for it.
func (n *Node) Field(name string) string { return n.path(n.Written(name)) }

// path returns the path of the key with this name: the path of the node, a dot and the name. A name
// that is long, or has characters that would make the path ambiguous, stands in brackets and quotes
// instead.
func (n *Node) path(name string) string {
	const plain = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	switch {
	case n.inline:
		return n.Path
	case len(name) > longestInPath || name == "" || strings.Trim(name, plain) != "":
		return n.Path + "[" + Quote(name) + "]"
	case n.Path == "":
		return name
	}
	return n.Path + "." + name
}

// Describe returns a text for the value of a field in an error, as the function [Describe] does.
func (n *Node) Describe(name string) string {
	v, _ := n.Get(name)
	return Describe(v)
}

// Misspelt reports whether one of the fields with these names was probably given under a wrong name.
// [Reader.Unknown] has reported the wrong name, so the field need not be reported as missing too.
func (n *Node) Misspelt(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return n.typos[name] })
}

// misspelt notes that the field with this name was probably given under a wrong name.
func (n *Node) misspelt(name string) {
	if n.typos == nil {
		n.typos = make(map[string]bool)
	}
	n.typos[name] = true
}
