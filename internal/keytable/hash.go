package keytable

import "hash/maphash"

// A Hash identifies a key. It consists of two hashes of the key, of 64 bits each, which use two
// random seeds of this process.
//
// The table stores the Hash in place of the key. A slot therefore has a fixed size and no
// pointers: the Hash takes 16 bytes, instead of a string header and the bytes of the string, and
// the table never keeps a caller's string alive. The price is that two keys may have the same
// Hash, and then share a budget. Among n keys the probability of that is below n^2/2^129, 2^-89
// for a million keys. The seeds never leave the process, so nobody can search for such
// keys.
type Hash struct {
	Hi uint64 // never zero: zero marks an empty slot
	Lo uint64 // may have any value
}

var seedHi, seedLo = maphash.MakeSeed(), maphash.MakeSeed()

// HashOf returns the Hash of key.
func HashOf(key string) Hash {
	// maphash.Comparable is faster here than maphash.String: it makes one function call less.
	return hash(maphash.Comparable(seedHi, key), maphash.Comparable(seedLo, key))
}

// HashOfPair returns the Hash of two strings. It depends on where the first one ends: the Hash of "ab"
// and "c" is not the Hash of "a" and "bc".
func HashOfPair(a, b string) Hash {
	type pair struct{ a, b string }
	return hash(maphash.Comparable(seedHi, pair{a, b}), maphash.Comparable(seedLo, pair{a, b}))
}

// With returns one Hash for three things together: the key that h stands for, the number n, and the key
// that the Hash other stands for.
func (h Hash) With(n uint64, other Hash) Hash {
	type more struct {
		n uint64
		h Hash
		o Hash
	}
	m := more{n, h, other}
	return hash(maphash.Comparable(seedHi, m), maphash.Comparable(seedLo, m))
}

// hash returns the Hash with the first half hi and the second half lo. If hi is 0, the first half is 1
// instead.
func hash(hi, lo uint64) Hash {
	if hi == 0 {
		hi = 1
	}
	return Hash{hi, lo}
}
