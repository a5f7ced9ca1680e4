// Package exact is the integer arithmetic of the algorithms: levels of a bucket that
// drains at a rational rate, and windows that begin at multiples of their length.
//
// Nothing in it rounds in a client's favour, loses a fraction or overflows: products
// take 128 bits. It knows no keys, no limits and no clock; callers pass instants.
package exact
