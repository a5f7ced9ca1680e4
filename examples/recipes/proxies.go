package recipes

import (
	"net/netip"

	"github.com/ratelimit-go/ratelimit/httplimit"
)

// nginxByTCP is for servers to which nginx comes from another machine, 10.0.0.5.
var nginxByTCP = httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}}

// nginxBySocket is for a server to which nginx comes by a unix socket.
var nginxBySocket = httplimit.Proxies{Unix: true}

// alb is for servers behind an Application Load Balancer in two subnets, in which no clients are.
var alb = httplimit.Proxies{Trusted: []netip.Prefix{
	netip.MustParsePrefix("10.0.1.0/24"),
	netip.MustParsePrefix("10.0.2.0/24"),
}}

// cloudflare is for servers that Cloudflare reaches directly. These are the first two of its
// networks: take all from https://www.cloudflare.com/ips.
var cloudflare = httplimit.Proxies{
	Trusted: []netip.Prefix{
		netip.MustParsePrefix("173.245.48.0/20"),
		netip.MustParsePrefix("103.21.244.0/22"),
	},
	Header: "CF-Connecting-IP",
}

// ingress is for pods that only one ingress controller reaches.
var ingress = httplimit.Proxies{Hops: 1}
