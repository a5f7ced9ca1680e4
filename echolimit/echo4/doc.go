// Package echo4 limits the requests to an Echo server (version 4) by the rules of a [ratelimit.RateLimiter], as
// package httplimit limits those to a net/http server.
//
// For a server without a proxy in front of it, [Handler] is enough. [New] takes a [Config] for everything else. A
// request is charged before the next handler runs. If a rule denies it, the client gets the status 429, a Retry-After
// and a problem document, and the next handler is not called. Each response has the header fields RateLimit and
// RateLimit-Policy.
//
// The endpoint of a request is the path of its route, such as "/users/:id". By default, the address of the connection
// identifies the client. Config.Proxies says which proxies are trusted; the IPExtractor of Echo does not matter here.
//
// All types are safe for concurrent use by multiple goroutines. The package starts no goroutine.
package echo4
