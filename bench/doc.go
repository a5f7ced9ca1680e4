// Package bench runs this module's limiters side by side with other Go rate
// limiters, under workloads that are the same for all of them.
//
// The benchmarks of this package and the program cmd/report share what is
// here: the subjects, the keys and the loops. cmd/report takes the figures that
// the project promises to keep and says which are kept. cmd/alternate runs an old
// and a new build of it, or of the benchmarks, in turns and compares their figures.
//
// The workloads are those of ordinary use. Keys are of 8 to 40 bytes and written
// anew for each ask. Rates are even, as 100/s is, or uneven, as 7/3s is, where a
// bucket divides; the name of the line says which. Windows turn, and the one before has
// left a count. Buckets run dry and refill. Each workload says in a comment which share
// of its asks is allowed, a test checks it on a clock that is set by hand, and the report
// shows it where it is neither none nor all.
//
// Two kinds of line show one side only, and stand beside others: all asks are
// allowed, for a whole run, from a quota that does not run out, or all are denied.
package bench
