// Package ratelimit decides whether an event may happen now.
//
// # Start here
//
// [NewTokenBucket] makes a limiter: [TokenBucket.Allow] takes one unit for a key, and the
// [Result] says whether it was granted, what is left, and how long to wait. The other
// algorithms are [LeakyBucket], [FixedWindow], [SlidingWindowCounter] and
// [SlidingWindowLog]; each type's comment states the bound that it enforces as a formula.
// All are a [Limiter]. A [Rate] says what is granted; [ParseRate] reads one from text.
//
// # Rules
//
// [New] makes a [RateLimiter] of [Rule] values. [RateLimiter.Allow] finds the rules for a
// client and an endpoint, and charges all of them or none. [RateLimiter.Check] takes a
// whole [Request]. Rules change while the limiter is used, by [RateLimiter.Reload] and the
// methods beside it, and every key keeps what it has used. [RateLimiter.Reserve] holds units for
// work whose cost is known only afterwards. With [WithRequestIDs], a request that is sent again
// gets the answer that it had, and is charged once. A [Warmup] lets the limit of a new key grow.
//
// # Configuration
//
// [NewFromConfig] reads the rules from maps, as JSON and YAML decode to; [DecodeRules] does
// so in order to attach code to them. A [Factory] makes single limiters from such maps, and
// knows the algorithms that are registered with it. Each mistake in a config is a
// [*ConfigError].
//
// # Stores
//
// By default a limiter keeps its state in this process. [WithStore] keeps it in a [Store]
// that several processes share; the module redisstore, beside this package, has one for
// Redis and Valkey. A [FailurePolicy] answers while the store cannot.
//
// # Watching and extending
//
// [RateLimiter.Stats] counts, and an [Observer] is told of each decision; [SlogObserver]
// writes what went wrong to a log. [RateLimiter.Explain] says why a request is granted or denied,
// and [Algorithm.MaxIn] what is the most that a limit lets through. A limiter of one's own is
// used by [Rule.Limiter].
//
// # Testing
//
// A [FakeClock] moves only when it is told to. Any type with a method Now() time.Time is a
// [Clock]. The package ratelimittest checks whether a Limiter, or a Store, keeps what is
// promised here.
//
// # Promises
//
// All limiters are safe for concurrent use by multiple goroutines. Decisions for one key are
// linearizable: they behave as if made one at a time, each at the instant at which its clock
// was read. A denial changes nothing. Time never runs backwards for a key: a clock that steps
// back is read as standing still.
package ratelimit
