package echo4_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/echolimit/echo4"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

// customerOf returns the customer with an API key, and the customer's plan.
func customerOf(key string) (client, tier string, ok bool) {
	return "shop-7", "paid", key == "k-123"
}

// newShop returns the API of a shop behind a proxy. It limits customers by their plan, all others by address, wrong
// passwords by address, and everybody together. A search costs five units.
func newShop() (*echo.Echo, error) {
	limiter, err := ratelimit.New([]ratelimit.Rule{
		{Endpoint: "/login", Key: ratelimit.KeyIP, Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerMinute(5)},
		{Name: "everybody", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(1000)},
	}, &ratelimit.Rule{
		Name: "per-client", Rate: ratelimit.PerMinute(60), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(600)},
	})
	if err != nil {
		return nil, err
	}
	m, err := echo4.New(limiter, echo4.Config{
		Client:  echo4.APIKey("X-API-Key", customerOf),
		Proxies: httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		Skip:    echo4.SkipPaths("/healthz"),
		Prepare: func(c echo.Context, q *ratelimit.Request) { q.Cost = map[string]int{"/search": 5}[c.Path()] },
		Count:   func(c echo.Context, status int) bool { return c.Path() != "/login" || status >= 400 },
	})
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.Use(middleware.Recover(), m.Handler)
	e.POST("/login", login)
	e.GET("/search", hello)
	e.GET("/items/:id", hello)
	e.GET("/healthz", hello)
	return e, m.Check(e)
}

func login(c echo.Context) error {
	if c.FormValue("password") != "secret" {
		return echo.ErrUnauthorized
	}
	return c.String(http.StatusOK, "welcome")
}

// A service with plans, a stricter login, a global limit, and a proxy in front.
func Example() {
	e, err := newShop()
	if err != nil {
		panic(err)
	}
	ask := func(method, path, key string) {
		r := httptest.NewRequestWithContext(context.Background(), method, path, nil)
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"))
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
