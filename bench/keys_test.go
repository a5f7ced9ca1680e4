package bench

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestKeysAreDistinct(t *testing.T) {
	const n = 200_000
	seen := make(map[string]int, n)
	for i := range n {
		key := Key(i)
		assert.Len(t, key, KeyLen)
		if j, ok := seen[key]; ok {
			t.Fatalf("keys %d and %d are both %q", j, i, key)
		}
		seen[key] = i
	}
}

func TestNextDrawsEveryKeyAndNoOther(t *testing.T) {
	for _, n := range []int{1, 2, 100} {
		known := make(map[string]bool, n)
		for i := range n {
			known[Key(i)] = true
		}
		drawn := make(map[string]int)
		k := NewKeys(n, 7)
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

func TestKeysOfDifferentSeedsDiffer(t *testing.T) {
	a, b := NewKeys(1_000_000, 1), NewKeys(1_000_000, 2)
	same := 0
	for range 1000 {
		if a.Next() == b.Next() {
			same++
		}
	}
	assert.Less(t, same, 5)
}

func TestAtIsKeyInFreshMemory(t *testing.T) {
	k := NewKeys(1, 0)
	for i := range 1000 {
		assert.Equal(t, Key(i), k.At(i))
	}
	a, b := k.At(1), k.At(1)
	assert.Equal(t, a, b)
	assert.NotSame(t, unsafe.StringData(a), unsafe.StringData(b), "equal keys in a row lie apart")
}

func TestKeysAllocateNothing(t *testing.T) {
	k := NewKeys(1000, 0)
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
