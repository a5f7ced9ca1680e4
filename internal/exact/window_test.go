package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

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
		w := NewWindow(1, per, start)
		at := new(big.Int).Mul(big.NewInt(start.Unix()), big.NewInt(1e9))
		at.Add(at, big.NewInt(int64(start.Nanosecond()))).Add(at, big.NewInt(since))
		want := at.Mod(at, big.NewInt(int64(per))).Uint64() // Euclidean: never negative
		require.Equal(t, want, w.Offset(keytable.InstantAt(time.Duration(since))), "%v, %v, %d", start, per, since)
	}
}

// TestWeighted compares the weight of a count with math/big, and checks that it fades to
// any room exactly when Faded says.
func TestWeighted(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	weight := func(w *Window, count int64, offset uint64) int64 {
		n := new(big.Int).Mul(big.NewInt(count), new(big.Int).SetUint64(w.Per-offset))
		n.Add(n, new(big.Int).SetUint64(w.Per-1))
		return n.Quo(n, new(big.Int).SetUint64(w.Per)).Int64()
	}
	for range 200_000 {
		w := NewWindow(1, time.Duration(edgy(r, math.MaxInt64)), time.Unix(0, 0))
		count, offset := edgy(r, math.MaxInt64), uint64(edgy(r, int64(w.Per)))-1
		require.Equal(t, weight(&w, count, offset), w.Weighted(count, offset), "%d at %d of %d", count, offset, w.Per)
		require.Zero(t, w.Weighted(0, offset))

		room := r.Int64N(count)
		before := w.Faded(count, room)
		require.Less(t, before, w.Per)
		require.LessOrEqual(t, weight(&w, count, w.Per-before), room, "%d fades to %d at %d before the end of %d", count, room, before, w.Per)
		require.Greater(t, weight(&w, count, w.Per-before-1), room,
			"%d fades to %d no earlier than %d before the end of %d", count, room, before, w.Per)
	}
}
