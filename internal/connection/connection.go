// Package connection lets adapters of web frameworks tell package httplimit the address of a connection.
package connection

import "net/netip"

// A Peer is an [net/http.ResponseWriter] that knows the address of the client's end of the connection, so that the address
// need not be read from the text in Request.RemoteAddr.
type Peer interface {
	// Peer returns the address, in which no IPv4 address is mapped into IPv6 and no IPv6 address has a zone. The text is
	// an IPv4 address as netip.Addr.String writes it, and is empty for an IPv6 address. If the address is not known, or
	// the connection is no TCP connection, addr is the zero Addr.
	Peer() (addr netip.Addr, text string)
}
