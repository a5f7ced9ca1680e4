package fiberlimit_test

import (
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/valyala/fasthttp"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/fiberlimit"
)

// TestPeers proves which client each address of a connection is. All requests use the memory of the one before.
func TestPeers(t *testing.T) {
	var got []string
	m := made(t, limited(t, 100), fiberlimit.Config{Prepare: func(_ fiber.Ctx, q *ratelimit.Request) { got = append(got, q.Client+" "+q.IP) }})
	app := fiber.New()
	app.Use(m.Handler)
	app.Get("/", func(fiber.Ctx) error { return nil })
	serve := app.Handler()
	var want []string
	for _, row := range []struct {
		from net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.IP{203, 0, 113, 9}, Port: 1}, "ip:203.0.113.9 203.0.113.9"},
		{&net.TCPAddr{IP: net.IPv4(203, 0, 113, 9), Port: 2}, "ip:203.0.113.9 203.0.113.9"}, // mapped into IPv6
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 1}, "ip:2001:db8::/64 2001:db8::/64"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::2"), Port: 1, Zone: "eth0"}, "ip:2001:db8::/64 2001:db8::/64"},
		{&net.TCPAddr{IP: net.ParseIP("64:ff9b::cb00:7109"), Port: 1}, "ip:203.0.113.9 203.0.113.9"},
		{&net.UnixAddr{Name: "203.0.113.7:1", Net: "unix"}, "ip:local local"},
		{&net.TCPAddr{IP: net.IPv4(203, 0, 113, 10), Port: 2}, "ip:203.0.113.10 203.0.113.10"},
		{&net.TCPAddr{}, "ip:unknown unknown"},
		{&net.IPAddr{IP: net.IPv4(203, 0, 113, 11)}, "ip:203.0.113.11 203.0.113.11"},
	} {
		var request fasthttp.Request
		request.SetRequestURI("/")
		request.Header.SetHost("example.com")
		ctx := new(fasthttp.RequestCtx)
		ctx.Init2(&connection{local: row.from, remote: row.from}, nil, false)
		request.CopyTo(&ctx.Request)
		serve(ctx)
		assert.Equal(t, 200, ctx.Response.StatusCode())
		want = append(want, row.want)
	}
	assert.Equal(t, want, got)
}

// A connection knows only the addresses of its ends.
type connection struct {
	net.Conn

	local, remote net.Addr
}

func (c *connection) LocalAddr() net.Addr  { return c.local }
func (c *connection) RemoteAddr() net.Addr { return c.remote }
