// Package exact does the integer arithmetic of the algorithms: levels of a bucket that drains
// at a rational rate, windows that begin at multiples of their length, and logs of instants.
//
// It rounds only against the client, keeps all fractions, and never overflows: products are
// computed in 128 bits. The functions know no keys and read no clock: callers pass the state and
// the instant.
package exact
