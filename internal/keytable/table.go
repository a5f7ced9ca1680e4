// Package keytable keeps one small state per key: bounded, sharded, and
// without forgiving anybody's debt.
//
// States lie inline in the slots of a shard, sorted by the keys' hashes. A
// shard is small and splits in two when it is full, so that no caller ever
// waits for more than one small shard to be rebuilt; the directory of shards
// doubles when needed, as in extendible hashing. There is no goroutine: a shard
// drops the keys that are as good as new whenever it is about to grow.
//
// At the bound on keys, a key without a slot shares a debt with the other such
// keys of its shard, and inherits that debt if it gets a slot later. So nobody
// can win anything by flooding the table with keys.
package keytable

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// An Algorithm is the configuration of one limiter, with what a table must know
// of the states that it decides on. The zero S is the state of a key that has
// never been used.
type Algorithm[S any] interface {
	// Idle reports whether s at now equals the state of a key that has
	// never been used.
	Idle(s *S, now Instant) bool

	// Inherit returns the state that a key starts from when it leaves the
	// shared debt s for a slot of its own. It must not share memory with s.
	Inherit(s *S, now Instant) S
}

// A Table maps hashes to states. Its zero value is not ready for use.
type Table[S any, A Algorithm[S]] struct {
	maxKeys  int64
	minDepth uint8 // shards split early until there are 2^minDepth
	maxDepth uint8 // and never beyond 2^maxDepth

	dir  atomic.Pointer[directory[S, A]]
	keys atomic.Int64 // keys that have a slot; at most maxKeys

	grow sync.Mutex // held while shards split or all are visited; taken after a shard's lock only by TryLock
}

// A directory maps the first bits of a hash to a shard. A shard that has not
// split as often as others stands in several neighbouring entries.
type directory[S any, A Algorithm[S]] struct {
	shift  uint8 // 64 - the number of bits
	shards []atomic.Pointer[Shard[S, A]]
}

// New returns a table for at most maxKeys keys, under the configuration alg.
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

// Lock returns the shard that h belongs to, locked. The caller unlocks it.
func (t *Table[S, A]) Lock(h Hash) *Shard[S, A] {
	for {
		dir := t.dir.Load()
		s := dir.shards[h.Hi>>dir.shift].Load()
		s.mu.Lock()
		if h.Hi>>s.shift == s.prefix {
			return s
		}
		s.mu.Unlock() // it has split since; look again
	}
}

// Len returns how many keys have a slot.
func (t *Table[S, A]) Len() int { return int(t.keys.Load()) }

// Counts are a table's totals since it was made.
type Counts struct {
	Allowed, Denied uint64 // decisions, without looks
	Shadowed        uint64 // denials that denied nothing
	Evicted         uint64 // keys forgotten because they were as good as new
	Overflowed      uint64 // decisions granted from a debt shared at the bound on keys
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

// Reconfigure replaces the configuration of all shards by alg, one shard at a
// time. It calls convert for every state that has been used, those shared at the
// bound included; of these shared is true.
func (t *Table[S, A]) Reconfigure(alg A, convert func(s *S, shared bool)) {
	t.visit(func(s *Shard[S, A]) {
		for i := range s.slots {
			// Idle before all time is the state that Reset leaves.
			if at := &s.slots[i]; at.hash.Hi != 0 && !s.Algorithm.Idle(&at.state, 0) {
				convert(&at.state, false)
			}
		}
		s.Algorithm = alg
		// A key that was evicted is a key that had a slot: had it kept
		// it, its state would be converted too. So long as none was, a
		// key without a slot has never been used.
		if s.floor > 0 || s.shared {
			convert(&s.overflow, true)
			s.shared = true
		}
	})
}

// visit calls f for each shard, locked, while none can split.
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

// reserve counts one more key, if that is within the bound.
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
