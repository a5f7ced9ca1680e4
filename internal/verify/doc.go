// Package verify tests the limiters of the parent module from outside.
//
// It contains what needs more than the standard library: oracles that restate the
// definition of each algorithm, random schedules that shrink, a linearizability checker
// under a clock that yields to other goroutines, and the mutants that all these tests must
// kill. It is a module of its own, so that no user of the parent module gets its
// dependencies.
//
// A plain go test runs everything except the mutants, with a fixed seed. With -rapid.seed=0
// the seed is a new one each time. With RATELIMIT_MUTANTS=1 in the environment it runs the
// mutants too.
package verify
