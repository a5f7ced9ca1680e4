package exact

import (
	"math"
	"math/bits"
)

// The functions below return the largest number of units that a key can be granted in any closed
// interval of length nanoseconds, which has length+1 instants. Instants are whole nanoseconds. A
// result beyond 2^64-1 is that number. requests and per are above 0.

// Most returns that number for a bucket.
//
// A client is granted most if its key is full at first and it takes, at each instant, as many units
// as there are. The debt is then always above Burst-1 tokens, so nothing that could drain is lost,
// unless a nanosecond drains more than that: lost below is by how much. The debt that is left over
// is then smaller by lost after each nanosecond. Once it is gone, Burst units are granted at once,
// and one less at every other instant.
func (b *Bucket) Most(length uint64) uint64 {
	burst, unit := uint64(b.Burst), uint64(b.Unit)
	hi, most := bits.Mul64(burst-1, unit)
	if hi > 0 || uint64(b.Gain) <= most {
		return add(burst, ratio(length, uint64(b.Gain), unit))
	}
	lost := uint64(b.Gain) - most
	return add(add(mul(burst-1, length), burst), length/ratioUp(unit, 1, lost))
}

// MostOfWindows returns that number for fixed windows: the interval touches one window more than
// its length has, rounded up.
func MostOfWindows(requests, per, length uint64) uint64 {
	return mul(requests, add(1, ratioUp(length, 1, per)))
}

// MostOfLog returns that number for a log: a unit is granted again exactly per after it was.
func MostOfLog(requests, per, length uint64) uint64 { return mul(requests, 1+length/per) }

// MostOfCounter returns that number for a sliding window counter.
//
// A client is granted most if it takes all that it gets at the last instant of each window that the
// interval begins in or covers, and at the end of the interval. Only one instant of the window
// before weighs then, or, at the end of the interval, as little of it as possible.
func MostOfCounter(requests, per, length uint64) uint64 {
	if length == 0 {
		return requests
	}
	windows, rest := (length-1)/per+1, (length-1)%per
	count, before := requests, uint64(0) // granted in a window and in the one before it
	sum := requests
	for k := uint64(1); k < windows; k++ {
		next := requests - ratioUp(count, 1, per)
		if k > 1 && next == before { // from here on, the two counts alternate
			left := windows - k
			sum = add(sum, add(mul(left/2, add(before, count)), left%2*before))
			if left%2 == 1 {
				count = before
			}
			break
		}
		before, count = count, next
		sum = add(sum, count)
	}
	return add(sum, requests-ratioUp(count, per-rest, per))
}

// add returns a+b, or the largest number if the sum is larger.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return sum
}

// mul returns a·b, or the largest number if the product is larger.
func mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi > 0 {
		return math.MaxUint64
	}
	return lo
}

// ratio returns a·b/c rounded down, or the largest number if that is larger.
func ratio(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(hi, lo, c)
	return quotient
}

// ratioUp returns a·b/c rounded up, or the largest number if that is larger.
func ratioUp(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	quotient, rest := bits.Div64(hi, lo, c)
	if rest > 0 {
		quotient = add(quotient, 1)
	}
	return quotient
}
