package match

import (
	"slices"
	"strings"
)

// A node is a node of the tree of patterns. The text of a node is the labels of all nodes from
// the root down to it; the patterns with that text are at the node. A node that a Set has
// never changes.
type node[R Rule, G any] struct {
	label    string
	children []*node[R, G]
	places   *places // of children; nil if there are fewer than two
	prefix   *Group[R, G]
	exact    *Group[R, G]

	// Of this node and all nodes below it:
	prefixes int32 // the groups of prefixes
	open     int32 // the groups without a rule that can be the best match
}

// places has for a byte the index of the child whose label begins with that byte. If there is
// no such child, the index is that of another one.
type places [256]uint8

// place returns the index of the child whose label begins with first, or -1 if there is none.
func (n *node[R, G]) place(first byte) int {
	i := 0
	if n.places != nil {
		i = int(n.places[first])
	}
	if len(n.children) == 0 || n.children[i].label[0] != first {
		return -1
	}
	return i
}

// setChildren gives n these children.
func (n *node[R, G]) setChildren(children []*node[R, G]) {
	n.children, n.places = children, nil
	if len(children) > 1 {
		n.places = new(places)
		for i, child := range children {
			n.places[child.label[0]] = uint8(i) //nolint:gosec // G115: no two labels begin with one byte
		}
	}
}

// find returns the group of the longest prefix at n or below it that text begins with, or
// best if there is none.
func (n *node[R, G]) find(text string, best *Group[R, G]) *Group[R, G] {
	for {
		if n.prefix != nil {
			best = n.prefix
		}
		if text == "" || len(n.children) == 0 {
			return best
		}
		i := uint8(0)
		if n.places != nil {
			i = n.places[text[0]]
		}
		n = n.children[i]
		if text[0] != n.label[0] || len(n.label) > 1 && !strings.HasPrefix(text, n.label) {
			return best
		}
		text = text[len(n.label):]
	}
}

// child returns the child of n whose label text begins with, and the rest of text. It returns
// nil if there is none.
func (n *node[R, G]) child(text string) (*node[R, G], string) {
	if text == "" {
		return nil, ""
	}
	i := n.place(text[0])
	if i < 0 {
		return nil, ""
	}
	n = n.children[i]
	if !strings.HasPrefix(text, n.label) {
		return nil, ""
	}
	return n, text[len(n.label):]
}

// count sets prefixes and open of n, whose children have theirs.
func (n *node[R, G]) count() {
	n.prefixes, n.open = 0, 0
	if n.prefix != nil {
		n.prefixes = 1
	}
	for _, g := range [...]*Group[R, G]{n.prefix, n.exact} {
		if g != nil && !g.enforces {
			n.open++
		}
	}
	for _, child := range n.children {
		n.prefixes += child.prefixes
		n.open += child.open
	}
}

// insert returns the node with this text below n, which it adds if there is none. It changes
// the nodes in place.
func (n *node[R, G]) insert(text string) *node[R, G] {
	for text != "" {
		i := n.place(text[0])
		if i < 0 {
			child := &node[R, G]{label: text}
			n.setChildren(append(n.children, child))
			return child
		}
		shared := sharedLen(text, n.children[i].label)
		n.children[i] = n.children[i].split(shared)
		n, text = n.children[i], text[shared:]
	}
	return n
}

// countAll counts n and all nodes below it, and completes their groups.
func (n *node[R, G]) countAll() {
	for _, child := range n.children {
		child.countAll()
	}
	for _, g := range [...]*Group[R, G]{n.prefix, n.exact} {
		if g != nil {
			g.counted()
		}
	}
	n.count()
}

// split returns n if its label has this length, and otherwise a node with that much of the
// label, above one with the rest.
func (n *node[R, G]) split(length int) *node[R, G] {
	if length == len(n.label) {
		return n
	}
	lower := *n
	lower.label = n.label[length:]
	upper := &node[R, G]{label: n.label[:length], children: []*node[R, G]{&lower}}
	upper.count()
	return upper
}

// with returns n after change has changed the node with this text below it. It copies the
// nodes from n to that one. It returns nil if nothing is left.
func (n *node[R, G]) with(text string, change func(n *node[R, G])) *node[R, G] {
	c := *n
	if text == "" {
		change(&c)
	} else {
		i := c.place(text[0])
		child := &node[R, G]{label: text}
		shared := len(text)
		if i >= 0 {
			shared = sharedLen(text, c.children[i].label)
			child = c.children[i].split(shared)
		}
		c.setChild(i, child.with(text[shared:], change))
	}
	c.count()
	switch {
	case c.prefix != nil || c.exact != nil || len(c.children) > 1:
	case len(c.children) == 0:
		return nil
	case c.label != "": // nothing is at c itself, so its only child takes its place
		only := *c.children[0]
		only.label = c.label + only.label
		return &only
	}
	return &c
}

// setChild makes child the i-th child of n, a copy whose children others have too. With an i
// of -1, it adds child; if child is nil, it removes the i-th one.
func (n *node[R, G]) setChild(i int, child *node[R, G]) {
	switch {
	case i < 0 && child == nil:
	case i < 0:
		n.setChildren(slices.Concat(n.children, []*node[R, G]{child}))
	case child == nil:
		n.setChildren(slices.Concat(n.children[:i], n.children[i+1:]))
	default:
		n.children = slices.Clone(n.children)
		n.children[i] = child // it begins as the one before did
	}
}

// sharedLen returns the length of the longest text that a and b both begin with.
func sharedLen(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A refresh makes groups anew below a pattern whose rules have changed. Unless all is set, the
// rules are not additional: then they matter to a group only if no group between has a rule
// that is the best match in their place.
type refresh[R Rule, G any] struct {
	all    bool
	groups []*Group[R, G] // those of single endpoints that were made anew
}

// node returns n with the groups at and below it made anew.
func (r *refresh[R, G]) node(n *node[R, G]) *node[R, G] {
	if !r.all && (n.open == 0 || n.prefix != nil && n.prefix.enforces) {
		return n
	}
	c := *n
	if c.prefix != nil {
		c.prefix = c.prefix.anew()
	}
	r.below(&c)
	return &c
}

// below makes the groups below the prefix of n anew. n is a copy that nobody else has.
func (r *refresh[R, G]) below(n *node[R, G]) {
	if n.exact != nil && (r.all || !n.exact.enforces) {
		n.exact = n.exact.anew()
		r.groups = append(r.groups, n.exact)
	}
	children := make([]*node[R, G], len(n.children))
	for i, child := range n.children {
		children[i] = r.node(child)
	}
	n.children = children
}
