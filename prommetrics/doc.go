// Package prommetrics exports what a [ratelimit.RateLimiter] counts to Prometheus.
//
// A [Collector] reads the statistics that the limiter keeps anyway, at each scrape, so it does not
// slow decisions down. [Durations] is an optional observer that measures how long decisions take.
//
// All metrics have the label limiter. No label contains the name of a client or an address. Only the
// label rule can have many values; [Options.MaxRules] limits their number. A rule without a name is
// shown under its endpoint.
//
// All types are safe for concurrent use by multiple goroutines. The package starts no goroutine.
package prommetrics
