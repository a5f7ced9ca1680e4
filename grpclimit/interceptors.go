package grpclimit

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/running"
)

// Interceptors limit the calls to one gRPC server, or the calls of one gRPC client. [New] makes them.
//
// A server can use several Interceptors, for example to limit calls by address before the
// authentication, and by user after the authentication. All of them charge the call.
//
// Register them before interceptors that set header metadata, because a gRPC client retries a denied
// call only if the server has sent no header.
type Interceptors struct {
	limiter    *ratelimit.RateLimiter
	config     Config                // the Config from New with its defaults filled in, except for Endpoint
	names      *httplimit.Middleware // the HTTP middleware, which turns the address of a client into its name
	forwarding string                // the name of the metadata in which proxies send the address of the client
	proxyNames []string              // the names of the metadata that proxies add to calls, with the one in the field forwarding
	unproxied  bool                  // whether Config.Proxies trusts no proxy at all
	shown      atomic.Pointer[ruleTable]
	logs       logs
}

func newInterceptors(l *ratelimit.RateLimiter, c Config, names *httplimit.Middleware) *Interceptors {
	if c.MaxPushback == 0 {
		c.MaxPushback = maxPushback
	}
	if c.BusyRetry == 0 {
		c.BusyRetry = time.Second
	}
	p := &c.Proxies
	i := &Interceptors{
		limiter: l, config: c, names: names, forwarding: forwardedFor,
		unproxied: len(p.Trusted) == 0 && !p.Unix && p.Hops == 0,
	}
	if p.Header != "" {
		i.forwarding = strings.ToLower(p.Header)
	}
	if i.proxyNames = []string{forwardedFor, "x-real-ip", "forwarded"}; !slices.Contains(i.proxyNames, i.forwarding) {
		i.proxyNames = append(i.proxyNames, i.forwarding)
	}
	i.logs.to, i.logs.began = c.Log, time.Now()
	return i
}

// Unary returns the interceptor for the unary calls to a gRPC server.
func (i *Interceptors) Unary() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		end, err := i.admit(ctx, fullMethod(info.FullMethod), true)
		if err != nil {
			return nil, err
		}
		defer end()
		return handler(ctx, req)
	}
}

// Limit returns nil if the rules grant the call with the context ctx, and otherwise the error for the
// client. ctx must be a context that a server interceptor got.
//
// With Limit, Interceptors implement the interface Limiter of the package go-grpc-middleware. That package
// sends only the text of the error to the client, without the details and always with the code
// RESOURCE_EXHAUSTED. The client still gets the trailer for its retry policy. Rules with
// [ratelimit.AlgorithmInFlight] do not limit such a call, because Limit does not see its end.
func (i *Interceptors) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	_, err := i.admit(ctx, fullMethod(method), false)
	return err
}

// admit decides whether a call of the given method may run. It returns nil if the rules grant the call. Otherwise
// it returns the error for the client. For a denied call it also sets the trailer that tells the client when to
// retry. If the parameter holds is true, rules that limit how many calls run at once count the call until the
// function end is called.
func (i *Interceptors) admit(ctx context.Context, method string, holds bool) (end func(), err error) {
	if i.skips(method) {
		return nothing, nil
	}
	c := i.request(ctx, method, true)
	if c.skipped {
		return nothing, nil
	}
	end, wait, err := i.decide(ctx, &c, holds)
	if wait > 0 {
		// SetTrailer fails if ctx does not come from a gRPC server, as in a test of a handler.
		_ = grpc.SetTrailer(ctx, i.pushback(ctx, wait))
	}
	return end, err
}

// nothing is an empty function. If no rule counts a call as running, the method admit returns it as the result end.
func nothing() {}

func (i *Interceptors) skips(method string) bool {
	return i.config.Skip != nil && i.config.Skip(method)
}

// request returns what the server knows of the client that calls the given method, with the request to ask the
// limiter about. The argument known is true if a service of the server has the method.
func (i *Interceptors) request(ctx context.Context, method string, known bool) caller {
	c := i.identify(ctx, method)
	if !c.skipped {
		c.request.Endpoint = i.endpoint(ctx, method, known)
		c.request = i.prepared(ctx, c.request)
	}
	return c
}

// prepared returns the request req with the changes that Config.Prepare makes.
func (i *Interceptors) prepared(ctx context.Context, req ratelimit.Request) ratelimit.Request {
	if i.config.Prepare == nil {
		return req
	}
	// Prepare gets the address of the variable own, so Go allocates own on the heap. The parameter req
	// stays on the stack, so a call without Prepare allocates nothing.
	own := req
	i.config.Prepare(ctx, &own)
	return own
}

// decide asks the limiter about the request of c. It returns a nil error if the limiter grants the request, and
// otherwise the error for the client. If the limiter denies the request, wait is above 0: the time after which
// the client may try again. In all other cases, wait is 0. If the parameter holds is true, rules that limit how many
// calls run at once count the call until the function end is called.
func (i *Interceptors) decide(ctx context.Context, c *caller, holds bool) (end func(), wait time.Duration, err error) {
	var memory [2]ratelimit.Result // room for the results of two rules; for more rules, CheckAll allocates
	var res ratelimit.Result
	var each []ratelimit.Result
	var units *ratelimit.Reservation
	per := i.table().holds
	asked, doubt := c.context(ctx)
	switch holds = holds && per > 0; {
	case holds && c.request.ID != "":
		return nil, 0, i.failure(ctx, errHeldID, logRefused)
	case holds:
		units, err = i.limiter.Reserve(asked, c.request, time.Second)
		res, each = units.Result(), units.Results()
	default:
		res, each, err = i.limiter.CheckAll(asked, c.request, memory[:0])
	}
	i.warnOfDoubt(doubt)
	each = slices.DeleteFunc(each, func(res ratelimit.Result) bool { return res.Advised }) // rules in ModeAdvise deny no calls
	if err != nil {
		if res == (ratelimit.Result{}) {
			return nil, 0, i.failure(ctx, err, logRefused)
		}
		i.logs.decided(err)
	}
	switch {
	case res.Allowed && holds:
		return running.Keep(units, i.config.HoldExtend, per, ratelimit.ErrSettled, i.logs.decided), 0, nil
	case res.Allowed:
		return nothing, 0, nil
	case res.Reason == ratelimit.ReasonBusy && res.RetryAfter != ratelimit.Never:
		res.RetryAfter = min(res.RetryAfter, i.config.BusyRetry+rand.N(i.config.BusyRetry))
	}
	return nil, res.RetryAfter, i.denial(res, each, false)
}

// warnOfDoubt logs once that a request was limited although its address is exempt from limits. This happens if the
// address may belong to a proxy. d is the context with which the limiter was asked, and has recorded whether it happened.
// d is nil if the address cannot belong to a proxy.
func (i *Interceptors) warnOfDoubt(d *override.Doubt) {
	if d != nil && d.Met() {
		i.logs.once(warnExempt)
	}
}

// errHeldID is the error for a call that has an ID although a rule limits how many calls run at once. A retry with the
// same ID is granted without a new charge, so the retry would run without being counted by the rule.
var errHeldID = wrong("id", "set", "must be empty beside a rule with the algorithm InFlight: a retry would run without being counted")

// failure returns the error for the client if the limiter returned the error err and no decision. It logs
// err as a problem of the given kind, unless the context has ended.
func (i *Interceptors) failure(ctx context.Context, err error, kind int) error {
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
		return status.FromContextError(ended).Err()
	}
	i.logs.undecided(kind, err)
	return status.Error(codes.Internal, "internal error")
}
