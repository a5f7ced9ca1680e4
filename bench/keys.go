package bench

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"
)

// Names says what the keys of a workload look like. Whatever they look like, no
// two numbers have the same key.
type Names uint8

// The kinds of names.
const (
	Varied Names = iota // of 8 to 40 bytes, evenly; key number 0 has 24
	Even                // of 24 bytes each
	Long                // of 64 bytes each, as API keys are
)

// String returns the names as they are written in the name of a benchmark.
func (n Names) String() string {
	switch n {
	case Varied:
		return "varied"
	case Even:
		return "even"
	case Long:
		return "long"
	}
	return fmt.Sprintf("Names(%d)", uint8(n))
}

// KeyLen is the length, in bytes, of an even key, of key number 0 of the varied ones, and
// of all the varied ones on average.
const KeyLen = 24

const (
	shortest, longest = 8, 40 // of varied keys
	longLen           = 64    // of long keys
)

// keyText is what a key is made of: 16 hexadecimal digits are written over its
// beginning, and the key is as much of it as the key is long.
const keyText = "0123456789abcdef@clients.eu-central-1.example.com/accounts/main/"

// Keys writes keys, each in memory that was written a moment before.
//
// A service gets its key from a request: the bytes are new, and the string is
// never the one that the limiter has seen before. A benchmark that asks with a
// stored string again and again skips the comparison of the bytes, because the
// pointers are equal, and finds the key's bytes in the cache. So each key is
// written anew, in the same way for every subject, floor and peers included.
//
// The string that At and Next return lies over a buffer that is used again two
// calls later. Asking for a key that the subject already holds is therefore
// free of allocation for every subject. A subject that keeps the string of an
// unseen key would be corrupted, so keys are put in with [Names.Key], which makes
// a copy; [Fill] does. The exception is this module's own limiters, which
// promise not to keep the caller's string; the report holds them to that when
// it grows a limiter to millions of keys.
//
// Next returns the key that the call before wrote and writes the one to come.
// A string is in memory long before a limiter hashes it; reading bytes whose
// stores are still under way would add the same stall to every figure.
//
// Keys is not safe for concurrent use: each goroutine has its own.
type Keys struct {
	state   uint64 // of the generator; never zero
	count   uint64 // Next draws from [0, count)
	turn    uint   // which buffer is written next
	names   Names
	lengths [2]int // of the keys in the buffers
	bufs    [2][longLen]byte
	_       [64]byte // keeps the buffers of two goroutines apart
}

// NewKeys returns Keys that draws uniformly from the first count keys of names.
// Two Keys with different seeds draw in different order.
func NewKeys(names Names, count int, seed uint64) *Keys {
	k := &Keys{state: mix(seed+1) | 1, count: uint64(count), names: names}
	for i := range k.bufs {
		copy(k.bufs[i][:], keyText)
	}
	k.Next()
	return k
}

// Next returns a key drawn uniformly. It is valid until the next call but one.
func (k *Keys) Next() string {
	// Xorshift: a cheap generator, and the high half of the product scales
	// it to the range without a division.
	x := k.state
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	k.state = x
	i, _ := bits.Mul64(x, k.count)
	k.lengths[k.turn&1] = k.names.write(&k.bufs[k.turn&1], uint32(i))
	k.turn++
	return unsafe.String(&k.bufs[k.turn&1][0], k.lengths[k.turn&1])
}

// At returns key number i. It is valid until the next call but one.
func (k *Keys) At(i int) string {
	b := &k.bufs[k.turn&1]
	length := k.names.write(b, uint32(i))
	k.lengths[k.turn&1] = length
	k.turn++
	return unsafe.String(&b[0], length)
}

// Key returns key number i, which is below 2^32, as a string of its own.
func (n Names) Key(i int) string {
	var b [longLen]byte
	copy(b[:], keyText)
	length := n.write(&b, uint32(i))
	return string(b[:length])
}

// write puts the digits of key number i at the beginning of b and returns how
// long the key is. Different numbers differ in the first eight digits, as scatter
// is a bijection.
func (n Names) write(b *[longLen]byte, i uint32) int {
	x := scatter(i)
	binary.LittleEndian.PutUint64(b[0:], hex(x))
	binary.LittleEndian.PutUint64(b[8:], hex(x*0x85ebca6b))
	switch n {
	case Long:
		return longLen
	case Even:
		return KeyLen
	}
	// The high half of a product is even over the lengths. Half of the range
	// is added so that number 0, whose digits are zeros, is of middle length.
	return shortest + int(uint64(x+1<<31)*(longest-shortest+1)>>32)
}

// scatter spreads i over 32 bits, so that neighbours share no long prefix. Each
// step can be undone, so that no two numbers meet.
func scatter(i uint32) uint32 {
	i *= 0x9e3779b1
	i ^= i >> 15
	i *= 0x85ebca77
	return i ^ i>>13
}

// mix spreads i over 64 bits.
func mix(i uint64) uint64 {
	i *= 0x9e3779b97f4a7c15
	return i ^ i>>32
}

// hex returns eight hexadecimal digits, one in each byte. The least digit comes
// first in memory.
func hex(x uint32) uint64 {
	const ones = 0x0101010101010101
	v := uint64(x)
	v = (v | v<<16) & 0x0000ffff0000ffff
	v = (v | v<<8) & 0x00ff00ff00ff00ff
	v = (v | v<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (v + 6*ones) >> 4 & ones // 1 in each byte above 9
	return v + '0'*ones + letters*('a'-'0'-10)
}
