package bench

import (
	"net"
	"net/http"
	"time"

	"github.com/didip/tollbooth/v7"
	"github.com/go-chi/httprate"
	sethvargohttp "github.com/sethvargo/go-limiter/httplimit"
	"github.com/throttled/throttled/v2"
	ululehttp "github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// The type named "served" calls a handler directly, each time with the same request from the same address.
// Before each call it clears the header of the response, which takes the same time for each
// subject. The middlewares have one limit for each address, and write all header fields that they
// write by default.
type served struct {
	handler http.Handler
	request *http.Request
	header  http.Header
	granted bool
}

// newServed returns a function for the field Spec.New. That function makes a subject of the type
// served. The subject calls the handler that the function wrap returns for an empty handler.
func newServed(wrap func(l Limit, next http.Handler) (http.Handler, error)) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		r, err := http.NewRequest(http.MethodGet, "http://example.com/users/7", nil) //nolint:noctx // the request needs no context of its own
		if err != nil {
			return nil, err
		}
		r.RemoteAddr = "203.0.113.9:1234"
		s := &served{request: r, header: http.Header{}}
		s.handler, err = wrap(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.granted = true }))
		return s, err
	}
}

// Allow serves one request and reports whether it was granted. The key is not used.
func (s *served) Allow(string) bool {
	clear(s.header)
	s.granted = false
	s.handler.ServeHTTP(s, s.request)
	return s.granted
}

// Header returns the header of the response. The subject s is also the ResponseWriter that its
// handler gets.
func (s *served) Header() http.Header { return s.header }

// Write drops the body of the response.
func (s *served) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader drops the status of the response.
func (s *served) WriteHeader(int) {}

func bareHandler(_ Limit, next http.Handler) (http.Handler, error) { return next, nil }

// bareMux returns a ServeMux with one route, which leads to the given handler. There is no
// middleware.
func bareMux(_ Limit, next http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", next)
	return mux, nil
}

func limitHandler(l Limit, next http.Handler) (http.Handler, error) {
	lim, err := ratelimit.New(nil, &ratelimit.Rule{Name: "per-client", Rate: l.bucket()}, l.options()...)
	if err != nil {
		return nil, err
	}
	return httplimit.Handler(next, lim), nil
}

func limitMux(l Limit, next http.Handler) (http.Handler, error) {
	mux, err := bareMux(l, next)
	if err != nil {
		return nil, err
	}
	return limitHandler(l, mux)
}

func httprateHandler(l Limit, next http.Handler) (http.Handler, error) {
	byPeer := func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	}
	return httprate.LimitBy(l.Rate, l.Per, byPeer)(next), nil
}

func ululeHandler(l Limit, next http.Handler) (http.Handler, error) {
	s, err := newUlule(l)
	if err != nil {
		return nil, err
	}
	return ululehttp.NewMiddleware(s.(*ululeWindow).limiter).Handler(next), nil
}

func throttledHandler(l Limit, next http.Handler) (http.Handler, error) {
	s, err := newThrottled(l)
	if err != nil {
		return nil, err
	}
	m := throttled.HTTPRateLimiterCtx{RateLimiter: s.(*gcra).limiter, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return m.RateLimit(next), nil
}

func sethvargoHandler(l Limit, next http.Handler) (http.Handler, error) {
	s, err := newSethvargo(l)
	if err != nil {
		return nil, err
	}
	m, err := sethvargohttp.NewMiddleware(s.(*sethvargo).store, sethvargohttp.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return m.Handle(next), nil
}

func tollboothHandler(l Limit, next http.Handler) (http.Handler, error) {
	lmt := tollbooth.NewLimiter(float64(l.Rate)*float64(time.Second)/float64(l.Per), nil)
	lmt.SetBurst(l.Burst).SetIPLookups([]string{"RemoteAddr"})
	return tollbooth.LimitHandler(lmt, next), nil
}
