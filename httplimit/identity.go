package httplimit

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// forwardedFor is the header field that is read unless Proxies.Header names another one.
const forwardedFor = "X-Forwarded-For"

// The addresses of clients that have none.
const (
	localIP   = "local"   // the peer came by a unix socket
	unknownIP = "unknown" // the server does not say who the peer is
)

// Addr returns the address of the client, for servers that are not net/http. peer is the
// address that the connection comes from, or the zero Addr for a peer by a unix socket. values
// are the lines of the header field that p reads, in the order in which they came. If peer is
// not believed, or the header field does not name the client, Addr returns peer.
//
// An address that Addr returns is never one of an IPv4 address within IPv6, and has no zone.
func (p Proxies) Addr(peer netip.Addr, values []string) netip.Addr {
	return p.client(normal(peer), !peer.IsValid(), values)
}

// client is Addr for a peer that is normal. unix says that it came by a unix socket.
func (p *Proxies) client(peer netip.Addr, unix bool, values []string) netip.Addr {
	if len(values) == 0 || !p.believes(peer, unix) {
		return peer
	}
	entries := entryList{lines: values}
	switch {
	case p.one():
		entry, _ := entries.next()
		if addr, ok := parseEntry(entry); ok && len(values) == 1 && entries.ended() {
			return addr
		}
		return peer
	case p.Hops > 0:
		return p.hop(&entries, peer)
	}
	return p.lastUntrusted(&entries, peer)
}

// believes reports whether the header of peer is read.
func (p *Proxies) believes(peer netip.Addr, unix bool) bool {
	switch {
	case unix:
		return p.Unix || p.Hops > 0
	case !peer.IsValid():
		return false
	}
	return p.Hops > 0 || p.trusts(peer)
}

// trusts reports whether addr, which is normal, is that of a proxy.
func (p *Proxies) trusts(addr netip.Addr) bool {
	for _, prefix := range p.Trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// one reports whether the header field has one address rather than a list.
func (p *Proxies) one() bool {
	return p.Header != "" && !strings.EqualFold(p.Header, forwardedFor)
}

// zero reports whether p believes nobody.
func (p *Proxies) zero() bool { return len(p.Trusted) == 0 && !p.Unix && p.Hops == 0 }

// hop returns the entry that the outermost proxy has written, or peer.
func (p *Proxies) hop(entries *entryList, peer netip.Addr) netip.Addr {
	for range p.Hops - 1 {
		if _, ok := entries.next(); !ok {
			return peer
		}
	}
	entry, _ := entries.next()
	if addr, ok := parseEntry(entry); ok {
		return addr
	}
	return peer
}

// lastUntrusted returns the last address of entries that is not a proxy's. What stands left
// of it was sent by the client, and is not looked at. If there is none, or something else than
// an address stands before it, lastUntrusted returns the last entry, or peer if that is no
// address.
func (p *Proxies) lastUntrusted(entries *entryList, peer netip.Addr) netip.Addr {
	last := peer
	for i := range maxHops {
		entry, _ := entries.next()
		addr, ok := parseEntry(entry)
		if !ok {
			break
		}
		if !p.trusts(addr) {
			return addr
		}
		if i == 0 {
			last = addr
		}
	}
	return last
}

// maxEntry is the length of the longest entry that is read, with the space around it. The
// longest address, with brackets, port and a usual zone, is shorter.
const maxEntry = 64

// An entryList reads the comma-separated entries of header lines from the right. However long
// the lines are, it looks at maxEntry bytes for an entry.
type entryList struct {
	lines []string // not begun yet
	line  string   // what is left of the line that was begun
	begun bool     // whether line has a further entry
}

// next returns the next entry to the left, without the space around it. ok is false if there
// is none, or if it is too long; there are then no further ones.
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

// ended reports whether there are no further entries.
func (l *entryList) ended() bool { return !l.begun && len(l.lines) == 0 }

// parseEntry returns the address in an entry, which may have a port, and brackets if it is
// IPv6. The address is normal.
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

// normal returns addr without what makes one address look like several: an IPv4 address
// within IPv6 becomes IPv4, and a zone is dropped.
func normal(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// A peer is where the connection of a request comes from.
type peer struct {
	addr netip.Addr // normal; the zero Addr if there is none
	unix bool       // whether it came by a unix socket, if there is no address
	text string     // the address as a text, if that is known
}

// peerOf returns the peer of r.
func peerOf(r *http.Request) peer {
	if pair, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		p := peer{addr: normal(pair.Addr())}
		if pair.Addr().Is4() { // which has one text only
			p.text = r.RemoteAddr[:strings.LastIndexByte(r.RemoteAddr, ':')]
		}
		return p
	}
	if addr, err := netip.ParseAddr(r.RemoteAddr); err == nil {
		return peer{addr: normal(addr)}
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return peer{unix: local != nil && strings.HasPrefix(local.Network(), "unix")}
}

// identify fills in who sends r.
func (m *Middleware) identify(r *http.Request, info *Info) {
	from := peerOf(r)
	info.Addr = from.addr
	if !m.unproxied {
		info.Addr = m.config.Proxies.client(from.addr, from.unix, r.Header[m.forwarding])
	} else if (from.unix || from.addr.IsPrivate() || from.addr.IsLoopback()) && forwarded(r.Header) {
		m.logs.once(warnForwarded)
	}
	name := ""
	if from.text != "" && info.Addr == from.addr {
		name = addressPrefix + from.text
	} else {
		name = m.addressClient(info.Addr, from.unix)
	}
	info.Request.Client, info.Request.IP = name, name[len(addressPrefix):]
	if m.config.Client == nil {
		return
	}
	if client, tier, ok := m.config.Client(r); ok && client != "" {
		info.Request.Client, info.Request.Tier = escapeClient(client), tier
	}
}

// forwarded reports whether h has a field that only a proxy sends.
func forwarded(h http.Header) bool {
	return len(h[forwardedFor]) > 0 || len(h["X-Real-Ip"]) > 0 || len(h["Forwarded"]) > 0
}

// A client that is known by its address only is called "ip:" and that. One of another name
// that begins in this way gets a "id:" before it, so that no name is an address.
const (
	addressPrefix = "ip:"
	namePrefix    = "id:"
)

// escapeClient returns the Request.Client for a client of this name.
func escapeClient(name string) string {
	if strings.HasPrefix(name, addressPrefix) || strings.HasPrefix(name, namePrefix) {
		return namePrefix + name
	}
	return name
}

// Client returns the [ratelimit.Request.Client] of requests that come from addr, and have no
// other identity. It is for [ratelimit.RateLimiter.Reset]. The text after "ip:" is the
// [ratelimit.Request.IP] of all requests from addr.
func (m *Middleware) Client(addr netip.Addr) string { return m.addressClient(normal(addr), false) }

// nat64 is the prefix of the IPv6 addresses that stand for IPv4 addresses (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// addressClient returns "ip:" and the part of addr, which is normal, that counts: the whole of
// an IPv4 address, a prefix of an IPv6 address.
func (m *Middleware) addressClient(addr netip.Addr, unix bool) string {
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
	prefix, _ := addr.Prefix(m.config.IPv6Bits) // New has checked it
	return string(prefix.AppendTo(text))
}
