package echolimit

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v5"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A Config configures a [Middleware]: how it identifies the client, what it asks the limiter, and how it answers. The
// zero Config is safe. See [httplimit.AdapterConfig] for its fields, whose functions get the *echo.Context. If Denied
// or Blocked returns an error, the middleware returns it to Echo, whose HTTPErrorHandler answers.
type Config = httplimit.AdapterConfig[*echo.Context]

// A Middleware limits the requests to an Echo server. [New] makes one.
//
// Several Middlewares can limit the same request, for example one that limits by address before the authentication, and
// one that limits by user after it. Both charge the request. A request that reaches the same Middleware twice is charged
// once.
type Middleware struct {
	adapter *httplimit.Adapter[*echo.Context]
}

// New returns a Middleware that limits requests by the limiter l. The error lists all problems with l and the
// Config, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Middleware, error) {
	a, err := httplimit.NewAdapter(l, c, routeOf)
	if err != nil {
		return nil, err
	}
	return &Middleware{a}, nil
}

// Handler returns a middleware for Echo that limits requests by the rules of the limiter l, with the zero [Config]. It
// panics if l is nil or has no rules.
func Handler(l *ratelimit.RateLimiter) echo.MiddlewareFunc {
	m, err := New(l, Config{})
	if err != nil {
		panic(err)
	}
	return m.Handler
}

// Handler limits the requests to next. It is an [echo.MiddlewareFunc]: pass m.Handler to the method Use of an Echo or a
// group, or to a single route. Passed to Use of the Echo itself, it also limits requests that match no route: their endpoint
// is "unmatched". Do not pass it to Pre: Echo runs the middlewares of Pre before it looks for the route, so all requests
// would be "unmatched".
func (m *Middleware) Handler(next echo.HandlerFunc) echo.HandlerFunc {
	then := func(c *echo.Context, r *http.Request, settle func(status int)) error {
		c.SetRequest(r)
		if settle == nil {
			return next(c)
		}
		watch(c, settle)
		err := next(c)
		if err == nil {
			settle(http.StatusOK) // if the handler has not begun a response, the client gets the status 200
		}
		return err // if err is not nil, the HTTPErrorHandler or a middleware further out sends its status, and settle then gets this status
	}
	return func(c *echo.Context) error {
		_, err := m.adapter.Serve(c, c.Response(), c.Request(), then)
		return err
	}
}

// watch causes a call of settle with the status of the response to c, when this status is sent. To do so, it wraps the writer
// inside of Echo's Response. If a handler returns an error, the HTTPErrorHandler writes its answer to this same Response, so
// settle is called for this answer, too.
func watch(c *echo.Context, settle func(status int)) {
	if response, err := echo.UnwrapResponse(c.Response()); err == nil {
		response.ResponseWriter = httplimit.CountStatus(response.ResponseWriter, settle)
		return
	}
	c.SetResponse(httplimit.CountStatus(c.Response(), settle)) // another middleware has replaced the Response
}

// Allow asks the limiter whether to grant req. A handler calls it, for example to charge one more unit after a wrong
// password. If ok is false, Allow has answered the request, and the handler must return err, which is nil unless
// Config.Denied has returned an error. Empty fields of req are filled in, as [httplimit.Middleware.Allow] says.
func (m *Middleware) Allow(c *echo.Context, req ratelimit.Request) (ok bool, err error) {
	return m.adapter.Allow(c, c.Response(), c.Request(), req)
}

// Reserve reserves the units of req. The handler settles them later, within the given term. If ok is false, Reserve has
// answered the request, and the handler must return err, which is nil unless Config.Denied has returned an error. If ok
// is true, the handler must end the Reservation, best by a deferred call of its method Done. See
// [httplimit.Middleware.Reserve].
func (m *Middleware) Reserve(
	c *echo.Context, req ratelimit.Request, term time.Duration,
) (units *ratelimit.Reservation, ok bool, err error) {
	return m.adapter.Reserve(c, c.Response(), c.Request(), req, term)
}

// Client returns the [ratelimit.Request.Client] of requests from addr for which Config.Client returns no client. Use
// it with [ratelimit.RateLimiter.Reset].
func (m *Middleware) Client(addr netip.Addr) string { return m.adapter.Client(addr) }

// Check returns an error that names each rule whose Endpoint no route of e has: such a rule limits nothing. Usually,
// its Endpoint is misspelled, for example "/users/{id}" for "/users/:id". Call Check in a test, or when all routes are
// added. If Config.Endpoint is set, Check checks nothing.
func (m *Middleware) Check(e *echo.Echo) error { return m.adapter.Check(routes(e)) }

// CheckRules returns a function that checks the rules that it gets, as [Middleware.Check] checks the rules of the
// limiter. Set it as the field Check of a Watcher of the package configfile: the Watcher then refuses a file with a
// rule that would limit nothing.
func (m *Middleware) CheckRules(e *echo.Echo) func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
	return m.adapter.CheckRules(func() []string { return routes(e) })
}

// routes returns the paths of the routes of e.
func routes(e *echo.Echo) (paths []string) {
	for _, route := range e.Router().Routes() {
		if route.Method != echo.RouteNotFound {
			paths = append(paths, route.Path)
		}
	}
	return paths
}

// unmatched is the endpoint of requests that no route matches.
const unmatched = "unmatched"

// found returns the route of c. ok is false if no route matches the path of the request, or if the routes that match the
// path have other methods.
func found(c *echo.Context) (route echo.RouteInfo, ok bool) {
	route = c.RouteInfo()
	switch {
	case route.Path == "" && c.Path() == "", route.Method == echo.RouteNotFound:
		return route, false
	case route.Name == echo.NotFoundRouteName, route.Name == echo.MethodNotAllowedRouteName:
		return route, false
	}
	return route, true
}

// routeOf returns the path of the route of c, or an empty string if no route matches.
func routeOf(c *echo.Context) string {
	if _, ok := found(c); ok {
		return c.Path()
	}
	return ""
}

// Info returns what a Middleware with Config.Info has decided on the request of c. ok is false if no such Middleware has
// granted the request.
func Info(c *echo.Context) (info *httplimit.Info, ok bool) {
	return httplimit.FromContext(c.Request().Context())
}

// Pattern is a function for Config.Endpoint that returns the method and the path of the route, such as "GET
// /users/:id". If the route is for any method, Pattern returns only the path, because clients could invent methods. If no
// route matches the request, Pattern returns "unmatched".
func Pattern(c *echo.Context) string {
	switch route, ok := found(c); {
	case !ok:
		return unmatched
	case route.Method == echo.RouteAny:
		return c.Path()
	default:
		return route.Method + " " + c.Path()
	}
}

// APIKey returns a function for Config.Client that identifies clients by an API key in this header field. The function
// lookup must return false for unknown keys. See [httplimit.APIKey].
func APIKey(header string, lookup func(key string) (client, tier string, ok bool)) func(*echo.Context) (client, tier string, ok bool) {
	find := httplimit.APIKey(header, lookup)
	return func(c *echo.Context) (client, tier string, ok bool) { return find(c.Request()) }
}

// SkipPaths returns a function for Config.Skip that returns true for requests whose URL path equals one of these paths
// exactly, such as "/healthz".
func SkipPaths(exact ...string) func(*echo.Context) bool {
	skip := httplimit.SkipPaths(exact...)
	return func(c *echo.Context) bool { return skip(c.Request()) }
}

// Preflight is a function for Config.Skip that returns true for CORS preflight requests. See [httplimit.Preflight].
func Preflight(c *echo.Context) bool { return httplimit.Preflight(c.Request()) }
