// Package httplimit limits the requests to a net/http server by the rules of a
// [ratelimit.RateLimiter], and lets an HTTP client wait before it sends a request.
//
// For a server without a proxy in front of it, [Handler] is enough. [New] takes a [Config] for
// everything else. A request is charged before the next handler runs. If a rule denies the
// request, the client gets the status 429, a Retry-After with the seconds to wait, and a problem
// document that names the rules. Each response has the header fields RateLimit and
// RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11.
//
// By default, the address of the connection identifies the client. Of an IPv6 address, only the
// first 64 bits count. No client can forge that address. Behind a proxy, all clients have the
// address of the proxy and share one budget, until [Config.Proxies] lists the trusted proxies.
//
// [Debug] is a page for operators, which shows the state of a limiter.
//
// For HTTP clients, [Transport] waits for as long as the server has asked for, and until a
// RateLimiter grants the request.
//
// All types are safe for concurrent use by multiple goroutines. The package starts no goroutine and
// reads no body. It wraps the ResponseWriter only if [Config.Count] is set. It usually copies the
// request only if [Config.Info] is set.
package httplimit
