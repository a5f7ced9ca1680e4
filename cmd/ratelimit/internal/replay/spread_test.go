package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	var s spread
	note := func(key string, least uint16) { s.note(noHash.with(key).bits(), least) }
	note("a", left(50, 100))
	note("a", left(99, 100))
	note("b", left(0, 100))
	note("b", left(7, 100))
	note("c", left(1, 10_000))
	note("d", 0)
	note("d", left(3, 3))
	note("e", left(3, 3))
	note("f", left(24, 100))
	note("g", left(50, 100))
	note("g", left(10, 100))
	s.note(0, whole)
	require.Equal(t, Headroom{Exact: true, Keys: 8, Denied: 1, None: 1, Tenth: 1, Fourth: 2, Half: 0, More: 3}, s.headroom())
}

// TestSpreadBounded requires that a spread of many keys is bounded, and that its estimates are of
// the whole: each share is met to within a tenth.
func TestSpreadBounded(t *testing.T) {
	var s spread
	const n = 1_000_000
	for range 2 {
		for i := range n {
			s.note(noHash.with(fmt.Sprint("client", i)).bits(), uint16([]int{0, 1, whole, whole}[i%4]))
		}
	}
	require.LessOrEqual(t, len(s.slots), 2*maxKept)
	h := s.headroom()
	require.False(t, h.Exact)
	for _, pair := range [][2]uint64{{h.Keys, n}, {h.Denied, n / 4}, {h.None, n / 4}, {h.More, n / 2}} {
		require.Greater(t, pair[0], pair[1]*9/10)
		require.Less(t, pair[0], pair[1]*11/10)
	}
}

// TestSpreadLeast compares a spread with a map, also where it keeps a part of the keys: what it
// knows of a key is all that was noted of it.
func TestSpreadLeast(t *testing.T) {
	var s spread
	r, least := rand.New(rand.NewPCG(1, 2)), map[uint64]uint16{}
	for range 400_000 {
		h, v := slot(noHash.with(fmt.Sprint(r.IntN(200_000))).bits()).hash(), uint16(r.IntN(whole))
		s.note(h, v)
		if old, ok := least[h]; !ok || v < old {
			least[h] = v
		}
	}
	s.flush()
	kept := 0
	for _, at := range s.slots {
		if at != 0 {
			kept++
			require.Equal(t, least[at.hash()], at.minLeft())
		}
	}
	require.Equal(t, s.n, kept)
	require.Greater(t, kept, maxKept/4)
}

func TestLeft(t *testing.T) {
	for _, row := range []struct {
		remaining, limit int
		want             uint16
	}{{0, 5, 1}, {1, 1 << 30, 2}, {5, 5, 1001}, {1<<31 - 1, 1<<31 - 1, 1001}, {1, 2, 501}, {3, 0, 1}} {
		require.Equal(t, row.want, left(row.remaining, row.limit))
	}
}

func TestSpans(t *testing.T) {
	var s spans
	for i := range 100 {
		span := s.span(int64(i) * int64(30*time.Minute))
		span.Requests++
		if i == 7 {
			span.Denied++
		}
	}
	list, width := s.within(50)
	require.Len(t, list, 50)
	require.Equal(t, time.Hour, width)
	require.Equal(t, Span{time.Unix(3*3600, 0).UTC(), 2, 1}, list[3])
	list, width = s.within(24)
	require.Len(t, list, 9)
	require.Equal(t, 6*time.Hour, width)
	require.Equal(t, Span{time.Unix(0, 0).UTC(), 12, 1}, list[0])
	require.Equal(t, Span{time.Unix(48*3600, 0).UTC(), 4, 0}, list[8])

	// Far apart, as broken clocks write them.
	s = spans{}
	var requests uint64
	for i := range int64(20_000) {
		s.span(i*int64(100*time.Hour)).Requests++
	}
	require.LessOrEqual(t, len(s.at), maxSpans)
	list, _ = s.within(24)
	require.LessOrEqual(t, len(list), 24)
	for _, span := range list {
		requests += span.Requests
	}
	require.Equal(t, uint64(20_000), requests)
}

// TestHash requires that different texts have different hashes: also texts that differ in a zero byte, in where one ends and the
// next begins, and in the highest bit of two words, which a product alone does not bring to any other bit.
func TestHash(t *testing.T) {
	seen := map[uint64]string{}
	add := func(texts ...string) {
		h := noHash
		for _, text := range texts {
			h = h.with(text)
		}
		name := fmt.Sprintf("%q", texts)
		require.Empty(t, seen[h.bits()], name)
		seen[h.bits()] = name
	}
	add("")
	add("", "")
	add("\x00")
	add("\x00a")
	add("a")
	add("a\x00")
	add("ab", "c")
	add("a", "bc")
	add("abc")
	add("12345678")
	add("12345678", "")
	add("aaaaaaa\x01bbbbbbb\x01")
	add("aaaaaaa\x81bbbbbbb\x81")
}
