// Package ratelimittest checks that a limiter, or a store, keeps what it promises.
//
// [TestLimiter] drives any [ratelimit.Limiter] through random schedules of
// asks and checks each answer against the rules that hold for every limiter,
// against a [Bound] on what may be granted, and against a [Model]. The models
// are the five algorithms written down from their definitions in exact
// arithmetic, with no regard to speed; a limiter of one's own can be checked
// against a model of one's own, or against none.
//
// [TestStore] does so for any [ratelimit.Store]: schedules of asks about several
// states at a time, compared with a Model for each.
//
// What is under test reads the clock that it is given and nothing else: the same
// calls at the same instants must give the same answers.
package ratelimittest
