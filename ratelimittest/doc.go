// Package ratelimittest is a conformance kit: it checks that a limiter, or a store, keeps
// the promises of the package ratelimit. Call it from a test of your own limiter or store.
//
// [TestLimiter] makes random calls of any [ratelimit.Limiter]. It checks each answer
// against the rules that hold for every limiter, against a [Bound] on what may be granted,
// and against a [Model]. The models of this package are the five algorithms, written from
// their definitions in exact arithmetic and without regard to speed. You can check your
// limiter against one of them, against a model that you write, or against none.
//
// [TestStore] does the same for any [ratelimit.Store]. Its calls are about several states
// at a time, each of which is compared with a Model.
//
// The limiter or store under test must read no other clock than the one that it is given:
// the same calls at the same instants must get the same answers.
package ratelimittest
