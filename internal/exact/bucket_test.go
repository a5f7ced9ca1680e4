package exact

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// edgy returns a number from 1 to limit. It is often near a power of two or near limit.
func edgy(r *rand.Rand, limit int64) int64 {
	switch r.IntN(4) {
	case 0:
		return min(1+r.Int64N(16), limit)
	case 1:
		return max(limit-r.Int64N(16), 1)
	case 2:
		return min(max(int64(1)<<r.IntN(63)+r.Int64N(5)-2, 1), limit)
	}
	return 1 + r.Int64N(limit)
}

// parts returns debt in parts of a token, of which unit make a token.
func parts(b *Bucket, debt Level) *big.Int {
	n := new(big.Int).Mul(big.NewInt(debt.Whole), big.NewInt(b.Unit))
	return n.Add(n, big.NewInt(debt.Frac))
}

// TestBucketArithmetic compares the 128-bit arithmetic with math/big.
func TestBucketArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		requests, per := edgy(r, math.MaxInt64), edgy(r, math.MaxInt64)
		b := NewBucket(requests, per, edgy(r, math.MaxInt32))
		rate := fmt.Sprintf("%d/%dns", requests, per)
		left := new(big.Int).Mul(big.NewInt(b.Gain), big.NewInt(per))
		require.Zero(t, left.Cmp(new(big.Int).Mul(big.NewInt(b.Unit), big.NewInt(requests))), "%v: gain/unit is the rate", rate)

		debt := Level{Whole: edgy(r, b.Burst) - 1, Frac: edgy(r, b.Unit) - 1}
		elapsed := uint64(edgy(r, math.MaxInt64)) << r.IntN(2)
		want := parts(&b, debt)
		want.Sub(want, new(big.Int).Mul(new(big.Int).SetUint64(elapsed), big.NewInt(b.Gain)))
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		got := b.Drained(debt, elapsed)
		require.Zero(t, want.Cmp(parts(&b, got)), "%v: %v after %d", rate, debt, elapsed)
		require.True(t, got.Whole >= 0 && got.Frac >= 0 && got.Frac < b.Unit, "%v: %v", rate, got)

		ns := parts(&b, debt)
		ns.Add(ns, big.NewInt(b.Gain-1)).Quo(ns, big.NewInt(b.Gain))
		if !ns.IsInt64() {
			ns.SetInt64(int64(Never))
		}
		require.Equal(t, time.Duration(ns.Int64()), b.ToDrain(b.Parts(debt)), "%v: %v", rate, debt)
	}
}

// TestRescaled checks that a change of the unit rounds a debt up, by less than one
// new part.
func TestRescaled(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		from := Bucket{Unit: edgy(r, math.MaxInt64)}
		to := Bucket{Unit: edgy(r, math.MaxInt64)}
		debt := Level{Whole: edgy(r, math.MaxInt32), Frac: edgy(r, from.Unit) - 1}
		got := to.Rescaled(debt, &from)
		require.True(t, got.Frac >= 0 && got.Frac < to.Unit)
		more := new(big.Int).Mul(parts(&to, got), big.NewInt(from.Unit))
		more.Sub(more, new(big.Int).Mul(parts(&from, debt), big.NewInt(to.Unit)))
		require.True(t, more.Sign() >= 0 && more.Cmp(big.NewInt(from.Unit)) < 0, "%v of %d in %d is %v", debt, from.Unit, to.Unit, got)
	}
}
