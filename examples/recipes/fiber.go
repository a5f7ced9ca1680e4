package recipes

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// forFiber returns a handler that limits a route; put it before the handler of the route. A rule's
// endpoint is the path of a route, such as "/items/:id". Fiber does not use net/http, so m only turns
// the address of the client into a key.
func forFiber(l *ratelimit.RateLimiter, m *httplimit.Middleware, proxies httplimit.Proxies) fiber.Handler {
	return func(c fiber.Ctx) error {
		peer, _ := netip.ParseAddrPort(c.RequestCtx().RemoteAddr().String())
		client := m.Client(proxies.Addr(peer.Addr(), c.GetReqHeaders()[fiber.HeaderXForwardedFor]))
		res, err := l.Check(c.Context(), ratelimit.Request{
			Client:   client,
			IP:       strings.TrimPrefix(client, "ip:"),
			Endpoint: c.Route().Path,
		})
		if res.Allowed {
			return c.Next() // if err is not nil, the store has failed; the request is allowed all the same
		}
		if seconds, ok := res.RetryAfterSeconds(); ok {
			c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
		}
		return c.SendStatus(httplimit.Status(l, err, res)) // 429, or 503 if FailClosed has denied
	}
}
