package ginlimit

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A Config configures a [Middleware]: how it identifies the client, what it asks the limiter, and how it answers. The
// zero Config is safe. See [httplimit.AdapterConfig] for its fields, whose functions get the *gin.Context. If Denied
// or Blocked returns an error, gin gets it by gin.Context.Error.
type Config = httplimit.AdapterConfig[*gin.Context]

// A Middleware limits the requests to a gin server. [New] makes one.
//
// Several Middlewares can limit the same request, for example one that limits by address before the authentication, and
// one that limits by user after it. Both charge the request. A request that reaches the same Middleware twice is charged
// once.
type Middleware struct {
	adapter *httplimit.Adapter[*gin.Context]
}

// New returns a Middleware that limits requests by the limiter l. The error lists all problems with l and the
// Config, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Middleware, error) {
	a, err := httplimit.NewAdapter(l, c, (*gin.Context).FullPath)
	if err != nil {
		return nil, err
	}
	return &Middleware{a}, nil
}

// Handler returns a handler for gin that limits requests by the rules of the limiter l, with the zero [Config]. It
// panics if l is nil or has no rules.
func Handler(l *ratelimit.RateLimiter) gin.HandlerFunc {
	m, err := New(l, Config{})
	if err != nil {
		panic(err)
	}
	return m.Handler()
}

// Handler returns the handler that limits requests, for the method Use of an engine or a group, or for a single
// route. Passed to Use of the engine itself, it also limits requests that match no route: their endpoint is "unmatched".
func (m *Middleware) Handler() gin.HandlerFunc {
	return func(c *gin.Context) {
		passed, err := m.adapter.Serve(c, c.Writer, c.Request, next)
		if !passed {
			c.Abort()
			fail(c, err)
		}
	}
}

// Allow asks the limiter whether to grant req. A handler calls it, for example to charge one more unit after a wrong
// password. If Allow returns false, it has answered the request and has called c.Abort, so that gin calls no further
// handlers, and the handler must return. Empty fields of req are filled in, as [httplimit.Middleware.Allow] says.
func (m *Middleware) Allow(c *gin.Context, req ratelimit.Request) bool {
	ok, err := m.adapter.Allow(c, c.Writer, c.Request, req)
	if !ok {
		c.Abort()
		fail(c, err)
	}
	return ok
}

// Reserve reserves the units of req. The handler settles them later, within the given term. If ok is false, Reserve has
// answered the request and has called c.Abort, so that gin calls no further handlers, and the handler must return. If ok
// is true, the handler must end the Reservation, best by a deferred call of its method Done. See
// [httplimit.Middleware.Reserve].
func (m *Middleware) Reserve(c *gin.Context, req ratelimit.Request, term time.Duration) (units *ratelimit.Reservation, ok bool) {
	units, ok, err := m.adapter.Reserve(c, c.Writer, c.Request, req, term)
	if !ok {
		c.Abort()
		fail(c, err)
	}
	return units, ok
}

// fail passes the error err to gin, unless it is nil.
func fail(c *gin.Context, err error) {
	if err != nil {
		_ = c.Error(err) // the result is only the stored error, so it is dropped
	}
}

// Client returns the [ratelimit.Request.Client] of requests from addr for which Config.Client returns no client. Use
// it with [ratelimit.RateLimiter.Reset].
func (m *Middleware) Client(addr netip.Addr) string { return m.adapter.Client(addr) }

// Check returns an error that names each rule whose Endpoint no route of the engine has: such a rule limits nothing.
// Usually, its Endpoint is misspelled, for example "/users/{id}" for "/users/:id". Call Check in a test, or when all
// routes are registered. If Config.Endpoint is set, Check checks nothing.
func (m *Middleware) Check(engine *gin.Engine) error { return m.adapter.Check(routes(engine)) }

// CheckRules returns a function that checks the rules that it gets, as [Middleware.Check] checks the rules of the
// limiter. Set it as the field Check of a Watcher of the package configfile: the Watcher then refuses a file with a
// rule that would limit nothing.
func (m *Middleware) CheckRules(engine *gin.Engine) func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
	return m.adapter.CheckRules(func() []string { return routes(engine) })
}

// routes returns the paths of the routes of the engine.
func routes(engine *gin.Engine) (paths []string) {
	for _, route := range engine.Routes() {
		paths = append(paths, route.Path)
	}
	return paths
}

// Info returns what a Middleware with Config.Info has decided on the request of c. ok is false if no such Middleware has
// granted the request.
func Info(c *gin.Context) (info *httplimit.Info, ok bool) {
	return httplimit.FromContext(c.Request.Context())
}

// Pattern is a function for Config.Endpoint that returns the method and the path of the route, such as "GET
// /users/:id", or "unmatched" if no route matches the request.
func Pattern(c *gin.Context) string {
	if path := c.FullPath(); path != "" {
		return c.Request.Method + " " + path
	}
	return "unmatched"
}

// APIKey returns a function for Config.Client that identifies clients by an API key in this header field. The function
// lookup must return false for unknown keys. See [httplimit.APIKey].
func APIKey(header string, lookup func(key string) (client, tier string, ok bool)) func(*gin.Context) (client, tier string, ok bool) {
	find := httplimit.APIKey(header, lookup)
	return func(c *gin.Context) (client, tier string, ok bool) { return find(c.Request) }
}

// SkipPaths returns a function for Config.Skip that returns true for requests whose URL path equals one of these paths
// exactly, such as "/healthz".
func SkipPaths(exact ...string) func(*gin.Context) bool {
	skip := httplimit.SkipPaths(exact...)
	return func(c *gin.Context) bool { return skip(c.Request) }
}

// Preflight is a function for Config.Skip that returns true for CORS preflight requests. See [httplimit.Preflight].
func Preflight(c *gin.Context) bool { return httplimit.Preflight(c.Request) }

// next calls the next handlers of gin with the request r. If settle is not nil, the handlers get a writer that calls
// settle with the status of the response.
func next(c *gin.Context, r *http.Request, settle func(status int)) error {
	c.Request = r
	if settle == nil {
		c.Next()
		return nil
	}
	before := c.Writer
	counted := &countedWriter{before, settle}
	c.Writer = counted
	c.Next()
	if !counted.Written() && len(c.Errors) > 0 {
		// A handler has put an error into c, and has not answered. A handler further out may now answer. It writes to
		// c.Writer, a countedWriter, which then calls settle. If no handler answers, the request stays charged.
		return nil
	}
	settle(counted.Status())
	if c.Writer == gin.ResponseWriter(counted) {
		c.Writer = before
	}
	return nil
}
