package recipes

import (
	"cmp"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// aroundServeMux limits all requests to mux. A rule's endpoint is the path of a route in mux, such as
// "/items/{id}".
func aroundServeMux(m *httplimit.Middleware, mux *http.ServeMux) http.Handler {
	return m.Handler(mux)
}

// aroundServeMuxAndMore limits all requests to mux, even if there are other handlers between the
// middleware and mux, such as the handler that compress returns.
func aroundServeMuxAndMore(l *ratelimit.RateLimiter, mux *http.ServeMux, compress func(http.Handler) http.Handler) (http.Handler, error) {
	m, err := httplimit.New(l, httplimit.Config{Endpoint: httplimit.Route(mux)})
	if err != nil {
		return nil, err
	}
	return m.Handler(compress(mux)), nil
}

// aroundChi limits all requests to router, including requests that match no route. A rule's endpoint is
// the path of a route, such as "/items/{id}". Call it before the first route, and after Use of
// middlewares that change the path or the method, such as CleanPath and GetHead.
func aroundChi(l *ratelimit.RateLimiter, router chi.Router) error {
	m, err := httplimit.New(l, httplimit.Config{
		Endpoint: func(r *http.Request) string {
			found := chi.RouteContext(r.Context()) // what the middlewares before have changed, or empty
			method := cmp.Or(found.RouteMethod, r.Method)
			path := cmp.Or(found.RoutePath, r.URL.RawPath, r.URL.Path, "/")
			return cmp.Or(router.Find(chi.NewRouteContext(), method, path), "unmatched")
		},
	})
	if err != nil {
		return err
	}
	router.Use(m.Handler)
	return nil
}

// insideChi limits the routes of a group. chi has found the route before it calls the middleware.
func insideChi(m *httplimit.Middleware, router chi.Router, items http.HandlerFunc) {
	router.Group(func(limited chi.Router) {
		limited.Use(m.Handler)
		limited.Get("/items/{id}", items)
	})
	router.With(m.Handler).Get("/search", items) // limits a single route
}
