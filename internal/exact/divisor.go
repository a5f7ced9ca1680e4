package exact

import (
	"math"
	"math/bits"
)

// A divisor divides by the same number many times. It multiplies by the inverse, which takes a
// fraction of the time of a division.
type divisor struct {
	by      uint64 // above 0
	inverse uint64 // 2^64/by, rounded down
}

func newDivisor(by uint64) divisor { return divisor{by, math.MaxUint64 / by} }

// divide returns n/by, rounded down, and the rest.
//
// inverse is less than 1 below 2^64/by, and n is below 2^64. So n·inverse/2^64 is less than 1
// below n/by, and rounded down it is the quotient or 1 too small. The rest says which.
func (d *divisor) divide(n uint64) (quotient, rest uint64) {
	quotient, _ = bits.Mul64(n, d.inverse)
	if rest = n - quotient*d.by; rest >= d.by {
		return quotient + 1, rest - d.by
	}
	return quotient, rest
}
