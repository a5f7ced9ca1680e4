package confmap

import (
	"iter"
	"reflect"
	"slices"
	"strings"
)

// A Node is one map of a config: a map[string]any, or a map[any]any, which older YAML decoders
// make. The map is never changed.
type Node struct {
	// Path is the path of the map in the config, such as
	// "configs[3].algoConfig". It is empty if the map is the whole config.
	Path string

	fields map[string]any  // the map; nil if mixed is not
	mixed  map[any]any     // the map, if it may have keys that are not strings
	inline bool            // see Inline
	typos  map[string]bool // the known names of fields that were given misspelt, see Unknown
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

// Inline returns a Node with one field. It is for a value in a config that is short for a map
// with that field alone. Problems with the field are reported with the path itself, because the
// config has no such field.
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

// First returns the first of names that is a field of the node, and reports whether there is one.
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
	}
}

// longestInPath is the length, in bytes, up to which a name is written into a path as it is.
const longestInPath = 40

// Field returns the path of a field: path.name, or path["name"] if the name is long or has
// characters that would make the path ambiguous.
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

// Describe returns the text that shows the value of a field in an error; see the function
// [Describe].
func (n *Node) Describe(name string) string {
	v, _ := n.Get(name)
	return Describe(v)
}

// Misspelt reports whether one of the fields with these names was given with a typing error. The
// error has been reported, so the field need not be reported as missing too.
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
