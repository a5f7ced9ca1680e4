package httplimit

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/running"
)

// A Middleware limits the requests to HTTP handlers. [New] makes one.
//
// Several Middlewares can limit the same request. For example, one Middleware limits by address before
// the authentication, and another Middleware limits by user after the authentication. Both charge the
// request. A request that reaches the same Middleware twice is charged once.
type Middleware struct {
	limiter    *ratelimit.RateLimiter
	number     uint64   // the number of this Middleware among all Middlewares of the process, counted from 1
	config     Config   // the Config from New with its defaults filled in, except for Endpoint
	forwarding string   // the canonical name of the header field in which proxies send the address of the client
	unproxied  bool     // whether Config.Proxies trusts no proxy at all
	own        *handler // the functions of the Config, for Allow and Reserve; without a next handler
	shown      atomic.Pointer[policies]
	checked    checked
	counting   atomic.Int64  // number of requests now running whose units may be given back by Config.Count
	unasked    atomic.Uint64 // how many requests had lacked the unit of a rule, at the last count by warnOfUnits
	logs       logs
}

// Handler returns a handler that limits the requests to next by the rules of the limiter l, with the zero
// [Config]. If next is a [Router], such as an [http.ServeMux], the Endpoint of a request is the path of the
// pattern that matches the request, such as "/users/{id}". Handler panics if next is nil, if l is nil, or if
// l has no rules.
func Handler(next http.Handler, l *ratelimit.RateLimiter) http.Handler {
	m, err := New(l, Config{})
	if err != nil {
		panic(err)
	}
	return m.Handler(next)
}

// middlewares is the number of Middlewares that this process has made.
var middlewares atomic.Uint64

// defaultIPv6Bits is the default of Config.IPv6Bits.
const defaultIPv6Bits = 64

func newMiddleware(l *ratelimit.RateLimiter, c Config) *Middleware {
	if c.IPv6Bits == 0 {
		c.IPv6Bits = defaultIPv6Bits
	}
	if c.BusyRetry == 0 {
		c.BusyRetry = time.Second
	}
	if c.Denied == nil {
		c.Denied = Problem
	}
	m := &Middleware{limiter: l, number: middlewares.Add(1), config: c, forwarding: forwardedFor, unproxied: c.Proxies.zero()}
	if c.Proxies.Header != "" {
		m.forwarding = http.CanonicalHeaderKey(c.Proxies.Header)
	}
	m.own = &handler{m, nil, c.Endpoint}
	if m.own.route == nil {
		m.own.route = Route(nil)
	}
	m.logs.init(c.Log)
	return m
}

// Handler returns a handler that calls next for each request that the rules grant. It answers the requests
// that the rules deny. It panics if next is nil.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: the next handler is nil")
	}
	h := &handler{m, next, m.own.route}
	if mux, ok := next.(Router); ok && m.config.Endpoint == nil {
		h.route = routeOf(mux)
		m.checkHandler(mux)
	}
	return h
}

// limit calls the next handlers, with x.next, if the rules grant r. Otherwise it answers r.
func (m *Middleware) limit(x hooks, w http.ResponseWriter, r *http.Request) {
	if x.skip(r) {
		x.next(w, r, nil)
		return
	}
	v := m.visit(x, r, w.Header())
	if v.repeats {
		m.logs.once(warnTwice)
		x.next(w, r, nil)
		return
	}
	m.identify(r, &v)
	if v.skipped {
		x.next(w, r, nil)
		return
	}
	v.info.Request.Endpoint = x.endpoint(r)
	if m.config.Prepare != nil {
		prepare(x, r, &v.info.Request)
	}
	var term time.Duration // how long units can be given back; 0 if they are charged for good
	if m.config.Count != nil || v.rules.holds > 0 {
		term = countTerm
	}
	verdict, units := m.decide(w, r, &v, term, false)
	switch verdict {
	case passed:
		m.serve(w, r, &v, units)
	case undecided:
		x.next(w, r, nil)
	case answered:
	}
}

// The function prepare lets Config.Prepare change req. It passes a pointer to a copy, so that only the copy is
// allocated on the heap, and req can stay on the stack.
func prepare(x hooks, r *http.Request, req *ratelimit.Request) {
	prepared := *req
	x.prepare(r, &prepared)
	*req = prepared
}

// serve calls the next handlers with the granted request r. units is the Reservation of r, or nil if r was charged
// without one. A Reservation is needed in two cases. In the first case, Config.Count is set: it decides, with the
// status of the response, whether the units stay charged. In the second case, a rule limits how many requests run at
// once: the rule counts r until the next handler returns.
func (m *Middleware) serve(w http.ResponseWriter, r *http.Request, v *visit, units *ratelimit.Reservation) {
	inner := r
	if m.config.Info {
		inner = m.carry(r, v)
	} else if p := m.takePlace(v.address, v.own); p != nil {
		defer p.leave(v.header)
	} else {
		inner = m.carry(r, v)
	}
	before := r.Pattern
	if inner != r {
		defer copyBack(r, inner) // runs even if next panics
	}
	if units != nil && v.rules.holds > 0 {
		defer m.hold(units, v.rules.holds)()
	}
	if units == nil || m.config.Count == nil {
		v.hooks.next(w, inner, nil)
	} else {
		m.count(w, inner, v, units)
	}
	if inner.Pattern != before {
		m.compare(v.info.Request.Endpoint, pathOf(inner.Pattern))
	}
}

