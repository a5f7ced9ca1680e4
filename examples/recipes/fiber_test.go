package recipes

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

func TestFiber(t *testing.T) {
	l := byRoute(t, "/items/:id")
	proxies := httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/8")}} // the peer of App.Test
	limit := forFiber(l, middleware(t, l, httplimit.Config{}), proxies)
	app := fiber.New()
	app.Get("/items/:id", limit, func(c fiber.Ctx) error { return c.SendString("ok") })
	app.Get("/search", limit, func(c fiber.Ctx) error { return c.SendString("ok") })
	get := func(path, address string) answer {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Add("X-Forwarded-For", "6.6.6.6")
		r.Header.Add("X-Forwarded-For", address)
		res, err := app.Test(r)
		require.NoError(t, err)
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return answer{res.StatusCode, res.Header, string(body)}
	}
	assert.Equal(t, "ok", get("/items/1", "2001:db8:1:2::1").body)
	assert.Equal(t, http.StatusOK, get("/items/2", "2001:db8:1:2::2").status)
	denied := get("/items/3", "2001:db8:1:2::3")
	assert.Equal(t, http.StatusTooManyRequests, denied.status, "one network of 64 bits")
	assert.Equal(t, "30", denied.header.Get("Retry-After"))
	assert.NotEqual(t, "ok", denied.body)
	assert.Equal(t, http.StatusOK, get("/items/3", "203.0.113.9").status)
	assert.Equal(t, http.StatusOK, get("/search", "2001:db8:1:2::3").status)
}
