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
// Several Middlewares can limit the same request. For example, one limits by address before the
// authentication, and another limits by user after it. Each of them charges the request. A request
// that reaches the same Middleware twice is charged once.
type Middleware struct {
	limiter    *ratelimit.RateLimiter
	number     uint64 // the number of this Middleware among all Middlewares of the process, counted from 1
	config     Config // the Config from New with its defaults filled in, except for Endpoint
	forwarding string // the name of the forwarding header, in canonical form
	unproxied  bool   // whether Proxies trusts no header
	shown      atomic.Pointer[policies]
	checked    checked
	counting   atomic.Int64  // number of requests in flight that Config.Count may give back
	unasked    atomic.Uint64 // RuleStats.NotAsked of all rules, when it was logged last
	logs       logs
}

// Handler returns a handler that limits the requests to next by the rules of the limiter l, with the zero
// [Config]. If next is a [Router], such as an [http.ServeMux], the paths of its patterns are the endpoints.
// Handler panics if next is nil, if l is nil, or if l has no rules.
func Handler(next http.Handler, l *ratelimit.RateLimiter) http.Handler {
	m, err := New(l, Config{})
	if err != nil {
		panic(err)
	}
	return m.Handler(next)
}

// middlewares is the number of Middlewares that this process has made.
var middlewares atomic.Uint64

func newMiddleware(l *ratelimit.RateLimiter, c Config) *Middleware {
	if c.IPv6Bits == 0 {
		c.IPv6Bits = 64
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
	m.logs.init(c.Log)
	return m
}

// Handler returns a handler that calls next for each request that the rules grant. It answers the requests
// that the rules deny. It panics if next is nil.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: the next handler is nil")
	}
	h := &handler{m, next, m.config.Endpoint}
	if h.endpoint == nil {
		h.endpoint = Route(nil)
		if mux, ok := next.(Router); ok {
			h.endpoint = routeOf(mux)
			m.checkHandler(mux)
		}
	}
	return h
}

// A handler limits the requests to one next handler.
type handler struct {
	m        *Middleware
	next     http.Handler
	endpoint func(*http.Request) string
}

// ServeHTTP calls the next handler if the rules grant r, and answers r otherwise.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := h.m
	if m.config.Skip != nil && m.config.Skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	v := m.visit(r, w.Header())
	if v.repeats {
		m.logs.once(warnTwice)
		h.next.ServeHTTP(w, r)
		return
	}
	m.identify(r, &v.info)
	v.info.Request.Endpoint = h.endpoint(r)
	if m.config.Prepare != nil {
		m.prepare(r, &v.info.Request)
	}
	var term time.Duration // if above 0, the units are reserved
	if m.config.Count != nil || v.rules.holds > 0 {
		term = countTerm
	}
	verdict, units := m.decide(w, r, &v, term, false)
	switch verdict {
	case passed:
		h.serve(w, r, &v, units)
	case undecided:
		h.next.ServeHTTP(w, r)
	case answered:
	}
}

// prepare lets Config.Prepare change req. It passes a pointer to a copy, so that only the copy is allocated
// on the heap, and req can stay on the stack.
func (m *Middleware) prepare(r *http.Request, req *ratelimit.Request) {
	prepared := *req
	m.config.Prepare(r, &prepared)
	*req = prepared
}

// serve calls the next handler with the granted request r. If Config.Count is set, or if a rule counts what is
// running, units is the reservation of the request, which ends when the handler does. Otherwise units is nil.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, v *visit, units *ratelimit.Reservation) {
	inner := r
	if h.m.config.Info {
		inner = h.m.carry(r, v)
	} else if p := h.m.takePlace(v.address, v.own); p != nil {
		defer p.leave(v.header)
	} else {
		inner = h.m.carry(r, v)
	}
	before := r.Pattern
	if inner != r {
		defer copyBack(r, inner) // runs even if next panics
	}
	if units != nil && v.rules.holds > 0 {
		defer h.m.hold(units, v.rules.holds)()
	}
	if units == nil || h.m.config.Count == nil {
		h.next.ServeHTTP(w, inner)
	} else {
		h.m.count(w, inner, v.info.Request, units, h.next)
	}
	if inner.Pattern != before {
		h.m.compare(v.info.Request.Endpoint, pathOf(inner.Pattern))
	}
}

// copyBack copies to r, the request that the server has made, what handlers have set in its copy inner.
func copyBack(r, inner *http.Request) {
	if inner.MultipartForm != nil {
		r.MultipartForm = inner.MultipartForm // the server removes the temporary files only of its own request
	}
	r.Pattern = inner.Pattern // outer handlers read it from r
}

// compare writes a warning to the log, once, if a router inside the next handler has found a route that is not
// the endpoint by which the request was limited. It does so only if the endpoint was "unmatched", or if a rule
// has the route as its Endpoint. If [Config.Endpoint] is set, both must hold, because its endpoints may be other
// names than those of the routes.
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

