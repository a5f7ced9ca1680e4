package exact

import (
	"math"
	"math/bits"
)

// A divisor divides many numbers by the same number. It multiplies by the inverse of that number, which
// is much faster than a division.
type divisor struct {
	by      uint64 // the number to divide by, above 0
	inverse uint64 // (2^64-1)/by, rounded down
}

func newDivisor(by uint64) divisor { return divisor{by, math.MaxUint64 / by} }

// divide returns the quotient of n and d.by, rounded down, and the rest of the division.
//
// It multiplies n by the inverse of d.by. The product is the quotient, or one less than the quotient.
// If it is one less, the rest is at least d.by, and divide adds the missing one.
func (d *divisor) divide(n uint64) (quotient, rest uint64) {
	quotient, _ = bits.Mul64(n, d.inverse)
	if rest = n - quotient*d.by; rest >= d.by {
		return quotient + 1, rest - d.by
	}
	return quotient, rest
}
