package grpclimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimit-go/ratelimit"
)

// forwardedFor is the name of the metadata in which proxies send the addresses of clients, unless
// Proxies.Header names other metadata.
const forwardedFor = "x-forwarded-for"

// A client that is identified only by its address has the Request.Client "ip:" followed by the address. A
// name from Config.Client that begins with "ip:" or "id:" gets the prefix "id:", so that no name can equal
// an address.
const (
	addressPrefix = "ip:"
	namePrefix    = "id:"
)

// The names of clients whose address is not known.
const (
	localClient   = addressPrefix + "local"   // the connection is a unix socket
	unknownClient = addressPrefix + "unknown" // the transport does not know the address of the peer
)

// escapeClient returns the Request.Client for the name of a client. It adds the prefix "id:" to a name that
// begins with "ip:" or "id:".
func escapeClient(name string) string {
	if strings.HasPrefix(name, addressPrefix) || strings.HasPrefix(name, namePrefix) {
		return namePrefix + name
	}
	return name
}

// identify returns a request with the Client, Tier and IP of the client that made the call with the context
// ctx.
func (i *Interceptors) identify(ctx context.Context, method string) ratelimit.Request {
	name := i.address(ctx)
	req := ratelimit.Request{Client: name, IP: name[len(addressPrefix):]}
	if i.config.Client != nil {
		if client, tier, ok := i.config.Client(ctx, method); ok && client != "" {
			req.Client, req.Tier = escapeClient(client), tier
		}
	}
	return req
}

// address returns the name of the client according to its address, such as "ip:192.0.2.1".
func (i *Interceptors) address(ctx context.Context) string {
	addr, unix := peerOf(ctx)
	switch {
	case !i.unproxied && (unix || addr.IsValid()):
		addr = i.config.Proxies.Addr(addr, metadata.ValueFromIncomingContext(ctx, i.forwarding))
	case i.unproxied && (unix || addr.IsPrivate() || addr.IsLoopback()) && !i.logs.warned[warnForwarded].Load() && forwarded(ctx):
		i.logs.once(warnForwarded)
	}
	switch {
	case addr.IsValid():
		return i.names.Client(addr)
	case unix:
		return localClient
	}
	return unknownClient
}

// forwarded reports whether ctx has metadata that proxies add to calls.
func forwarded(ctx context.Context) bool {
	for _, name := range [...]string{forwardedFor, "x-real-ip", "forwarded"} {
		if len(metadata.ValueFromIncomingContext(ctx, name)) > 0 {
			return true
		}
	}
	return false
}

// peerOf returns the remote address of a call's connection. If the address is unknown, unix reports
// whether the connection is a unix socket. Otherwise, unix is false.
func peerOf(ctx context.Context) (addr netip.Addr, unix bool) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}, false
	}
	switch from := p.Addr.(type) {
	case *net.TCPAddr:
		addr = from.AddrPort().Addr()
	case *net.UnixAddr:
		return netip.Addr{}, true
	default: // another type of address, as in a gRPC server inside an HTTP server: parse its text
		if pair, err := netip.ParseAddrPort(from.String()); err == nil {
			addr = pair.Addr()
		} else if addr, err = netip.ParseAddr(from.String()); err != nil {
			local, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
			return netip.Addr{}, local != nil && strings.HasPrefix(local.Network(), "unix")
		}
	}
	return addr, false
}
