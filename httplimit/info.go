package httplimit

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Info describes the decision of a [Middleware] on one request. If [Config.Info] is set, handlers get it
// from [FromContext]. It must not be changed.
type Info struct {
	// Request is the request that the limiter has decided.
	Request ratelimit.Request

	// Addr is the whole address of the client, even if only a prefix of it identifies the client. It is the
	// zero Addr if the address is unknown.
	Addr netip.Addr

	// Result is the answer of the limiter. A leaky bucket sets its Delay, the time for which the request
	// should wait. The Middleware does not wait: a handler that wants to obey the Delay must wait itself.
	Result ratelimit.Result

	// Rules has the answer of each rule that is enforced, in the order of the rules.
	Rules []ratelimit.Result

	// Status is the HTTP status of a denial: 429, or 503 if all rules that denied did
	// so by [ratelimit.FailClosed]. It is 0 if the request was granted.
	Status int

	outer    time.Duration // a time after which all outer Middlewares, which have granted the request, would grant a retry
	late     float64       // the random fraction by which the client is told to wait longer, at most Config.Jitter
	wait     time.Duration // what Wait returns
	violated *string       // the names of the visible rules that denied, as JSON strings with commas; nil for a grant
}

// Wait returns for how long the client of a denied request is told to wait. Retry-After has the same time, rounded up to
// seconds. The time is long enough for the Middlewares further out, too, and includes what [Config.Jitter] adds. It is
// [ratelimit.Never] if no wait is long enough, and 0 if the request was granted.
func (i *Info) Wait() time.Duration { return i.wait }

// Violated returns the names of the rules that denied the request, except those that are hidden from clients, in the
// order in which the header fields show them.
func (i *Info) Violated() (rules []string) {
	if i.violated != nil {
		_ = json.Unmarshal([]byte("["+*i.violated+"]"), &rules) // there is no error: violated has what json.Marshal wrote
	}
	return rules
}

// FromContext returns the Info of the request that has the context ctx. ok is false if no
// Middleware with [Config.Info] has granted the request. If several such Middlewares have granted
// it, FromContext returns the Info of the innermost one.
func FromContext(ctx context.Context) (info *Info, ok bool) {
	c := carrierOf(ctx)
	for c != nil && !c.owner.config.Info {
		c = c.outer
	}
	if c == nil {
		return nil, false
	}
	if c.info.Rules != nil || c.info.Result.Rule == "" {
		return &c.info, true
	}
	whole := c.info // a copy, because other goroutines may read c.info meanwhile
	whole.Rules = []ratelimit.Result{whole.Result}
	return &whole, true
}

// A carrier is the context that the next handler gets, with the Info. It also contains the copy of the
// request with this context, so that both take one allocation. A request gets a carrier only if Config.Info
// is set, or if inFlight, the table of the responses that are being served, has no free place.
type carrier struct {
	context.Context // the context of the original request

	request http.Request // the copy of the request for the next handler
	owner   *Middleware
	outer   *carrier      // the carrier in the context of the original request, or nil
	header  http.Header   // the header of the response
	wait    time.Duration // how long until the owner would grant such a request once more
	info    Info          // zero if Config.Info is false; Rules is nil if a single rule granted the request
}

// carrierKey is the context key under which Value returns the innermost carrier.
type carrierKey struct{}

// Value returns c itself if key is a carrierKey, and otherwise the value in the context of the original
// request.
func (c *carrier) Value(key any) any {
	if _, ok := key.(carrierKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// carrierOf returns the innermost carrier (context of a Middleware) among ctx and its parents, or nil.
func carrierOf(ctx context.Context) *carrier {
	c, _ := ctx.Value(carrierKey{}).(*carrier)
	return c
}

// carry returns a copy of the request r. The context of the copy is a new carrier, by which a Middleware
// further in finds out that m is serving the response. If Config.Info is set, the carrier also has the
// Info of v, for FromContext.
func (m *Middleware) carry(r *http.Request, v *visit) *http.Request {
	c := &carrier{Context: r.Context(), owner: m, outer: v.outer, header: v.header, wait: v.own}
	if m.config.Info {
		c.info = v.info
	}
	c.request = *r.WithContext(c)
	return &c.request
}

// A visit contains what a Middleware knows of one request while it decides. The functions of a Config get
// pointers only to copies of the visit's fields, so that the visit itself can stay on the stack.
type visit struct {
	hooks   hooks       // the functions of the Config, for this request
	outer   *carrier    // the innermost carrier (context of a Middleware) of the request, or nil
	header  http.Header // the header of the response
	address uintptr     // the address of the map in the field header
	rules   *policies   // the rules of the limiter
	follows bool        // whether a Middleware further out is serving the same response
	repeats bool        // whether this Middleware is already serving the same response
	inside  bool        // whether the decision is for a call of Allow or Reserve by a handler
	skipped bool        // whether the client is in one of Config.SkipNetworks; set by identify

	// doubtful is the IP that identify has stored in the Request, if it may belong to a proxy that
	// Config.Proxies does not trust. Otherwise it is empty.
	doubtful string

	info Info          // what is known so far; the method keep sets Result and Rules
	own  time.Duration // a time after which this Middleware would grant the request again; set by mark

	fields *[2]string // memory for the values of header fields
	used   int        // how many elements of this memory are in use
}

// visit returns what m knows of the request r before it decides. header is the header of the response.
func (m *Middleware) visit(x hooks, r *http.Request, header http.Header) visit {
	v := visit{hooks: x, outer: carrierOf(r.Context()), header: header, address: addressOf(header), rules: m.policies()}
	v.follows, v.repeats, v.info.outer = m.serving(v.address, v.outer)
	return v
}

// set sets the header field with this canonical name to value. The slice that it stores has no spare
// capacity, so a later Header.Add does not overwrite the next field's memory.
func (v *visit) set(name, value string) {
	if v.fields == nil || v.used == len(v.fields) {
		v.fields, v.used = new([2]string), 0
	}
	i := v.used
	v.fields[i] = value
	v.header[name] = v.fields[i : i+1 : i+1]
	v.used++
}

// keep stores the answer of the limiter in the Info. If the request was denied, or if asked is true
// (Config.Info is set), keep also stores the answers of the rules in Info.Rules. There is one exception:
// if only one rule applied, and it granted the request, Info.Rules stays nil, and FromContext makes the
// slice from Info.Result.
func (v *visit) keep(res ratelimit.Result, each []ratelimit.Result, asked bool) {
	v.info.Result = res
	if !res.Allowed || asked && (len(each) != 1 || each[0] != res || res.Rule == "") {
		v.info.Rules = slices.Clone(each)
	}
}
