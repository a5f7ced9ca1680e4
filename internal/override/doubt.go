package override

import (
	"context"
	"sync/atomic"
)

// A Doubt is the context of a request whose address may be the address of a proxy that nobody has declared. An
// exemption of that address would exempt all clients behind the proxy, so such an exemption must not apply to the
// request.
type Doubt struct {
	context.Context
	client bool        // whether the client of the request was named after the address
	met    atomic.Bool // whether an exemption did not apply because of the Doubt
}

// NewDoubt returns a Doubt that has the values and the deadline of the context ctx, and ends when ctx ends. The parameter client
// is true if the client of the request was named after the address. In this case, no exemption of the client applies either.
func NewDoubt(ctx context.Context, client bool) *Doubt { return &Doubt{Context: ctx, client: client} }

// InDoubt returns the context with which a limiter decides on a request of this client from the address ip. The parameter
// ctx is the request's own context. The parameter doubtful is an address that may be the address of a proxy, or "" if there
// is no doubt.
//
// If ip is the doubtful address, InDoubt returns a Doubt as both results. Exemptions of the address then do not apply. A client
// may have got its name from this address; that name is in the last parameter. If the client has this name, exemptions of the
// client do not apply either.
//
// If ip is another address, for example one that the service has set itself, InDoubt returns ctx and a nil Doubt.
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
