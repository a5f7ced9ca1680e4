package fiberlimit

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// A Config configures a [Middleware]: how it identifies the client, what it asks the limiter, and how it answers. The
// zero Config is safe. See [httplimit.AdapterConfig] for its fields, whose functions get the fiber.Ctx. If Denied or
// Blocked returns an error, the middleware returns it to Fiber, whose ErrorHandler answers.
//
// Fiber reuses the memory of the strings that a fiber.Ctx returns. The Middleware copies what Client and Endpoint
// return. A Prepare must itself copy the strings that it stores in the request, with [strings.Clone].
type Config = httplimit.AdapterConfig[fiber.Ctx]

// A Middleware limits the requests to a Fiber server. [New] makes one.
//
// Several Middlewares can limit the same request, for example one by address before the authentication, and one by
// user after it. Both charge the request. A request that reaches the same Middleware twice is charged once.
type Middleware struct {
	adapter *httplimit.Adapter[fiber.Ctx]
	fields  []string // the canonical names of the header fields of requests that the Adapter reads
	routers sync.Map // of *router, by the *fiber.App
}

// New returns a Middleware that limits requests by the limiter l. The error lists all problems with l and the
// Config, and matches [ratelimit.ErrInvalidConfig].
func New(l *ratelimit.RateLimiter, c Config) (*Middleware, error) {
	m := &Middleware{fields: []string{"X-Forwarded-For", "X-Real-Ip", "Forwarded", "Content-Type", "Grpc-Timeout"}}
	if name := http.CanonicalHeaderKey(c.Proxies.Header); name != "" && name != "X-Forwarded-For" {
		m.fields = append(m.fields, name)
	}
	if client := c.Client; client != nil {
		c.Client = func(c fiber.Ctx) (string, string, bool) {
			name, tier, ok := client(c)
			return strings.Clone(name), strings.Clone(tier), ok
		}
	}
	if endpoint := c.Endpoint; endpoint != nil {
		c.Endpoint = func(c fiber.Ctx) string { return strings.Clone(endpoint(c)) }
	}
	c.Denied, c.Blocked = withFields(c.Denied), withFields(c.Blocked)
	a, err := httplimit.NewAdapter(l, c, m.route)
	if err != nil {
		return nil, err
	}
	m.adapter = a
	return m, nil
}

// withFields returns a function that sets the header fields of the response, and then calls answer. It returns nil if
// answer is nil.
func withFields(answer func(fiber.Ctx, *httplimit.Info) error) func(fiber.Ctx, *httplimit.Info) error {
	if answer == nil {
		return nil
	}
	return func(c fiber.Ctx, i *httplimit.Info) error {
		if x := find(c); x != nil {
			x.send()
		}
		return answer(c, i)
	}
}

// Handler returns a handler for Fiber that limits requests by the rules of the limiter l, with the zero [Config]. It
// panics if l is nil or has no rules.
func Handler(l *ratelimit.RateLimiter) fiber.Handler {
	m, err := New(l, Config{})
	if err != nil {
		panic(err)
	}
	return m.Handler
}

// Handler limits a request. It is a [fiber.Handler]: pass m.Handler to the method Use of an app or a group, or to a
// single route before its own handler. If it is used by the app, it also limits requests that match no route: their
// endpoint is "unmatched".
func (m *Middleware) Handler(c fiber.Ctx) error {
	x, begun := enter(c)
	if begun {
		defer x.leave()
	}
	_, err := m.adapter.Serve(c, x, x.request(m), next)
	return err
}

// next calls the next handlers of Fiber. If settle is not nil, next also calls settle with the status of the response. If a
// handler returns an error, next first lets the ErrorHandler of Fiber answer, because Fiber would do so only after all handlers
// have returned.
func next(c fiber.Ctx, r *http.Request, settle func(status int)) error {
	if x := find(c); x != nil {
		x.send()
		if r != &x.own {
			c.SetContext(r.Context()) // a context of the Adapter, which has the Info
		}
	}
	err := c.Next()
	if settle == nil {
		return err
	}
	if err != nil && c.App().ErrorHandler(c, err) != nil {
		_ = c.SendStatus(fiber.StatusInternalServerError) // as Fiber answers if its ErrorHandler fails
	}
	settle(c.Response().StatusCode())
	return nil
}

