package confmap

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// A Node is one map of a config: a map[string]any, a map[any]any, which older YAML decoders
// make, or another map whose keys are strings, such as a map[string]int. The map is never
// changed.
type Node struct {
	// Path is the path of the map in the config, such as
	// "configs[3].algoConfig". It is empty if the map is the whole config.
	Path string

	fields map[string]any    // the map, if it is of this type
	mixed  map[any]any       // the map, if it may have keys that are not strings
	typed  reflect.Value     // the map, if it is of another type
	inline bool              // see Inline
	given  map[string]string // the names by which fields are given, see Match; nil before
	strays shortlist         // the keys that name no field, see Match
	typos  map[string]bool   // the known names of fields that were given misspelt, see Unknown
}

// NodeOf returns a Node for the map v, and reports whether v is such a map. A nil map is not.
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
	case r.CanConvert(reflect.TypeFor[map[any]any]()): // of a named type
		return NodeOf(path, r.Convert(reflect.TypeFor[map[any]any]()).Interface())
	case r.Type().Key().Kind() == reflect.String:
		return &Node{Path: path, typed: r}, true
	}
	return nil, false
}

// Inline returns a Node with one field. It is for a value in a config that is short for a map
// with that field alone. Problems with the field are reported with the path itself, because the
// config has no such field.
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

// value returns the value of the key name in the map, and reports whether the map has it.
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

// Written returns the name by which a field is given, such as "max_requests" for maxRequests.
// If the node does not have the field, Written returns the field's own name.
func (n *Node) Written(name string) string {
	if written, ok := n.given[name]; ok {
		return written
	}
	return name
}

// First returns the first of names that is a field of the node, and reports whether there is one.
func (n *Node) First(names []string) (name string, ok bool) {
	for _, name := range names {
		if n.Has(name) {
			return name, true
		}
	}
	return "", false
}

// Len returns the number of fields.
func (n *Node) Len() int {
	if n.typed.IsValid() {
		return n.typed.Len()
	}
	return len(n.fields) + len(n.mixed)
}

// Names returns the names of the fields, sorted. It leaves out keys that are not strings.
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

// longestInPath is the length, in bytes, up to which a name is written into a path as it is.
const longestInPath = 40

// Field returns the path of a field, with the name by which it is given.
func (n *Node) Field(name string) string { return n.path(n.Written(name)) }

// path returns the path of the key name: path.name, or path["name"] if the name is long or has
// characters that would make the path ambiguous.
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

// Describe returns the text that shows the value of a field in an error; see the function
// [Describe].
func (n *Node) Describe(name string) string {
	v, _ := n.Get(name)
	return Describe(v)
}

// Misspelt reports whether one of the fields with these names was given with a typing error, or by
// a name that stands for it elsewhere. The error has been reported, so the field need not be
// reported as missing too.
func (n *Node) Misspelt(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return n.typos[name] })
}

// misspelt notes that the field with this name was given with a typing error.
func (n *Node) misspelt(name string) {
	if n.typos == nil {
		n.typos = make(map[string]bool)
	}
	n.typos[name] = true
}
