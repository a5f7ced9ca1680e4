// Package exact does the integer arithmetic of the algorithms: levels of a bucket that drains
// at a rational rate, windows that begin at multiples of their length, and logs of instants.
//
// It never rounds in a client's favour, loses a fraction or overflows: products are computed in
// 128 bits. It knows no keys and reads no clock; callers pass instants.
package exact
