package httplimit

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// forwardedFor is the header field in which proxies send the addresses of clients, unless Proxies.Header
// names another field.
const forwardedFor = "X-Forwarded-For"

// These texts identify a client whose address is not known.
const (
	localIP   = "local"   // the connection is a unix socket
	unknownIP = "unknown" // the server does not know the address of the connection
)

// Addr returns the address of the client, for servers that do not use net/http. peer is the remote
// address of the connection, or the zero Addr for a unix socket. values are the lines of the
// forwarding header, in the order in which they arrived. If p does not trust peer, or the header has
// no valid address of a client, Addr returns peer.
//
// Addr converts an IPv4 address that is mapped into IPv6 to IPv4, and drops IPv6 zones.
func (p Proxies) Addr(peer netip.Addr, values []string) netip.Addr {
	addr, _ := p.Lookup(peer, values)
	return addr
}

// Lookup returns the address that [Proxies.Addr] returns. The result told is true if a trusted proxy has sent
// this address in the forwarding header. If told is false but the request has a header of proxies, the address
// may belong to a proxy that p does not trust, so this address should not exempt any request from limits.
func (p Proxies) Lookup(peer netip.Addr, values []string) (addr netip.Addr, told bool) {
	return p.client(normal(peer), !peer.IsValid(), values)
}

// client does the work of Lookup. The parameter peer must be a result of the function normal, and unix says
// whether the connection is a unix socket. The result told is true if a trusted proxy has sent the address.
func (p *Proxies) client(peer netip.Addr, unix bool, values []string) (addr netip.Addr, told bool) {
	if len(values) == 0 || !p.believes(peer, unix) {
		return peer, false
	}
	entries := entryList{lines: values}
	switch {
	case p.one():
		entry, _ := entries.next()
		if addr, ok := parseEntry(entry); ok && len(values) == 1 && entries.ended() {
			return addr, true
		}
		return peer, false
	case p.Hops > 0:
		return p.hop(&entries, peer)
	}
	return p.lastUntrusted(&entries, peer)
}

// believes reports whether p trusts the forwarding header of a request that came from peer.
func (p *Proxies) believes(peer netip.Addr, unix bool) bool {
	switch {
	case unix:
		return p.Unix || p.Hops > 0
	case !peer.IsValid():
		return false
	}
	return p.Hops > 0 || p.trusts(peer)
}

// trusts reports whether p.Trusted contains addr, which must be a result of the function normal.
func (p *Proxies) trusts(addr netip.Addr) bool {
	for _, prefix := range p.Trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// The method one reports whether the forwarding header has a single address rather than a list.
func (p *Proxies) one() bool {
	return p.Header != "" && !strings.EqualFold(p.Header, forwardedFor)
}

// The method zero reports whether p trusts no forwarding header.
func (p *Proxies) zero() bool { return len(p.Trusted) == 0 && !p.Unix && p.Hops == 0 }

// hop returns the address at position p.Hops from the right in the forwarding header. The outermost proxy
// has written this entry. If the entry is not a valid address, hop returns peer and false.
func (p *Proxies) hop(entries *entryList, peer netip.Addr) (addr netip.Addr, told bool) {
	for range p.Hops - 1 {
		if _, ok := entries.next(); !ok {
			return peer, false
		}
	}
	entry, _ := entries.next()
	if addr, ok := parseEntry(entry); ok {
		return addr, true
	}
	return peer, false
}

// lastUntrusted reads the forwarding header from right to left, and returns the first address that is
// not in p.Trusted. It ignores the entries further left, because the client may have sent them. If it
// reads an entry that is no address, or if all addresses are trusted, it returns the address in the
// rightmost entry. If that entry is no address either, it returns peer. The result told is false if an
// entry that was read is no address, or if the last maxHops addresses of the header are all trusted.
func (p *Proxies) lastUntrusted(entries *entryList, peer netip.Addr) (addr netip.Addr, told bool) {
	last := peer
	for i := range maxHops {
		if i > 0 && entries.ended() {
			return last, true
		}
		entry, _ := entries.next()
		addr, ok := parseEntry(entry)
		if !ok {
			break
		}
		if !p.trusts(addr) {
			return addr, true
		}
		if i == 0 {
			last = addr
		}
	}
	return last, false
}

// maxEntry is the maximum length of an entry in bytes, including the space around it. The longest
// address with brackets, port and a zone of common length is shorter.
const maxEntry = 64

// An entryList reads the comma-separated entries of header lines from right to left. It reads at most
// maxEntry bytes for an entry, however long the lines are.
type entryList struct {
	lines []string // header lines of which nothing was read yet
	line  string   // the unread part of the current header line
	begun bool     // whether the current header line has another entry
}

// next returns the next entry to the left, without the space around it. ok is false at the end of the list.
// The list also ends at an entry that is too long.
func (l *entryList) next() (entry string, ok bool) {
	if !l.begun {
		n := len(l.lines)
		if n == 0 {
			return "", false
		}
		l.line, l.lines, l.begun = l.lines[n-1], l.lines[:n-1], true
	}
	from := max(0, len(l.line)-maxEntry-1)
	switch i := strings.LastIndexByte(l.line[from:], ','); {
	case i >= 0:
		entry, l.line = l.line[from+i+1:], l.line[:from+i]
	case len(l.line) <= maxEntry:
		entry, l.begun = l.line, false
	default:
		*l = entryList{}
		return "", false
	}
	return strings.Trim(entry, " \t"), true
}

// ended reports whether all entries have been read.
func (l *entryList) ended() bool { return !l.begun && len(l.lines) == 0 }

// parseEntry returns the normalized address in an entry. An entry may have a port, and an IPv6
// address may have brackets.
func parseEntry(entry string) (addr netip.Addr, ok bool) {
	if entry == "" {
		return addr, false
	}
	addr, err := netip.ParseAddr(entry)
	if err != nil && entry[len(entry)-1] == ']' && entry[0] == '[' {
		addr, err = netip.ParseAddr(entry[1 : len(entry)-1])
		if addr.Is4() {
			return netip.Addr{}, false
		}
	} else if err != nil {
		var pair netip.AddrPort
		pair, err = netip.ParseAddrPort(entry)
		addr = pair.Addr()
	}
	return normal(addr), err == nil
}

// normal returns addr in the form in which addresses are compared. It converts an IPv4 address that is
// mapped into IPv6 to IPv4, and drops a zone.
func normal(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// A peer is the remote end of the connection that a request arrived on.
type peer struct {
	addr netip.Addr // the normalized address; the zero Addr if it is unknown
	unix bool       // whether the connection is a unix socket; false if addr is known
	text string     // addr as text, if addr is an IPv4 address and its text was at hand; otherwise empty
}

// peerOf returns the peer that sent the request r.
func peerOf(r *http.Request) peer {
	// A client chooses the name of its unix socket, which may look like an IP address. So peerOf looks for a
	// unix socket first.
	if local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); local != nil && strings.HasPrefix(local.Network(), "unix") {
		return peer{unix: true}
	}
	if pair, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		p := peer{addr: normal(pair.Addr())}
		if pair.Addr().Is4() { // ParseAddrPort accepts only one spelling of an IPv4 address, so the text can be used as it is
			p.text = r.RemoteAddr[:strings.LastIndexByte(r.RemoteAddr, ':')]
		}
		return p
	}
	if addr, err := netip.ParseAddr(r.RemoteAddr); err == nil {
		return peer{addr: normal(addr)}
	}
	return peer{}
}

