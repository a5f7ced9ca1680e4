package bench

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"
)

// Names selects how the text of a key is made from the key's number. Different numbers give
// different keys.
type Names uint8

// The ways to write keys.
const (
	Varied Names = iota // 8 to 40 bytes, all lengths equally often; key number 0 has 24 bytes
	Even                // 24 bytes each
	Long                // 64 bytes each, like API keys
)

// String returns the name of the way to write keys, as it appears in the name of a benchmark.
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

// KeyLen is the length, in bytes, of an Even key and of Varied key number 0. It is also the
// average length of Varied keys.
const KeyLen = 24

const (
	shortest, longest = 8, 40 // the smallest and the largest length of Varied keys, in bytes
	longLen           = 64    // length of Long keys, in bytes
)

// keyText is the text that all keys share. A key is this text with 16 hexadecimal digits in place
// of its first 16 bytes, cut to the length of the key.
const keyText = "0123456789abcdef@clients.eu-central-1.example.com/accounts/main/"

// Keys makes the keys for calls. It writes them one after the other into two
// buffers.
//
// A service gets its key from a request: the bytes are new, and the string is never
// the one that the limiter has stored. A benchmark that passes the same stored
// string again and again gives figures that are too good: the comparison of the
// bytes is skipped because the pointers are equal, and the bytes are in the cache.
// So Keys writes the bytes of each key again, in the same way for every subject.
//
// The string that At or Next returns shares a buffer that later calls overwrite, so
// a call for a known key allocates nothing. A subject that stored this string would
// soon hold a wrong key. To add new keys, use [Names.Key], which returns a copy. The
// function [Fill] does so. Only this module's limiters may get new keys from At, because
// they promise not to keep the caller's string. The report relies on this when it grows
// a limiter to millions of keys.
//
// Next returns the key that the previous call of Next wrote, and writes the key for
// the next call. So a key has been in memory for a while when the limiter hashes
// it, as in a service. If the limiter read the bytes immediately after they were
// written, the processor would delay the read, and each figure would include this
// delay.
//
// Keys is not safe for concurrent use: each goroutine needs its own.
type Keys struct {
	state   uint64 // state of the random generator; never zero
	count   uint64 // the number of different keys: Next chooses a number from 0 to count-1
	turn    uint   // number of keys written so far; its lowest bit is the index of the buffer to write next
	names   Names
	lengths [2]int // lengths of the keys in the buffers
	bufs    [2][longLen]byte
	_       [64]byte // keeps the buffers of two goroutines in different cache lines
}

// NewKeys returns Keys whose method Next chooses at random among the first count keys of the given
// Names, all with the same probability. Different seeds give different orders.
func NewKeys(names Names, count int, seed uint64) *Keys {
	k := &Keys{state: mix(seed+1) | 1, count: uint64(count), names: names}
	for i := range k.bufs {
		copy(k.bufs[i][:], keyText)
	}
	k.Next()
	return k
}

// Next returns a random key. The string is valid only until the next call of Next or At.
func (k *Keys) Next() string {
	// Xorshift is a fast generator of random numbers. Mul64 then multiplies x, a random number of 64
	// bits, by count. The high half of the product is a random number below count, found without a
	// division.
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

// At returns key number i. The string stays valid during one further call of Next or At. The second
// further call overwrites it.
func (k *Keys) At(i int) string {
	b := &k.bufs[k.turn&1]
	length := k.names.write(b, uint32(i))
	k.lengths[k.turn&1] = length
	k.turn++
	return unsafe.String(&b[0], length)
}

// Key returns key number i as a new string, which stays valid. The number must be below 2^32.
func (n Names) Key(i int) string {
	var b [longLen]byte
	copy(b[:], keyText)
	length := n.write(&b, uint32(i))
	return string(b[:length])
}

// write puts the digits of key number i at the beginning of b and returns the length of the key.
// Two different keys differ in their first eight digits, because scatter never gives two numbers
// the same result.
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
	// The product maps x evenly to the lengths from shortest to longest. Key number 0 has x = 0.
	// Adding 1<<31, half of the range of x, gives this key the middle length, 24.
	return shortest + int(uint64(x+1<<31)*(longest-shortest+1)>>32)
}

// scatter spreads the bits of i over 32 bits, so that neighbouring numbers give keys without a long
// common beginning. Each step can be undone, so two numbers never give the same result.
func scatter(i uint32) uint32 {
	i *= 0x9e3779b1
	i ^= i >> 15
	i *= 0x85ebca77
	return i ^ i>>13
}

// mix spreads the bits of i over 64 bits.
func mix(i uint64) uint64 {
	i *= 0x9e3779b97f4a7c15
	return i ^ i>>32
}

// hex returns the eight hexadecimal digits of x, one in each byte. The lowest digit comes first in
// memory.
func hex(x uint32) uint64 {
	const ones = 0x0101010101010101
	v := uint64(x)
	v = (v | v<<16) & 0x0000ffff0000ffff
	v = (v | v<<8) & 0x00ff00ff00ff00ff
	v = (v | v<<4) & 0x0f0f0f0f0f0f0f0f
	letters := (v + 6*ones) >> 4 & ones // 1 in each byte whose digit is a letter
	return v + '0'*ones + letters*('a'-'0'-10)
}
