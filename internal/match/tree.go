package match

import (
	"slices"
	"strings"
)

// A node is a node of the tree of patterns. The text of a node consists of the labels of all nodes
// from the root down to this node. The node holds the groups of the patterns with that text. Once
// a node is part of a Set, it never changes.
type node[R Rule, G any] struct {
	label    string
	children []*node[R, G]
	places   *places      // finds a child by the first byte of its label; nil if there are fewer than two children
	prefix   *Group[R, G] // the group of the prefix that equals the text of the node, or nil
	exact    *Group[R, G] // the group of the endpoint that equals the text of the node, or nil

	// Numbers of groups at this node and all nodes below it:
	prefixes int32 // groups of prefixes
	open     int32 // groups whose rules are all additional or in shadow, so that none of them can be the best match
}

// places maps a byte to the index of the child whose label begins with that byte. If there is no such child, the
// index is 0, which is the index of another child: whoever looks up a byte must compare the label of the child.
type places [256]uint8

// place returns the index of the child whose label begins with this first byte, or -1 if there is none.
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

// setChildren makes children the children of n, and fills n.places.
func (n *node[R, G]) setChildren(children []*node[R, G]) {
	n.children, n.places = children, nil
	if len(children) > 1 {
		n.places = new(places)
		for i, child := range children {
			n.places[child.label[0]] = uint8(i) //nolint:gosec // G115: no two labels begin with one byte
		}
	}
}

// find returns the group of the longest prefix of text that has a group in the tree at n. If no prefix
// of text has a group, find returns the group that the caller passed as best.
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

// child returns the child of n whose label is the beginning of text, and the rest of text after the
// label. It returns nil if there is no such child.
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

// count sets n.prefixes and n.open. Each of these fields counts groups at the node n and at all nodes below
// it. The two fields of each child of n must be set already.
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

// insert returns the node with this text below n. If there is none, insert adds it. It changes the
// existing nodes themselves, without a copy.
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

// countAll calls count for n and all nodes below it, and Group.counted for their groups.
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

// split cuts the label of n after this number of bytes. It returns a new node with the first part of
// the label. The only child of that node is a copy of n with the rest of the label. If the label is not
// longer than this number of bytes, split returns n.
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

// The method named "with" finds the node with this text below n, and calls the given function for a copy
// of that node. It returns a copy of n that has the changed node. The nodes between n and that node are
// copied too. If there is no node with this text, the method adds one. It returns nil if no group is
// left.
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
	case c.label != "": // the node c has no group of its own, so its only child replaces it
		only := *c.children[0]
		only.label = c.label + only.label
		return &only
	}
	return &c
}

// setChild makes the node child the child of n with the index i. If i is -1, it adds the node as a new
// child. If the node is nil, it removes the child with the index i. The node n is a copy that only the
// caller has, but its slice of children is shared with the original.
func (n *node[R, G]) setChild(i int, child *node[R, G]) {
	switch {
	case i < 0 && child == nil:
	case i < 0:
		n.setChildren(slices.Concat(n.children, []*node[R, G]{child}))
	case child == nil:
		n.setChildren(slices.Concat(n.children[:i], n.children[i+1:]))
	default:
		n.children = slices.Clone(n.children)
		n.children[i] = child // its label begins with the same byte as before, so n.places need not change
	}
}

// sharedLen returns the length of the longest text with which both strings begin.
func sharedLen(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// A refresh is used after the rules of one pattern have changed. It replaces the groups of narrower
// patterns to which the changed rules apply, so that the values of these groups are made again.
// Additional rules apply to all groups of narrower patterns. Any other rule applies to a group of a
// narrower pattern only if neither this group, nor a group between the two patterns, has a rule that
// can be the best match.
type refresh[R Rule, G any] struct {
	all    bool           // whether a changed rule is additional, so that it applies to all groups
	groups []*Group[R, G] // the groups of single endpoints that have been replaced
}

// node returns a copy of n in which the groups at and below n are replaced, if the changed rules apply
// to them.
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

// The method named "below" replaces n.exact and the groups of all nodes below n, if the changed rules apply to
// them. The node n must be a copy that only the caller has.
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
