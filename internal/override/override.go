// Package override keeps the exceptions that operators make to the rules of a limiter: a client or an address is
// blocked, exempt from rules, or has a rate of its own. The package finds the exceptions that apply to a request.
package override

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// An Effect says what an override does.
type Effect = string

// The effects. Only the first three are kept in a Set. The others are commands: Lift removes overrides, and Pardon ends the
// blocks that rules with a penalty have begun.
const (
	Block  Effect = "block"
	Exempt Effect = "exempt"
	Rate   Effect = "rate"
	Lift   Effect = ""
	Pardon Effect = "pardon"
)

// rank returns 0 for Block, 1 for Exempt, 2 for Rate, and -1 for any other effect. Two overrides of the same client or prefix may
// both name the rule of a request, or both be for all rules. Then the one whose effect has the lower rank decides.
func rank(e Effect) int { return slices.Index([]Effect{Block, Exempt, Rate}, e) }

// An Override is an exception to the rules of a limiter, for one client or for some addresses: it blocks them, exempts them, or
// gives them another rate. It has the same fields as Override in the root package.
type Override struct {
	Client string        // the client that the override is for; empty if it is for addresses
	IP     string        // the address, or prefix of addresses, that the override is for; empty if it is for a client
	Rules  []string      // the names of the rules that the override is for; empty for all rules
	Effect Effect        // what the override does
	Rate   ratetext.Rate // the rate of the client or address, in place of the rate of the rules; set only for the effect Rate
	Until  time.Time     // when the override ends; zero if it does not end by itself
	Note   string        // a text for operators, which decides nothing
}

// Part returns keyspec.IP if o is for addresses, and keyspec.User if o is for a client. A rule can have the rate of o only
// if its keys have a part of this kind.
func (o *Override) Part() keyspec.Kind {
	if o.IP != "" {
		return keyspec.IP
	}
	return keyspec.User
}

// An Entry is an Override in a form that is the same for equal overrides: IP in its usual spelling, and Rules sorted, each name
// once.
type Entry struct {
	Override
	prefix netip.Prefix // the field IP, parsed; invalid if the override is for a client
	lifts  bool         // whether the Entry only removes an override: the one with the same Rules and the same Effect
}

// lifting returns an Entry that, when it is applied, lifts (removes) the override that e would replace.
func (e Entry) lifting() Entry {
	e.lifts = true
	return e
}

// RateOf returns the rate of e, or the zero Rate if e is nil.
func (e *Entry) RateOf() ratetext.Rate {
	if e == nil {
		return ratetext.Rate{}
	}
	return e.Rate
}

// stays reports whether e, once it is applied, is kept as an override. It is not kept if it only lifts (removes) others.
func (e *Entry) stays() bool { return e.Effect != Lift && !e.lifts }

// NewEntry returns the Entry of o, whose IP must be valid or empty.
func NewEntry(o Override) Entry {
	e := Entry{Override: o}
	if e.IP != "" {
		if e.prefix, _ = ParsePrefix(e.IP); e.prefix.IsSingleIP() {
			e.IP = e.prefix.Addr().String()
		} else {
			e.IP = e.prefix.String()
		}
	}
	e.Rules = slices.Clone(e.Rules)
	slices.Sort(e.Rules)
	e.Rules = slices.Compact(e.Rules)
	return e
}

// NewEntries returns an Entry for each of the given overrides.
func NewEntries(all []Override) []Entry {
	entries := make([]Entry, len(all))
	for i, o := range all {
		entries[i] = NewEntry(o)
	}
	return entries
}

// Plain returns a copy of the override in e, or nil if e is nil. The copy shares no memory with e.
func (e *Entry) Plain() *Override {
	if e == nil {
		return nil
	}
	o := e.Override
	o.Rules = slices.Clone(o.Rules)
	return &o
}

// Plain returns copies of the overrides in the entries. The copies share no memory with the entries.
func Plain(entries []Entry) []Override {
	all := make([]Override, len(entries))
	for i := range entries {
		all[i] = *entries[i].Plain()
	}
	return all
}

// Covers reports whether e is for all addresses of the prefix p.
func (e *Entry) Covers(p netip.Prefix) bool {
	return e.prefix.Bits() <= p.Bits() && e.prefix.Contains(p.Addr())
}

// Owns reports whether the override e is for the owner of a key, which is a client or an address. If the owner is a
// client, the parameter client is the hash of its name, and ip is zero. If the owner is an address, or a prefix of
// addresses, the parameter ip is this address or prefix, and client is zero.
func (e *Entry) Owns(client keytable.Hash, ip netip.Prefix) bool {
	if e.prefix.IsValid() {
		return ip.IsValid() && e.Covers(ip)
	}
	return client == keytable.HashOf(e.Client)
}

