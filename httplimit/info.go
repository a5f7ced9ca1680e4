package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"reflect"
	"slices"

	"github.com/ratelimit-go/ratelimit"
)

// An Info is what a [Middleware] has decided on a request, and by what. A handler gets it by
// [FromContext], and must not change it.
type Info struct {
	// Request is what was asked.
	Request ratelimit.Request

	// Addr is the whole address that the request comes from, or the zero Addr
	// if it has none.
	Addr netip.Addr

	// Result is the answer. Its Delay, of a leaky bucket, is left to the handler.
	Result ratelimit.Result

	// Rules are the answers of the rules that enforce, one for each, in their order.
	Rules []ratelimit.Result

	// Status is the status of a denial: 429, or 503 if it is not the client who
	// has asked too often, but the store that cannot be reached. It is 0 if the
	// request was granted.
	Status int

	violated *string // the names of the rules that denied and are shown, as JSON, or nil
}

// FromContext returns the Info about the request whose context is ctx. ok is false if no
// Middleware has decided on it. If several have, it is that of the innermost.
func FromContext(ctx context.Context) (info *Info, ok bool) {
	v := visitOf(ctx)
	if v == nil {
		return nil, false
	}
	if v.info.Rules != nil || v.info.Result.Rule == "" {
		return &v.info, true
	}
	whole := v.info // a copy, as others may read it
	whole.Rules = []ratelimit.Result{whole.Result}
	return &whole, true
}

// A visit is one request in one Middleware. It is the context of the request for the next
// handler, and holds that request, so that both are one allocation. It is most of what a request
// costs in memory, so it has nothing that can be found elsewhere.
type visit struct {
	context.Context // that of the request before; nil in Allow

	request http.Request // for the next handler, made when it is called
	owner   *Middleware
	outer   *visit      // the visit around this one, or nil
	header  http.Header // of the response
	info    Info        // without its Rules if the only one is its Result

	fields [2]string // memory for the values of header fields
}

// visitKey is the key of the innermost visit.
type visitKey struct{}

// Value returns v itself for a visitKey.
func (v *visit) Value(key any) any {
	if _, ok := key.(visitKey); ok {
		return v
	}
	return v.Context.Value(key)
}

// visitOf returns the innermost visit that ctx belongs to, or nil.
func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// newVisit returns the visit of r, whose response has this header, to m.
func newVisit(m *Middleware, r *http.Request, header http.Header) *visit {
	ctx := r.Context()
	return &visit{Context: ctx, owner: m, outer: visitOf(ctx), header: header}
}

// repeats reports whether the same response has been in the same Middleware already. The
// parts of a batch have responses of their own.
func (v *visit) repeats() bool {
	for outer := v.outer; outer != nil; outer = outer.outer {
		if outer.owner == v.owner && sameHeader(outer.header, v.header) {
			return true
		}
	}
	return false
}

// follows reports whether another Middleware has written to the same header.
func (v *visit) follows() bool { return v.outer != nil && sameHeader(v.outer.header, v.header) }

// inside reports whether v is about a call of Allow, which hands no context on.
func (v *visit) inside() bool { return v.Context == nil }

// sameHeader reports whether a and b are the same map.
func sameHeader(a, b http.Header) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// set sets a header field, whose name is canonical, to value, which is not empty. The first two
// take no allocation. A later Add to the field copies it.
func (v *visit) set(name, value string) {
	for i := range v.fields {
		if v.fields[i] == "" {
			v.fields[i] = value
			v.header[name] = v.fields[i : i+1 : i+1]
			return
		}
	}
	v.header[name] = []string{value}
}

// keep notes the answer, and those of the rules. Most requests have one rule, whose answer is the
// same.
func (v *visit) keep(res ratelimit.Result, each []ratelimit.Result) {
	v.info.Result = res
	if len(each) != 1 || each[0] != res || res.Rule == "" || !res.Allowed {
		v.info.Rules = slices.Clone(each)
	}
}
