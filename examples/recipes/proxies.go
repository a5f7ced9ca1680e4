package recipes

import (
	"net/netip"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// nginxByTCP is for servers behind an nginx on another machine, 10.0.0.5.
var nginxByTCP = httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}

// nginxBySocket is for a server behind an nginx that connects through a unix socket.
var nginxBySocket = httplimit.Proxies{Unix: true}

// alb is for servers behind an Application Load Balancer in two subnets. No clients may be in these
// subnets.
var alb = httplimit.Proxies{Trusted: []netip.Prefix{
	netip.MustParsePrefix("10.0.1.0/24"),
	netip.MustParsePrefix("10.0.2.0/24"),
}}

// cloudflare is for servers that Cloudflare connects to directly. It lists the first two networks of
// Cloudflare; take all of them from https://www.cloudflare.com/ips.
var cloudflare = httplimit.Proxies{
	Trusted: []netip.Prefix{
		netip.MustParsePrefix("173.245.48.0/20"),
		netip.MustParsePrefix("103.21.244.0/22"),
	},
	Header: "CF-Connecting-IP",
}

// ingress is for pods that can be reached only through one ingress controller.
var ingress = httplimit.Proxies{Hops: 1}
