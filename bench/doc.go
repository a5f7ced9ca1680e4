// Package bench runs this module's limiters side by side with other Go rate
// limiters, under workloads that are the same for all of them.
//
// A subject is a limiter that is measured. The benchmarks of this package and the
// program cmd/report share the subjects, the keys and the loops of this package.
// cmd/report measures all subjects, and checks the bounds that the project promises.
// cmd/alternate runs an old and a new build of cmd/report, or of the benchmarks, in
// turns and compares their figures.
//
// The workloads are like ordinary use. Keys have 8 to 40 bytes, which are written again for each call. Rates
// are even (100/s is a unit every 10 ms) or uneven (at 7/3s, the time for a unit is no whole number of
// nanoseconds, so a bucket has to divide). In some workloads windows end during the run, and calls have used
// units in the previous window. In others, buckets run out of units and refill. A comment at each workload
// says what fraction of its calls is allowed, and a test checks that fraction on a manual clock.
//
// In most workloads, all calls have the same outcome. Either all are allowed, from a
// quota that does not run out during the run, or all are denied.
package bench
