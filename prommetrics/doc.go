// Package prommetrics exports what a [ratelimit.RateLimiter] counts to Prometheus.
//
// A [Collector] reads the limiter's own statistics when it is scraped, so it does not make
// decisions slower. [Durations] is an observer, and measures how long decisions take; it is for
// those who want that. All metrics have the label limiter. No metric has the name of a client, an
// address, a path or an endpoint in a label of its own: the only label that grows is rule, and
// [Options.MaxRules] bounds it. A rule without a name is called by its endpoint.
//
// All types are safe for concurrent use by multiple goroutines. The package starts no goroutine.
package prommetrics
