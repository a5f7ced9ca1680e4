// Package otelmetrics exports what a [ratelimit.RateLimiter] counts by OpenTelemetry.
//
// [Register] makes observable instruments, which read the limiter's own statistics when metrics
// are collected, so they do not make decisions slower:
//
//   - rate_limiting.requests counts requests, by the attribute rate_limiting.result: "allowed",
//     "denied" or "shadow_denied";
//   - rate_limiting.keys is the number of keys that have state in this process;
//   - rate_limiting.store.errors counts the calls of the store, or of a custom limiter, that
//     failed.
//
// All have the attributes rate_limiting.policy, which is the name of the rule, and
// rate_limiting.limiter. No client, address, path or endpoint is in an attribute of its own. A
// rule without a name is called by its endpoint.
//
// The package imports the OpenTelemetry API only. All of it is safe for concurrent use by
// multiple goroutines. It starts no goroutine.
package otelmetrics
