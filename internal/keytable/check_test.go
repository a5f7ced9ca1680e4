package keytable

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A debt is a state that drains with time. A key whose debt ends at now or before is idle.
type debt struct {
	until   Instant
	version int // of the configuration that wrote it; 0 if unused
}

// A drain is a configuration of debts.
type drain struct{ version int }

func (*drain) Idle(s *debt, now Instant) bool  { return now >= s.until }
func (*drain) Inherit(s *debt, _ Instant) debt { return *s }

type debts = Table[debt, *drain]

func newDebts(maxKeys int) *debts { return New[debt](&drain{version: 1}, maxKeys) }

// at returns the Instant that is ns nanoseconds after the start.
func at(ns int) Instant { return InstantAt(time.Duration(ns)) }

// owe adds d to the debt of h, as a granted request does.
func owe(t *debts, h Hash, now Instant, d time.Duration) {
	s := t.Lock(h)
	defer s.Unlock()
	if state := s.Find(h); state != nil {
		*state = debt{max(state.until, now).Add(d), s.Algorithm.version}
		return
	}
	shared, now := s.Owed(now)
	state := s.Newcomer(now)
	*state = debt{max(state.until, now).Add(d), s.Algorithm.version}
	if !s.Insert(h, state, now) {
		*shared = *state
	}
}

// owed returns until when h is in debt, as a decision at now would see it.
func owed(t *debts, h Hash, now Instant) Instant {
	s := t.Lock(h)
	defer s.Unlock()
	if state := s.Find(h); state != nil {
		return state.until
	}
	state, _ := s.Owed(now)
	return state.until
}

// has reports whether h has a slot of its own.
func has(t *debts, h Hash) bool {
	s := t.Lock(h)
	defer s.Unlock()
	return s.Find(h) != nil
}

// reset forgets everything that h owes.
func reset(t *debts, h Hash) {
	s := t.Lock(h)
	defer s.Unlock()
	s.Reset(h)
}

// spread returns the i-th of n hashes that are spread evenly over all possible hashes.
func spread(i, n int) Hash {
	return Hash{Hi: uint64(i)*(^uint64(0)/uint64(n)) + 1, Lo: uint64(i)}
}

// shards returns all shards of t, in the order of their prefixes.
func (t *Table[S, A]) shards() (all []*Shard[S, A]) {
	t.visit(func(s *Shard[S, A]) { all = append(all, s) })
	return all
}

// check verifies the invariants of the whole table.
func (t *Table[S, A]) check(tb testing.TB) {
	tb.Helper()
	dir := t.dir.Load()
	require.Len(tb, dir.shards, 1<<(64-dir.shift), "a directory has an entry for every prefix")
	require.LessOrEqual(tb, 64-dir.shift, t.maxDepth, "shards have split too often")
	for i := range dir.shards {
		s := dir.shards[i].Load()
		require.GreaterOrEqual(tb, s.shift, dir.shift, "shard of entry %d is finer than the directory", i)
		require.Equal(tb, s.prefix, uint64(i)>>(s.shift-dir.shift), "entry %d leads to another prefix", i)
		require.Same(tb, t, s.table)
	}
	keys := 0
	for _, s := range t.shards() {
		s.check(tb)
		keys += s.count
	}
	require.Equal(tb, keys, t.Len(), "Len is the sum of all shards")
	require.LessOrEqual(tb, int64(keys), t.maxKeys, "the bound holds")
}

// check verifies the invariants of one shard.
func (s *Shard[S, A]) check(tb testing.TB) {
	tb.Helper()
	require.NotEmpty(tb, s.slots)
	require.Zero(tb, s.slots[len(s.slots)-1].hash.Hi, "the last slot is empty")
	require.Less(tb, s.cursor, len(s.slots))
	require.LessOrEqual(tb, s.count, capacity(s.size), "a shard beyond its capacity must have been rebuilt")
	count, last := 0, Hash{}
	for i := range s.slots {
		h := s.slots[i].hash
		if h.Hi == 0 {
			if any(s.slots[i]) != any(slot[S]{}) {
				require.FailNow(tb, "an empty slot keeps something", "slot %d", i)
			}
			continue
		}
		count++
		if last.Hi > h.Hi || last.Hi == h.Hi && last.Lo >= h.Lo {
			require.FailNow(tb, "keys are out of order", "%x before %x", last, h)
		}
		if h.Hi>>s.shift != s.prefix {
			require.FailNow(tb, "key in the wrong shard", "%x in %x", h, s.prefix)
		}
		home := s.home(h.Hi)
		if home > i {
			require.FailNow(tb, "key before its home", "slot %d, home %d", i, home)
		}
		for gap := home; gap < i; gap++ {
			if s.slots[gap].hash.Hi == 0 {
				require.FailNow(tb, "a gap between a key and its home", "slot %d, home %d", i, home)
			}
		}
		if place, ok := s.search(h); !ok || place != i {
			require.FailNow(tb, "key not found", "slot %d, search found %v at %d", i, ok, place)
		}
		last = h
	}
	require.Equal(tb, count, s.count, "count of slots in use")
}

func TestEmptyTable(t *testing.T) {
	table := newDebts(8)
	table.check(t)
	assert.Zero(t, table.Len())
	assert.Equal(t, Counts{}, table.Counts())
	assert.Zero(t, owed(table, Hash{1, 1}, at(0)), "a key that was never used owes nothing")
	assert.False(t, has(table, Hash{1, 1}))
	reset(table, Hash{1, 1})
	table.check(t)
	assert.Zero(t, table.Len(), "neither a look nor a reset makes a key")
}

func TestInstant(t *testing.T) {
	for _, row := range []struct {
		got, want Instant
		why       string
	}{
		{InstantAt(0), Start, "the start is an offset, so that no instant is negative"},
		{InstantAt(-1 << 63), 0, "the earliest instant is the zero Instant"},
		{InstantAt(1<<63 - 1), ^Instant(0), "the latest instant is the largest"},
		{Start.Add(5), Start + 5, "a duration is nanoseconds"},
		{(^Instant(0) - 1).Add(1), ^Instant(0), "the last instant can be reached"},
		{(^Instant(0) - 1).Add(2), ^Instant(0), "beyond the last instant is the last"},
		{Start.Add(1<<63 - 1).Add(1<<63 - 1), ^Instant(0), "sums stop, they do not wrap"},
	} {
		assert.Equal(t, row.want, row.got, row.why)
	}
	assert.Equal(t, ^uint64(0), (^Instant(0)).Since(0), "the longest distance has all 64 bits")
	assert.Equal(t, time.Hour, Start.Until(Start.Add(time.Hour)))
	assert.EqualValues(t, int64(math.MaxInt64), Instant(0).Until(^Instant(0)), "a longer distance is no Duration")
	assert.Equal(t, -time.Hour, InstantAt(-time.Hour).Duration(), "Duration is the inverse of InstantAt")
}