// copyBack copies two fields from inner to r. The server has made r. The handlers got inner, which is a
// copy of r, and may have set these fields in the copy.
func copyBack(r, inner *http.Request) {
	if inner.MultipartForm != nil {
		r.MultipartForm = inner.MultipartForm // the server removes only the temporary files of r, the request that it has made
	}
	r.Pattern = inner.Pattern // outer handlers read the Pattern of r, not of inner
}

// compare logs a warning, once, if a router inside the next handler has found another route than the endpoint by
// which the request was limited. It warns in two cases. The first case is that the endpoint is "unmatched", and
// [Config.Endpoint] is nil. The second case is that a rule has the route as its Endpoint: this rule has not limited
// the request. If [Config.Endpoint] is set, an endpoint may be a name that is no route. Then compare warns only if the
// endpoint is "unmatched" and a rule has the route.
func (m *Middleware) compare(endpoint, route string) {
	own := m.config.Endpoint != nil
	switch {
	case endpoint == route, own && endpoint != unmatched:
		return
	case endpoint == unmatched && !own:
		m.logs.once(warnUnmatched)
		return
	}
	if rule := m.policies().endpoints[route]; rule != "" && !m.logs.warned[warnRoute].Load() {
		m.logs.once(warnRoute, "rule", rule, "endpoint", endpoint, "route", route)
	}
}

// Allow asks the limiter whether to grant req. A handler calls it, for example to charge one more unit
// after a wrong password. Allow returns true if the limiter grants req, or if the limiter fails and
// [Config.Error] lets the request pass. If Allow returns false, it has already answered the request,
// and the handler must return.
//
// If the Client, the IP or the Endpoint of req is empty, Allow fills it in as [Middleware.Handler]
// does. With an empty Client, it also fills in an empty Tier. If [Config.Endpoint] is nil, the Endpoint
// is the path of r.Pattern. A name in Client that begins with "ip:" or "id:" gets the prefix "id:", so
// that it cannot equal the name of an address. [Config.Skip] and [Config.Prepare] are not called. A request
// from one of [Config.SkipNetworks] is granted. After several calls for one response, the header fields
// show for each rule what was left after the last call.
func (m *Middleware) Allow(w http.ResponseWriter, r *http.Request, req ratelimit.Request) bool {
	return m.allow(m.own, w, r, req)
}

// The method allow does the work of Allow, with the functions of x.
func (m *Middleware) allow(x hooks, w http.ResponseWriter, r *http.Request, req ratelimit.Request) bool {
	v := m.within(x, w, r, req)
	if v.skipped {
		return true
	}
	verdict, _ := m.decide(w, r, &v, 0, false)
	return verdict != answered
}

// Reserve reserves the units of req. The handler settles them later. A handler calls Reserve, for example, to reserve the
// highest cost that its answer may have. If ok is false, Reserve has answered the request, as [Middleware.Allow]
// does, and the handler must return. If ok is true, the handler must end the Reservation, by a call of
// [ratelimit.Reservation.Done] or of a method that settles how many units were used. The call should be deferred, so
// that it also runs if the handler panics.
//
// Units can be given back within term, as [ratelimit.RateLimiter.Reserve] says. Reserve fills in empty fields of req
// as Allow does. If a rule limits how many requests run at once, Reserve extends the Reservation at the interval of
// [Config.HoldExtend], until the context of r ends.
//
// If the limiter fails to decide and [Config.Error] lets the request pass, or the client is in one of
// [Config.SkipNetworks], the Reservation is nil and ok is true. All methods of a nil Reservation do nothing.
func (m *Middleware) Reserve(
	w http.ResponseWriter, r *http.Request, req ratelimit.Request, term time.Duration,
) (units *ratelimit.Reservation, ok bool) {
	return m.reserve(m.own, w, r, req, term)
}

// The method reserve does the work of Reserve, with the functions of x.
func (m *Middleware) reserve(
	x hooks, w http.ResponseWriter, r *http.Request, req ratelimit.Request, term time.Duration,
) (units *ratelimit.Reservation, ok bool) {
	v := m.within(x, w, r, req)
	if v.skipped {
		return nil, true
	}
	verdict, units := m.decide(w, r, &v, term, true)
	if verdict == passed && v.rules.holds > 0 {
		stop := running.Extend(units, m.config.HoldExtend, v.rules.holds, ratelimit.ErrSettled, m.settleFailed)
		context.AfterFunc(r.Context(), stop)
	}
	return units, verdict != answered
}