// Allow asks the limiter for req inside a handler, such as for one more unit after a wrong
// password. It returns true if the request was granted. If Allow returns false, it has already
// answered the request, and the handler must return.
//
// If the Client, the IP or the Endpoint of req is empty, Allow fills it in as
// [Middleware.Handler] does. With an empty Client, it also fills in an empty Tier. If
// [Config.Endpoint] is nil, the Endpoint is the path of r.Pattern. A Client that begins with
// "ip:" or "id:" gets the prefix "id:". [Config.Skip] and [Config.Prepare] are not called. After
// several calls for one response, the header fields show for each rule what was left after the
// last call.
func (m *Middleware) Allow(w http.ResponseWriter, r *http.Request, req ratelimit.Request) bool {
	v := m.within(w, r, req)
	verdict, _ := m.decide(w, r, &v, 0, false)
	return verdict != answered
}

// Reserve reserves the units of req inside a handler, such as the most that its answer may cost. If ok is false, it
// has answered the request, as [Middleware.Allow] does, and the handler must return. Otherwise, the handler must
// defer a call that ends the Reservation, so that it also runs if the handler panics or the client has left:
// [ratelimit.Reservation.Done], or one that settles what was used. The term is that of
// [ratelimit.RateLimiter.Reserve]. The fields of req are filled in as by Allow. What is in flight is extended as
// [Config.HoldExtend] says, until the context of r ends.
//
// The Reservation is nil, and ok true, if the limiter has failed to decide and [Config.Error] lets the request pass;
// all methods of a nil Reservation do nothing.
func (m *Middleware) Reserve(
	w http.ResponseWriter, r *http.Request, req ratelimit.Request, term time.Duration,
) (units *ratelimit.Reservation, ok bool) {
	v := m.within(w, r, req)
	verdict, units := m.decide(w, r, &v, term, true)
	if verdict == passed && v.rules.holds > 0 {
		stop := running.Extend(units, m.config.HoldExtend, v.rules.holds, ratelimit.ErrSettled, m.settleFailed)
		context.AfterFunc(r.Context(), stop)
	}
	return units, verdict != answered
}

// within returns a visit for a decision on req inside the handler of r.
func (m *Middleware) within(w http.ResponseWriter, r *http.Request, req ratelimit.Request) visit {
	v := m.visit(r, w.Header())
	v.inside = true
	m.identify(r, &v.info)
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
		endpoint := m.config.Endpoint
		if endpoint == nil {
			endpoint = Route(nil)
		}
		req.Endpoint = endpoint(r)
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

// decide asks the limiter about the request and sets the header fields. If the request may not pass,
// decide answers it. If asked is true or term is above 0, and the request is granted, decide also returns a
// Reservation with this term. If the rules cannot give units back, the request is decided without a
// Reservation, unless asked is true.
func (m *Middleware) decide(
	w http.ResponseWriter, r *http.Request, v *visit, term time.Duration, asked bool,
) (verdict, *ratelimit.Reservation) {
	var memory [4]ratelimit.Result
	var res ratelimit.Result
	var each []ratelimit.Result
	var units *ratelimit.Reservation
	var err error
	reserve := asked || term > 0
	switch {
	case reserve && !asked && v.rules.holds > 0 && v.info.Request.ID != "":
		return m.fail(w, r, errHeldID), nil
	case reserve:
		units, err = m.limiter.Reserve(r.Context(), v.info.Request, term)
		res, each = units.Result(), units.Results()
		reserve = units != nil || asked || !errors.Is(err, ratelimit.ErrInvalidConfig)
	}
	if refused := err; !reserve { // with Count, Reserve has refused: the request is decided, but cannot be given back
		if res, each, err = m.limiter.CheckAll(r.Context(), v.info.Request, memory[:0]); refused != nil && err == nil {
			m.logs.often(logCount, refused)
		}
	}
	if err != nil {
		if res == (ratelimit.Result{}) {
			return m.fail(w, r, err), nil
		}
		m.logs.decided(err)
	}
	each = slices.DeleteFunc(each, func(res ratelimit.Result) bool { return res.Advised }) // these rules limit nothing
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

// deny answers a request that was denied.
func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, v *visit) {
	v.set("Cache-Control", "no-store")
	if res := &v.info.Result; res.RetryAfter != ratelimit.Never { // outer Middlewares must grant the request again, too
		wait := res.RetryAfter
		if res.Reason == ratelimit.ReasonBusy {
			wait = min(wait, m.config.BusyRetry+rand.N(m.config.BusyRetry))
		}
		v.set("Retry-After", decimal(seconds(max(wait, v.info.outer))))
	}
	info := v.info // a copy, so that only the copy is on the heap, and v stays on the stack
	m.config.Denied(w, r, &info)
}

// fail handles a request for which the limiter returned err and no decision.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error) verdict {
	if ended := r.Context().Err(); ended != nil && errors.Is(err, ended) {
		// The client has left, or an outer handler's time limit has passed.
		writeProblem(w, r, http.StatusServiceUnavailable, "", nil)
		return answered
	}
	if m.config.Error != nil && m.config.Error(r, err) {
		m.logs.undecided(logPassed, err)
		return undecided
	}
	m.logs.undecided(logRefused, err)
	writeProblem(w, r, http.StatusInternalServerError, "", nil)
	return answered
}
