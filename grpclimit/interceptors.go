package grpclimit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// Interceptors limit the calls to one gRPC server, or the calls of one gRPC client. [New] makes them.
//
// Several Interceptors can limit the same call, such as one by address before the authentication and
// one by user after it. Each of them charges the call.
//
// Register them before interceptors that set header metadata, because a gRPC client retries a denied
// call only if the server has sent no header.
type Interceptors struct {
	limiter    *ratelimit.RateLimiter
	config     Config                // the Config from New with its defaults filled in, except for Endpoint
	names      *httplimit.Middleware // the HTTP middleware that turns addresses into names of clients
	forwarding string                // the name of the forwarding metadata
	unproxied  bool                  // whether Proxies trusts no metadata
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

// Unary returns the interceptor for the unary calls to a gRPC server.
func (i *Interceptors) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := i.admit(ctx, fullMethod(info.FullMethod)); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// Limit returns nil if the rules grant the call with the context ctx, and otherwise the error for the
// client. ctx must be a context that a server interceptor got.
//
// With Limit, Interceptors implement the interface Limiter of the package go-grpc-middleware. That package
// sends only the text of the error to the client, without the details and always with the code
// RESOURCE_EXHAUSTED. The client still gets the trailer for its retry policy.
func (i *Interceptors) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	return i.admit(ctx, fullMethod(method))
}

// admit decides whether a call of the given method may run. It returns nil if the rules grant the call.
// Otherwise it returns the error for the client. For a denied call it also sets the trailer that tells the
// client when to retry.
func (i *Interceptors) admit(ctx context.Context, method string) error {
	if i.skips(method) {
		return nil
	}
	wait, err := i.decide(ctx, i.request(ctx, method, true))
	if wait > 0 {
		// SetTrailer fails if ctx does not come from a gRPC server, as in a test of a handler.
		_ = grpc.SetTrailer(ctx, i.pushback(ctx, wait))
	}
	return err
}

func (i *Interceptors) skips(method string) bool {
	return i.config.Skip != nil && i.config.Skip(method)
}

// request returns the request to the limiter for a call of the given method to this server. The argument
// known is true if a service of the server has the method.
func (i *Interceptors) request(ctx context.Context, method string, known bool) ratelimit.Request {
	req := i.identify(ctx, method)
	req.Endpoint = i.endpoint(ctx, method, known)
	return i.prepared(ctx, req)
}

// prepared returns the request req with the changes that Config.Prepare makes.
func (i *Interceptors) prepared(ctx context.Context, req ratelimit.Request) ratelimit.Request {
	if i.config.Prepare == nil {
		return req
	}
	// Prepare gets the address of a variable, which Go therefore allocates on the heap. With this separate
	// variable, a call without Prepare allocates nothing.
	own := req
	i.config.Prepare(ctx, &own)
	return own
}

// decide asks the limiter. It returns a nil error if the limiter grants the request, and otherwise the error
// for the client. If the limiter denies the request, wait is the RetryAfter of the result, which is above 0.
// In all other cases, wait is 0.
func (i *Interceptors) decide(ctx context.Context, req ratelimit.Request) (wait time.Duration, err error) {
	var memory [2]ratelimit.Result // enough for two rules; for more rules, CheckAll allocates memory
	res, each, err := i.limiter.CheckAll(ctx, req, memory[:0])
	each = slices.DeleteFunc(each, func(res ratelimit.Result) bool { return res.Advised }) // these rules limit nothing
	if err != nil {
		if res == (ratelimit.Result{}) {
			return 0, i.failure(ctx, err, logRefused)
		}
		i.logs.decided(err)
	}
	if res.Allowed {
		return 0, nil
	}
	return res.RetryAfter, i.denial(res, each, false)
}

// failure returns the error for the client if the limiter returned the error err and no decision. It logs
// err as a problem of the given kind, unless the context has ended.
func (i *Interceptors) failure(ctx context.Context, err error, kind int) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return status.FromContextError(ended).Err()
	}
	i.logs.undecided(kind, err)
	return status.Error(codes.Internal, "internal error")
}
