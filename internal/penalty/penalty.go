// Package penalty counts the denials of keys, and blocks a key that was denied too often.
package penalty

import (
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// A Rule says how many denials block a key, and for how long. The type Penalty of the root package has the same fields.
type Rule struct {
	After  int           // how many denials begin a block
	Within time.Duration // denials count together if they come within this time of the first one
	For    time.Duration // how long the first block lasts

	// Most is how long the longest block lasts. A block that begins less than Most after the end of the one before is twice
	// as long as that. If Most is 0, every block has the length of the field For.
	Most time.Duration
}

// Whose says to which client and address a key belongs, so that the blocks of all their keys can be ended together.
type Whose struct {
	Client keytable.Hash // the hash of the client's name; zero if the key is not that of a single client
	IP     netip.Prefix  // the address of the client, or the network prefix that the request gives for it; invalid if the key has neither
}

// A state is what is known about the denials of one key. A key that was never denied has the zero state.
type state struct {
	start keytable.Instant // when the first of the counted denials came; not used while count is 0
	until keytable.Instant // when the last block ended or will end; 0 if there was none
	last  time.Duration    // how long that block was
	count int              // how many denials count towards the next block
	whose Whose
}

// blocked reports whether the block of s still runs at the instant now.
func (s *state) blocked(now keytable.Instant) bool { return now < s.until }

// idle reports whether s has no effect any more from the instant now on, so that it can be forgotten.
func (s *state) idle(r *Rule, now keytable.Instant) bool {
	strikes := s.count > 0 && now < s.start.Add(r.Within)
	return !s.blocked(now) && !strikes && (s.until == 0 || r.Most == 0 || now >= s.until.Add(r.Most))
}

// strike counts a denial at the instant now. The result begun says whether this denial has begun a block.
func (s *state) strike(r *Rule, now keytable.Instant) (begun bool) {
	if s.count == 0 || now >= s.start.Add(r.Within) {
		s.start, s.count = now, 0
	}
	if s.count++; s.count < r.After {
		return false
	}
	d, at := r.For, max(now, s.start) // now is before s.start if the clock was set back
	if s.until != 0 && r.Most != 0 && max(at, s.until).Since(s.until) < uint64(r.Most) {
		d = min(2*s.last, r.Most)
	}
	s.until, s.last, s.count = at.Add(d), d, 0
	return true
}

// maxShards is the number of parts of a Table, each with a lock of its own, so that goroutines seldom wait for each
// other. A Table for few keys has only one part.
const maxShards = 64

// A Table has the states of all keys of a rule. It is safe for concurrent use by multiple goroutines.
type Table struct {
	rule   atomic.Pointer[Rule]
	most   int64        // the largest number of states
	len    atomic.Int64 // the number of states
	shards []shard
}

// A shard is a part of a Table.
type shard struct {
	mu     sync.Mutex
	states map[keytable.Hash]*state
	_      [48]byte // padding, so that two shards do not share a cache line
}

// New returns a Table for at most n keys.
func New(r Rule, n int) *Table {
	t := &Table{most: int64(n), shards: make([]shard, 1)}
	if n >= 16*maxShards {
		t.shards = make([]shard, maxShards)
	}
	for i := range t.shards {
		t.shards[i].states = make(map[keytable.Hash]*state)
	}
	t.rule.Store(&r)
	return t
}

// SetRule sets the rule for denials from now on. Blocks that have begun stay as they are.
func (t *Table) SetRule(r Rule) { t.rule.Store(&r) }

// shard returns the part that has the key with this hash, and locks it.
func (t *Table) shard(h keytable.Hash) *shard {
	s := &t.shards[h.Lo%uint64(len(t.shards))]
	s.mu.Lock()
	return s
}

// Rest returns how long the key with this hash is still blocked at the instant now, or 0 if the key is not blocked.
func (t *Table) Rest(h keytable.Hash, now keytable.Instant) time.Duration {
	if t.len.Load() == 0 {
		return 0
	}
	sh := t.shard(h)
	defer sh.mu.Unlock()
	if s := sh.states[h]; s != nil && s.blocked(now) {
		return now.Until(s.until)
	}
	return 0
}

// Strike counts a denial of the key with this hash at the instant now, unless the key is blocked. It returns how long the
// key is blocked from now, or 0, and whether this denial has begun the block. If the Table is full and can forget no other
// key, the denial of a new key is not counted.
func (t *Table) Strike(h keytable.Hash, whose Whose, now keytable.Instant) (rest time.Duration, begun bool) {
	r := t.rule.Load()
	sh := t.shard(h)
	defer sh.mu.Unlock()
	s := sh.states[h]
	switch {
	case s != nil && s.blocked(now):
		return now.Until(s.until), false
	case s == nil:
		if s = t.add(sh, h, now); s == nil {
			return 0, false
		}
		s.whose = whose
	}
	if begun = s.strike(r, now); begun {
		return now.Until(s.until), true
	}
	return 0, false
}

// Block notes that a store has denied the key with this hash on account of a block. The block of the key now
// lasts for the given time (rest), but no longer than the longest block of the rule.
func (t *Table) Block(h keytable.Hash, whose Whose, rest time.Duration, now keytable.Instant) {
	r, sh := t.rule.Load(), t.shard(h)
	defer sh.mu.Unlock()
	s := sh.states[h]
	if s == nil {
		if s = t.add(sh, h, now); s == nil {
			return
		}
		s.whose = whose
	}
	s.last = min(rest, max(r.For, r.Most)) // rest may be longer than a block, because it also covers the wait for the rule's units
	s.until, s.count = now.Add(s.last), 0
}

// add adds a state for the key with this hash to sh. Before that, it looks at up to 8 other states of sh. It forgets
// each of these states that has no effect any more. As long as the Table is full, it also forgets each of these states
// whose key is not blocked now. If the Table is still full, the result is nil.
func (t *Table) add(sh *shard, h keytable.Hash, now keytable.Instant) *state {
	const looks = 8 // a small number, so that a call is fast however many keys there are
	r, full, seen := t.rule.Load(), t.len.Load() >= t.most, 0
	for other, s := range sh.states {
		if s.idle(r, now) || full && !s.blocked(now) {
			delete(sh.states, other)
			full = t.len.Add(-1) >= t.most
		}
		if seen++; seen == looks {
			break
		}
	}
	if full {
		return nil
	}
	t.len.Add(1)
	s := new(state)
	sh.states[h] = s
	return s
}

// Forget forgets the counted denials of the key with this hash, and ends its block. If t is nil, Forget does nothing.
func (t *Table) Forget(h keytable.Hash) {
	if t == nil {
		return
	}
	sh := t.shard(h)
	defer sh.mu.Unlock()
	if sh.states[h] != nil {
		delete(sh.states, h)
		t.len.Add(-1)
	}
}

// Pardon calls the given function for the owner of each key. If the function returns true, Pardon forgets the counted denials of
// the key, and ends its block. If t is nil, Pardon does nothing.
func (t *Table) Pardon(of func(w *Whose) bool) {
	if t == nil {
		return
	}
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for h, s := range sh.states {
			if of(&s.whose) {
				delete(sh.states, h)
				t.len.Add(-1)
			}
		}
		sh.mu.Unlock()
	}
}

