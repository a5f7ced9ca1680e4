package exact

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDivide compares division by multiplication with division, at and around the
// multiples of the divisor, where a quotient that is 1 too small would show.
func TestDivide(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300_000 {
		by := uint64(edgy(r, math.MaxInt64))
		d := newDivisor(by)
		n := r.Uint64()
		switch r.IntN(4) {
		case 0:
			n = n/by*by + uint64(r.IntN(3)) - 1
		case 1:
			n = math.MaxUint64 - uint64(r.IntN(3))
		case 2:
			n = uint64(edgy(r, math.MaxInt64))
		}
		quotient, rest := d.divide(n)
		require.Equal(t, n/by, quotient, "%d/%d", n, by)
		require.Equal(t, n%by, rest, "%d/%d", n, by)
	}
}
