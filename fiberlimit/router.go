package fiberlimit

import (
	"sync"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// A router finds the route of a request before Fiber finds it. A handler that was added to an app by Use needs this, because
// such a handler runs before Fiber looks for the route. The router has a second app with the same routes. In that app, each
// handler only sets a status, which stands for the path of its route: see firstStatus.
type router struct {
	handlers uint32   // how many handlers the app had when the router was made
	anyCase  bool     // whether the app keeps the names of header fields as clients have written them
	paths    []string // of the routes, and an empty one for requests without a route
	serve    fasthttp.RequestHandler
	requests sync.Pool // of *fasthttp.RequestCtx, for serve
}

// firstStatus plus the index of a path in router.paths is the status with which router.serve answers. Fiber itself answers
// with no status this high.
const firstStatus = 1000

// router returns the router of the app. It makes one if the app has changed.
func (m *Middleware) router(app *fiber.App) *router {
	if known, ok := m.routers.Load(app); ok && known.(*router).handlers == app.HandlersCount() {
		return known.(*router)
	}
	r := newRouter(app)
	m.routers.Store(app, r)
	return r
}

func newRouter(app *fiber.App) *router {
	config := app.Config()
	twin := fiber.New(fiber.Config{
		CaseSensitive: config.CaseSensitive, StrictRouting: config.StrictRouting, UnescapePath: config.UnescapePath,
		RequestMethods: config.RequestMethods, DisableHeadAutoRegister: true,
	})
	r := &router{handlers: app.HandlersCount(), anyCase: config.DisableHeaderNormalizing}
	note := func(path string) fiber.Handler {
		status := firstStatus + len(r.paths)
		r.paths = append(r.paths, path)
		return func(c fiber.Ctx) error {
			c.Status(status)
			return nil
		}
	}
	for _, route := range app.GetRoutes(true) {
		twin.Add([]string{route.Method}, route.Path, note(route.Path))
	}
	twin.Use(note(""))
	r.serve = twin.Handler()
	r.requests.New = func() any { return new(fasthttp.RequestCtx) }
	return r
}

// find returns the path of the route that matches a request, or an empty string.
func (r *router) find(method string, path []byte) string {
	ctx := r.requests.Get().(*fasthttp.RequestCtx)
	ctx.Request.Header.SetMethod(method)
	ctx.Request.URI().SetPathBytes(path)
	r.serve(ctx) // always sets the status, so ctx does not keep the status of an earlier request
	route := ctx.Response.StatusCode() - firstStatus
	r.requests.Put(ctx)
	if route < 0 {
		return "" // Fiber has answered by itself
	}
	return r.paths[route]
}

// route returns the path of the route of c, or an empty string if no route matches.
func (m *Middleware) route(c fiber.Ctx) string {
	if c.Matched() {
		return c.Route().Path // the running handler belongs to a route; it was not added by Use
	}
	return m.router(c.App()).find(c.Method(), c.Request().URI().PathOriginal())
}
