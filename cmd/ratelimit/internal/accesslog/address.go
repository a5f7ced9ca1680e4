package accesslog

import (
	"bytes"
	"hash/maphash"
	"net/netip"
)

// A client holds an address as it stands in a log, and the IP and the name that a Reader makes from it.
type client struct {
	text string // the address as the log has it
	ip   string // the address without a port; for an IPv6 address, its prefix, such as 2001:db8::/64
	name string // "ip:" followed by the text of the field ip
}

// The type clients caches clients by the text of their address, so that most addresses need not be parsed.
type clients struct {
	tags [keptClients]uint32 // for each element of the field kept, 32 bits of the hash of its address; 0 if the element is empty
	kept [keptClients]keptClient
}

// keptClients is how many addresses are kept.
const keptClients = 1 << 12

// A keptClient is one entry of the cache. For an IPv4 address without a port, it has only a name, which is "ip:" followed by the
// address.
type keptClient struct {
	name  string
	other *client // nil for an IPv4 address without a port
}

// keptSeed is the seed of the hash function that chooses the cache entry of a text.
var keptSeed = maphash.MakeSeed()

// of returns the IP and the name of the client with the given address. The parameter bits is the length of the prefix that
// stands for an IPv6 address. The table c.tags is so small that it stays in a fast cache of the processor. If the tag of an entry
// differs from the tag of the given address, the entry has another address, and is not read.
func (c *clients) of(text []byte, bits int) (ip, name string) {
	const prefix = len("ip:")
	hash := maphash.Bytes(keptSeed, text)
	at, tag := hash%keptClients, uint32(hash>>32)|1
	kept := &c.kept[at]
	switch {
	case c.tags[at] != tag:
	case kept.other != nil:
		if kept.other.text == string(text) {
			return kept.other.ip, kept.other.name
		}
	case len(kept.name) == len(text)+prefix && kept.name[prefix:] == string(text):
		return kept.name[prefix:], kept.name
	}
	c.tags[at] = tag
	if isIPv4(text) {
		var b [len("ip:255.255.255.255")]byte
		*kept = keptClient{name: string(append(append(b[:0], "ip:"...), text...))}
		return kept.name[prefix:], kept.name
	}
	other := newClient(text, bits)
	*kept = keptClient{other: &other}
	return other.ip, other.name
}

// nat64 is the prefix of IPv6 addresses that contain an IPv4 address in their last 32 bits (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// newClient reads an address. The address may have a port, and may be the last one of a list, as in X-Forwarded-For. Any
// other text stays unchanged, for example the name of a host, or a prefix such as 2001:db8::/64.
func newClient(text []byte, bits int) client {
	c := client{text: string(text)}
	last := c.text
	if i := bytes.LastIndexByte(text, ','); i >= 0 {
		last = string(bytes.TrimSpace(text[i+1:]))
	}
	addr, ok := addressIn(last)
	if !ok {
		c.ip, c.name = c.text, c.text
		if _, err := netip.ParsePrefix(c.text); err == nil {
			c.name = "ip:" + c.text
		}
		return c
	}
	if nat64.Contains(addr) {
		all := addr.As16()
		addr = netip.AddrFrom4([4]byte(all[12:]))
	}
	if c.ip = addr.String(); addr.Is6() {
		prefix, _ := addr.Prefix(bits) // there is no error, because the bits are from 1 to 128
		c.ip = prefix.String()
	}
	c.name = "ip:" + c.ip
	return c
}

// isIPv4 reports whether text is an IPv4 address in the spelling that [netip.Addr.String] gives it.
func isIPv4(text []byte) bool {
	dots, n, digits := 0, 0, 0
	for _, c := range text {
		switch {
		case c == '.' && digits > 0 && dots < 3:
			dots, n, digits = dots+1, 0, 0
		case '0' <= c && c <= '9' && (digits == 0 || n > 0):
			if n, digits = 10*n+int(c-'0'), digits+1; n > 255 {
				return false
			}
		default:
			return false
		}
	}
	return dots == 3 && digits > 0
}

// Address returns an address in the spelling of Entry.IP. The text may also be a prefix, such as 2001:db8::/64. It returns
// false if the text is neither an address nor a prefix.
func Address(text string, ipv6Bits int) (ip string, ok bool) {
	if _, ok := addressIn(text); !ok {
		prefix, err := netip.ParsePrefix(text)
		return prefix.String(), err == nil
	}
	return newClient([]byte(text), ipv6Bits).ip, true
}

// addressIn reads an address that may have a port, and brackets if it is an IPv6 address.
func addressIn(text string) (addr netip.Addr, ok bool) {
	addr, err := netip.ParseAddr(text)
	if n := len(text); err != nil && n > 2 && text[0] == '[' && text[n-1] == ']' {
		addr, err = netip.ParseAddr(text[1 : n-1])
	} else if err != nil {
		var pair netip.AddrPort
		pair, err = netip.ParseAddrPort(text)
		addr = pair.Addr()
	}
	return addr.Unmap().WithZone(""), err == nil
}
