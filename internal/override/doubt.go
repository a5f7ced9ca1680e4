package override

import (
	"context"
	"sync/atomic"
)

// A Doubt is the context of a request whose address may be that of a proxy which nobody has declared. An exemption of that
// address would exempt all clients behind the proxy, so it must not apply to the request.
type Doubt struct {
	context.Context
	client bool        // whether the client of the request was named after the address
	met    atomic.Bool // whether an exemption did not apply because of the Doubt
}

// NewDoubt returns a Doubt with the values, the deadline and the end of the context ctx. client is true if the client of
// the request was named after the address: then no exemption of the client applies either.
func NewDoubt(ctx context.Context, client bool) *Doubt { return &Doubt{Context: ctx, client: client} }

// InDoubt returns the context with which a limiter decides on a request from the address ip by this client. ctx is the
// request's own context. doubtful is an address that may be that of a proxy, or "" if there is none. If ip is this address,
// the result is a Doubt, so that exemptions of the address do not apply. named is the name that a client has if it is named
// after the doubtful address. If ip is another address, for example one that the service has set itself, the result is ctx,
// and doubt is nil.
func InDoubt(ctx context.Context, doubtful, ip, client, named string) (_ context.Context, doubt *Doubt) {
	if doubtful == "" || ip != doubtful {
		return ctx, nil
	}
	doubt = NewDoubt(ctx, client == named)
	return doubt, doubt
}

// doubtKey is the context key under which Value returns the Doubt itself.
type doubtKey struct{}

// Value returns d if key asks for the Doubt, and otherwise the value of the context that d was made from.
func (d *Doubt) Value(key any) any {
	if _, ok := key.(doubtKey); ok {
		return d
	}
	return d.Context.Value(key)
}

// Met reports whether an exemption did not apply because of d.
func (d *Doubt) Met() bool { return d.met.Load() }

// DoubtOf returns the Doubt among ctx and its parents, or nil.
func DoubtOf(ctx context.Context) *Doubt {
	d, _ := ctx.Value(doubtKey{}).(*Doubt)
	return d
}

// Refuses reports whether the override e must not apply because of d, which may be nil. Only exemptions are refused.
func (d *Doubt) Refuses(e *Entry) bool {
	if d == nil || e.Effect != Exempt || !d.client && !e.prefix.IsValid() {
		return false
	}
	d.met.Store(true)
	return true
}
