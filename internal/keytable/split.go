package keytable

import (
	"math"
	"sort"
)

// splitAt returns how many keys a shard whose prefix has depth bits takes
// before it splits.
func (t *Table[S, A]) splitAt(depth uint8) int {
	switch {
	case depth >= t.maxDepth:
		return math.MaxInt
	case depth < t.minDepth:
		return earlyKeys
	}
	return fullKeys
}

// split moves the upper half of the hashes to a new shard and distributes keys,
// which are sorted, among the two. It must be called with s and t.grow locked.
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

	// From here on others may find upper, which is whole.
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

// doubled returns a directory with one bit more, in which each shard stands in
// twice as many entries.
func (d *directory[S, A]) doubled() *directory[S, A] {
	twice := newDirectory[S, A](64 - d.shift + 1)
	for i := range d.shards {
		s := d.shards[i].Load()
		twice.shards[2*i].Store(s)
		twice.shards[2*i+1].Store(s)
	}
	return twice
}
