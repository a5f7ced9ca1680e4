// Package otelmetrics exports the statistics of a [ratelimit.RateLimiter] by OpenTelemetry, and describes decisions on spans.
//
// [Register] makes observable instruments. They read the statistics that the limiter keeps anyway, when
// metrics are collected, so they do not slow decisions down. These are the instruments:
//
//   - rate_limiting.requests counts requests, by the attribute rate_limiting.result: "allowed",
//     "denied", "shadow_denied" or "advised";
//   - rate_limiting.store.errors counts the calls of the store, or of a custom limiter, that
//     failed;
//   - each other counter in [ratelimit.Counters] is exported under its name with the prefix
//     rate_limiting., such as rate_limiting.degraded_requests;
//   - rate_limiting.keys is the number of keys that have state in this process;
//   - rate_limiting.overridden_requests counts the requests that overrides have changed, and
//     rate_limiting.overrides is the number of overrides that have not ended, both by the attribute
//     rate_limiting.effect;
//   - rate_limiting.rule.limit, rule.rate and rule.info describe each rule;
//   - rate_limiting.store.parts and store.opened show the circuit breakers of the store, and store.failures counts
//     failed calls by the attributes rate_limiting.part and rate_limiting.class;
//   - rate_limiting.config.reloads, config.last_reload_successful and config.last_reload_success_time need
//     [Options.Watcher].
//
// [Durations] is an observer that measures how long decisions take. [Spans] is an observer that describes
// each decision on the span of the caller.
//
// All instruments have the attribute rate_limiting.limiter. Those of rules also have
// rate_limiting.policy, which is the name of the rule. A rule without a name is shown under its endpoint.
// No attribute contains the name of a client or an address.
//
// The package imports the OpenTelemetry API, but not the SDK. Register is safe for concurrent use by
// multiple goroutines. The package starts no goroutine.
package otelmetrics
