// Package breaker keeps the parts of a store that do not answer from holding up
// decisions: each part has a circuit breaker of its own.
package breaker

import (
	"iter"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// MaxParts is how many parts of a store are told apart.
const MaxParts = 64

// A Set is the breakers of one store. Sets of parts are written as bits, see [Bit].
type Set struct {
	list []breaker // of the parts
	wrap func(error) error

	asked     atomic.Uint64 // parts that calls have been let through to
	openCount atomic.Int32  // breakers that refuse calls

	mu     sync.Mutex
	opened uint64 // how often a breaker has begun to refuse calls; guarded by mu
	last   error  // why the last one has; guarded by mu
}

// New returns the breakers of a store that has this many parts, at most [MaxParts]. wrap
// makes the errors of the store, and the refusals, what callers get.
func New(parts int, wrap func(error) error) *Set {
	return &Set{list: make([]breaker, parts), wrap: wrap}
}

// Bit returns the part of this number as a bit.
func Bit(part int) uint64 { return 1 << (uint(part) % MaxParts) }

// each yields the numbers of parts in order.
func each(parts uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; parts != 0; parts &= parts - 1 {
			if !yield(bits.TrailingZeros64(parts)) {
				return
			}
		}
	}
}

// A Pass is the right to make one call of several parts.
type Pass struct {
	parts  uint64
	probes uint64 // those of which the call finds out whether they answer again
}

// Probed returns p without its probes, for the next call of a caller whose first call
// has found out what they are for.
func (p Pass) Probed() Pass { return Pass{parts: p.parts} }

// to returns the passage to one of the parts of p.
func (p Pass) to(part int) passage { return passage{probe: p.probes&Bit(part) != 0} }

// Admit lets a call of parts through at now, or says why not. The caller says by
// Succeeded, Failed or Abandoned what became of the call.
//
// Nobody waits, and all callers try the parts in the same order: of several that find
// the pauses of all their parts over, one gets through.
func (s *Set) Admit(parts uint64, now keytable.Instant) (p Pass, err error) {
	for part := range each(parts) {
		one, err := s.list[part].admit(now)
		if err != nil {
			s.Abandoned(p) // otherwise nobody would ever probe those parts again
			return Pass{}, err
		}
		p.parts |= Bit(part)
		if one.probe {
			p.probes |= Bit(part)
		}
	}
	if s.asked.Load()&parts != parts {
		s.asked.Or(parts)
	}
	return p, nil
}

// Refusing reports whether calls of some part are refused. It is quick.
func (s *Set) Refusing() bool { return s.openCount.Load() != 0 }

// Refusal returns why calls of one of parts are refused at now, or nil if none are. It
// admits nothing.
func (s *Set) Refusal(parts uint64, now keytable.Instant) error {
	for part := range each(parts) {
		if err := s.list[part].refusal(now); err != nil {
			return err
		}
	}
	return nil
}

// Succeeded says that the store has answered, and so have all parts.
func (s *Set) Succeeded(p Pass) {
	for part := range each(p.parts) {
		s.list[part].succeeded(p.to(part))
	}
	if p.probes != 0 {
		s.openCount.Add(-int32(bits.OnesCount64(p.probes)))
	}
}

// Failed says that the store has not answered, by now, because of err, for which the parts
// blamed are to blame; if none of those that were asked are, all are. Nothing is known of
// the other parts: the store may have given up before it asked them. To take them to
// answer again would send more calls to parts that may not.
func (s *Set) Failed(p Pass, now keytable.Instant, err error, blamed uint64) {
	bad := p.parts
	if blamed &= p.parts; blamed != 0 {
		bad = blamed
	}
	s.Abandoned(Pass{p.parts &^ bad, p.probes &^ bad})
	opened := 0
	for part := range each(bad) {
		if s.list[part].failed(p.to(part), now, err, s.wrap) {
			opened++
		}
	}
	if opened == 0 {
		return
	}
	s.openCount.Add(int32(opened))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened += uint64(opened)
	s.last = s.wrap(err)
}

// Abandoned says that nobody knows whether the parts would have answered.
func (s *Set) Abandoned(p Pass) {
	for part := range each(p.probes) {
		s.list[part].abandoned(p.to(part))
	}
}

// Stats are totals of a Set.
type Stats struct {
	Asked  int    // parts that calls have been let through to
	Open   int    // of these, parts whose calls are refused, probes aside
	Opened uint64 // how often that began, of all parts together
	Last   error  // why it last did, or nil
}

// Stats returns the totals.
func (s *Set) Stats() (stats Stats) {
	for part := range each(s.asked.Load()) {
		stats.Asked++
		if s.list[part].pause.Load() != nil {
			stats.Open++
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stats.Opened, stats.Last = s.opened, s.last
	return stats
}
