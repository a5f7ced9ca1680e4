package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/ratelimit-go/ratelimit"
)

// UnaryClient returns the interceptor for the unary calls of a gRPC client. It waits until the rules
// grant a call, and then sends it. If the wait would exceed the deadline of the call, the call fails at
// once with DEADLINE_EXCEEDED. If the rules can never grant the call, or too many calls already wait, the
// call fails with RESOURCE_EXHAUSTED. In these cases, the call is not sent and not charged.
//
// The Request.Client is the target of the connection, unless [Config.Client] returns a client. A call
// that the retry policy of the connection sends several times is charged once.
func (i *Interceptors) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		if err := i.await(ctx, fullMethod(method), cc); err != nil {
			return err
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient returns the interceptor for the streams of a gRPC client. The opening of a stream waits
// as a unary call does; see [Interceptors.UnaryClient]. The messages of a stream are not charged.
func (i *Interceptors) StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer,
		opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := i.await(ctx, fullMethod(method), cc); err != nil {
			return nil, err
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
}

// await waits until the rules grant a call of the given method over the connection cc.
func (i *Interceptors) await(ctx context.Context, method string, cc *grpc.ClientConn) error {
	if i.skips(method) {
		return nil
	}
	req := ratelimit.Request{Client: cc.Target(), Endpoint: i.endpoint(ctx, method, true)}
	if i.config.Client != nil {
		if client, tier, ok := i.config.Client(ctx, method); ok && client != "" {
			req.Client, req.Tier = client, tier
		}
	}
	return i.wait(ctx, &caller{request: i.prepared(ctx, req)}, true)
}
