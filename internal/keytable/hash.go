package keytable

import "hash/maphash"

// A Hash is the identity of a key: two hashes of it, of 64 bits each, under two
// random seeds of this process.
//
// The table stores the Hash in place of the key. That keeps a slot of fixed
// size and free of pointers (16 bytes instead of a string header and the
// bytes), and no caller's string is ever kept alive. The price is that two keys
// may share a Hash, and then a budget: among n keys with probability below
// n^2/2^129, which is 2^-89 for a million keys. The seeds never leave the
// process, so nobody can look for such keys.
type Hash struct {
	Hi uint64 // never zero, which marks an empty slot
	Lo uint64 // any
}

var seedHi, seedLo = maphash.MakeSeed(), maphash.MakeSeed()

// HashOf returns the identity of key.
func HashOf(key string) Hash {
	return hash(maphash.String(seedHi, key), maphash.String(seedLo, key))
}

// HashOfPair returns the identity of the pair of a and b. Two pairs have the same
// one only if two keys might: where a ends matters.
func HashOfPair(a, b string) Hash {
	type pair struct{ a, b string }
	return hash(maphash.Comparable(seedHi, pair{a, b}), maphash.Comparable(seedLo, pair{a, b}))
}

// With returns the identity of the keys of h and of the key other of the n-th table.
func (h Hash) With(n uint64, other Hash) Hash {
	type more struct {
		n uint64
		h Hash
		o Hash
	}
	m := more{n, h, other}
	return hash(maphash.Comparable(seedHi, m), maphash.Comparable(seedLo, m))
}

func hash(hi, lo uint64) Hash {
	if hi == 0 {
		hi = 1
	}
	return Hash{hi, lo}
}
