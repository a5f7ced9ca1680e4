package fiberlimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/gofiber/fiber/v3"
	recovery "github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/fiberlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// customerOf returns the customer with an API key, and the customer's plan.
func customerOf(key string) (client, tier string, ok bool) {
	return "shop-7", "paid", key == "k-123"
}

// newShop returns the API of a shop behind a proxy. It limits customers by their plan, all others by address, wrong
// passwords by address, and everybody together. A search costs five units.
func newShop() (*fiber.App, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
	}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(60), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)},
	})
	if err != nil {
		return nil, err
	}
	m, err := fiberlimit.New(limiter, fiberlimit.Config{
		Client:  fiberlimit.APIKey("X-API-Key", customerOf),
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Skip:    fiberlimit.SkipPaths("/healthz"),
		Prepare: func(_ fiber.Ctx, q *ratelimit.Request) { q.Cost = map[string]int{"/search": 5}[q.Endpoint] },
		Count:   func(c fiber.Ctx, status int) bool { return c.Route().Path != "/login" || status >= 400 },
	})
	if err != nil {
		return nil, err
	}
	app := fiber.New()
	app.Use(recovery.New(), m.Handler)
	app.Post("/login", login)
	app.Get("/search", hello)
	app.Get("/items/:id", hello)
	app.Get("/healthz", hello)
	return app, m.Check(app)
}

func login(c fiber.Ctx) error {
	if c.FormValue("password") != "secret" {
		return fiber.ErrUnauthorized
	}
	return c.SendString("welcome")
}

// A service with plans, a stricter login, a global limit, and a proxy in front.
func Example() {
	app, err := newShop()
	if err != nil {
		panic(err)
	}
	ask := func(method, path, key string) {
		r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
		r.Header.Set("X-API-Key", key)
		res, err := app.Test(r)
		if err != nil {
			panic(err)
		}
		fmt.Println(res.StatusCode, res.Header.Get("RateLimit-Policy"))
		_ = res.Body.Close()
	}
	ask(http.MethodGet, "/search", "k-123")
	ask(http.MethodGet, "/items/7", "")
	for range 6 {
		ask(http.MethodPost, "/login", "")
	}
	ask(http.MethodGet, "/healthz", "")
	// Output:
	// 200 "per-client";q=600;w=60
	// 200 "per-client";q=60;w=60
	// 401 "/login";q=5;w=60
	// 401 "/login";q=5;w=60
	// 401 "/login";q=5;w=60
	// 401 "/login";q=5;w=60
	// 401 "/login";q=5;w=60
	// 429 "/login";q=5;w=60
	// 200
}
