package bench

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// KeyLen is the length of every key, in bytes.
const KeyLen = 24

const keyPrefix = "clients/" // the first 8 of them; 16 hexadecimal digits follow

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
// unseen key would be corrupted, so keys are put in with [Key], which makes a
// copy; [Fill] does. The exception is this module's own limiters, which
// promise not to keep the caller's string; the report holds them to that when
// it grows a limiter to millions of keys.
//
// Next returns the key that the call before wrote and writes the one to come.
// A string is in memory long before a limiter hashes it; reading bytes whose
// stores are still under way would add the same stall to every figure.
//
// Keys is not safe for concurrent use: each goroutine has its own.
type Keys struct {
	state uint64 // of the generator; never zero
	count uint64 // Next draws from [0, count)
	turn  uint   // which buffer is written next
	bufs  [2][KeyLen]byte
	_     [64]byte // keeps the buffers of two goroutines apart
}

// NewKeys returns Keys that draws uniformly from the first count keys. Two
// Keys with different seeds draw in different order.
func NewKeys(count int, seed uint64) *Keys {
	k := &Keys{state: mix(seed+1) | 1, count: uint64(count)}
	for i := range k.bufs {
		copy(k.bufs[i][:], keyPrefix)
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
	write(&k.bufs[k.turn&1], i)
	k.turn++
	return unsafe.String(&k.bufs[k.turn&1][0], KeyLen)
}

// At returns key number i. It is valid until the next call but one.
func (k *Keys) At(i int) string {
	b := &k.bufs[k.turn&1]
	write(b, uint64(i))
	k.turn++
	return unsafe.String(&b[0], KeyLen)
}

// Key returns key number i as a string of its own.
func Key(i int) string {
	var b [KeyLen]byte
	copy(b[:], keyPrefix)
	write(&b, uint64(i))
	return string(b[:])
}

// write puts the digits of key number i behind the prefix. Different numbers
// have different digits, as mix is a bijection.
func write(b *[KeyLen]byte, i uint64) {
	x := mix(i)
	binary.LittleEndian.PutUint64(b[8:], hex(uint32(x)))
	binary.LittleEndian.PutUint64(b[16:], hex(uint32(x>>32)))
}

// mix spreads i over 64 bits, so that neighbours share no long prefix. Both
// steps can be undone, so that no two numbers meet.
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
