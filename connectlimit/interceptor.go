package connectlimit

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"connectrpc.com/connect"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A Config configures an [Interceptor]: how it identifies the client, what it asks the limiter, and how it answers. The
// zero Config is safe. See [httplimit.AdapterConfig] for its fields, whose functions get the *Call.
//
// The client of a denied call gets the error that Denied or Blocked returns. If neither function is set, or the function
// returns nil, the client gets the error that [Denial] returns.
//
// Count gets an HTTP status: 200 if the call succeeds, and otherwise the status that the protocol Connect has for the code
// of the call, such as 401 for unauthenticated, 404 for not_found, and 500 for unknown and internal. Count gets the same
// status in the protocols gRPC and gRPC-Web.
type Config = httplimit.AdapterConfig[*Call]

// A Call is a call of a procedure of the server. It must not be changed.
type Call struct {
	// Context is the context of the call, in which the interceptors further out may have stored who the user is.
	Context context.Context

	// Spec describes the procedure.
	Spec connect.Spec

	// Peer is the client, with its protocol.
	Peer connect.Peer

	// Header is the header of the request.
	Header http.Header

	exchange *exchange // the exchange that contains this Call
}

// An Interceptor limits the calls to a Connect server. [New] makes one. It does not limit the calls that the program makes
// as a client.
//
// A server can use several Interceptors, for example one that limits by address before the authentication, and one that
// limits by user after the authentication. All of them charge the call. If other interceptors replace the errors of
// handlers, list them after the Interceptor in [connect.WithInterceptors], so that Count gets the code that the client gets.
type Interceptor struct {
	adapter *httplimit.Adapter[*Call]
}

var _ connect.Interceptor = (*Interceptor)(nil)

// New returns an Interceptor that limits calls by the limiter l. The error lists all problems with l and the Config,
// and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Interceptor, error) {
	c.Denied = orDenial(c.Denied)
	if c.Blocked != nil {
		c.Blocked = orDenial(c.Blocked)
	}
	a, err := httplimit.NewAdapter(l, c, func(c *Call) string { return c.Spec.Procedure })
	if err != nil {
		return nil, err
	}
	return &Interceptor{a}, nil
}

// orDenial returns a function that returns the error of f or, if f is nil or returns no error, the error that Denial returns.
// Without an error, the client would not learn that the call was denied.
func orDenial(f func(c *Call, i *httplimit.Info) error) func(c *Call, i *httplimit.Info) error {
	return func(c *Call, i *httplimit.Info) error {
		if f != nil {
			if err := f(c, i); err != nil {
				return err
			}
		}
		return Denial(i)
	}
}

// WrapUnary limits the unary calls of next.
func (i *Interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		x := enter(ctx, Call{Spec: req.Spec(), Peer: req.Peer(), Header: req.Header()}, req.HTTPMethod())
		x.unary, x.request = next, req
		if err := i.serve(x); err != nil {
			return nil, err
		}
		maps.Copy(x.response.Header(), x.fields)
		return x.response, nil
	}
}

// WrapStreamingHandler limits the streams of next. A stream is charged when it is opened.
func (i *Interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		x := enter(ctx, Call{Spec: conn.Spec(), Peer: conn.Peer(), Header: conn.RequestHeader()}, http.MethodPost)
		x.stream, x.conn = next, conn
		return i.serve(x)
	}
}

// WrapStreamingClient returns next itself.
func (i *Interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// serve calls the next handler of x if the rules grant the call, and returns the error of the handler. If the call does
// not pass, serve returns the error for the client.
func (i *Interceptor) serve(x *exchange) error {
	passed, err := i.adapter.Serve(&x.call, x, x.own, proceed)
	if passed {
		return err
	}
	return x.answer(err)
}

// proceed calls the next handler of a call. If settle is not nil, proceed then calls it with the HTTP status that stands
// for the error of the handler.
func proceed(c *Call, r *http.Request, settle func(status int)) (err error) {
	x := c.exchange
	if x.stream != nil {
		maps.Copy(x.conn.ResponseHeader(), x.fields)
		err = x.stream(r.Context(), x.conn)
	} else {
		x.response, err = x.unary(r.Context(), x.request)
	}
	if settle != nil {
		settle(statusOf(err))
	}
	return err
}

// Allow asks the limiter whether to grant req. It returns nil if the limiter grants req, and otherwise the error that the
// handler must return. A handler calls Allow with the context of its call, for example to charge one more unit after a
// wrong password. Empty fields of req are filled in, as [httplimit.Middleware.Allow] says. If no Interceptor limits the
// call with the context ctx, Allow fails with the code internal.
func (i *Interceptor) Allow(ctx context.Context, req ratelimit.Request) error {
	x := find(ctx)
	if x == nil {
		return errOutside
	}
	if ok, err := i.adapter.Allow(&x.call, x, x.own, req); !ok {
		return x.answer(err)
	}
	return nil
}

// Reserve reserves the units of req. The handler settles them later, within the given term. If the error is nil, the
// handler must end the Reservation, best by a deferred call of its method Done. Otherwise the handler must return the
// error. See [httplimit.Middleware.Reserve] and [Interceptor.Allow].
func (i *Interceptor) Reserve(ctx context.Context, req ratelimit.Request, term time.Duration) (*ratelimit.Reservation, error) {
	x := find(ctx)
	if x == nil {
		return nil, errOutside
	}
	units, ok, err := i.adapter.Reserve(&x.call, x, x.own, req, term)
	if !ok {
		return nil, x.answer(err)
	}
	return units, nil
}

// Client returns the [ratelimit.Request.Client] of calls from addr for which Config.Client returns no client. Use it
// with [ratelimit.RateLimiter.Reset].
func (i *Interceptor) Client(addr netip.Addr) string { return i.adapter.Client(addr) }

// Info returns what an Interceptor with Config.Info has decided on the call with the context ctx. Handlers call it. ok is
// false if no such Interceptor has granted the call.
func Info(ctx context.Context) (info *httplimit.Info, ok bool) { return httplimit.FromContext(ctx) }
