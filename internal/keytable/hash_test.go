package keytable

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHashOf(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	seen := make(map[Hash]string)
	for _, key := range []string{
		"", "\x00", "\x00\x00", "a", "a\x00", "\x00a", "\xff", "\xff\xfe", "é", "e\u0301", long, long + "x", long[1:],
	} {
		h := HashOf(key)
		assert.NotZero(t, h.Hi, "zero marks an empty slot")
		assert.Equal(t, h, HashOf(strings.Clone(key)), "a hash is that of the bytes")
		other, ok := seen[h]
		assert.False(t, ok, "%.9q and %.9q share a hash", key, other)
		seen[h] = key
	}
}

func TestHalvesOfAHashAreIndependent(t *testing.T) {
	// Keys that collide in one half must not collide in the other: otherwise the second
	// half would add nothing to the identity.
	equal := 0
	for i := range 10_000 {
		if h := HashOf(strconv.Itoa(i)); h.Hi == h.Lo {
			equal++
		}
	}
	assert.Zero(t, equal)
}

func TestATableKeepsNoKeyAlive(t *testing.T) {
	table := newDebts(1 << 20)
	bytes := use(table)
	runtime.GC()
	assert.Nil(t, bytes.Value(), "the bytes of a key are still reachable")
	require.Equal(t, 1, table.Len())
	runtime.KeepAlive(table)
}

// use makes a key owe something, and returns the bytes of that key.
//
//go:noinline
func use(table *debts) weak.Pointer[[64]byte] {
	bytes := new([64]byte)
	copy(bytes[:], "a client's key in a buffer of its own")
	owe(table, HashOf(unsafe.String(&bytes[0], len(bytes))), at(0), 1)
	return weak.Make(bytes)
}
