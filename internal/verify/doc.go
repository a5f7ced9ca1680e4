// Package verify tests the limiters of the parent module from outside.
//
// It contains the tests that need more than the standard library: simple models that
// restate the definition of each algorithm, random schedules of requests, a linearizability
// checker with a clock that yields to other goroutines, and mutants. A mutant is a copy of
// the code with one mistake, which the tests must find. The package is a module of its own,
// so that users of the parent module do not get its dependencies.
//
// A plain go test runs everything except the mutants, with a fixed seed. With -rapid.seed=0
// the seed is a new one each time. With RATELIMIT_MUTANTS=1 in the environment it runs the
// mutants too.
package verify
