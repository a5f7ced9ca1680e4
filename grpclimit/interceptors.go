package grpclimit

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// Interceptors limit the calls of one server or of one client. [New] makes them. Interceptors of
// their own limit each layer, such as one by address before the authentication, and one by user
// behind it, both of which charge.
//
// Register them before interceptors that set header metadata. A gRPC client sends a denied call
// again only if the server has sent it no header.
type Interceptors struct {
	limiter    *ratelimit.RateLimiter
	config     Config                // with its defaults filled in, except for Endpoint
	names      *httplimit.Middleware // names addresses
	forwarding string                // the metadata that Proxies read
	unproxied  bool                  // whether Proxies believes nobody
	shown      atomic.Pointer[ruleTable]
	logs       logs
}

func newInterceptors(l *ratelimit.RateLimiter, c Config, names *httplimit.Middleware) *Interceptors {
	if c.MaxPushback == 0 {
		c.MaxPushback = maxPushback
	}
	p := &c.Proxies
	i := &Interceptors{
		limiter: l, config: c, names: names, forwarding: forwardedFor,
		unproxied: len(p.Trusted) == 0 && !p.Unix && p.Hops == 0,
	}
	if p.Header != "" {
		i.forwarding = strings.ToLower(p.Header)
	}
	i.logs.to, i.logs.began = c.Log, time.Now()
	return i
}

// Unary returns the interceptor for the calls of a server that are not streams.
func (i *Interceptors) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := i.admit(ctx, fullMethod(info.FullMethod)); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// Limit returns nil if the call with the context ctx is granted, and otherwise the error for its
// client. It makes Interceptors a Limiter of go-grpc-middleware, which however keeps only the
// text of the error: clients get no details, and RESOURCE_EXHAUSTED whatever the reason is. The
// trailer for retry policies is set all the same. ctx must be one that a server interceptor got.
func (i *Interceptors) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	return i.admit(ctx, fullMethod(method))
}

// admit decides on a call of method, and sets the trailer of a denial.
func (i *Interceptors) admit(ctx context.Context, method string) error {
	if i.skips(method) {
		return nil
	}
	wait, err := i.decide(ctx, i.request(ctx, method, true))
	if wait > 0 {
		// Without a stream, as in a test of a handler, there is no trailer.
		_ = grpc.SetTrailer(ctx, i.pushback(ctx, wait))
	}
	return err
}

func (i *Interceptors) skips(method string) bool {
	return i.config.Skip != nil && i.config.Skip(method)
}

// request returns what a call of method to this server asks for.
func (i *Interceptors) request(ctx context.Context, method string, known bool) ratelimit.Request {
	req := i.identify(ctx, method)
	req.Endpoint = i.endpoint(ctx, method, known)
	return i.prepared(ctx, req)
}

// prepared returns req after Prepare.
func (i *Interceptors) prepared(ctx context.Context, req ratelimit.Request) ratelimit.Request {
	if i.config.Prepare == nil {
		return req
	}
	own := req // so that only requests to prepare are on the heap
	i.config.Prepare(ctx, &own)
	return own
}

// decide asks the limiter. It returns the error for the client, if there is one. If that is a
// denial, wait is its RetryAfter, which is above 0.
func (i *Interceptors) decide(ctx context.Context, req ratelimit.Request) (wait time.Duration, err error) {
	var memory [2]ratelimit.Result // for the usual number of rules
	res, each, err := i.limiter.CheckAll(ctx, req, memory[:0])
	if err != nil {
		if res == (ratelimit.Result{}) {
			return 0, i.failure(ctx, err, logRefused)
		}
		i.logs.often(logStore, err)
	}
	if res.Allowed {
		return 0, nil
	}
	return res.RetryAfter, i.denial(res, each, false)
}

// failure returns the error for a call that could not be decided on because of err.
func (i *Interceptors) failure(ctx context.Context, err error, kind int) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return status.FromContextError(ended).Err()
	}
	i.logs.often(kind, err)
	return status.Error(codes.Internal, "internal error")
}
