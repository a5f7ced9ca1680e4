// Package grpclimit limits the calls of a gRPC server, and those of a gRPC client, by the
// rules of a [ratelimit.RateLimiter].
//
// [New] makes [Interceptors] from a limiter and a [Config], whose zero value is safe. A call
// is charged before its handler runs. If a rule denies it, the client gets the code
// RESOURCE_EXHAUSTED with details that say when to come again and which rule has denied, and
// a trailer by which the retry policy of a gRPC client waits for that long.
//
// The client is the address that the connection comes from, an IPv6 address by its first 64
// bits, because that is the one identity that nobody can forge. The endpoint is the full
// method, such as "/shop.Items/Get".
//
// All types are safe for concurrent use by multiple goroutines. The package starts no
// goroutine.
package grpclimit
