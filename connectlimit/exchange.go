package connectlimit

import (
	"context"
	"net/http"
)

// An exchange is a call as net/http would describe it to the Adapter, and what Interceptors have answered. All
// Interceptors of a call share one. It is the context of the call, and an [http.ResponseWriter].
type exchange struct {
	context.Context // the context of the call

	call   Call
	own    http.Request // the call as net/http would describe it; its context is the exchange
	fields http.Header  // the header fields of the response that Interceptors have set
	status int          // the HTTP status with which an Interceptor has answered; 0 if none has
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

// enter returns an exchange for an Interceptor that gets a call. It has the header fields of the Interceptors further
// out.
func enter(ctx context.Context, call Call, method string) *exchange {
	x := &exchange{Context: ctx, call: call}
	x.call.Context = ctx
	r := http.Request{
		Method: method, Header: call.Header, RemoteAddr: call.Peer.Addr, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	x.own = *r.WithContext(x)
	if outer := find(ctx); outer != nil {
		x.fields = outer.fields
	} else {
		x.fields = make(http.Header)
	}
	return x
}

// Header returns the header fields that Interceptors have set.
func (x *exchange) Header() http.Header { return x.fields }

// WriteHeader notes the status of an answer, from which the method answer makes an error.
func (x *exchange) WriteHeader(status int) { x.status = status }

// Write drops the document of an answer: a client of Connect gets an error.
func (x *exchange) Write(p []byte) (int, error) { return len(p), nil }
