package exact

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Log records the instants at which units were granted. The zero Log is empty.
//
// All units granted at one instant share an entry. The newest entry is in the Log itself. The
// older entries are in a ring buffer, which doubles its length when it is full. Each entry holds
// the total of all units granted up to its instant. So the units of several entries in a row are
// the difference of two totals, and a binary search finds the entry at which a given number of
// units is reached.
type Log struct {
	last  keytable.Instant // instant of the newest entry
	total uint32           // running total of all granted units, including the newest entry, modulo 2^32
	base  uint32           // how many of these units no longer count: units of forgotten entries and units given back, modulo 2^32
	ring  []entry          // all entries except the newest, in a ring buffer whose length is a power of two
	first uint32           // index in ring of the oldest entry; the highest bit (see holed) says whether units may have been given back
	older uint32           // number of entries in ring
}

// An entry records an instant at which units were granted.
type entry struct {
	at    keytable.Instant // when the units were granted
	total uint32           // running total of the units granted in this entry and in all older entries, modulo 2^32
	holes uint32           // units given back in the 1, 32, 1024 or 32,768 slots of the ring that end with this one; see holed
}

// LogOf returns a Log with one entry: the given number of units, granted at the given instant.
func LogOf(at keytable.Instant, units int64) Log { return Log{last: at, total: uint32(units)} }

// Last returns the instant of the newest entry.
func (l *Log) Last() keytable.Instant { return l.last }

// Clone returns a copy of l that shares no memory with l.
func (l *Log) Clone() Log {
	clone := *l
	clone.ring = slices.Clone(l.ring)
	return clone
}

// entry returns entry number i, counted from 0 for the oldest. Entry number l.older is the newest.
func (l *Log) entry(i uint32) entry {
	if i == l.older {
		return entry{at: l.last, total: l.total}
	}
	return *l.slot(i)
}

// slot returns a pointer to entry number i in the ring, counted from 0 for the oldest.
func (l *Log) slot(i uint32) *entry { return &l.ring[l.place(i)] }

// A Recent describes the entries of a Log that are recent: younger than a given age.
type Recent struct {
	Units int64  // sum of the units of the recent entries
	gone  uint32 // how many entries of the Log are not recent
}

// Recent describes the entries that are recent at the instant now. The parameter per is the age, in
// nanoseconds, at which an entry is no longer recent.
func (l *Log) Recent(now keytable.Instant, per uint64) Recent {
	if now.Since(l.last) >= per {
		return Recent{gone: l.older + 1}
	}
	gone, base := uint32(0), l.base
	if l.older > 0 && now.Since(l.entry(0).at) >= per {
		gone = uint32(sort.Search(int(l.older), func(i int) bool {
			return now.Since(l.entry(uint32(i)).at) < per
		}))
		base = l.upTo(gone - 1)
	}
	return Recent{int64(l.total - base), gone}
}

// TimeToLeave returns how long it takes until at least n units leave the window: until the oldest n units
// of the recent entries are no longer recent. The parameter r describes these entries, and per is the age,
// in nanoseconds, at which an entry is no longer recent.
func (l *Log) TimeToLeave(r Recent, n int64, now keytable.Instant, per uint64) time.Duration {
	base, at := l.total-uint32(r.Units), r.gone
	if at < l.older && l.upTo(at)-base < uint32(n) { // usually one unit must leave, and the oldest recent entry has it
		at += uint32(sort.Search(int(l.older-at), func(i int) bool {
			return l.upTo(at+uint32(i))-base >= uint32(n)
		}))
	}
	return time.Duration(per - now.Since(l.entry(at).at))
}

// Trim forgets all entries except the recent entries that r describes.
func (l *Log) Trim(r Recent) {
	l.base = l.total - uint32(r.Units)
	l.skip(min(r.gone, l.older)) // the newest entry is not in the ring, and is kept
}

// Add records n units granted at the instant now, which must not be before the newest entry.
func (l *Log) Add(now keytable.Instant, n int64) {
	if l.total != l.base && now != l.last {
		if int(l.older) == len(l.ring) {
			l.grow()
		}
		e := l.slot(l.older)
		if l.first&holed != 0 {
			place := l.place(l.older)
			l.note(place, -l.hole(place))
		}
		e.at, e.total = l.last, l.total
		l.older++
	}
	l.last = now
	l.total += uint32(n)
}

// grow makes room in the ring for another entry. It removes entries whose units were all given back. If more
// than three quarters of the ring are still in use, it doubles the length of the ring.
func (l *Log) grow() {
	if l.first&holed != 0 {
		l.fill()
		if int(l.older) <= len(l.ring)/4*3 {
			return
		}
	}
	ring := make([]entry, max(2*len(l.ring), 4))
	for i := range l.older {
		ring[i] = *l.slot(i)
	}
	l.ring, l.first = ring, 0
}

// maxEntries is the number of entries, not counting the newest entry, at which Exceed stops adding
// entries.
const maxEntries = 1 << 16

// Exceed records n units at the instant now that may be more than the limit allows. The caller must call
// Trim before. Exceed bounds the memory: if l already has maxEntries entries, it adds the units to the newest
// entry, and sets the instant of this entry to now. If all units together would be more than 2^32-1, one entry
// with 2^32-1 units at the instant now replaces all entries.
func (l *Log) Exceed(now keytable.Instant, n int64) {
	if l.older >= maxEntries && l.first&holed != 0 {
		l.fill()
	}
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
