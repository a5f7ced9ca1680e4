package accesslog

import (
	"bytes"
	"net/netip"
)

// A client is what the address in a log says about the client.
type client struct {
	text string // the address as the log has it
	ip   string // the address without a port; of an IPv6 address, its network
	name string // "ip:" and the text of the field ip
}

// The type clients keeps some of the addresses that were read, so that most lines need no work for their address.
type clients [1 << 12]client

// of returns the client with the given address. The parameter bits is the length of the prefix that stands for an IPv6
// address. The result is valid until the next call.
func (c *clients) of(text []byte, bits int) *client {
	h := uint32(2166136261) // the hash function is FNV-1a
	for _, b := range text {
		h = (h ^ uint32(b)) * 16777619
	}
	kept := &c[(h^h>>16)&(1<<12-1)]
	if kept.text != string(text) {
		*kept = newClient(text, bits)
	}
	return kept
}

// nat64 is the prefix of IPv6 addresses that contain an IPv4 address in their last 32 bits (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// newClient reads an address. It may have a port, and may be the last one of a list, as in X-Forwarded-For. What is no
// address, such as the name of a host, stays as it is, and so does a prefix such as 2001:db8::/64.
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

// Address returns an address in the spelling of Entry.IP. The text may also be a prefix, such as 2001:db8::/64. It returns false
// if the text is neither.
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
