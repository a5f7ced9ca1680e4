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
	"github.com/ratelimit-go/ratelimit/internal/override"
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

// A caller is what a server knows of the client of a call.
type caller struct {
	request  ratelimit.Request // with the Client, Tier and IP of the client
	skipped  bool              // whether the client is in one of Config.SkipNetworks; the request is then empty
	doubtful string            // the IP, if it may belong to a proxy that Config.Proxies does not trust; otherwise empty
}

// identify returns what the server knows of the client that made the call with the context ctx.
func (i *Interceptors) identify(ctx context.Context, method string) (c caller) {
	name, doubted, skipped := i.address(ctx)
	if skipped {
		return caller{skipped: true}
	}
	c.request = ratelimit.Request{Client: name, IP: name[len(addressPrefix):]}
	if doubted {
		c.doubtful = c.request.IP
	}
	if i.config.Client != nil {
		if client, tier, ok := i.config.Client(ctx, method); ok && client != "" {
			c.request.Client, c.request.Tier = escapeClient(client), tier
		}
	}
	return c
}

// address returns the name of the client according to its address, such as "ip:192.0.2.1". The result doubted is true
// if the address may belong to a proxy that Config.Proxies does not trust. The result skipped is true if the client is
// in one of Config.SkipNetworks.
func (i *Interceptors) address(ctx context.Context) (name string, doubted, skipped bool) {
	addr, unix := peerOf(ctx)
	told := false
	if !i.unproxied && (unix || addr.IsValid()) {
		addr, told = i.config.Proxies.Lookup(addr, metadata.ValueFromIncomingContext(ctx, i.forwarding))
	}
	if doubted = !told && i.forwarded(ctx); doubted && i.unproxied && (unix || addr.IsPrivate() || addr.IsLoopback()) {
		i.logs.once(warnForwarded)
	}
	switch {
	case i.skipsAddress(addr, doubted):
		return "", false, true
	case addr.IsValid():
		return i.names.Client(addr), doubted, false
	case unix:
		return localClient, doubted, false
	}
	return unknownClient, doubted, false
}

// skipsAddress reports whether a client with this address is in one of Config.SkipNetworks. The parameter doubted is true if
// the address may belong to a proxy that Config.Proxies does not trust. Then the result is false, because everybody could
// send calls through that proxy.
func (i *Interceptors) skipsAddress(addr netip.Addr, doubted bool) bool {
	addr = addr.Unmap().WithZone("")
	for _, network := range i.config.SkipNetworks {
		if network.Contains(addr) {
			if doubted {
				i.logs.once(warnExempt)
			}
			return !doubted
		}
	}
	return false
}

// context returns the context with which to ask the limiter about the request of c. Usually this is ctx, the context of the
// call, and the result doubt is nil. But if the address of the request may belong to a proxy that is not trusted, both
// results are the same Doubt. A Doubt is a context: with it, no Override exempts the request by its address.
func (c *caller) context(ctx context.Context) (_ context.Context, doubt *override.Doubt) {
	return override.InDoubt(ctx, c.doubtful, c.request.IP, c.request.Client, addressPrefix+c.doubtful)
}

// forwarded reports whether ctx has metadata that proxies add to calls.
func (i *Interceptors) forwarded(ctx context.Context) bool {
	for _, name := range i.proxyNames {
		if len(metadata.ValueFromIncomingContext(ctx, name)) > 0 {
			return true
		}
	}
	return false
}

// peerOf returns the remote address of a call's connection. The result unix is true if the connection is a
// unix socket, which has no such address.
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
