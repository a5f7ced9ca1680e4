// Package grpclimit limits the calls to a gRPC server, or the calls of a gRPC client, by the
// rules of a [ratelimit.RateLimiter].
//
// [New] makes [Interceptors] from a limiter and a [Config]. The zero Config is safe. A call is
// charged before its handler runs. If a rule denies the call, the client gets the code
// RESOURCE_EXHAUSTED. The details of the error say when to try again and which rules denied the call.
// A trailer makes the retry policy of a gRPC client wait until that time.
//
// By default, a client is identified by the address of its connection. Of an IPv6 address, only the
// first 64 bits are used. No client can forge the address of its connection. The endpoint is the full
// method, such as "/shop.Items/Get".
//
// All types are safe for concurrent use by multiple goroutines. The package starts no
// goroutine.
package grpclimit
