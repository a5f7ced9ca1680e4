// Package exact does the integer arithmetic of the algorithms: levels of a bucket that drains
// at a rational rate, windows that begin at multiples of their length, and logs of instants.
//
// It keeps all fractions, and rounds only where a result must be whole, so that the client never gets more
// than it may. It never overflows, because products are computed in 128 bits. The functions know no keys
// and read no clock: callers pass the state and the instant.
package exact
