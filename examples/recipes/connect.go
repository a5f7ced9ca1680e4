package recipes

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A forConnect is an interceptor that limits a server of Connect. A rule's endpoint is the procedure,
// such as "/shop.v1.Items/Get". A stream counts as one request, which is charged when it is opened.
type forConnect struct {
	limiter *ratelimit.RateLimiter
	address *httplimit.Middleware // turns the address of a client into the client's key in the limiter
	proxies httplimit.Proxies
}

// WrapUnary limits calls.
func (i *forConnect) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if !req.Spec().IsClient {
			if err := i.limit(ctx, req.Spec(), req.Peer(), req.Header()); err != nil {
				return nil, err
			}
		}
		return next(ctx, req)
	}
}

// WrapStreamingHandler limits streams.
func (i *forConnect) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := i.limit(ctx, conn.Spec(), conn.Peer(), conn.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}

// WrapStreamingClient changes nothing.
func (i *forConnect) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// limit returns an error unless the rules grant the call.
func (i *forConnect) limit(ctx context.Context, spec connect.Spec, peer connect.Peer, header http.Header) error {
	from, _ := netip.ParseAddrPort(peer.Addr)
	client := i.address.Client(i.proxies.Addr(from.Addr(), header.Values("X-Forwarded-For")))
	res, err := i.limiter.Check(ctx, ratelimit.Request{
		Client:   client,
		IP:       strings.TrimPrefix(client, "ip:"),
		Endpoint: spec.Procedure,
	})
	if res.Allowed {
		return nil // if err is not nil, the store has failed; the request is allowed all the same
	}
	denied := connect.NewError(connect.CodeResourceExhausted, errors.New("too many requests"))
	switch httplimit.Status(i.limiter, err, res) {
	case http.StatusServiceUnavailable: // either the call has ended, or the store has failed and FailClosed denies all requests
		denied = connect.NewError(connect.CodeUnavailable, errors.New("temporarily unavailable"))
	case http.StatusInternalServerError:
		return connect.NewError(connect.CodeInternal, errors.New("the limiter could not decide"))
	}
	if res.RetryAfter < ratelimit.Never {
		if detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(res.RetryAfter)}); err == nil {
			denied.AddDetail(detail)
		}
	}
	return denied
}
