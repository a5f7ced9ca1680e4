package bench

import (
	"context"
	"net"
	"net/netip"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/grpclimit"
)

// The type named "called" runs a gRPC interceptor without a server, because a server would take a hundred
// times as long as the interceptor. It always passes the same call from the same address, with a
// context that has the values that a server sets.
type called struct {
	ctx     context.Context
	unary   grpc.UnaryServerInterceptor
	info    *grpc.UnaryServerInfo
	handler grpc.UnaryHandler
	granted bool
}

// newCalled returns a function for the field Spec.New. That function makes a subject of the type
// called. The subject calls the interceptor that the function intercept returns.
func newCalled(intercept func(Limit) (grpc.UnaryServerInterceptor, error)) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		unary, err := intercept(l)
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: net.TCPAddrFromAddrPort(netip.MustParseAddrPort("203.0.113.9:1234"))})
		ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(
			":authority", "example.com", "content-type", "application/grpc", "user-agent", "grpc-go"))
		c := &called{ctx: ctx, unary: unary, info: &grpc.UnaryServerInfo{FullMethod: "/shop.Items/Get"}}
		c.handler = func(context.Context, any) (any, error) {
			c.granted = true
			return nil, nil
		}
		return c, err
	}
}

// Allow makes one call and reports whether it was granted. The key is not used.
func (c *called) Allow(string) bool {
	c.granted = false
	_, _ = c.unary(c.ctx, nil, c.info, c.handler) // an error means a denial
	return c.granted
}

func bareInterceptor(Limit) (grpc.UnaryServerInterceptor, error) {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, req)
	}, nil
}

func limitInterceptor(l Limit) (grpc.UnaryServerInterceptor, error) {
	lim, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: l.bucket()}, l.options()...)
	if err != nil {
		return nil, err
	}
	limits, err := grpclimit.New(lim, grpclimit.Config{})
	if err != nil {
		return nil, err
	}
	return limits.Unary(), nil
}
