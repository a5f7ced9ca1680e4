package override

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"
)

// A table finds the prefixes that contain a given address, with their overrides. Two prefixes are either disjoint, or one
// lies inside the other. The prefixes are sorted by their first addresses; if two have the same first address, the shorter prefix
// comes first. In this order, each prefix is followed by the prefixes inside it.
type table struct {
	starts []uint128 // the first address of each node; a search reads only these addresses, which are close together in memory
	nodes  []*node   // sorted as described above
	blocks []*node   // the nodes that have an override with the effect Block

	changes map[netip.Prefix]*whom // the new overrides of each changed prefix, until the method finish applies them; nil if there are none
}

// A node is a prefix with its overrides.
type node struct {
	*whom
	prefix netip.Prefix
	parent *node // the node of the longest prefix that contains this prefix; nil if there is none
}

// A uint128 is an address as a number. An IPv4 address has only the lower 32 bits.
type uint128 struct{ hi, lo uint64 }

func (a uint128) less(b uint128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

func numberOf(addr netip.Addr) uint128 {
	if addr.Is4() {
		b := addr.As4()
		return uint128{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := addr.As16()
	return uint128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// change notes that the prefix p gets the overrides in w, or loses its overrides if w is nil. The next call of the method
// finish makes the change.
func (t *table) change(p netip.Prefix, w *whom) {
	if t.changes == nil {
		t.changes = make(map[netip.Prefix]*whom)
	}
	t.changes[p] = w
}

// finish applies the changes that calls of the method change have noted. Copies of the table, which share its nodes, do not
// change.
func (t *table) finish() {
	if t.changes == nil {
		return
	}
	nodes := make([]*node, 0, len(t.nodes)+len(t.changes))
	for _, n := range t.nodes {
		if _, changed := t.changes[n.prefix]; !changed {
			nodes = append(nodes, n)
		}
	}
	kept := len(nodes)
	for p, w := range t.changes {
		if w != nil {
			nodes = append(nodes, &node{w, p, nil})
		}
	}
	if kept < len(nodes) {
		slices.SortFunc(nodes[kept:], compareNodes)
		nodes = merged(nodes[:kept:kept], nodes[kept:])
	}
	*t = table{starts: make([]uint128, len(nodes)), nodes: nodes}
	for i, n := range nodes {
		t.starts[i] = numberOf(n.prefix.Addr())
		var parent *node
		if i > 0 {
			parent = covering(nodes[i-1], n.prefix.Addr(), n.prefix.Bits())
		}
		if n.parent != parent { // a new node, because a copy of the table may use the old one
			n = &node{n.whom, n.prefix, parent}
			nodes[i] = n
		}
		if slices.ContainsFunc(n.entries, func(e Entry) bool { return e.Effect == Block }) {
			t.blocks = append(t.blocks, n)
		}
	}
}

// compareNodes orders nodes by their first addresses. If two nodes have the same first address, the shorter prefix comes first.
func compareNodes(a, b *node) int {
	if c := a.prefix.Addr().Compare(b.prefix.Addr()); c != 0 {
		return c
	}
	return a.prefix.Bits() - b.prefix.Bits()
}

// merged returns the nodes of the sorted lists a and b as one sorted list.
func merged(a, b []*node) []*node {
	all := make([]*node, 0, len(a)+len(b))
	for _, n := range b {
		i := sort.Search(len(a), func(i int) bool { return compareNodes(a[i], n) > 0 })
		all = append(append(all, a[:i]...), n)
		a = a[i:]
	}
	return append(all, a...)
}

// covering returns the longest prefix, among n and the shorter prefixes around it, that contains the address and has at
// most the given length. It returns nil if there is none.
func covering(n *node, addr netip.Addr, bits int) *node {
	for n != nil && (n.prefix.Bits() > bits || !n.prefix.Contains(addr)) {
		n = n.parent
	}
	return n
}

// find returns the node of the longest prefix that contains an address. It can also look for a prefix of addresses: then addr
// is the first of these addresses, and bits is the length of the prefix, which is less than the length of an address. In that
// case, the first result is the longest prefix that contains all these addresses. The second result has the nodes of the longer
// prefixes that contain some of these addresses and have a block.
func (t *table) find(addr netip.Addr, bits int) (near *node, inside []*node) {
	start := numberOf(addr)
	after := sort.Search(len(t.starts), func(i int) bool { return start.less(t.starts[i]) })
	if after > 0 {
		near = covering(t.nodes[after-1], addr, bits)
	}
	if bits == addr.BitLen() || len(t.blocks) == 0 {
		return near, nil
	}
	request := netip.PrefixFrom(addr, bits)
	within := func(n *node) bool { return request.Contains(n.prefix.Addr()) && n.prefix.Bits() > bits }
	from := sort.Search(len(t.blocks), func(i int) bool { return within(t.blocks[i]) || addr.Less(t.blocks[i].prefix.Addr()) })
	to := from + sort.Search(len(t.blocks)-from, func(i int) bool { return !within(t.blocks[from+i]) })
	if from == to {
		return near, nil
	}
	return near, t.blocks[from:to]
}
