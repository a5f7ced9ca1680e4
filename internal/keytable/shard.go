package keytable

import "sync"

const (
	// earlyKeys is how many keys a shard takes before it splits, as long as the table has
	// few shards. It is small so that a few hot keys do not share a lock.
	earlyKeys = 4

	// fullKeys is how many keys a shard takes before it splits, once the table has many
	// shards. It limits how much a single call may have to move.
	fullKeys = 1024

	// leastKeys is how many keys a shard holds on average, at least, when the table is
	// full. It is large enough that one of them is usually idle and can make room.
	leastKeys = 32

	// sweepSlots is how many slots one call searches for a key to evict.
	sweepSlots = 32
)

// A Shard holds the states of all keys whose hashes begin with one prefix.
//
// The slots are an open-addressed table. The home of a hash is its place if the range of
// the shard is spread evenly over the slots. A key lies at its home or after it, and all
// keys are sorted by hash. A search is therefore a short walk from the home, a split cuts
// the sorted keys in two, and a rebuild copies the keys from left to right.
//
// Invariant: the last slot is empty, so that every walk ends there at the latest.
type Shard[S any, A Algorithm[S]] struct {
	mu sync.Mutex

	// The fields below are guarded by mu.

	// Algorithm is the configuration of this shard.
	Algorithm A

	shift  uint8  // 64 minus the number of bits in prefix
	prefix uint64 // first bits of every hash in this shard
	size   uint64 // number of homes; the slots after them take keys that found their home full
	count  int    // number of slots in use
	slots  []slot[S]

	latest Instant // latest reading of a clock that never steps back
	counts Counts

	floor    Instant // latest instant at which a key was evicted; 0 if none was
	cursor   int     // slot at which the next search for a key to evict begins
	overflow S       // debt that keys without a slot share
	shared   bool    // whether overflow may differ from the zero S
	newcomer S       // state that Newcomer or Scratch returned

	marks map[Hash]struct{} // keys that somebody waits for; nil if there are none

	table *Table[S, A]
}

// Unlock unlocks the shard that Table.Lock has returned.
func (s *Shard[S, A]) Unlock() { s.mu.Unlock() }

// Latest returns the time at which a decision counts. now was read from a clock that never
// steps back, before the shard was locked; if the shard has seen a later reading, Latest
// returns that one. Time therefore follows the order in which the lock is taken, although
// the clock is read without the lock.
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

// Owed returns the debt that keys without a slot share, and the instant as which now counts
// for such a key.
func (s *Shard[S, A]) Owed(now Instant) (*S, Instant) {
	// This key may have been evicted at the floor. Its own state would not have accepted an
	// earlier time than that: otherwise it would not have been as good as new.
	return &s.overflow, max(now, s.floor)
}

// Newcomer returns the state with which a key without a slot begins if it gets one. The
// state is valid until Unlock.
func (s *Shard[S, A]) Newcomer(now Instant) *S {
	s.newcomer = s.Algorithm.Inherit(&s.overflow, now)
	return &s.newcomer
}

// Scratch returns a copy of state that a caller may change, without an allocation. The copy
// is valid until Unlock, or until the next call of Scratch or Newcomer.
func (s *Shard[S, A]) Scratch(state S) *S {
	s.newcomer = state
	return &s.newcomer
}

// Offer gives h, which has no slot, a slot with state if that is possible. It is for a state
// that no request has charged.
func (s *Shard[S, A]) Offer(h Hash, state *S, now Instant) { s.insert(h, *state, now) }

// Keep gives h, which has no slot, a slot with state. It returns false if the table is full
// and no key can make room. The caller must then charge the debt that h shares.
func (s *Shard[S, A]) Keep(h Hash, state *S, now Instant) bool {
	if s.insert(h, *state, now) {
		return true
	}
	s.shared = true
	s.counts.Overflowed++
	return false
}

// HasRoom reports whether Keep would give a key without a slot one at now.
func (s *Shard[S, A]) HasRoom(now Instant) bool {
	return s.table.keys.Load() < s.table.maxKeys || s.findIdle(now) >= 0
}

// A Tally says which total a decision is added to.
type Tally uint8

// What a decision may be.
const (
	Uncounted Tally = iota // a look, or a request that only other rules denied
	Allowed                // a grant
	Denied                 // a denial
	Shadowed               // a denial by a shadow rule, which denies no request
)

// Finish adds a decision to the totals and unlocks the shard. It notes that now was read
// from a clock that never steps back; now is 0 if there is no such clock.
func (s *Shard[S, A]) Finish(now Instant, t Tally) {
	s.latest = max(s.latest, now)
	switch t {
	case Allowed:
		s.counts.Allowed++
	case Denied:
		s.counts.Denied++
	case Shadowed:
		s.counts.Shadowed++
	}
	s.mu.Unlock()
}

// Count adds to the totals a decision that is not a shadow rule's.
func (s *Shard[S, A]) Count(allowed bool) {
	if allowed {
		s.counts.Allowed++
	} else {
		s.counts.Denied++
	}
}

// Reset makes h as good as new. It does nothing if h has no slot.
func (s *Shard[S, A]) Reset(h Hash) {
	i, ok := s.search(h)
	switch {
	case !ok:
	case s.shared, s.Marked(h):
		// The key keeps its slot. Without one it would share the debt of others.
		s.slots[i] = slot[S]{hash: h}
	default:
		s.remove(i)
		s.table.keys.Add(-1)
	}
}

// insert gives h a slot with state. It returns false if the table is full and no key could
// be evicted.
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

// idleSlot returns the slot of a key that is as good as new, or -1 if there is none among
// the next sweepSlots.
func (s *Shard[S, A]) idleSlot(now Instant) int {
	at := s.findIdle(now)
	if at >= 0 {
		s.cursor = at
		return at
	}
	if s.cursor += sweepSlots; s.cursor >= len(s.slots) {
		s.cursor = 0
	}
	return -1
}

// findIdle returns what idleSlot would return, and changes nothing.
func (s *Shard[S, A]) findIdle(now Instant) int {
	for i := range min(sweepSlots, len(s.slots)) {
		at := s.cursor + i
		if at >= len(s.slots) {
			at -= len(s.slots)
		}
		if s.slots[at].hash.Hi != 0 && !s.Marked(s.slots[at].hash) && s.Algorithm.Idle(&s.slots[at].state, now) {
			return at
		}
	}
	return -1
}

// evicted records that n keys were forgotten at now.
func (s *Shard[S, A]) evicted(n int, now Instant) {
	s.counts.Evicted += uint64(n)
	s.floor = max(s.floor, now)
}

// Marked reports whether h is marked: somebody waits for it.
func (s *Shard[S, A]) Marked(h Hash) bool {
	if s.marks == nil {
		return false
	}
	_, marked := s.marks[h]
	return marked
}

// Mark marks h, or removes its mark. A marked key that has a slot keeps it: otherwise it
// could come to share the debt of others while somebody waits for it.
func (s *Shard[S, A]) Mark(h Hash, marked bool) {
	switch {
	case !marked:
		if delete(s.marks, h); len(s.marks) == 0 {
			s.marks = nil
		}
	case s.marks == nil:
		s.marks = map[Hash]struct{}{h: {}}
	default:
		s.marks[h] = struct{}{}
	}
}
