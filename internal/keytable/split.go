package keytable

import (
	"math"
	"sort"
)

// splitAt returns how many keys a shard takes before it splits. The parameter depth is the length of
// the shard's prefix, in bits.
func (t *Table[S, A]) splitAt(depth uint8) int {
	switch {
	case depth >= t.maxDepth:
		return math.MaxInt
	case depth < t.minDepth:
		return earlyKeys
	}
	return fullKeys
}

// split makes a new shard for the upper half of the hashes of s, and distributes the given keys over
// the two shards. The keys are sorted by hash. The caller must hold the lock of s and Table.grow.
func (s *Shard[S, A]) split(keys []slot[S], now Instant) {
	upper := &Shard[S, A]{
		table:     s.table,
		Algorithm: s.Algorithm,
		shift:     s.shift - 1,
		prefix:    s.prefix<<1 | 1,
		floor:     s.floor,
		latest:    s.latest,
		shared:    s.shared,
	}
	if s.shared {
		upper.overflow = s.Algorithm.Inherit(&s.overflow, now)
	}
	s.shift, s.prefix = s.shift-1, s.prefix<<1
	cut := sort.Search(len(keys), func(i int) bool { return keys[i].hash.Hi>>upper.shift == upper.prefix })
	upper.fill(keys[cut:])
	s.fill(keys[:cut])
	for h := range s.marks {
		if h.Hi>>upper.shift == upper.prefix {
			upper.Mark(h, true)
			s.Mark(h, false)
		}
	}

	// The shard upper is complete. From here on, other goroutines may find it.
	dir := s.table.dir.Load()
	if upper.shift < dir.shift {
		dir = dir.doubled()
		s.table.dir.Store(dir)
	}
	copies := uint64(1) << (upper.shift - dir.shift)
	for i := range copies {
		dir.shards[upper.prefix*copies+i].Store(upper)
	}
}

// doubled returns a directory for prefixes that are one bit longer. The result maps prefixes of hashes
// to shards. Each shard has twice as many entries in the new directory.
func (d *directory[S, A]) doubled() *directory[S, A] {
	twice := newDirectory[S, A](64 - d.shift + 1)
	for i := range d.shards {
		s := d.shards[i].Load()
		twice.shards[2*i].Store(s)
		twice.shards[2*i+1].Store(s)
	}
	return twice
}