// IsAddress reports whether e is for a single address.
func (e *Entry) IsAddress() bool { return e.prefix.IsSingleIP() }

// PrefixOf parses a text that is an address or a prefix of addresses. It returns an address as the prefix that contains only
// this address. For any other text, it returns the zero Prefix, which is invalid.
func PrefixOf(ip string) netip.Prefix {
	if addr, bits, ok := parse(ip); ok {
		return netip.PrefixFrom(addr, bits)
	}
	return netip.Prefix{}
}

// whom returns a text that is the same for all overrides of one client or prefix. Maps use this text as their key.
func (e *Entry) whom() string {
	if e.prefix.IsValid() {
		return "ip " + e.IP
	}
	return "client " + e.Client
}

// replaces reports whether the override old is removed when e is applied: either e takes the place of old, or e has
// the effect Lift and lifts (removes) old. Both must be for the same client or prefix.
func (e *Entry) replaces(old *Entry) bool {
	if e.Effect == Lift && len(e.Rules) == 0 {
		return true
	}
	return (e.Effect == Lift || e.Effect == old.Effect) && slices.Equal(e.Rules, old.Rules)
}

// Ended reports whether the override e has ended at the time now.
func (e *Entry) Ended(now time.Time) bool { return !e.Until.IsZero() && !now.Before(e.Until) }

// IsFor reports whether e is for the rule with this name.
func (e *Entry) IsFor(rule string) bool {
	_, found := slices.BinarySearch(e.Rules, rule)
	return found || len(e.Rules) == 0
}

// compare orders the overrides of one client or prefix: an override that decides before another comes first.
func compare(a, b Entry) int {
	if named := len(a.Rules) > 0; named != (len(b.Rules) > 0) {
		if named {
			return -1
		}
		return 1
	}
	switch c := rank(a.Effect) - rank(b.Effect); {
	case c != 0 || a.Until.Equal(b.Until):
		return c
	case a.Until.IsZero(): // of two overrides with the same effect, the one that lasts longer comes first
		return -1
	case b.Until.IsZero():
		return 1
	}
	return b.Until.Compare(a.Until)
}

// ParsePrefix returns the addresses that text names: an address such as "203.0.113.9", or a prefix such as
// "10.0.0.0/8". IPv4 addresses in IPv6 count as IPv4, and the zone of an address is dropped. If text is neither an address
// nor a prefix, or if a prefix has bits set beyond its length, problem says what the text must be.
func ParsePrefix(text string) (prefix netip.Prefix, problem string) {
	const form = `must be an address, such as "203.0.113.9", or a prefix, such as "10.0.0.0/8"`
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), ""
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, form
	}
	if addr := prefix.Addr(); addr.Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, "must have at least 96 bits, as it begins with ::ffff, where the IPv4 addresses are"
		}
		prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, "has bits set beyond its length: " + prefix.Masked().String() + " is the prefix of this length"
	}
	return prefix, ""
}

// shards is the number of maps over which the clients of a Set are distributed. A change copies only the maps with the clients
// that it changes, and not all clients.
const shards = 256

// A Set holds overrides (exceptions to the rules of a limiter). It never changes, so it needs no lock. A nil Set is empty.
type Set struct {
	clients    [shards]map[string]*whom
	ipv4, ipv6 table
}

// A whom is a client or a prefix with its overrides, in the order of the function compare: if several overrides apply to a
// request, the first decides.
type whom struct{ entries []Entry }

var seed = maphash.MakeSeed()

// shardOf returns the index of the map that has the client.
func shardOf(client string) uint64 { return maphash.String(seed, client) % shards }

// NewSet returns the Set of these overrides, none of which has the effect Lift or Pardon.
func NewSet(entries []Entry) *Set {
	byWhom := make(map[string][]Entry)
	for _, e := range entries {
		byWhom[e.whom()] = append(byWhom[e.whom()], e)
	}
	return (*Set)(nil).with(byWhom, nil)
}

// with returns a copy of s in which the overrides of some clients and prefixes are changed. The map next contains the clients
// and prefixes that have overrides after the change, each with all its new overrides. The map gone contains the clients and
// prefixes that have no overrides any more, each with one of its old overrides. If no overrides are left, the result is nil.
func (s *Set) with(next map[string][]Entry, gone map[string]Entry) *Set {
	t, copied := new(Set), [shards]bool{}
	if s != nil {
		*t = *s
	}
	change := func(e Entry, w *whom) {
		switch {
		case !e.prefix.IsValid():
			i := shardOf(e.Client)
			if !copied[i] {
				t.clients[i], copied[i] = maps.Clone(t.clients[i]), true
			}
			if t.clients[i] == nil {
				t.clients[i] = make(map[string]*whom)
			}
			if t.clients[i][e.Client] = w; w == nil {
				delete(t.clients[i], e.Client)
			}
		case e.prefix.Addr().Is4():
			t.ipv4.change(e.prefix, w)
		default:
			t.ipv6.change(e.prefix, w)
		}
	}
	for _, entries := range next {
		w := &whom{slices.Clone(entries)}
		slices.SortStableFunc(w.entries, compare)
		change(entries[0], w)
	}
	for _, e := range gone {
		change(e, nil)
	}
	t.ipv4.finish()
	t.ipv6.finish()
	if t.empty() {
		return nil
	}
	return t
}

