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

// forwardedFor is the metadata that is read unless Proxies.Header names another one.
const forwardedFor = "x-forwarded-for"

// A client that is known by its address only is called "ip:" and that. One of another name
// that begins in this way gets a "id:" before it, so that no name is an address.
const (
	addressPrefix = "ip:"
	namePrefix    = "id:"
)

// The names of the clients that have no address.
const (
	localClient   = addressPrefix + "local"   // the peer came by a unix socket
	unknownClient = addressPrefix + "unknown" // the transport does not say who the peer is
)

// escapeClient returns the Request.Client for a client of this name.
func escapeClient(name string) string {
	if strings.HasPrefix(name, addressPrefix) || strings.HasPrefix(name, namePrefix) {
		return namePrefix + name
	}
	return name
}

// identify returns a request with who makes the call with the context ctx.
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

// address returns the name of the client that is known by its address only.
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

// forwarded reports whether ctx has metadata that only a proxy sends.
func forwarded(ctx context.Context) bool {
	for _, name := range [...]string{forwardedFor, "x-real-ip", "forwarded"} {
		if len(metadata.ValueFromIncomingContext(ctx, name)) > 0 {
			return true
		}
	}
	return false
}

// peerOf returns the address that the connection of a call comes from. If there is none, unix
// says whether it came by a unix socket.
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
	default: // such as that of a server behind net/http
		if pair, err := netip.ParseAddrPort(from.String()); err == nil {
			addr = pair.Addr()
		} else if addr, err = netip.ParseAddr(from.String()); err != nil {
			local, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
			return netip.Addr{}, local != nil && strings.HasPrefix(local.Network(), "unix")
		}
	}
	return addr, false
}
