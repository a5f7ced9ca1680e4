package exact

import (
	"math/bits"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// holed is a bit of the field first of a Log. It is set if entries of the log may have holes. The hole of an entry
// is the number of its units that were given back. If the bit is not set, all holes are 0. A slot of the ring that
// is not in use may still have a hole; Add removes this hole before it uses the slot.
//
// Each entry stores the total of all units that were granted in it and in all older entries. When units of an
// entry are given back, GiveBack would have to lower the totals of this entry and of all later entries, which is
// slow. Instead, it adds the units to the hole of the entry and to the field base of the Log. The base is
// subtracted from every total that is read. The totals of older entries must not become smaller by this, so the
// holes of all later entries are added to them again. The newest entry has no hole, because GiveBack lowers its
// total. For the oldest entry, GiveBack changes only the base.
//
// Example: three entries have 5, 3 and 2 units, so their totals are 5, 8 and 10. When 1 unit of the second entry is
// given back, its hole and the base become 1. The totals are then read as 5+1-1 = 5, 8-1 = 7 and 10-1 = 9.
//
// The fields named holes in the ring form a tree of sums. The field at index i contains the sum of the holes of
// several neighbouring entries, the last of which is at index i. There are 1, 32, 1024 or 32,768 of these entries:
// the largest of these numbers that divides i+1. So GiveBack changes at most four fields, and the holes of many
// entries in a row are the sum of few fields.
const holed = 1 << 31

// place returns the index in the ring of entry number i. Entry number 0 is the oldest.
func (l *Log) place(i uint32) uint32 { return (l.first + i) & uint32(len(l.ring)-1) }

// skip removes the n oldest entries, so that entry number n is the oldest.
func (l *Log) skip(n uint32) {
	l.first = l.place(n) | l.first&holed
	l.older -= n
}

// fan is how many neighbouring sums on one level of the tree are added up to one sum of the next level. The
// tree contains sums of the units that were given back.
const fan = 32

// The method named "note" adds n to the hole of one entry: to the number of its units that were given back. The
// parameter place is the index of the entry in the ring. The sums in several fields named holes include this
// hole, see the constant holed. The method adds n to each of these sums, modulo 2^32.
func (l *Log) note(place, n uint32) {
	last := uint32(len(l.ring))
	for level := uint32(1); ; level *= fan {
		i := place | (level - 1)
		if i >= uint32(len(l.ring)) {
			return
		}
		if i != last {
			l.ring[i].holes += n
		}
		last = i
	}
}

// hole returns how many units of one entry were given back. The parameter place is the index of the entry in the
// ring.
func (l *Log) hole(place uint32) uint32 {
	n := l.ring[place].holes
	for level := uint32(1); place&(level*fan-1) == level*fan-1; level *= fan {
		for i := uint32(1); i < fan; i++ {
			n -= l.ring[place-i*level].holes
		}
	}
	return n
}

// holesBelow returns the sum of the holes (numbers of units that were given back) of all entries whose index in
// the ring is below k. The sum is modulo 2^32.
func (l *Log) holesBelow(k uint32) (n uint32) {
	at := uint32(0)
	for level := uint32(fan * fan * fan); level > 0; level /= fan {
		for ; at+level <= k; at += level {
			n += l.ring[at+level-1].holes
		}
	}
	return n
}

// upTo returns a running total for entry number i, which is in the ring, modulo 2^32. This total minus
// l.base is the number of units of this entry and of all older ones that were not given back.
func (l *Log) upTo(i uint32) uint32 {
	total := l.slot(i).total
	if l.first&holed == 0 || i+1 >= l.older {
		return total
	}
	from, to := l.place(i+1), l.place(l.older-1)+1
	if from >= to {
		total += l.holesBelow(uint32(len(l.ring)))
	}
	return total + l.holesBelow(to) - l.holesBelow(from)
}

// fill moves the holes (units given back) into the totals of the entries, so that no entry has a hole,
// and removes entries whose units were all given back.
func (l *Log) fill() {
	var rest uint32 // the sum of the holes from entry number i on
	for i := range l.older {
		rest += l.hole(l.place(i))
	}
	kept, before := uint32(0), l.base
	for i := range l.older {
		e := l.slot(i)
		rest -= l.hole(l.place(i))
		if total := e.total + rest; total != before {
			to := l.slot(kept)
			to.at, to.total, before = e.at, total, total
			kept++
		}
	}
	for i := range l.ring {
		l.ring[i].holes = 0
	}
	l.first &^= holed
	l.older = kept
}

// find returns the number of the newest entry whose instant is not after the given instant (at). It returns 0 if
// there is no such entry.
func (l *Log) find(at keytable.Instant) (i uint32) {
	if at >= l.last {
		return l.older
	}
	ring, mask := l.ring, uint32(len(l.ring)-1)
	for n := l.older; n > 1; {
		half := n / 2
		// The processor could not predict the outcome of a comparison here, so a branch would be slow. A
		// subtraction does the same without a branch: its borrow (the variable named later) is 1 if the instant of
		// the entry is after the given instant, and otherwise 0.
		_, later := bits.Sub64(uint64(at), uint64(ring[(l.first+i+half)&mask].at), 0)
		i += half & (uint32(later) - 1)
		n -= half
	}
	return i
}

// GiveBack removes n units from the entry for the given instant. It changes nothing if there is no entry for
// the instant, or if the entry has fewer units.
func (l *Log) GiveBack(at keytable.Instant, n int64) {
	i := l.find(at)
	e := l.entry(i)
	if e.at != at {
		return
	}
	before := l.base
	if i > 0 {
		before = l.slot(i - 1).total
	}
	units := int64(e.total - before)
	switch back := uint32(n); {
	case i == l.older:
		if units >= n {
			l.total -= back
			l.pop()
		}
	case i == 0:
		if int64(l.upTo(0)-l.base) >= n {
			l.base += back
			l.shift()
		}
	case units-int64(l.hole(l.place(i))) >= n:
		l.note(l.place(i), back)
		l.base += back
		l.first |= holed
	}
}

// pop removes the newest entries as long as they have no units.
func (l *Log) pop() {
	for l.older > 0 && l.total == l.slot(l.older-1).total {
		l.older--
		hole := l.hole(l.place(l.older))
		l.last = l.slot(l.older).at
		l.total -= hole
		l.base -= hole
	}
}

// shift removes the oldest entries as long as they have no units. It never removes the newest entry.
func (l *Log) shift() {
	for l.older > 0 && l.upTo(0) == l.base {
		l.skip(1)
	}
}
