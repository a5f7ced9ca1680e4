package fiberlimit

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// An exchange stands for one request to Fiber and its response, in the form that they have in net/http, because the
// Adapter knows only net/http. All Middlewares that limit the same request share one exchange. It is an
// [http.ResponseWriter].
type exchange struct {
	c      fiber.Ctx
	values *fasthttp.RequestCtx // the context of c; the exchange is one of its user values
	own    http.Request         // has only what the Adapter reads: the method, some header fields, and the remote address
	fields http.Header          // the header fields of the response that Middlewares have set

	name, value []byte // memory for a header field; reused

	peer netip.Addr // the address of the client, without a zone, and as IPv4 if it is mapped into IPv6; zero if the connection is not TCP
	text string     // peer as a text if it is an IPv4 address; kept for other requests from this address
}

// exchangeKey is the key of the exchange among the user values of a request.
type exchangeKey struct{}

var exchanges = sync.Pool{New: func() any {
	return &exchange{own: http.Request{Header: http.Header{}, ProtoMajor: 1, ProtoMinor: 1}, fields: http.Header{}}
}}

// find returns the exchange of the request of c, or nil if the request has none yet.
func find(c fiber.Ctx) *exchange {
	x, _ := c.RequestCtx().UserValue(exchangeKey{}).(*exchange)
	return x
}

// enter returns the exchange of the request of c. If the request has none yet, enter makes one and returns true as begun.
// The caller must then call leave after the request.
func enter(c fiber.Ctx) (x *exchange, begun bool) {
	if x = find(c); x != nil {
		return x, false
	}
	x = exchanges.Get().(*exchange)
	x.c, x.values = c, c.RequestCtx()
	x.values.SetUserValue(exchangeKey{}, x)
	return x, true
}

// leave ends the exchange.
func (x *exchange) leave() {
	x.values.RemoveUserValue(exchangeKey{})
	x.c, x.values = nil, nil
	clear(x.fields)
	exchanges.Put(x)
}

// request returns the request as net/http would describe it. It sets x.peer.
func (x *exchange) request(m *Middleware) *http.Request {
	r, from := &x.own, x.c.RequestCtx()
	r.Method, r.RemoteAddr = x.c.Method(), ""
	clear(r.Header)
	m.copyFields(r.Header, x.c)
	ctx, peer := x.c.Context(), netip.Addr{}
	switch addr := from.RemoteAddr().(type) {
	case *net.TCPAddr:
		peer = addr.AddrPort().Addr().Unmap().WithZone("")
	case *net.UnixAddr:
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, from.LocalAddr())
	case nil:
	default:
		r.RemoteAddr = addr.String()
	}
	if peer != x.peer {
		x.peer, x.text = peer, ""
		if peer.Is4() {
			x.text = peer.String()
		}
	}
	if ctx != context.Background() {
		return r.WithContext(ctx)
	}
	return r
}

// Peer implements connection.Peer: it returns the address of the client's end of a TCP connection, and a text of it.
func (x *exchange) Peer() (addr netip.Addr, text string) { return x.peer, x.text }

// copyFields copies the header fields that the Adapter reads from the request of c to h.
func (m *Middleware) copyFields(h http.Header, c fiber.Ctx) {
	anyCase := c.App().Config().DisableHeaderNormalizing
	for key, value := range c.Request().Header.All() {
		if name := m.reads(key, anyCase); name != "" {
			h[name] = append(h[name], string(value))
		}
	}
}

// reads returns the canonical name of the header field with this key. It returns an empty string if the Adapter does not
// read the field. If anyCase is true, the key may be written in any case; otherwise it is canonical.
func (m *Middleware) reads(key []byte, anyCase bool) string {
	for _, name := range m.fields {
		if string(key) == name || anyCase && len(key) == len(name) && strings.EqualFold(string(key), name) {
			return name
		}
	}
	return ""
}

// Header returns the header fields that Middlewares have set.
func (x *exchange) Header() http.Header { return x.fields }

// WriteHeader sets the status and the header fields of the response.
func (x *exchange) WriteHeader(status int) {
	x.send()
	x.c.Status(status)
}

// Write appends to the body of the response.
func (x *exchange) Write(p []byte) (int, error) {
	x.c.Response().AppendBody(p)
	return len(p), nil
}

// send sets the header fields in Fiber's response, in place of the values that an earlier call has set. If a field has
// several values, for example from two Middlewares, send joins them to one line with the same meaning. It does not write
// several lines, because Fiber cannot replace several lines without changing the order of other fields.
func (x *exchange) send() {
	for name, values := range x.fields {
		x.sendField(name, values)
	}
}

// sendField sets a header field in Fiber's response. The name is canonical and the values have no line breaks, because the
// Adapter has written them.
func (x *exchange) sendField(name string, values []string) {
	x.name, x.value = append(x.name[:0], name...), append(x.value[:0], values[0]...)
	for _, value := range values[1:] {
		x.value = append(append(x.value, ", "...), value...)
	}
	x.c.Response().Header.SetCanonical(x.name, x.value)
}
