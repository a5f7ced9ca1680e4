package recipes

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// TestProxies reads what each proxy sends about a client at 203.0.113.9 that has forged an address.
func TestProxies(t *testing.T) {
	for _, row := range []struct {
		why     string
		proxies httplimit.Proxies
		peer    string
		sent    []string
		want    string
	}{
		{"nginx appends", nginxByTCP, "10.0.0.5", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"a neighbour of nginx is not believed", nginxByTCP, "10.0.0.6", []string{"6.6.6.6"}, "10.0.0.6"},
		{"a unix socket has no address", nginxBySocket, "", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"who comes by TCP is not believed", nginxBySocket, "198.51.100.1", []string{"6.6.6.6"}, "198.51.100.1"},
		{"the load balancer appends", alb, "10.0.2.17", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
		{"and so does one behind another", alb, "10.0.2.17", []string{"6.6.6.6, 203.0.113.9, 10.0.1.4"}, "203.0.113.9"},
		{"with the port of the client", alb, "10.0.2.17", []string{"6.6.6.6, 203.0.113.9:4711"}, "203.0.113.9"},
		{"Cloudflare overwrites", cloudflare, "173.245.48.1", []string{"203.0.113.9"}, "203.0.113.9"},
		{"past Cloudflare", cloudflare, "198.51.100.1", []string{"6.6.6.6"}, "198.51.100.1"},
		{"an ingress that replaces", ingress, "10.244.0.3", []string{"203.0.113.9"}, "203.0.113.9"},
		{"an ingress that appends", ingress, "10.244.0.3", []string{"6.6.6.6, 203.0.113.9"}, "203.0.113.9"},
	} {
		var peer netip.Addr
		if row.peer != "" {
			peer = netip.MustParseAddr(row.peer)
		}
		assert.Equal(t, row.want, row.proxies.Addr(peer, row.sent).String(), row.why)
		_, err := httplimit.New(perMinute(t, 1), httplimit.Config{Proxies: row.proxies})
		assert.NoError(t, err, row.why)
	}
}
