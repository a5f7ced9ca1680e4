package grpclimit

import (
	"context"

	"google.golang.org/grpc"

	"github.com/ratelimit-go/ratelimit"
)

// UnaryClient returns the interceptor for the calls of a client that are not streams. A call
// waits until its rules grant it, and is then sent. It is not sent, and nothing is charged, if
// the wait would outlast its deadline: the call fails at once with DEADLINE_EXCEEDED. If no wait
// is long enough, or too many calls wait already, it fails with RESOURCE_EXHAUSTED.
//
// The Request.Client is the target of the connection, unless Config.Client says another. Calls
// that the retry policy of the connection sends again are charged once.
func (i *Interceptors) UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if err := i.await(ctx, fullMethod(method), cc); err != nil {
			return err
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClient returns the interceptor for the streams of a client. A stream waits as a call
// does, see [Interceptors.UnaryClient], and is then opened. Its messages are free.
func (i *Interceptors) StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if err := i.await(ctx, fullMethod(method), cc); err != nil {
			return nil, err
		}
		return streamer(ctx, desc, cc, method, opts...)
	}
}

// await waits until a call of method by cc may be sent.
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
	return i.wait(ctx, i.prepared(ctx, req), true)
}
