// Package ratelimittest is a conformance kit. It checks that a limiter or a store keeps the
// promises of package ratelimit. Call it from a test of your own limiter or store.
//
// [TestLimiter] makes random calls of any [ratelimit.Limiter]. It checks each answer
// against the rules that hold for every limiter, against a [Bound] on what may be granted,
// and against a [Model]. The models of this package are the five algorithms, written from
// their definitions in exact arithmetic and without regard to speed. You can check your
// limiter against one of them, against a model that you write, or against none.
//
// [TestStore] does the same for any [ratelimit.Store]. One call of a store may ask for units of
// several keys; each key is compared with a Model of its own.
//
// The limiter or store under test must read only the clock that it is given. The kit makes
// some lists of calls more than once, and then expects the same answers to the same calls at
// the same instants.
package ratelimittest
