// Package ratelimit decides whether an event may happen now.
//
// A [Limiter] keeps one independent budget per key. Five algorithms are
// provided; each type's comment states the bound it enforces as a formula,
// and the tests check that formula against a slow reference model.
//
// All limiters are safe for concurrent use by multiple goroutines. Decisions
// for one key are linearizable: they behave as if made one at a time, each at
// the instant its clock was read. A denial changes nothing. Time never runs
// backwards for a key: a clock that steps back is read as standing still.
package ratelimit