// within prepares a call of Allow or Reserve for req, by the handler of r. It fills in the empty fields
// of req, and returns a visit (what is known of the request while it is decided).
func (m *Middleware) within(x hooks, w http.ResponseWriter, r *http.Request, req ratelimit.Request) visit {
	v := m.visit(x, r, w.Header())
	v.inside = true
	m.identify(r, &v)
	own := &v.info.Request
	switch {
	case req.Client == "":
		req.Client = own.Client
		if req.Tier == "" {
			req.Tier = own.Tier
		}
	case req.Client != own.Client && req.Client != addressPrefix+own.IP:
		req.Client = escapeClient(req.Client)
	}
	if req.IP == "" {
		req.IP = own.IP
	}
	if req.Endpoint == "" {
		req.Endpoint = x.endpoint(r)
	}
	*own = req
	return v
}

// A verdict says what happens to a request after the limiter has been asked.
type verdict int

const (
	answered  verdict = iota // the request was denied or the limiter failed, and the client has its answer
	passed                   // the request was granted
	undecided                // the limiter failed, and Config.Error lets the request pass
)

// decide asks the limiter about the request and sets the header fields. If the request may not pass, decide
// answers it.
//
// The parameter asked is true if the handler has called Reserve. If asked is true or term is above 0, decide
// reserves the units for this term, and returns the Reservation if the request is granted. If the rules cannot
// give units back, decide fails for a call of Reserve, and charges any other request without a Reservation.
func (m *Middleware) decide(
	w http.ResponseWriter, r *http.Request, v *visit, term time.Duration, asked bool,
) (verdict, *ratelimit.Reservation) {
	var memory [4]ratelimit.Result
	var res ratelimit.Result
	var each []ratelimit.Result
	var units *ratelimit.Reservation
	var err error
	reserve := asked || term > 0
	ctx, doubt := v.context(r.Context())
	switch {
	case reserve && !asked && v.rules.holds > 0 && v.info.Request.ID != "":
		return m.fail(w, r, v.hooks, errHeldID), nil
	case reserve:
		units, err = m.limiter.Reserve(ctx, v.info.Request, term)
		res, each = units.Result(), units.Results()
		reserve = units != nil || asked || !errors.Is(err, ratelimit.ErrInvalidConfig)
	}
	if refused := err; !reserve { // charge without a Reservation; refused is why the limiter could not make a Reservation, or nil
		if res, each, err = m.limiter.CheckAll(ctx, v.info.Request, memory[:0]); refused != nil && err == nil {
			m.logs.often(logCount, refused)
		}
	}
	if doubt != nil && doubt.Met() {
		m.logs.once(warnExempt)
	}
	if err != nil {
		if res == (ratelimit.Result{}) {
			return m.fail(w, r, v.hooks, err), nil
		}
		m.logs.decided(err)
	}
	each = slices.DeleteFunc(each, func(res ratelimit.Result) bool { return res.Advised }) // rules in ModeAdvise deny no requests
	v.keep(res, each, m.config.Info)
	rules := v.rules
	if rules.units {
		m.warnOfUnits()
	}
	if tier := v.info.Request.Tier; tier != "" && rules.tiers != nil && !rules.tiers[tier] {
		m.logs.tier(tier)
	}
	m.mark(v, rules, each)
	if res.Allowed {
		return passed, units
	}
	v.info.Status = rules.status(each)
	m.deny(w, r, v)
	return answered, nil
}

// deny answers a request that was denied: it sets Retry-After, and calls Config.Denied or Config.Blocked.
func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, v *visit) {
	v.set("Cache-Control", "no-store")
	v.info.wait = ratelimit.Never // the request would be denied after any wait
	if res := &v.info.Result; res.RetryAfter != ratelimit.Never {
		wait := res.RetryAfter
		if res.Reason == ratelimit.ReasonBusy {
			wait = min(wait, m.config.BusyRetry+rand.N(m.config.BusyRetry))
		}
		// Wait long enough for the Middlewares further out, too: a retry must pass them before it comes to this Middleware.
		v.info.wait = v.info.later(max(wait, v.info.outer))
		v.set("Retry-After", decimal(seconds(v.info.wait)))
	}
	info := v.info // a copy, so that only the copy is on the heap, and v stays on the stack
	v.hooks.deny(w, r, &info)
}

// fail handles a request for which the limiter returned err and no decision.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, x hooks, err error) verdict {
	if ended := r.Context().Err(); ended != nil && errors.Is(err, ended) {
		// The client has left, or an outer handler's time limit has passed.
		writeProblem(w, r, http.StatusServiceUnavailable, "", nil)
		return answered
	}
	if x.forgives(r, err) {
		m.logs.undecided(logPassed, err)
		return undecided
	}
	m.logs.undecided(logRefused, err)
	writeProblem(w, r, http.StatusInternalServerError, "", nil)
	return answered
}
