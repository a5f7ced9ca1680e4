package recipes

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// forFiber returns a handler to be put before that of a route. A rule's endpoint is "/items/:id".
// Fiber is not net/http, so m only says what an address counts as.
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
			return c.Next() // err, if there is one, is that of a store
		}
		if err != nil && res == (ratelimit.Result{}) {
			return err // the limiter could not decide
		}
		if seconds, ok := res.RetryAfterSeconds(); ok {
			c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
		}
		return c.SendStatus(fiber.StatusTooManyRequests)
	}
}
