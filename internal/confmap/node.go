package confmap

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// A Node is one map of a config: a map[string]any, or a map[any]any, as older YAML
// decoders make them. It is not changed.
type Node struct {
	// Path is where the map is found, such as "configs[3].algoConfig". It is
	// empty if the map is the whole config.
	Path string

	fields map[string]any  // one of fields and mixed is nil
	mixed  map[any]any     // may have keys that are not strings
	inline bool            // see Inline
	typos  map[string]bool // names of fields that are given misspelt, see Unknown
}

// NodeOf returns the map v as a Node, and reports whether v is a map that a Node can
// be. A nil map is not.
func NodeOf(path string, v any) (*Node, bool) {
	switch m := v.(type) {
	case map[string]any:
		return &Node{Path: path, fields: m}, m != nil
	case map[any]any:
		return &Node{Path: path, mixed: m}, m != nil
	}
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Map || r.IsNil() {
		return nil, false
	}
	for _, t := range []reflect.Type{reflect.TypeFor[map[string]any](), reflect.TypeFor[map[any]any]()} {
		if r.CanConvert(t) { // a named type, such as gin.H
			return NodeOf(path, r.Convert(t).Interface())
		}
	}
	return nil, false
}

// Inline returns a Node that has one field, for a value that stands in the place of a
// map with that field alone. Problems with the field are reported under path itself,
// for in the config there is no such field.
func Inline(path, name string, value any) *Node {
	return &Node{Path: path, fields: map[string]any{name: value}, inline: true}
}

// Get returns the value of a field, and reports whether the node has that field.
func (n *Node) Get(name string) (v any, ok bool) {
	if n.mixed != nil {
		v, ok = n.mixed[name]
		return v, ok
	}
	v, ok = n.fields[name]
	return v, ok
}

// First returns the first of names that the node has a field for, and whether there
// is one.
func (n *Node) First(names []string) (name string, ok bool) {
	for _, name := range names {
		if _, ok := n.Get(name); ok {
			return name, true
		}
	}
	return "", false
}

// Len returns the number of fields.
func (n *Node) Len() int { return len(n.fields) + len(n.mixed) }

// Names returns the names of the fields, sorted. Keys that are not strings are left
// out.
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

// all returns the keys and values of the map, in no order.
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
	}
}

// longestInPath is the length up to which a name stands in a path as it is, in bytes.
const longestInPath = 40

// Field returns the path of a field: "path.name", or path["name"] if the name is long
// or has characters that could be taken for a part of the path.
func (n *Node) Field(name string) string {
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

// Describe returns what an error says of the value of a field.
func (n *Node) Describe(name string) string {
	v, _ := n.Get(name)
	return Describe(v)
}

// Misspelt reports whether one of names was given with a typing error. That has been
// reported, so the field need not be reported as missing too.
func (n *Node) Misspelt(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return n.typos[name] })
}

// misspelt notes that the field with name was given with a typing error.
func (n *Node) misspelt(name string) {
	if n.typos == nil {
		n.typos = make(map[string]bool)
	}
	n.typos[name] = true
}
