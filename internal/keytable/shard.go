package keytable

import "sync"

const (
	// earlyKeys is how many keys a shard takes before it splits, as long as the table has
	// few shards. The number is small so that a few hot keys do not share a lock.
	earlyKeys = 4

	// fullKeys is how many keys a shard takes before it splits, once the table has many
	// shards. The number limits how many keys a single call may have to move.
	fullKeys = 1024

	// minShardKeys is the smallest average number of keys in a shard of a full table. Among
	// that many keys, one is usually idle (owes nothing) and can make room for a new key.
	minShardKeys = 32

	// sweepSlots is how many slots are searched for a key to evict when a new key needs a slot.
	sweepSlots = 32
)

// A Shard holds the states of all keys whose hashes begin with one prefix.
//
// The slots form an open-addressed hash table. The home of a hash is the slot that it gets if
// all possible hashes of the shard are spread evenly over the slots, in order. A key lies at
// its home or after it, and all keys are sorted by hash. A search is therefore a short walk
// from the home, a split cuts the sorted keys in two, and a rebuild copies the keys from left
// to right.
//
// Invariant: the last slot is empty, so that every walk ends there at the latest.
type Shard[S any, A Algorithm[S]] struct {
	mu sync.Mutex

	// The fields below are guarded by mu.

	// Algorithm is the configuration of this shard.
	Algorithm A

	shift  uint8  // 64 minus the number of bits in the field prefix
	prefix uint64 // first bits of every hash in this shard
	size   uint64 // number of homes (slots that a hash maps to); the slots after them are for keys whose home is in use
	count  int    // number of slots in use
	slots  []slot[S]

	latest Instant // latest instant that callers have passed to Latest or Finish
	counts Counts  // totals of this shard

	floor    Instant // latest instant at which a key was evicted; 0 if no key was evicted yet
	cursor   int     // slot at which the next search for a key to evict begins
	overflow S       // the state that all keys without a slot share: what they have used is counted together
	shared   bool    // whether the field overflow may differ from the zero S
	newcomer S       // memory for the states that Newcomer and Scratch return, so that these methods allocate nothing

	marks map[Hash]struct{} // keys for which callers wait, and which keep their slots; nil if there are none

	table *Table[S, A]
}

// Unlock unlocks the shard that Table.Lock has returned.
func (s *Shard[S, A]) Unlock() { s.mu.Unlock() }

// Latest returns the instant for the next decision: the instant now or, if that is later, the latest
// instant that the shard has seen. The caller must have read the instant now before it locked the shard,
// from a clock that never steps back. With Latest, the instants of decisions follow the order in which
// callers lock the shard.
func (s *Shard[S, A]) Latest(now Instant) Instant {
	s.latest = max(s.latest, now)
	return s.latest
}

// Find returns the state of the key with the hash h, or nil if the key has no slot.
func (s *Shard[S, A]) Find(h Hash) *S {
	if i, ok := s.search(h); ok {
		return &s.slots[i].state
	}
	return nil
}

// Owed returns the state that all keys without a slot share, which counts what they use together. It
// also returns the instant at which to decide on such a key: now or, if that is later, the instant at
// which a key last lost its slot.
func (s *Shard[S, A]) Owed(now Instant) (*S, Instant) {
	// This key may have been evicted at the instant s.floor. It was idle then, but may not have been
	// idle before, so the decision must not be for an earlier instant.
	return &s.overflow, max(now, s.floor)
}

// Newcomer returns the first state of a key that gets a slot now. It begins with what the keys
// without a slot have used together. The state is valid until Unlock, or until the next call of
// Newcomer or Scratch.
func (s *Shard[S, A]) Newcomer(now Instant) *S {
	s.newcomer = s.Algorithm.Inherit(&s.overflow, now)
	return &s.newcomer
}

// Scratch returns a copy of the given state that the caller may change. It allocates nothing. The copy
// is valid until Unlock, or until the next call of Newcomer or Scratch.
func (s *Shard[S, A]) Scratch(state S) *S {
	s.newcomer = state
	return &s.newcomer
}

