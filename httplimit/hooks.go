package httplimit

import (
	"net/http"

	"github.com/ratelimit-go/ratelimit"
)

// hooks are what a Middleware calls outside of this package for one request: the functions of a Config, and the next
// handlers. The type handler implements hooks for net/http, and the type call for other web frameworks.
type hooks interface {
	// skip reports whether the request is not limited: see Config.Skip.
	skip(r *http.Request) bool

	// peer returns the peer that has sent the request.
	peer(r *http.Request) peer

	// client returns the client and its tier: see Config.Client. If ok is false, the address identifies the client.
	client(r *http.Request) (client, tier string, ok bool)

	// endpoint returns the Request.Endpoint: see Config.Endpoint.
	endpoint(r *http.Request) string

	// prepare may change the request to the limiter. It is called only if Config.Prepare is set.
	prepare(r *http.Request, req *ratelimit.Request)

	// counts reports whether a request that was answered with this status stays charged. It is called only if
	// Config.Count is set.
	counts(r *http.Request, status int) bool

	// deny answers a denied request: see Config.Denied and Config.Blocked.
	deny(w http.ResponseWriter, r *http.Request, i *Info)

	// forgives reports whether a request passes although the limiter failed to decide: see Config.Error.
	forgives(r *http.Request, err error) bool

	// next calls the next handlers. If s is not nil, next or the handlers must call s.settle with the status of the
	// response, before the client gets the status.
	next(w http.ResponseWriter, r *http.Request, s *settlement)
}

// A handler limits the requests to one next handler.
type handler struct {
	m     *Middleware
	inner http.Handler
	route func(*http.Request) string // returns the endpoint of a request
}

// ServeHTTP calls the next handler if the rules grant r, and answers r otherwise.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.m.limit(h, w, r) }

func (h *handler) skip(r *http.Request) bool { return h.m.config.Skip != nil && h.m.config.Skip(r) }

func (h *handler) peer(r *http.Request) peer { return peerOf(r) }

func (h *handler) client(r *http.Request) (client, tier string, ok bool) {
	if h.m.config.Client == nil {
		return "", "", false
	}
	return h.m.config.Client(r)
}

func (h *handler) endpoint(r *http.Request) string { return h.route(r) }

func (h *handler) prepare(r *http.Request, req *ratelimit.Request) { h.m.config.Prepare(r, req) }

func (h *handler) counts(r *http.Request, status int) bool { return h.m.config.Count(r, status) }

func (h *handler) deny(w http.ResponseWriter, r *http.Request, i *Info) {
	if h.m.config.Blocked != nil && blocked(&i.Result) {
		h.m.config.Blocked(w, r, i)
		return
	}
	h.m.config.Denied(w, r, i)
}

func (h *handler) forgives(r *http.Request, err error) bool {
	return h.m.config.Error != nil && h.m.config.Error(r, err)
}

func (h *handler) next(w http.ResponseWriter, r *http.Request, s *settlement) {
	if s == nil {
		h.inner.ServeHTTP(w, r)
		return
	}
	h.inner.ServeHTTP(CountStatus(w, s.settle), r)
	s.settle(http.StatusOK) // if the handler has not begun a response, the client gets the status 200
}
