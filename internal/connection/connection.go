// Package connection lets adapters of web frameworks tell package httplimit the address of a connection.
package connection

import "net/netip"

// A Peer is an [net/http.ResponseWriter] that knows the address of the client's end of the connection, so that the address
// need not be read from the text in Request.RemoteAddr.
type Peer interface {
	// Peer returns the address of the client's end. An IPv4 address is returned as such, and not mapped into IPv6. An
	// IPv6 address has no zone. For an IPv4 address, the result text is the address as netip.Addr.String writes it. For
	// an IPv6 address, the result text is empty. If the address is not known, or the connection is no TCP connection,
	// the result addr is the zero Addr.
	Peer() (addr netip.Addr, text string)
}
