// Package keytable keeps one small state for each key. It limits the number of keys,
// spreads them over many locks, and never forgets a debt.
//
// States lie in the slots of a shard, sorted by the hashes of their keys. A shard is small,
// and splits in two when it is full, so that no call waits for more than the rebuild of one
// small shard. The directory of shards doubles when it must, as in extendible hashing.
// There is no goroutine: a shard drops keys that are as good as new when it is about to
// grow.
//
// When the table is full, the keys of a shard that have no slot share one debt. A key that
// gets a slot later begins with that debt. Flooding the table with keys therefore gains a
// client nothing.
package keytable

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// An Algorithm is the configuration of one limiter, and tells the table what it must know
// about the states of that limiter. The zero S is the state of a key that was never used.
type Algorithm[S any] interface {
	// Idle reports whether s at now equals the state of a key that was never used.
	Idle(s *S, now Instant) bool

	// Inherit returns the state with which a key begins that gets a slot of its own and
	// shared the debt s before. It must not share memory with s.
	Inherit(s *S, now Instant) S
}

// A Table maps hashes to states. The zero Table is not ready for use; call New.
type Table[S any, A Algorithm[S]] struct {
	maxKeys  int64
	minDepth uint8 // shards split early until there are 2^minDepth
	maxDepth uint8 // there are never more than 2^maxDepth shards

	dir  atomic.Pointer[directory[S, A]]
	keys atomic.Int64 // keys that have a slot; at most maxKeys

	// grow is held while a shard splits or all are visited. It is taken after the lock of a
	// shard only by TryLock.
	grow sync.Mutex
}

// A directory maps the first bits of a hash to a shard. A shard that has split less often
// than others is in several neighbouring entries.
type directory[S any, A Algorithm[S]] struct {
	shift  uint8 // 64 minus the number of bits
	shards []atomic.Pointer[Shard[S, A]]
}

// New returns a table for at most maxKeys keys, with the configuration alg.
func New[S any, A Algorithm[S]](alg A, maxKeys int) *Table[S, A] {
	t := &Table[S, A]{
		maxKeys:  int64(maxKeys),
		minDepth: uint8(bits.Len(uint(8*runtime.GOMAXPROCS(0) - 1))),
		maxDepth: uint8(max(bits.Len(uint(maxKeys))-bits.Len(leastKeys), 0)),
	}
	dir := newDirectory[S, A](0)
	dir.shards[0].Store(&Shard[S, A]{table: t, Algorithm: alg, shift: 64, slots: make([]slot[S], 1)})
	t.dir.Store(dir)
	return t
}

func newDirectory[S any, A Algorithm[S]](depth uint8) *directory[S, A] {
	return &directory[S, A]{shift: 64 - depth, shards: make([]atomic.Pointer[Shard[S, A]], 1<<depth)}
}

// Lock returns the shard of h, locked. The caller must unlock it.
func (t *Table[S, A]) Lock(h Hash) *Shard[S, A] {
	for {
		dir := t.dir.Load()
		s := dir.shards[h.Hi>>dir.shift].Load()
		s.mu.Lock()
		if h.Hi>>s.shift == s.prefix {
			return s
		}
		s.mu.Unlock() // the shard has split since it was found; look again
	}
}

// Open returns the shard that h belongs to, locked, and the state of h, or nil if h has no
// slot. It is Lock and Find in one call.
func (t *Table[S, A]) Open(h Hash) (*Shard[S, A], *S) {
	for {
		dir := t.dir.Load()
		s := dir.shards[h.Hi>>dir.shift].Load()
		s.mu.Lock()
		if h.Hi>>s.shift != s.prefix {
			s.mu.Unlock() // it has split since; look again
			continue
		}
		if i, ok := s.search(h); ok {
			return s, &s.slots[i].state
		}
		return s, nil
	}
}

// Len returns how many keys have a slot.
func (t *Table[S, A]) Len() int { return int(t.keys.Load()) }

// Counts are the totals of a table since it was made.
type Counts struct {
	Allowed, Denied uint64 // decisions, without looks
	Shadowed        uint64 // denials by a shadow rule, which denied no request
	Evicted         uint64 // keys forgotten because they were as good as new
	Overflowed      uint64 // decisions granted from a shared debt when the table was full
}

// Counts returns the totals over all shards.
func (t *Table[S, A]) Counts() (sum Counts) {
	t.visit(func(s *Shard[S, A]) {
		sum.Allowed += s.counts.Allowed
		sum.Denied += s.counts.Denied
		sum.Shadowed += s.counts.Shadowed
		sum.Evicted += s.counts.Evicted
		sum.Overflowed += s.counts.Overflowed
	})
	return sum
}

// Reconfigure gives all shards the configuration alg, one shard after the other. It calls
// convert for every state that has been used, including the shared debts, for which shared
// is true and the hash is zero.
func (t *Table[S, A]) Reconfigure(alg A, convert func(h Hash, s *S, shared bool)) {
	t.visit(func(s *Shard[S, A]) {
		for i := range s.slots {
			// A state that is idle even at the earliest instant is one that Reset has left.
			if at := &s.slots[i]; at.hash.Hi != 0 && !s.Algorithm.Idle(&at.state, 0) {
				convert(at.hash, &at.state, false)
			}
		}
		s.Algorithm = alg
		// A key that was evicted is a key that had a slot. If it had kept the slot, its
		// state would be converted too. As long as no key was evicted, a key without a slot
		// was never used.
		if s.floor > 0 || s.shared {
			convert(Hash{}, &s.overflow, true)
			s.shared = true
		}
	})
}

// Restart gives all shards the configuration alg and forgets all states, one shard after the
// other, as if there had never been any. The totals stay.
func (t *Table[S, A]) Restart(alg A) {
	t.visit(func(s *Shard[S, A]) {
		var unused S
		t.keys.Add(-int64(s.count))
		s.fill(nil)
		s.Algorithm, s.overflow, s.shared, s.floor, s.latest = alg, unused, false, 0, 0
	})
}

// visit calls f for each shard, which it locks. No shard can split in the meantime.
func (t *Table[S, A]) visit(f func(*Shard[S, A])) {
	t.grow.Lock()
	defer t.grow.Unlock()
	dir := t.dir.Load()
	for i := 0; i < len(dir.shards); {
		s := dir.shards[i].Load()
		s.mu.Lock()
		f(s)
		s.mu.Unlock()
		i += len(dir.shards) >> (64 - s.shift)
	}
}

// reserve counts one more key, and returns false if there would be too many.
func (t *Table[S, A]) reserve() bool {
	for {
		n := t.keys.Load()
		if n >= t.maxKeys {
			return false
		}
		if t.keys.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
