package exact

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Log has the instants at which units were granted. The zero Log is empty.
//
// Units granted at one instant are one entry. The newest entry is in the Log itself, the
// older ones are in a ring that grows by doubling. Entries hold running totals, so the units
// of several entries in a row are the difference of two totals, and a binary search finds
// where a given number of units is reached.
type Log struct {
	last  keytable.Instant // of the newest entry
	total uint32           // units ever granted, modulo 2^32
	base  uint32           // total before the oldest entry that is kept
	ring  []entry
	first uint32 // index of the oldest entry in the ring, whose length is a power of two
	older uint32 // number of entries in the ring
}

// An entry is an instant at which units were granted.
type entry struct {
	at    keytable.Instant
	total uint32 // units ever granted, including those of this entry, modulo 2^32
}

// LogOf returns a Log with one entry, of so many units.
func LogOf(at keytable.Instant, units int64) Log { return Log{last: at, total: uint32(units)} }

// Last returns the instant of the newest entry.
func (l *Log) Last() keytable.Instant { return l.last }

// Clone returns a copy of l with a ring of its own.
func (l *Log) Clone() Log {
	clone := *l
	clone.ring = slices.Clone(l.ring)
	return clone
}

// entry returns the entry that i entries are older than. Entry number l.older is the newest.
func (l *Log) entry(i uint32) entry {
	if i == l.older {
		return entry{l.last, l.total}
	}
	return *l.slot(i)
}

// slot returns where the i-th oldest entry is in the ring.
func (l *Log) slot(i uint32) *entry { return &l.ring[(l.first+i)&uint32(len(l.ring)-1)] }

// A Recent is the part of a Log that is less than a time per old.
type Recent struct {
	Units int64  // granted in it
	gone  uint32 // how many entries are older
}

// Recent returns the part of l that is less than per old at now.
func (l *Log) Recent(now keytable.Instant, per uint64) Recent {
	if now.Since(l.last) >= per {
		return Recent{gone: l.older + 1}
	}
	gone, base := uint32(0), l.base
	if l.older > 0 && now.Since(l.entry(0).at) >= per {
		gone = uint32(sort.Search(int(l.older), func(i int) bool {
			return now.Since(l.entry(uint32(i)).at) < per
		}))
		base = l.entry(gone - 1).total
	}
	return Recent{int64(l.total - base), gone}
}

// TimeToLeave returns how long it takes from now until n of the units of r are per old.
func (l *Log) TimeToLeave(r Recent, n int64, now keytable.Instant, per uint64) time.Duration {
	base := l.total - uint32(r.Units)
	i := sort.Search(int(l.older-r.gone), func(i int) bool {
		return l.entry(r.gone+uint32(i)).total-base >= uint32(n)
	})
	return time.Duration(per - now.Since(l.entry(r.gone+uint32(i)).at))
}

// Keep forgets all entries but those of r.
func (l *Log) Keep(r Recent) {
	l.base = l.total - uint32(r.Units)
	gone := min(r.gone, l.older) // the newest entry is not in the ring
	l.first += gone
	l.older -= gone
}

// Add adds n units at now, which is not before the newest entry.
func (l *Log) Add(now keytable.Instant, n int64) {
	if l.total != l.base && now != l.last {
		if int(l.older) == len(l.ring) {
			l.grow()
		}
		*l.slot(l.older) = entry{l.last, l.total}
		l.older++
	}
	l.last = now
	l.total += uint32(n)
}

// grow doubles the length of the ring.
func (l *Log) grow() {
	ring := make([]entry, max(2*len(l.ring), 4))
	for i := range l.older {
		ring[i] = l.entry(i)
	}
	l.ring, l.first = ring, 0
}

// maxEntries is how many entries there are at most, beside the newest one.
const maxEntries = 1 << 16

// Exceed adds n units at now, whatever the limit. Keep has been called with what counts at now. If
// there are maxEntries, the units join the newest entry, which then counts from now on. If there
// are more units than totals can tell apart, all of them count from now on.
func (l *Log) Exceed(now keytable.Instant, n int64) {
	switch units := int64(l.total - l.base); {
	case units+n > math.MaxUint32:
		*l = LogOf(now, math.MaxUint32)
	case l.older >= maxEntries:
		l.last = now
		l.total += uint32(n)
	default:
		l.Add(now, n)
	}
}

// maxMoved is how many entries are changed at most when units are given back.
const maxMoved = 4096

// GiveBack takes n units off the entry of the instant at, if l still has that and no more than
// maxMoved later ones.
func (l *Log) GiveBack(at keytable.Instant, n int64) {
	i := uint32(sort.Search(int(l.older), func(i int) bool { return l.entry(uint32(i)).at >= at }))
	if l.older-i > maxMoved {
		return
	}
	before := l.base
	if i > 0 {
		before = l.entry(i - 1).total
	}
	if e := l.entry(i); e.at != at || int64(e.total-before) < n {
		return
	}
	for later := i; later < l.older; later++ {
		l.slot(later).total -= uint32(n)
	}
	l.total -= uint32(n)
	if l.entry(i).total == before {
		l.drop(i)
	}
}

// drop removes entry number i, which has no units any more.
func (l *Log) drop(i uint32) {
	if l.older == 0 {
		return // the log is empty: total equals base
	}
	newest := i == l.older
	for ; i+1 < l.older; i++ {
		*l.slot(i) = l.entry(i + 1)
	}
	l.older--
	if newest {
		l.last = l.slot(l.older).at
	}
}
