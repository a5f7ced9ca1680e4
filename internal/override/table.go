package override

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"
)

// A table finds the prefixes that have a given address. Two prefixes are either disjoint, or one lies inside the other.
// So in the order of their first addresses, with the shorter prefix first, each prefix is followed by those inside it.
type table struct {
	starts []uint128 // the first address of each node; a search reads only these, which lie close together
	nodes  []node    // sorted as described above
}

// A node is a prefix with its overrides.
type node struct {
	whom
	prefix netip.Prefix
	parent *node // the longest prefix that this one lies inside; nil if there is none
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

// newTable returns the table of the prefixes of IPv4 or, if ipv4 is false, of IPv6.
func newTable(all map[netip.Prefix]*whom, ipv4 bool) (t table) {
	for p, w := range all {
		if p.Addr().Is4() == ipv4 {
			t.nodes = append(t.nodes, node{*w, p, nil})
		}
	}
	slices.SortFunc(t.nodes, func(a, b node) int {
		if c := a.prefix.Addr().Compare(b.prefix.Addr()); c != 0 {
			return c
		}
		return a.prefix.Bits() - b.prefix.Bits()
	})
	for i := range t.nodes {
		n := &t.nodes[i]
		t.starts = append(t.starts, numberOf(n.prefix.Addr()))
		if i > 0 {
			n.parent = covering(&t.nodes[i-1], n.prefix.Addr(), n.prefix.Bits())
		}
	}
	return t
}

// covering returns n, or the nearest of its parents, with a prefix of at most the given length that has the address.
func covering(n *node, addr netip.Addr, bits int) *node {
	for n != nil && (n.prefix.Bits() > bits || !n.prefix.Contains(addr)) {
		n = n.parent
	}
	return n
}

// find returns the longest prefix that has the address addr or, if bits is less than the length of an address, all
// addresses of the prefix with this first address and length. For such a prefix, inside are the nodes inside it.
func (t *table) find(addr netip.Addr, bits int) (near *node, inside []node) {
	start := numberOf(addr)
	after := sort.Search(len(t.starts), func(i int) bool { return start.less(t.starts[i]) })
	if after > 0 {
		near = covering(&t.nodes[after-1], addr, bits)
	}
	if bits == addr.BitLen() {
		return near, nil
	}
	request, from := netip.PrefixFrom(addr, bits), after
	for from > 0 && t.starts[from-1] == start && t.nodes[from-1].prefix.Bits() > bits {
		from--
	}
	to := from
	for to < len(t.nodes) && request.Contains(t.nodes[to].prefix.Addr()) {
		to++
	}
	if from == to {
		return near, nil
	}
	return near, t.nodes[from:to]
}
