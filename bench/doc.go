// Package bench runs this module's limiters side by side with other Go rate
// limiters, under workloads that are the same for all of them.
//
// The benchmarks of this package and the program cmd/report share what is
// here: the subjects, the keys and the loops. cmd/report takes the figures that
// the project promises to keep and says which are kept.
package bench
