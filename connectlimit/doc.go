// Package connectlimit limits the calls to a Connect server by the rules of a [ratelimit.RateLimiter], in the protocols
// Connect, gRPC and gRPC-Web.
//
// [New] makes an [Interceptor] from a limiter and a [Config]. The zero Config is safe. A call is charged before its
// handler runs. If a rule denies it, the client gets the code resource_exhausted. The details of the error say when to
// try again and which rules denied the call, and its metadata has the header fields Retry-After and RateLimit.
//
// The endpoint of a call is its procedure, such as "/shop.v1.Items/Get". By default, the address of the connection
// identifies the client, as package httplimit explains.
//
// Connect calls interceptors only for procedures that the server has. For a unary call, it first reads the message, and
// then calls the interceptors. To limit all requests by address before that, put an [httplimit.Middleware] around the
// server, too.
//
// All types are safe for concurrent use by multiple goroutines. The package starts no goroutine.
package connectlimit
