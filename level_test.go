package ratelimit

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// edgy returns a number from 1 to most that is often near a power of two or most.
func edgy(r *rand.Rand, most int64) int64 {
	switch r.IntN(4) {
	case 0:
		return min(1+r.Int64N(16), most)
	case 1:
		return max(most-r.Int64N(16), 1)
	case 2:
		return min(max(int64(1)<<r.IntN(63)+r.Int64N(5)-2, 1), most)
	}
	return 1 + r.Int64N(most)
}

// parts returns what debt is in parts of 1/unit token.
func parts(b *bucket, debt level) *big.Int {
	n := new(big.Int).Mul(big.NewInt(debt.whole), big.NewInt(b.unit))
	return n.Add(n, big.NewInt(debt.frac))
}

// TestBucketArithmetic compares the 128-bit arithmetic with math/big.
func TestBucketArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		rate := Rate{Requests: int(edgy(r, math.MaxInt)), Per: time.Duration(edgy(r, math.MaxInt64)), Burst: int(edgy(r, math.MaxInt32))}
		b, err := newBucket(rate)
		require.NoError(t, err)
		left := new(big.Int).Mul(big.NewInt(b.gain), big.NewInt(int64(rate.Per)))
		require.Zero(t, left.Cmp(new(big.Int).Mul(big.NewInt(b.unit), big.NewInt(int64(rate.Requests)))), "%v: gain/unit is the rate", rate)

		debt := level{whole: edgy(r, b.burst) - 1, frac: edgy(r, b.unit) - 1}
		elapsed := uint64(edgy(r, math.MaxInt64)) << r.IntN(2)
		want := parts(&b, debt)
		want.Sub(want, new(big.Int).Mul(new(big.Int).SetUint64(elapsed), big.NewInt(b.gain)))
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		got := b.drained(debt, elapsed)
		require.Zero(t, want.Cmp(parts(&b, got)), "%v: %v after %d", rate, debt, elapsed)
		require.True(t, got.whole >= 0 && got.frac >= 0 && got.frac < b.unit, "%v: %v", rate, got)

		ns := parts(&b, debt)
		ns.Add(ns, big.NewInt(b.gain-1)).Quo(ns, big.NewInt(b.gain))
		if !ns.IsInt64() {
			ns.SetInt64(int64(Never))
		}
		require.Equal(t, time.Duration(ns.Int64()), b.toDrain(b.parts(debt)), "%v: %v", rate, debt)
	}
}

// TestRescaled checks that a change of the unit rounds a debt up, by less than one
// new part.
func TestRescaled(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		from := bucket{unit: edgy(r, math.MaxInt64)}
		to := bucket{unit: edgy(r, math.MaxInt64)}
		debt := level{whole: edgy(r, math.MaxInt32), frac: edgy(r, from.unit) - 1}
		got := to.rescaled(debt, &from)
		require.True(t, got.frac >= 0 && got.frac < to.unit)
		more := new(big.Int).Mul(parts(&to, got), big.NewInt(from.unit))
		more.Sub(more, new(big.Int).Mul(parts(&from, debt), big.NewInt(to.unit)))
		require.True(t, more.Sign() >= 0 && more.Cmp(big.NewInt(from.unit)) < 0, "%v of %d in %d is %v", debt, from.unit, to.unit, got)
	}
}

// TestWindowOffset compares the place in a window with math/big, for starts from
// the year 1 to 9999.
func TestWindowOffset(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	first, last := time.Time{}.Unix(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
	for range 100_000 {
		start := time.Unix(first+r.Int64N(last-first), r.Int64N(1e9))
		per := time.Duration(edgy(r, math.MaxInt64))
		since := edgy(r, math.MaxInt64)
		if r.IntN(2) == 0 {
			since = -since
		}
		w := newWindow(Rate{Requests: 1, Per: per}, start)
		at := new(big.Int).Mul(big.NewInt(start.Unix()), big.NewInt(1e9))
		at.Add(at, big.NewInt(int64(start.Nanosecond()))).Add(at, big.NewInt(since))
		want := at.Mod(at, big.NewInt(int64(per))).Uint64() // Euclidean: never negative
		require.Equal(t, want, w.offset(keytable.InstantAt(time.Duration(since))), "%v, %v, %d", start, per, since)
	}
}
