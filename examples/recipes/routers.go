package recipes

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// aroundServeMux limits all requests to mux. A rule's endpoint is "/items/{id}".
func aroundServeMux(m *httplimit.Middleware, mux *http.ServeMux) http.Handler {
	return m.Handler(mux)
}

// aroundServeMuxAndMore is the same with other handlers between the two.
func aroundServeMuxAndMore(l *ratelimit.RateLimiter, mux *http.ServeMux, compress func(http.Handler) http.Handler) (http.Handler, error) {
	m, err := httplimit.New(l, httplimit.Config{Endpoint: httplimit.Route(mux)})
	if err != nil {
		return nil, err
	}
	return m.Handler(compress(mux)), nil
}

// aroundChi limits all requests to router, also those without a route. A rule's endpoint is
// "/items/{id}".
func aroundChi(l *ratelimit.RateLimiter, router chi.Routes) (*httplimit.Middleware, error) {
	return httplimit.New(l, httplimit.Config{
		Endpoint: func(r *http.Request) string {
			path := r.URL.RawPath // chi routes by this if it is set
			if path == "" {
				path = r.URL.Path
			}
			if route := router.Find(chi.NewRouteContext(), r.Method, path); route != "" {
				return route
			}
			return "unmatched"
		},
	})
}

// insideChi limits the routes of a group. chi has found the route by then.
func insideChi(m *httplimit.Middleware, router chi.Router, items http.HandlerFunc) {
	router.Group(func(limited chi.Router) {
		limited.Use(m.Handler)
		limited.Get("/items/{id}", items)
	})
	router.With(m.Handler).Get("/search", items) // or one route
}

// forGin returns a middleware for gin. A rule's endpoint is "/items/:id".
func forGin(m *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		c.Request.Pattern = c.FullPath()
		m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// forEcho returns a middleware for echo. A rule's endpoint is "/items/:id".
func forEcho(m *httplimit.Middleware) echo.MiddlewareFunc {
	limit := echo.WrapMiddleware(m.Handler)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		limited := limit(next)
		return func(c echo.Context) error {
			c.Request().Pattern = c.Path()
			return limited(c)
		}
	}
}
