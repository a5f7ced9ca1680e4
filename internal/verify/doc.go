// Package verify tests the limiters of this module's parent from outside.
//
// It holds what needs more than the standard library: oracles that restate each
// algorithm's definition, random schedules that shrink, a linearizability
// checker under a clock that yields, and the mutants that all of these must
// kill. It is a module of its own, so that its dependencies are nobody else's.
//
// A plain go test runs everything but the mutants, with a fixed seed. With
// -rapid.seed=0 the seed is a new one each time. RATELIMIT_MUTANTS=1 runs the
// mutants too.
package verify