// Allow asks the limiter whether to grant req. A handler calls it, for example to charge one more unit after a wrong
// password. If ok is false, Allow has answered the request, and the handler must return err, which is nil unless
// Config.Denied has returned an error. Empty fields of req are filled in, as [httplimit.Middleware.Allow] says.
func (m *Middleware) Allow(c fiber.Ctx, req ratelimit.Request) (ok bool, err error) {
	x, begun := enter(c)
	if begun {
		defer x.leave()
	}
	ok, err = m.adapter.Allow(c, x, x.request(m), req)
	x.send()
	return ok, err
}

// Reserve reserves the units of req. The handler settles them later, within the given term. If ok is false, Reserve has
// answered the request, and the handler must return err, which is nil unless Config.Denied has returned an error. If ok
// is true, the handler must end the Reservation, best by a deferred call of its method Done. See
// [httplimit.Middleware.Reserve].
func (m *Middleware) Reserve(c fiber.Ctx, req ratelimit.Request, term time.Duration) (units *ratelimit.Reservation, ok bool, err error) {
	x, begun := enter(c)
	if begun {
		defer x.leave()
	}
	units, ok, err = m.adapter.Reserve(c, x, x.request(m), req, term)
	x.send()
	return units, ok, err
}

// Client returns the [ratelimit.Request.Client] of requests from addr for which Config.Client returns no client. Use
// it with [ratelimit.RateLimiter.Reset].
func (m *Middleware) Client(addr netip.Addr) string { return m.adapter.Client(addr) }

// Check returns an error that names each rule whose Endpoint no route of the app has: such a rule limits nothing.
// Usually, its Endpoint is misspelled, for example "/users/{id}" for "/users/:id". Call Check in a test, or when all
// routes are registered. If Config.Endpoint is set, Check checks nothing.
func (m *Middleware) Check(app *fiber.App) error { return m.adapter.Check(routes(app)) }

// CheckRules returns a function that checks the rules that it gets, as [Middleware.Check] checks the rules of the
// limiter. Set it as the field Check of a Watcher of the package configfile: the Watcher then refuses a file with a
// rule that would limit nothing.
func (m *Middleware) CheckRules(app *fiber.App) func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
	return m.adapter.CheckRules(func() []string { return routes(app) })
}

// routes returns the paths of the routes of the app.
func routes(app *fiber.App) (paths []string) {
	for _, route := range app.GetRoutes(true) {
		paths = append(paths, route.Path)
	}
	return paths
}

// Info returns what a Middleware with Config.Info has decided on the request of c. ok is false if there is no such
// decision.
func Info(c fiber.Ctx) (info *httplimit.Info, ok bool) { return httplimit.FromContext(c.Context()) }

// Pattern returns a function for Config.Endpoint that returns the method and the path of the route of the app, such as
// "GET /users/:id", or "unmatched" if no route matches the request. HEAD counts as GET, because Fiber serves both by
// the same route.
func Pattern() func(fiber.Ctx) string {
	var m Middleware // only to find routes
	return func(c fiber.Ctx) string {
		method := c.Method()
		if method == fiber.MethodHead {
			method = fiber.MethodGet
		}
		if path := m.route(c); path != "" {
			return method + " " + path
		}
		return "unmatched"
	}
}

// maxKey is the maximum length in bytes of an API key.
const maxKey = 512

// APIKey returns a function for Config.Client that identifies clients by an API key in this header field. If lookup
// returns false, or the field is missing, repeated or longer than 512 bytes, the address identifies the client. The
// function lookup must return false for unknown keys. APIKey panics if header is empty or lookup is nil.
func APIKey(header string, lookup func(key string) (client, tier string, ok bool)) func(fiber.Ctx) (client, tier string, ok bool) {
	if header == "" || lookup == nil {
		panic("fiberlimit: APIKey needs the name of a header field and a lookup")
	}
	return func(c fiber.Ctx) (client, tier string, ok bool) {
		values := c.Request().Header.PeekAll(header)
		if len(values) != 1 || len(values[0]) == 0 || len(values[0]) > maxKey {
			return "", "", false
		}
		return lookup(string(values[0]))
	}
}

// SkipPaths returns a function for Config.Skip that returns true for requests whose path equals one of these paths
// exactly, such as "/healthz".
func SkipPaths(exact ...string) func(fiber.Ctx) bool {
	paths := make(map[string]bool, len(exact))
	for _, path := range exact {
		paths[path] = true
	}
	return func(c fiber.Ctx) bool { return paths[c.Path()] }
}

// Preflight is a function for Config.Skip that returns true for CORS preflight requests. See [httplimit.Preflight].
func Preflight(c fiber.Ctx) bool {
	return c.Method() == fiber.MethodOptions && c.Get(fiber.HeaderOrigin) != "" && c.Get(fiber.HeaderAccessControlRequestMethod) != ""
}