// identify finds out which client sent the request r. It stores in v the Addr, and the IP, Client and
// Tier of the Request. If the client is in one of Config.SkipNetworks, it only sets v.skipped.
func (m *Middleware) identify(r *http.Request, v *visit) {
	from, info, told := v.hooks.peer(r), &v.info, false
	info.Addr = from.addr
	if !m.unproxied {
		info.Addr, told = m.config.Proxies.client(from.addr, from.unix, r.Header[m.forwarding])
	}
	doubted := !told && (forwarded(r.Header) || len(r.Header[m.forwarding]) > 0)
	if doubted && (from.unix || from.addr.IsPrivate() || from.addr.IsLoopback()) {
		m.warnOfProxy(from)
	}
	if v.skipped = m.skips(info.Addr, doubted); v.skipped {
		return
	}
	name := ""
	if from.text != "" && info.Addr == from.addr {
		name = addressPrefix + from.text
	} else {
		name = addressClient(info.Addr, from.unix, m.config.IPv6Bits)
	}
	info.Request.Client, info.Request.IP = name, name[len(addressPrefix):]
	if doubted {
		v.doubtful = info.Request.IP
	}
	if client, tier, ok := v.hooks.client(r); ok && client != "" {
		info.Request.Client, info.Request.Tier = escapeClient(client), tier
	}
}

// warnOfProxy logs once that all clients behind a proxy share a budget, because Config.Proxies does not trust
// the proxy. The parameter from is the peer that has sent the request, which is the proxy.
func (m *Middleware) warnOfProxy(from peer) {
	switch {
	case m.unproxied:
		m.logs.once(warnForwarded)
	case !m.config.Proxies.believes(from.addr, from.unix):
		m.logs.once(warnProxies)
	}
}

// forwarded reports whether the header h has a field that proxies add to requests.
func forwarded(h http.Header) bool {
	return len(h[forwardedFor]) > 0 || len(h["X-Real-Ip"]) > 0 || len(h["Forwarded"]) > 0
}

// If an address identifies a client, its Request.Client is "ip:" followed by the address. Other names that
// begin with "ip:" or "id:" get the prefix "id:", so that no name can equal an address.
const (
	addressPrefix = "ip:"
	namePrefix    = "id:"
)

// escapeClient returns the Request.Client for the name of a client. It adds the prefix "id:" to a name that
// begins with "ip:" or "id:".
func escapeClient(name string) string {
	if strings.HasPrefix(name, addressPrefix) || strings.HasPrefix(name, namePrefix) {
		return namePrefix + name
	}
	return name
}

// Client returns the [ratelimit.Request.Client] of requests from addr for which [Config.Client]
// returns no client. Use it with [ratelimit.RateLimiter.Reset]. The text after "ip:" is the
// [ratelimit.Request.IP] of all requests from addr.
func (m *Middleware) Client(addr netip.Addr) string {
	return addressClient(normal(addr), false, m.config.IPv6Bits)
}

// nat64 is the prefix of IPv6 addresses that contain an IPv4 address in their last 32 bits (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// addressClient returns the Request.Client for the normalized addr: "ip:" followed by an IPv4 address, or by
// the first ipv6Bits bits of an IPv6 address, such as "ip:2001:db8::/64". The parameter unix is true if the
// connection is a unix socket.
func addressClient(addr netip.Addr, unix bool, ipv6Bits int) string {
	if !addr.IsValid() {
		if unix {
			return addressPrefix + localIP
		}
		return addressPrefix + unknownIP
	}
	var memory [len(addressPrefix) + len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")]byte
	text := append(memory[:0], addressPrefix...)
	if nat64.Contains(addr) {
		all := addr.As16()
		addr = netip.AddrFrom4([4]byte(all[12:]))
	}
	if addr.Is4() {
		return string(addr.AppendTo(text))
	}
	prefix, _ := addr.Prefix(ipv6Bits) // there is no error, because New has checked IPv6Bits
	return string(prefix.AppendTo(text))
}
