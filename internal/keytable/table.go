// Package keytable keeps one small state for each key: what the key has used of its limit. It
// bounds the number of keys, spreads them over many locks, and never forgets a debt, which is
// what a key has used and not yet earned back.
//
// States lie in the slots of a shard, sorted by the hashes of their keys. A shard is small,
// and splits in two when it is full, so that no call waits for more than the rebuild of one
// small shard. The directory of shards doubles when it must, as in extendible hashing.
// No goroutine runs in the background: a shard drops idle keys, which owe nothing any more,
// when it is about to grow.
//
// When the table is full, the keys of a shard that have no slot share one state, which counts
// what they use together. A key that gets a slot later begins with the debt in that state.
// Flooding the table with keys therefore gains a client nothing.
package keytable

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
)

// An Algorithm is the configuration of one limiter. Its methods answer the questions that the
// table has about the states of keys. The zero S is the state of a key that was never used.
type Algorithm[S any] interface {
	// Idle reports whether, at the instant now, the state s equals the state of a key that was never used.
	Idle(s *S, now Instant) bool

	// Inherit returns the first state of a key that gets a slot of its own and so far shared the
	// state s with other keys. The result must not share memory with s.
	Inherit(s *S, now Instant) S
}

// A Table maps hashes to states. The zero Table is not ready for use; call New.
type Table[S any, A Algorithm[S]] struct {
	maxKeys  int64
	minDepth uint8 // with up to 2^minDepth shards, a shard splits as soon as it has a few keys
	maxDepth uint8 // there are never more than 2^maxDepth shards

	dir  atomic.Pointer[directory[S, A]] // finds the shard of a hash
	keys atomic.Int64                    // how many keys have a slot; at most maxKeys

	// grow is held while a shard splits or while all shards are visited. A goroutine that
	// has locked a shard may lock grow only with TryLock.
	grow sync.Mutex
}

// A directory maps the first bits of a hash to a shard. If a shard has split only a few times, its prefix is shorter,
// and stands for several values of these bits. Such a shard is in several neighbouring entries of the field shards.
type directory[S any, A Algorithm[S]] struct {
	shift  uint8 // 64 minus the number of first bits of a hash that select the shard
	shards []atomic.Pointer[Shard[S, A]]
}

// New returns a table whose shards all have the configuration alg. It gives slots to at most maxKeys
// keys.
func New[S any, A Algorithm[S]](alg A, maxKeys int) *Table[S, A] {
	t := &Table[S, A]{
		maxKeys:  int64(maxKeys),
		minDepth: uint8(bits.Len(uint(8*runtime.GOMAXPROCS(0) - 1))),
		maxDepth: uint8(max(bits.Len(uint(maxKeys))-bits.Len(minShardKeys), 0)),
	}
	dir := newDirectory[S, A](0)
	dir.shards[0].Store(&Shard[S, A]{table: t, Algorithm: alg, shift: 64, slots: make([]slot[S], 1)})
	t.dir.Store(dir)
	return t
}

func newDirectory[S any, A Algorithm[S]](depth uint8) *directory[S, A] {
	return &directory[S, A]{shift: 64 - depth, shards: make([]atomic.Pointer[Shard[S, A]], 1<<depth)}
}

// Lock returns the shard of the hash h, locked. The caller must unlock the shard.
func (t *Table[S, A]) Lock(h Hash) *Shard[S, A] {
	for {
		dir := t.dir.Load()
		s := dir.shards[h.Hi>>dir.shift].Load()
		s.mu.Lock()
		if h.Hi>>s.shift == s.prefix {
			return s
		}
		s.mu.Unlock() // the shard has split since it was found, so look again
	}
}

// Open does the work of Lock and Find in one call. It returns the shard of the hash h, locked, and the
// state of the key with this hash. If the key has no slot, the state is nil.
func (t *Table[S, A]) Open(h Hash) (*Shard[S, A], *S) {
	for {
		dir := t.dir.Load()
		s := dir.shards[h.Hi>>dir.shift].Load()
		s.mu.Lock()
		if h.Hi>>s.shift != s.prefix {
			s.mu.Unlock() // the shard has split since it was loaded, so look again
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
	Allowed, Denied uint64 // decisions that granted or denied; calls that only look are not counted
	Shadowed        uint64 // denials by a shadow rule, which stopped no request
	Advised         uint64 // denials that a shadow rule reported to the caller; they stopped no request, and are not in Shadowed
	Evicted         uint64 // keys that lost their slots while they owed nothing
	Overflowed      uint64 // grants to keys that got no slot because the table was full; the keys' shared state was charged
}

// Counts returns the totals over all shards.
func (t *Table[S, A]) Counts() (sum Counts) {
	t.visit(func(s *Shard[S, A]) {
		sum.Allowed += s.counts.Allowed
		sum.Denied += s.counts.Denied
		sum.Shadowed += s.counts.Shadowed
		sum.Advised += s.counts.Advised
		sum.Evicted += s.counts.Evicted
		sum.Overflowed += s.counts.Overflowed
	})
	return sum
}

// Reconfigure gives all shards the configuration alg, one shard after the other. It calls the function
// convert for every state that has been used. If the state is the one that all keys without a slot
// share, the parameter shared of convert is true, and its parameter h is the zero Hash.
func (t *Table[S, A]) Reconfigure(alg A, convert func(h Hash, s *S, shared bool)) {
	t.visit(func(s *Shard[S, A]) {
		for i := range s.slots {
			// Skip a state that is idle even at the earliest instant. Such a state was never used, or not
			// since a Reset.
			if at := &s.slots[i]; at.hash.Hi != 0 && !s.Algorithm.Idle(&at.state, 0) {
				convert(at.hash, &at.state, false)
			}
		}
		s.Algorithm = alg
		// Keys without a slot share the state in s.overflow, so this state is converted like the states
		// in slots. It is not in use if no key was evicted and no key was charged to it.
		if s.floor > 0 || s.shared {
			convert(Hash{}, &s.overflow, true)
			s.shared = true
		}
	})
}

// Sweep evicts the keys that are idle at the instant now, one shard after the other.
func (t *Table[S, A]) Sweep(now Instant) { t.visit(func(s *Shard[S, A]) { s.sweep(now) }) }

// Restart gives all shards the configuration alg and forgets the states of all keys, one shard
// after the other. The totals that Counts returns stay.
func (t *Table[S, A]) Restart(alg A) {
	t.visit(func(s *Shard[S, A]) {
		var unused S
		t.keys.Add(-int64(s.count))
		s.fill(nil)
		s.Algorithm, s.overflow, s.shared, s.floor, s.latest = alg, unused, false, 0, 0
	})
}

// visit calls the function f for each shard, with that shard locked. No shard can split meanwhile.
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

// reserve counts one more key with a slot. If the table already has maxKeys keys with slots, reserve
// counts nothing and returns false.
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
