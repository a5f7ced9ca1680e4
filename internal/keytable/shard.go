package keytable

import "sync"

const (
	// earlyKeys is how many keys a shard takes before it splits while the
	// table has few shards: a handful of hot keys should not share a lock.
	earlyKeys = 4

	// fullKeys is how many keys a shard takes before it splits later on.
	// It bounds what one caller may have to move.
	fullKeys = 1024

	// leastKeys is how many keys a shard holds on average, at the least,
	// when the table is at its bound: enough for one that can make room to
	// be found among them.
	leastKeys = 32

	// sweepSlots is how many slots are searched for a key to evict.
	sweepSlots = 32
)

// A Shard holds the states of the keys whose hashes begin with one prefix.
//
// The slots are an open-addressed table in which a key lies at its home or
// after it, and all keys are sorted by hash. A home is the hash's place when
// the range of the shard is spread evenly over the slots, so a search is a short
// walk, a split is a cut, and a rebuild copies from left to right.
//
// Invariant: the last slot is empty, and every walk ends there at the latest.
type Shard[S any, A Algorithm[S]] struct {
	mu sync.Mutex

	// All that follows is guarded by mu.

	// Algorithm is the configuration that this shard decides by.
	Algorithm A

	shift  uint8  // 64 - the number of bits in prefix
	prefix uint64 // the first bits of every hash in this shard
	size   uint64 // number of homes; the slots behind them take what is pushed out
	count  int    // slots in use
	slots  []slot[S]

	latest Instant // the latest reading of a clock that never steps back
	counts Counts

	floor    Instant // the latest instant at which a key was evicted; 0 if none was
	cursor   int     // slot at which the search for a key to evict goes on
	overflow S       // debt shared by keys without a slot
	shared   bool    // whether overflow may differ from the zero S
	newcomer S       // state of the key being decided on, which has no slot yet, or a copy

	table *Table[S, A]
}

// Unlock ends what Table.Lock began.
func (s *Shard[S, A]) Unlock() { s.mu.Unlock() }

// Latest returns now, which was read from a clock that never steps back before the
// shard was locked, or the latest such reading that the shard has seen. So time
// follows the order of the lock, and the lock need not be held while the clock is
// read.
func (s *Shard[S, A]) Latest(now Instant) Instant {
	s.latest = max(s.latest, now)
	return s.latest
}

// Find returns the state of h, or nil if h has no slot.
func (s *Shard[S, A]) Find(h Hash) *S {
	if i, ok := s.search(h); ok {
		return &s.slots[i].state
	}
	return nil
}

// Owed returns the debt that a key without a slot shares with others, and the
// instant that it counts now as.
func (s *Shard[S, A]) Owed(now Instant) (*S, Instant) {
	// A key that was evicted at the floor may be this one. It would not
	// have accepted an earlier time, or it would not have been as new.
	return &s.overflow, max(now, s.floor)
}

// Newcomer returns the state that a key without a slot starts from if it gets one.
// It is valid until Unlock.
func (s *Shard[S, A]) Newcomer(now Instant) *S {
	s.newcomer = s.Algorithm.Inherit(&s.overflow, now)
	return &s.newcomer
}

// Scratch returns a copy of state that a step may change, on no one's heap. It is
// valid until Unlock, or until Scratch or Newcomer is called again.
func (s *Shard[S, A]) Scratch(state S) *S {
	s.newcomer = state
	return &s.newcomer
}

// Keep gives h, which has no slot, one for state. At the bound, where no key can
// make room, it reports false: h is then to be charged to the debt that it shares.
func (s *Shard[S, A]) Keep(h Hash, state *S, now Instant) bool {
	if s.insert(h, *state, now) {
		return true
	}
	s.shared = true
	s.counts.Overflowed++
	return false
}

// Count adds a decision to the totals.
func (s *Shard[S, A]) Count(allowed bool) {
	if allowed {
		s.counts.Allowed++
	} else {
		s.counts.Denied++
	}
}

// CountShadowed adds a denial that denied nothing to the totals.
func (s *Shard[S, A]) CountShadowed() { s.counts.Shadowed++ }

// CountGivenBack takes a decision that was counted as allowed off the totals.
func (s *Shard[S, A]) CountGivenBack() { s.counts.Allowed-- }

// Reset makes h as good as new. It does nothing if h has no slot.
func (s *Shard[S, A]) Reset(h Hash) {
	i, ok := s.search(h)
	switch {
	case !ok:
	case s.shared:
		// Without its slot the key would inherit what others owe.
		s.slots[i] = slot[S]{hash: h}
	default:
		s.remove(i)
		s.table.keys.Add(-1)
	}
}

// insert gives h a slot for state. It reports false if the table is at its
// bound and no key could be evicted.
func (s *Shard[S, A]) insert(h Hash, state S, now Instant) bool {
	if !s.table.reserve() {
		i := s.idleSlot(now)
		if i < 0 {
			return false
		}
		s.remove(i)
		s.evicted(1, now)
	}
	s.put(h, state)
	if s.count > capacity(s.size) {
		s.rebuild(now)
	}
	return true
}

// idleSlot returns the slot of a key that is as good as new, or -1 if there is
// none among the next few.
func (s *Shard[S, A]) idleSlot(now Instant) int {
	for i := range min(sweepSlots, len(s.slots)) {
		at := s.cursor + i
		if at >= len(s.slots) {
			at -= len(s.slots)
		}
		if s.slots[at].hash.Hi != 0 && s.Algorithm.Idle(&s.slots[at].state, now) {
			s.cursor = at
			return at
		}
	}
	if s.cursor += sweepSlots; s.cursor >= len(s.slots) {
		s.cursor = 0
	}
	return -1
}

// evicted notes that n keys were forgotten at now.
func (s *Shard[S, A]) evicted(n int, now Instant) {
	s.counts.Evicted += uint64(n)
	s.floor = max(s.floor, now)
}
