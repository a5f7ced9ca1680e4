// Package exact does the integer arithmetic of the algorithms: levels of a bucket that drains
// at a rational rate, windows that begin at multiples of their length, and logs of instants.
//
// The arithmetic keeps all fractions. Where a result must be a whole number, it is rounded in the direction
// that never gives a client more than its limit. Nothing overflows, because products are computed in 128
// bits. The functions store nothing and read no clock: the caller passes the state of a key and the instant.
package exact
