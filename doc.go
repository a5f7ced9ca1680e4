// Package ratelimit decides whether an event may happen now.
//
// [NewTokenBucket] makes a limiter with a budget for each key: [TokenBucket.Allow] takes one unit, and the [Result]
// says whether it was granted, what is left, and how long to wait. [LeakyBucket], [FixedWindow], [SlidingWindowCounter]
// and [SlidingWindowLog] are the other algorithms; each type's comment states the bound that it enforces as a formula.
//
// [New] makes a [RateLimiter] from [Rule] values, and [NewFromConfig] makes one from maps, such as decoded JSON.
// [RateLimiter.Allow] finds the rules for a client and an endpoint, and charges all of them or none. The comment of
// [RateLimiter] lists its other methods. Rules can change while they are in use, and every key keeps what it has used.
//
// A limiter keeps its state in this process or, with [WithStore], in a [Store] that several processes share. An
// [Observer] sees each decision, and [RateLimiter.Explain] gives the reasons for one. A test uses a [FakeClock].
//
// All limiters are safe for concurrent use by multiple goroutines. Decisions for one key are linearizable: they behave
// as if made one at a time, each at the instant at which it read the clock. A denial changes nothing. Time never runs
// backwards for a key: while the clock is behind, the key's time stands still.
package ratelimit
