package exact

import (
	"math"
	"math/bits"
)

// Each function below returns the largest number of units that a key can be granted in a closed interval.
// The parameter length is the length of the interval in nanoseconds. Instants are whole nanoseconds, so a
// closed interval has length+1 instants. A larger result than 2^64-1 is returned as 2^64-1. The
// parameters requests and per are above 0.

// MaxGranted returns the largest number of units that a bucket grants to one key in a closed interval
// of this length, in nanoseconds.
//
// A client is granted the most if its key owes nothing at first and the client takes all available
// units at each instant. After each instant, the debt is then above Burst-1 tokens.
//
// In most buckets, at most Burst-1 tokens drain in a nanosecond. The debt then never reaches zero, so
// tokens drain all the time.
//
// In any other bucket, more than Burst-1 tokens drain in a nanosecond. (The variable lost is how much more, in
// parts of a token.) While the client takes Burst-1 units at each instant, the debt that it has just before it
// takes them shrinks by this difference from one instant to the next. When this debt is zero, the client is
// granted Burst units at once. Example: 1.5 tokens drain in a nanosecond, and Burst is 2. The client is granted
// 2 units at the first instant, and then 1, 2, 1, 2 and so on.
func (b *Bucket) MaxGranted(length uint64) uint64 {
	burst, unit := uint64(b.Burst), uint64(b.Unit)
	hi, limit := bits.Mul64(burst-1, unit)
	if hi > 0 || uint64(b.Gain) <= limit {
		return add(burst, ratio(length, uint64(b.Gain), unit))
	}
	lost := uint64(b.Gain) - limit
	return add(add(mul(burst-1, length), burst), length/ratioUp(unit, 1, lost))
}

// MaxOfWindows returns the largest number of units that fixed windows grant in an interval of this
// length, in nanoseconds. The parameter per is the length of a window in nanoseconds. The interval
// can touch length/per windows, rounded up, plus one, and each of them can grant all its units.
func MaxOfWindows(requests, per, length uint64) uint64 {
	return mul(requests, add(1, ratioUp(length, 1, per)))
}

// MaxOfTouched returns the largest number of units that are granted in an interval that touches at most the given
// number of windows. Each window grants the number of units in the parameter requests.
func MaxOfTouched(requests, windows uint64) uint64 { return mul(requests, windows) }

// MaxOfLog returns the largest number of units that a sliding window log grants in an interval of this
// length, in nanoseconds. The parameter per is the length of the window, in nanoseconds: a unit that is
// granted can be granted again after this time.
func MaxOfLog(requests, per, length uint64) uint64 { return mul(requests, 1+length/per) }

// MaxOfCounter returns the largest number of units that a sliding window counter grants in an interval
// of this length, in nanoseconds.
//
// A client is granted the most if it takes all units that it can get at two kinds of instants: at the
// last instant of each window that ends in the interval, and at the end of the interval. At the last
// instant of a window, the weight of the previous window is smallest.
func MaxOfCounter(requests, per, length uint64) uint64 {
	if length == 0 {
		return requests
	}
	windows, rest := (length-1)/per+1, (length-1)%per
	count, before := requests, uint64(0) // units granted in the current window (count) and in the previous window (before)
	sum := requests
	for k := uint64(1); k < windows; k++ {
		next := requests - ratioUp(count, 1, per)
		if k > 1 && next == before { // from here on, the values of count and before alternate
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

// add returns the sum a+b, or 2^64-1 if the sum is larger.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry > 0 {
		return math.MaxUint64
	}
	return sum
}

// mul returns the product a·b, or 2^64-1 if the product is larger.
func mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi > 0 {
		return math.MaxUint64
	}
	return lo
}

// ratio returns the quotient a·b/c rounded down, or 2^64-1 if the quotient is larger.
func ratio(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(hi, lo, c)
	return quotient
}

// ratioUp returns the quotient a·b/c rounded up, or 2^64-1 if the quotient is larger.
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