// empty reports whether s has no overrides.
func (s *Set) empty() bool {
	for _, clients := range s.clients {
		if len(clients) > 0 {
			return false
		}
	}
	return len(s.ipv4.nodes)+len(s.ipv6.nodes) == 0
}

// live returns how many overrides with this effect have not ended at the time now.
func (s *Set) live(effect Effect, now time.Time) (n int) {
	count := func(w *whom) {
		for i := range w.entries {
			if e := &w.entries[i]; e.Effect == effect && !e.Ended(now) {
				n++
			}
		}
	}
	for _, clients := range s.clients {
		for _, w := range clients {
			count(w)
		}
	}
	for _, nodes := range [][]*node{s.ipv4.nodes, s.ipv6.nodes} {
		for _, x := range nodes {
			count(x.whom)
		}
	}
	return n
}

// Met are the overrides that may apply to one request. The zero Met has none.
type Met struct {
	client *whom
	near   *node   // the longest prefix that contains the address of the request; shorter prefixes are its parents
	inside []*node // if the request has a prefix in place of an address: the nodes inside that prefix
}

// None reports whether m is empty, so that no override can apply to the request.
func (m *Met) None() bool { return m.client == nil && m.near == nil && m.inside == nil }

// Find returns the overrides for a request of this client from this address. The text ip may also be a prefix of addresses,
// such as "2001:db8::/64". If it is any other text, no override of an address applies. Find allocates nothing.
func (s *Set) Find(client, ip string) (m Met) {
	if s == nil {
		return m
	}
	m.client = s.clients[shardOf(client)][client]
	if ip == "" || len(s.ipv4.nodes)+len(s.ipv6.nodes) == 0 {
		return m
	}
	addr, bits, ok := parse(ip)
	switch {
	case !ok:
	case addr.Is4():
		m.near, m.inside = s.ipv4.find(addr, bits)
	default:
		m.near, m.inside = s.ipv6.find(addr, bits)
	}
	return m
}

// parse parses a text that is an address or a prefix of addresses. For an address, it returns the address and its length in
// bits. For a prefix, it returns the first address and the length of the prefix.
func parse(ip string) (addr netip.Addr, bits int, ok bool) {
	if addr, err := netip.ParseAddr(ip); err == nil {
		addr = addr.Unmap().WithZone("")
		return addr, addr.BitLen(), true
	}
	if strings.IndexByte(ip, '/') < 0 {
		return netip.Addr{}, 0, false
	}
	prefix, err := netip.ParsePrefix(ip)
	if err != nil {
		return netip.Addr{}, 0, false
	}
	if addr, bits = prefix.Addr(), prefix.Bits(); addr.Is4In6() && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	return netip.PrefixFrom(addr, bits).Masked().Addr(), bits, true
}

// For returns the override that decides for the rule with this name, or nil if no override applies. If no rule applies to the
// request, the caller passes "" as the name. An override of the client decides before an override of an address. An override of
// a longer prefix decides before an override of a shorter prefix. For one client or prefix, an override that names the rule
// decides before an override for all rules; after that, a block decides before an exemption, and an exemption before a rate.
// An override for which the function in the second parameter returns false is passed over.
func (m *Met) For(rule string, applies func(e *Entry) bool) *Entry {
	if m.client != nil {
		if e := m.client.find(rule, applies); e != nil {
			return e
		}
	}
	for i := range m.inside { // these prefixes contain only some of the request's addresses, so only their blocks apply
		e := m.inside[i].find(rule, func(e *Entry) bool { return e.Effect == Block && applies(e) })
		if e != nil {
			return e
		}
	}
	for n := m.near; n != nil; n = n.parent {
		if e := n.find(rule, applies); e != nil {
			return e
		}
	}
	return nil
}

// find returns the first override in w that is for the rule, and for which the function applies returns true. It
// returns nil if there is none.
func (w *whom) find(rule string, applies func(e *Entry) bool) *Entry {
	for i := range w.entries {
		if e := &w.entries[i]; e.IsFor(rule) && applies(e) {
			return e
		}
	}
	return nil
}
