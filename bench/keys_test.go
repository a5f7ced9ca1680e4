package bench

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

var allNames = []Names{Varied, Even, Long}

func TestKeysAreDistinct(t *testing.T) {
	const n = 200_000
	for _, names := range allNames {
		seen := make(map[string]int, n)
		for i := range n {
			key := names.Key(i)
			if j, ok := seen[key]; ok {
				t.Fatalf("%v keys %d and %d are both %q", names, j, i, key)
			}
			seen[key] = i
		}
	}
}

func TestScatterIsABijection(t *testing.T) {
	// Undone, step by step: an xorshift by shifting again, a product by the
	// inverse of its odd factor.
	inverse := func(x uint32) uint32 {
		y := x
		for range 5 {
			y *= 2 - x*y
		}
		return y
	}
	for i := range uint32(100_000) {
		i *= 42_949 // over the whole range
		x := scatter(i)
		x ^= x>>13 ^ x>>26
		x *= inverse(0x85ebca77)
		x ^= x>>15 ^ x>>30
		x *= inverse(0x9e3779b1)
		if x != i {
			t.Fatalf("%d became %d", i, x)
		}
	}
}

func TestLengthsOfKeys(t *testing.T) {
	const n = 100_000
	counts := make(map[int]int)
	for i := range n {
		counts[len(Varied.Key(i))]++
		if i < 1000 {
			assert.Len(t, Even.Key(i), KeyLen)
			assert.Len(t, Long.Key(i), longLen)
		}
	}
	assert.Len(t, counts, longest-shortest+1)
	sum := 0
	for length, times := range counts {
		assert.GreaterOrEqual(t, length, shortest)
		assert.LessOrEqual(t, length, longest)
		// An even share is 3030; for fair draws the odds against this are above 10^9.
		assert.Greater(t, times, 2600, "of length %d", length)
		sum += length * times
	}
	assert.Equal(t, KeyLen, (sum+n/2)/n, "on average")
	assert.Len(t, Varied.Key(0), KeyLen, "the only key of a workload with one")
}

func TestNamesString(t *testing.T) {
	for names, want := range map[Names]string{Varied: "varied", Even: "even", Long: "long", 7: "Names(7)"} {
		assert.Equal(t, want, names.String())
	}
}

func TestNextDrawsEveryKeyAndNoOther(t *testing.T) {
	for _, names := range allNames {
		for _, n := range []int{1, 2, 100} {
			known := make(map[string]bool, n)
			for i := range n {
				known[names.Key(i)] = true
			}
			drawn := make(map[string]int)
			k := NewKeys(names, n, 7)
			for range 200 * n {
				drawn[strings.Clone(k.Next())]++
			}
			assert.Len(t, drawn, n, "each of %d keys is drawn", n)
			for key, times := range drawn {
				assert.True(t, known[key], "%q is one of the first %d", key, n)
				// For a fair draw the odds against this are above 10^9.
				assert.Greater(t, times, 100, "%q is drawn as often as others, about", key)
			}
		}
	}
}

func TestKeysOfDifferentSeedsDiffer(t *testing.T) {
	a, b := NewKeys(Varied, 1_000_000, 1), NewKeys(Varied, 1_000_000, 2)
	same := 0
	for range 1000 {
		if a.Next() == b.Next() {
			same++
		}
	}
	assert.Less(t, same, 5)
}

func TestAtIsKeyInFreshMemory(t *testing.T) {
	for _, names := range allNames {
		k := NewKeys(names, 1, 0)
		for i := range 1000 {
			assert.Equal(t, names.Key(i), k.At(i))
		}
		a, b := k.At(1), k.At(1)
		assert.Equal(t, a, b)
		assert.NotSame(t, unsafe.StringData(a), unsafe.StringData(b), "equal keys in a row lie apart")
	}
}

func TestKeysAllocateNothing(t *testing.T) {
	k := NewKeys(Varied, 1000, 0)
	length := 0
	assert.Zero(t, testing.AllocsPerRun(1000, func() { length += len(k.Next()) + len(k.At(length)) }))
}

func TestHex(t *testing.T) {
	for _, x := range []uint32{0, 1, 0x9, 0xa, 0xf, 0x12345678, 0x9abcdef0, 0xffffffff} {
		v := hex(x)
		var digits [8]byte
		for i := range digits {
			digits[7-i] = byte(v >> (8 * i)) // the least digit comes first in memory
		}
		assert.Equal(t, fmt.Sprintf("%08x", x), string(digits[:]))
	}
}
