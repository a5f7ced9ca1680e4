package ratelimit

import (
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// maxLogRequests is the largest Requests of a SlidingWindowLog. It bounds the memory of one
// key.
const maxLogRequests = 1 << 16

// A SlidingWindowLog is a [Limiter] that keeps the instant of each granted unit, and grants
// while a key has at most [Rate.Requests] units within the last [Rate.Per].
//
// Bound: a key is granted at most Requests units in any half-open interval of length Per. No
// request within that bound is denied.
//
// Memory: 72 bytes per key, up to four fifths as much again for the table around it, and 16
// bytes for each distinct instant within the last Per except the newest, in a ring that grows
// by doubling. Therefore, Requests is at most 65,536.
//
// There are no boundaries: each unit stops counting exactly Per after it was granted.
//
// Choose a SlidingWindowLog for a small limit that must hold in every interval of length
// Per. Choose a [SlidingWindowCounter] for a large limit.
//
// The zero SlidingWindowLog denies everything; [NewSlidingWindowLog] makes one to use.
type SlidingWindowLog struct{ slidingLogKeys }

// NewSlidingWindowLog returns a SlidingWindowLog that grants the rate r, which must have no
// Burst and at most 65,536 Requests. An error matches [ErrInvalidConfig].
func NewSlidingWindowLog(r Rate, opts ...Option) (*SlidingWindowLog, error) {
	l := new(SlidingWindowLog)
	if err := l.init(AlgorithmSlidingWindowLog, r, opts, newSlidingLogConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the key then has at most Requests units within the last
// Per. A denial changes nothing.
func (l *SlidingWindowLog) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// slidingLogKeys has the methods that all five limiters share.
type slidingLogKeys struct {
	keyed[slidingLogState, *slidingLogConfig]
}

// slidingLogConfig decides for all keys that have the same rate.
type slidingLogConfig struct {
	requests int64  // units in any window
	per      uint64 // nanoseconds
}

func newSlidingLogConfig(r Rate, _ time.Time) (*slidingLogConfig, error) {
	err := r.withoutBurst("sliding window log")
	if r.Requests > maxLogRequests {
		err = errors.Join(err, &ConfigError{"requests", r.Requests,
			"must be at most 65536: each is stored; a sliding window counter has no such bound"})
	}
	if err != nil {
		return nil, err
	}
	return &slidingLogConfig{int64(r.Requests), uint64(r.Per)}, nil
}

// slidingLogState is the state of one key. The zero state has used nothing.
//
// Units granted at one instant are one entry. The newest entry is in the state itself, the
// older ones are in the ring. Entries hold running totals, so the units of several entries
// in a row are the difference of two totals, and a binary search finds where a given number
// of units is reached.
type slidingLogState struct {
	clock instant // last, or the time of a change of the rate after it; never decreases
	last  instant // of the newest entry
	total uint32  // units ever granted, modulo 2^32
	base  uint32  // total before the oldest entry that is kept
	ring  []logEntry
	first uint32 // index of the oldest entry in the ring, whose length is a power of two
	older uint32 // number of entries in the ring
}

// A logEntry is an instant at which units were granted.
type logEntry struct {
	at    instant
	total uint32 // units ever granted, including those of this entry, modulo 2^32
}

// entry returns the entry that i entries are older than. Entry number s.older is the newest.
func (s *slidingLogState) entry(i uint32) logEntry {
	if i == s.older {
		return logEntry{s.last, s.total}
	}
	return s.ring[(s.first+i)&uint32(len(s.ring)-1)]
}

// Step decides on n units at now, and adds them to the log if they fit and charge is set.
func (c *slidingLogConfig) Step(s *slidingLogState, _ *slidingLogConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	if now < s.clock {
		return engine.StepAhead(c, s, c, s.clock, now, n, charge)
	}
	gone, used := c.used(s, now)
	v.Limit = c.requests
	switch left := c.requests - used; {
	case n > c.requests:
		v.RetryAfter = Never
	case n > left:
		v.RetryAfter = c.retryAfter(s, now, gone, s.total-uint32(used), uint32(n-left))
	case charge:
		s.forget(gone, uint32(used))
		s.add(now, uint32(n))
		used += n
	}
	v.Left = max(c.requests-used, 0) // negative if the limit was lowered
	if used > 0 {
		v.ResetAfter = time.Duration(c.per - now.Since(s.last))
	}
	return v, 0
}

// used returns how many entries are at least per old at now, and the units of the others.
func (c *slidingLogConfig) used(s *slidingLogState, now instant) (gone uint32, units int64) {
	if now.Since(s.last) >= c.per {
		return s.older + 1, 0
	}
	base := s.base
	if s.older > 0 && now.Since(s.entry(0).at) >= c.per {
		gone = uint32(sort.Search(int(s.older), func(i int) bool {
			return now.Since(s.entry(uint32(i)).at) < c.per
		}))
		base = s.entry(gone - 1).total
	}
	return gone, int64(s.total - base)
}

// retryAfter returns how long it takes until must units have left the last per. They are the
// oldest ones after the total base. The entries before the entry first have left already.
func (c *slidingLogConfig) retryAfter(s *slidingLogState, now instant, first, base, must uint32) time.Duration {
	i := sort.Search(int(s.older-first), func(i int) bool {
		return s.entry(first+uint32(i)).total-base >= must
	})
	return time.Duration(c.per - now.Since(s.entry(first+uint32(i)).at))
}

// forget drops the oldest gone entries. The others have used units.
func (s *slidingLogState) forget(gone, used uint32) {
	s.base = s.total - used
	if used == 0 {
		gone = s.older // the newest entry is gone too, and is not in the ring
	}
	s.first += gone
	s.older -= gone
}

// add adds n units at now, which is not before the newest entry.
func (s *slidingLogState) add(now instant, n uint32) {
	if s.total != s.base && now != s.last {
		if int(s.older) == len(s.ring) {
			s.grow()
		}
		s.ring[(s.first+s.older)&uint32(len(s.ring)-1)] = logEntry{s.last, s.total}
		s.older++
	}
	s.clock, s.last = now, now
	s.total += n
}

// grow doubles the length of the ring.
func (s *slidingLogState) grow() {
	ring := make([]logEntry, max(2*len(s.ring), 4))
	for i := range s.older {
		ring[i] = s.entry(i)
	}
	s.ring, s.first = ring, 0
}

// Carry brings s, which from has decided on until now, to the per of c. Entries that are
// older than the per of from do not count again.
func (c *slidingLogConfig) Carry(s *slidingLogState, from *slidingLogConfig, now instant) {
	if c.per == from.per {
		return
	}
	s.clock = max(now, s.clock)
	gone, used := from.used(s, s.clock)
	s.forget(gone, uint32(used))
}

// Resize leaves s as it is: a log means the same under any limit.
func (c *slidingLogConfig) Resize(*slidingLogState, *slidingLogConfig) {}

// Fills reports false: a change of the limit changes no log.
func (c *slidingLogConfig) Fills(*slidingLogConfig) bool { return false }

// Slower reports false: at any rate with this per, entries leave at the same instants.
func (c *slidingLogConfig) Slower(*slidingLogConfig) bool { return false }

// Reached returns the instant that the clock of s stands at.
func (c *slidingLogConfig) Reached(s *slidingLogState) instant { return s.clock }

// Clone returns a copy of s with a ring of its own.
func (c *slidingLogConfig) Clone(s *slidingLogState) slidingLogState {
	clone := *s
	clone.ring = slices.Clone(s.ring)
	return clone
}

// Charged returns the instant at which s was charged last.
func (c *slidingLogConfig) Charged(s *slidingLogState) instant { return s.last }

// GiveBack takes units off the entry of the instant at which they were charged, if the log still
// has that and no more than maxMoved later ones.
func (c *slidingLogConfig) GiveBack(s *slidingLogState, back engine.Returned) {
	then, n := back.At, back.N
	at := uint32(sort.Search(int(s.older), func(i int) bool { return s.entry(uint32(i)).at >= then }))
	if s.older-at > maxMoved {
		return
	}
	before := s.base
	if at > 0 {
		before = s.entry(at - 1).total
	}
	if e := s.entry(at); e.at != then || int64(e.total-before) < n {
		return
	}
	for i := at; i < s.older; i++ {
		s.ring[(s.first+i)&uint32(len(s.ring)-1)].total -= uint32(n)
	}
	s.total -= uint32(n)
	if s.entry(at).total == before {
		s.drop(at)
	}
}

// maxMoved is how many entries are changed at most when units are given back.
const maxMoved = 4096

// drop removes entry number i, which has no units any more.
func (s *slidingLogState) drop(i uint32) {
	if s.older == 0 {
		return // the log is empty: total equals base
	}
	for ; i+1 < s.older; i++ {
		s.ring[(s.first+i)&uint32(len(s.ring)-1)] = s.entry(i + 1)
	}
	if i < s.older {
		s.older--
		return
	}
	s.older--
	s.last = s.ring[(s.first+s.older)&uint32(len(s.ring)-1)].at
}

// Idle reports whether all entries are at least per old at now.
func (c *slidingLogConfig) Idle(s *slidingLogState, now instant) bool {
	if now < s.clock {
		return false
	}
	_, used := c.used(s, now)
	return used == 0
}

// Inherit returns a log with one entry: all units of s, at its newest instant. A key that
// leaves the shared log cannot know which of the entries are its own.
func (c *slidingLogConfig) Inherit(s *slidingLogState, now instant) slidingLogState {
	_, used := c.used(s, max(now, s.clock))
	return slidingLogState{clock: s.clock, last: s.last, total: uint32(used)}
}
