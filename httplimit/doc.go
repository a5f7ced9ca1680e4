// Package httplimit limits the requests to a net/http server by the rules of a
// [ratelimit.RateLimiter], and lets a client wait before it sends.
//
// [Handler] is all that a server needs that no proxy stands before; [New] takes a [Config]
// for everything else. A request is charged before the next handler runs. If a rule denies
// it, the client gets the status 429, says Retry-After when to come again, and a problem
// document names the rules. Each response has the header fields RateLimit and
// RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11.
//
// The client is the address that the connection comes from, an IPv6 address by its first 64
// bits, because that is the one identity that nobody can forge. Behind a proxy all clients
// share that identity, until [Config.Proxies] says which proxies may be believed.
//
// For clients, [Transport] waits for as long as a server has asked for, and until a RateLimiter
// grants the request.
//
// All types are safe for concurrent use by multiple goroutines. The package starts no
// goroutine and reads no body, and wraps a ResponseWriter for [Config.Count] only.
package httplimit
