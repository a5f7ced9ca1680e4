// Package breaker keeps decisions from waiting for a store that does not answer. Each part of
// the store, such as a node of a cluster, has a circuit breaker of its own.
package breaker

import (
	"errors"
	"iter"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// MaxParts is the largest number of parts of a store.
const MaxParts = 64

// A Set is the breakers of one store. Several parts are passed as the bits of a uint64, see
// [Bit]. A breaker is open while it refuses calls.
type Set struct {
	list []breaker         // by number of the part
	wrap func(error) error // see New

	asked     atomic.Uint64 // the parts for which a call was let through, as bits
	openCount atomic.Int32  // how many breakers are open

	mu     sync.Mutex
	opened uint64 // how often a breaker has opened; guarded by mu
	last   error  // why a breaker opened last, or nil; guarded by mu
}

// New returns the breakers of a store with this number of parts, which is at most [MaxParts].
// wrap is applied to the errors that callers get: those of the store, and the refusals.
func New(parts int, wrap func(error) error) *Set {
	return &Set{list: make([]breaker, parts), wrap: wrap}
}

// Bit returns the bit of the part with this number.
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

// A Pass is the permission to make one call of the store, which is about some of its parts.
type Pass struct {
	parts  uint64
	probes uint64 // the parts whose breaker is open: the call finds out whether they answer again
}

// Probed returns p without its probes. It is for a second call of the store by one caller: the
// first call was the probe.
func (p Pass) Probed() Pass { return Pass{parts: p.parts} }

// to returns the permission of p for one of its parts.
func (p Pass) to(part int) passage { return passage{probe: p.probes&Bit(part) != 0} }

// Admit permits a call of these parts at now, or returns the error for the caller. After the
// call, its caller must call Succeeded, Failed or Abandoned with the Pass.
//
// Admit does not wait. All callers try the parts in the same order, so if several of them find
// that the pauses of all their parts are over, one of them gets a Pass.
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

// Refusing reports whether any breaker is open. It takes one atomic load.
func (s *Set) Refusing() bool { return s.openCount.Load() != 0 }

// Refusal returns the error with which a call of these parts is refused at now, or nil if
// Admit may permit it. It permits nothing itself.
func (s *Set) Refusal(parts uint64, now keytable.Instant) error {
	for part := range each(parts) {
		if err := s.list[part].refusal(now); err != nil {
			return err
		}
	}
	return nil
}

// Succeeded says that the call of p has succeeded: all its parts have answered.
func (s *Set) Succeeded(p Pass) {
	for part := range each(p.parts) {
		s.list[part].succeeded(p.to(part))
	}
	if p.probes != 0 {
		s.openCount.Add(-int32(bits.OnesCount64(p.probes)))
	}
}

// Failed says that the call of p has failed with err at now. blamed are the parts that have
// failed; if none of the parts of p is among them, all have. Nothing is known of the other
// parts of p, because the store may have given up before it asked them. If Failed took them to
// have answered, more calls would go to parts that may not answer. call is the number of the call
// if several callers have shared it, and otherwise 0: each part counts a call once.
func (s *Set) Failed(p Pass, now keytable.Instant, err error, blamed, call uint64) {
	failing := p.parts
	if blamed &= p.parts; blamed != 0 {
		failing = blamed
	}
	s.Abandoned(Pass{p.parts &^ failing, p.probes &^ failing})
	opened := 0
	for part := range each(failing) {
		if s.list[part].failed(p.to(part), now, err, call, s.wrap) {
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

// Abandoned says that it is not known whether the parts of p would have answered.
func (s *Set) Abandoned(p Pass) {
	for part := range each(p.probes) {
		s.list[part].abandoned(p.to(part))
	}
}

// Stats are the totals of a Set.
type Stats struct {
	Asked  int    // parts for which a call was permitted
	Open   int    // of these, parts whose breaker is open now
	Opened uint64 // how often a breaker has opened, of all parts together
	Last   error  // why a breaker opened last, or nil
}

// Stats returns the totals of s.
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

// Blamed returns the parts that have failed according to err, which may have a method Parts, as
// bits. They are 0 if err does not say.
func Blamed(err error) (parts uint64) {
	var blaming interface{ Parts() []int }
	if errors.As(err, &blaming) {
		for _, part := range blaming.Parts() {
			parts |= Bit(part)
		}
	}
	return parts
}