// Offer gives the key with the hash h a slot with this state if the table has room. The key must not
// have a slot yet. The caller must not have charged anything to the state, so that nothing is lost if
// there is no room.
func (s *Shard[S, A]) Offer(h Hash, state *S, now Instant) { s.giveSlot(h, *state, now) }

// Insert gives the key with the hash h a slot with this state. The key must not have a slot yet. Insert
// returns false if the table is full and no key can be evicted. The caller must then charge the shared
// state that the method Owed returns.
func (s *Shard[S, A]) Insert(h Hash, state *S, now Instant) bool {
	if s.giveSlot(h, *state, now) {
		return true
	}
	s.shared = true
	s.counts.Overflowed++
	return false
}

// HasRoom reports whether Insert would give a new key a slot at the instant now: whether the table is
// not full, or an idle key can be evicted.
func (s *Shard[S, A]) HasRoom(now Instant) bool {
	return s.table.keys.Load() < s.table.maxKeys || s.findIdle(now) >= 0
}

// A Tally says which total a decision is added to.
type Tally uint8

// The totals that a decision can be added to.
const (
	Uncounted Tally = iota // added to no total, for example because only other rules denied the request
	Allowed                // the total of the grants
	Denied                 // the total of the denials
	Shadowed               // denials by a rule in shadow, which stop no request
	Advised                // denials by a rule in advise mode, which stop no request, but are reported to the caller
)

// Finish adds a decision to the total t and unlocks the shard. The parameter "now" is the instant of the
// decision. Later calls of Latest return this instant or a later one. If the parameter is 0, Finish does not
// change what Latest returns.
func (s *Shard[S, A]) Finish(now Instant, t Tally) {
	s.latest = max(s.latest, now)
	switch t {
	case Allowed:
		s.counts.Allowed++
	case Denied:
		s.counts.Denied++
	case Shadowed:
		s.counts.Shadowed++
	case Advised:
		s.counts.Advised++
	}
	s.mu.Unlock()
}

// Count adds a grant or a denial to the totals. Do not call it for a shadow rule, whose denials have other totals.
func (s *Shard[S, A]) Count(allowed bool) {
	if allowed {
		s.counts.Allowed++
	} else {
		s.counts.Denied++
	}
}

// Reset forgets everything that the key with the hash h has used, or does nothing if the key
// has no slot.
func (s *Shard[S, A]) Reset(h Hash) {
	i, ok := s.search(h)
	switch {
	case !ok:
	case s.shared, s.Marked(h):
		// The key keeps its slot. Without a slot, it would share the debt of other keys.
		s.slots[i] = slot[S]{hash: h}
	default:
		s.remove(i)
		s.table.keys.Add(-1)
	}
}

// giveSlot gives the key with the hash h a slot with this state. It returns false if the table is full
// and no key can be evicted to make room.
func (s *Shard[S, A]) giveSlot(h Hash, state S, now Instant) bool {
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

// idleSlot returns the slot of an idle key, which owes nothing, or -1 if none is in the next sweepSlots
// slots. It moves s.cursor, so that the next search goes on there.
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

// findIdle returns the slot of an idle key among the next sweepSlots slots, or -1. It does not change s.cursor,
// the slot at which it begins.
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

// evicted notes that n keys lost their slots at the instant now.
func (s *Shard[S, A]) evicted(n int, now Instant) {
	s.counts.Evicted += uint64(n)
	s.floor = max(s.floor, now)
}

// Marked reports whether the key with the hash h is marked, which means that a caller waits for this
// key.
func (s *Shard[S, A]) Marked(h Hash) bool {
	if s.marks == nil {
		return false
	}
	_, marked := s.marks[h]
	return marked
}

// Mark marks the key with the hash h, or removes its mark if marked is false. A marked key keeps its
// slot: without the slot, the key would share the debt of other keys while a caller waits for it.
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
