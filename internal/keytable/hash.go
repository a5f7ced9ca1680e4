package keytable

import "hash/maphash"

// A Hash identifies a key. It is two hashes of the key, of 64 bits each, made with two
// random seeds of this process.
//
// The table stores the Hash in place of the key. A slot therefore has a fixed size and no
// pointers: it takes 16 bytes instead of a string header and the bytes, and never keeps a
// caller's string alive. The price is that two keys may have the same Hash, and then they
// share a budget. Among n keys the probability of that is below n^2/2^129, which is 2^-89
// for a million keys. The seeds never leave the process, so nobody can search for such
// keys.
type Hash struct {
	Hi uint64 // never zero: zero marks an empty slot
	Lo uint64 // may have any value
}

var seedHi, seedLo = maphash.MakeSeed(), maphash.MakeSeed()

// HashOf returns the Hash of key.
func HashOf(key string) Hash {
	// Comparable reaches the hash function of the runtime by one call less than String.
	return hash(maphash.Comparable(seedHi, key), maphash.Comparable(seedLo, key))
}

// HashOfPair returns the Hash of the pair a and b. It depends on where a ends, so two pairs
// have the same Hash only as often as two keys do.
func HashOfPair(a, b string) Hash {
	type pair struct{ a, b string }
	return hash(maphash.Comparable(seedHi, pair{a, b}), maphash.Comparable(seedLo, pair{a, b}))
}

// With returns the Hash of a key that consists of the key of h and the key of other.
// Different n give different hashes.
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
