package connectlimit

import (
	"context"
	"net/http"

	"connectrpc.com/connect"
)

// An exchange stands for one call, in the form of an HTTP request and its response, because the Adapter knows only HTTP.
// Each Interceptor makes an exchange for a call; all exchanges of the call share one set of header fields. The exchange is
// the [http.ResponseWriter] for the Adapter, and the context of the call for handlers.
type exchange struct {
	context.Context // the context of the call

	call   Call
	own    *http.Request // the call as net/http would describe it; its context is the exchange
	fields http.Header   // the header fields of the response that the Interceptors have set

	// The fields unary and request are set for a unary call. The field response is set when its next handler has returned.
	unary    connect.UnaryFunc
	request  connect.AnyRequest
	response connect.AnyResponse

	// The fields stream and conn are set for a stream.
	stream connect.StreamingHandlerFunc
	conn   connect.StreamingHandlerConn
}

// exchangeKey is the context key under which Value returns the exchange.
type exchangeKey struct{}

// Value returns x itself if key is an exchangeKey, and otherwise the value in the context of the call.
func (x *exchange) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return x
	}
	return x.Context.Value(key)
}

// find returns the exchange of the call with the context ctx, or nil.
func find(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// enter returns a new exchange for an Interceptor that gets a call. The exchange shares its header fields with the
// exchanges of the Interceptors further out.
func enter(ctx context.Context, call Call, method string) *exchange {
	x := &exchange{Context: ctx, call: call}
	x.call.Context, x.call.exchange = ctx, x
	r := http.Request{
		Method: method, Header: call.Header, RemoteAddr: call.Peer.Addr, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	x.own = r.WithContext(x)
	if outer := find(ctx); outer != nil {
		x.fields = outer.fields
	} else {
		x.fields = make(http.Header)
	}
	return x
}

// Header returns the header fields that Interceptors have set.
func (x *exchange) Header() http.Header { return x.fields }

// WriteHeader does nothing: the client gets the error that the method answer returns, and Connect makes the status from it.
func (x *exchange) WriteHeader(int) {}

// Write drops p, which is a part of a problem document: a Connect client gets an error instead.
func (x *exchange) Write(p []byte) (int, error) { return len(p), nil }