// Has reports whether t has a state for the key with this hash. It returns false if t is nil.
func (t *Table) Has(h keytable.Hash) bool {
	if t == nil {
		return false
	}
	sh := t.shard(h)
	defer sh.mu.Unlock()
	return sh.states[h] != nil
}

// Pack writes the state of the key with this hash to f, or reads it from f. The owner of the key (state.whose) is not in f.
func (t *Table) Pack(h keytable.Hash, f *packed.Form) {
	sh := t.shard(h)
	defer sh.mu.Unlock()
	s := sh.states[h]
	if s == nil {
		s = new(state)
	}
	packed.Instant(f, &s.start)
	packed.Instant(f, &s.until)
	packed.Number(f, &s.last, 0, math.MaxInt64/2)
	packed.Number(f, &s.count, 0, math.MaxInt-1)
	if f.Reading() && f.OK() && sh.states[h] == nil {
		sh.states[h] = s
		t.len.Add(1)
	}
}

// Heal corrects the state of the key with this hash, if it has one, after the clock was set back. Afterwards, the rest of a
// block, counted from the instant now, is at most the length of the whole block, and no counted denial is later than now.
func (t *Table) Heal(h keytable.Hash, now keytable.Instant) {
	sh := t.shard(h)
	defer sh.mu.Unlock()
	if s := sh.states[h]; s != nil {
		s.start, s.until = min(s.start, now), min(s.until, now.Add(s.last))
	}
}

// Idle returns the instant from which on the state of the key with this hash has no effect any more. The key must have a state.
func (t *Table) Idle(h keytable.Hash) keytable.Instant {
	r, sh := t.rule.Load(), t.shard(h)
	defer sh.mu.Unlock()
	s := sh.states[h]
	end := s.until
	if s.until != 0 {
		end = s.until.Add(r.Most)
	}
	if s.count > 0 {
		end = max(end, s.start.Add(r.Within))
	}
	return end
}

// Len returns how many keys have a state: for counted denials, or for a block that runs or has ended. States that have no
// effect any more are counted until they are forgotten.
func (t *Table) Len() int { return int(t.len.Load()) }
