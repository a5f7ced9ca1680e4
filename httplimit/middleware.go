package httplimit

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit"
)

// A Middleware limits requests. [New] makes one. A Middleware of its own limits each layer:
// one by address before the authentication, and one by user behind it, both of which charge.
type Middleware struct {
	limiter    *ratelimit.RateLimiter
	config     Config // with its defaults filled in, except for Endpoint
	forwarding string // the header field that Proxies read
	unproxied  bool   // whether Proxies believes nobody
	shown      atomic.Pointer[policies]
	logs       logs
}

// Handler returns a handler that limits next by the rules of l and the zero [Config]. If next
// is a [Router], such as an [http.ServeMux], its patterns are the endpoints of the rules.
// Handler panics if next is nil or New would return an error: if l is nil or has no rules.
func Handler(next http.Handler, l *ratelimit.RateLimiter) http.Handler {
	m, err := New(l, Config{})
	if err != nil {
		panic(err)
	}
	return m.Handler(next)
}

func newMiddleware(l *ratelimit.RateLimiter, c Config) *Middleware {
	if c.IPv6Bits == 0 {
		c.IPv6Bits = 64
	}
	if c.Denied == nil {
		c.Denied = Problem
	}
	m := &Middleware{limiter: l, config: c, forwarding: forwardedFor, unproxied: c.Proxies.zero()}
	if c.Proxies.Header != "" {
		m.forwarding = http.CanonicalHeaderKey(c.Proxies.Header)
	}
	m.logs.init(c.Log)
	return m
}

// Handler returns a handler that passes to next what the rules grant, and answers what they
// deny. The context of what next gets has an [Info]. Handler panics if next is nil.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	if next == nil {
		panic("httplimit: the next handler is nil")
	}
	h := &handler{m, next, m.config.Endpoint}
	if h.endpoint == nil {
		h.endpoint = Route(nil)
		if mux, ok := next.(Router); ok {
			h.endpoint = routeOf(mux)
			m.logs.check(m.Check(mux))
		}
	}
	return h
}

// A handler is a Middleware before one next handler.
type handler struct {
	m        *Middleware
	next     http.Handler
	endpoint func(*http.Request) string
}

// ServeHTTP serves r if the rules grant it.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := h.m
	if m.config.Skip != nil && m.config.Skip(r) {
		h.next.ServeHTTP(w, r)
		return
	}
	v := newVisit(m, r, w.Header())
	if v.repeats() {
		m.logs.once(warnTwice)
		h.next.ServeHTTP(w, r)
		return
	}
	m.identify(r, &v.info)
	v.info.Request.Endpoint = h.endpoint(r)
	if m.config.Prepare != nil {
		m.config.Prepare(r, &v.info.Request)
	}
	var units *ratelimit.Reservation
	reserved := &units
	if m.config.Count == nil {
		reserved = nil
	}
	switch m.decide(w, r, v, reserved) {
	case passed:
		h.serve(w, r, v, units)
	case undecided:
		h.next.ServeHTTP(w, r)
	case answered:
	}
}

// serve calls the next handler with a request that has been granted. units are what Count is about,
// or nil.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, v *visit, units *ratelimit.Reservation) {
	v.request = *r.WithContext(v)
	inner := &v.request
	if units == nil {
		h.next.ServeHTTP(w, inner)
	} else {
		h.m.count(w, v, units, h.next)
	}
	if inner.MultipartForm != nil {
		r.MultipartForm = inner.MultipartForm // the server removes the files of the request that it has made
	}
	if inner.Pattern == r.Pattern {
		return
	}
	// Handlers around this one would not see the pattern, as a router has set it in inner.
	r.Pattern = inner.Pattern
	if h.m.config.Endpoint == nil && v.info.Request.Endpoint == unmatched {
		h.m.logs.once(warnUnmatched)
	}
}

// Allow decides on req inside of a handler, such as one more unit after a password was wrong.
// It returns true if the request was granted; otherwise it has answered the denial, and the
// handler must return. What is empty in req, of Client, IP, Tier and Endpoint, is filled in as
// for [Middleware.Handler], except that the Endpoint is that of r.Pattern if [Config.Endpoint]
// is nil. A Client that begins with "ip:" or "id:" gets "id:" before it, as any client's name.
// Skip and Prepare are not called. Header fields say of each rule what the last call has left.
func (m *Middleware) Allow(w http.ResponseWriter, r *http.Request, req ratelimit.Request) bool {
	v := newVisit(m, r, w.Header())
	v.Context = nil
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
	return m.decide(w, r, v, nil) != answered
}

// A verdict is what becomes of a request.
type verdict int

const (
	answered  verdict = iota // it was denied, or could not be decided on, and is answered
	passed                   // it was granted
	undecided                // it could not be decided on, and passes
)

// decide asks the limiter, and writes the header fields. It answers what does not pass. If
// reserved is not nil, it gets the units of what passes, which can be given back.
func (m *Middleware) decide(w http.ResponseWriter, r *http.Request, v *visit, reserved **ratelimit.Reservation) verdict {
	info := &v.info
	var memory [4]ratelimit.Result
	var res ratelimit.Result
	var each []ratelimit.Result
	var err error
	if reserved != nil {
		*reserved, each, err = m.limiter.ReserveAll(r.Context(), info.Request, countTerm, memory[:0])
		res = (*reserved).Result()
	} else {
		res, each, err = m.limiter.CheckAll(r.Context(), info.Request, memory[:0])
	}
	if err != nil {
		if res == (ratelimit.Result{}) {
			return m.fail(w, r, err)
		}
		m.logs.often(logStore, err)
	}
	v.keep(res, each)
	rules := m.policies()
	m.mark(v, rules, each)
	if res.Allowed {
		return passed
	}
	info.Status = rules.status(each)
	v.set("Cache-Control", "no-store")
	if seconds, ok := res.RetryAfterSeconds(); ok {
		v.set("Retry-After", decimal(seconds))
	}
	m.config.Denied(w, r, info)
	return answered
}

// fail is about a request that the limiter could not decide on.
func (m *Middleware) fail(w http.ResponseWriter, r *http.Request, err error) verdict {
	if ended := r.Context().Err(); ended != nil && errors.Is(err, ended) {
		// Nobody waits for the answer, or a handler around this one bounds the time.
		writeProblem(w, r, http.StatusServiceUnavailable, "", nil)
		return answered
	}
	if m.config.Error != nil && m.config.Error(r, err) {
		m.logs.often(logPassed, err)
		return undecided
	}
	m.logs.often(logRefused, err)
	writeProblem(w, r, http.StatusInternalServerError, "", nil)
	return answered
}
