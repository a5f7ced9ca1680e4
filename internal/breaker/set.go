// Package breaker keeps decisions from waiting for a store that does not answer. Each part of
// the store, such as a node of a cluster, has its own circuit breaker.
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

// A Set holds the circuit breakers of one store, one for each part, such as a node of a cluster. Methods
// get several parts as the bits of a uint64, see [Bit]. A breaker opens when several calls in a row have
// failed, and stays open until a probe (a test call) succeeds.
type Set struct {
	list []breaker         // one breaker for each part, at the index that is the number of the part
	wrap func(error) error // makes the error that callers get from an error of the store, or from a refusal

	asked     atomic.Uint64 // the parts for which a call was ever permitted, one bit for each part
	openCount atomic.Int32  // number of breakers that are open

	failed failures // of all parts

	mu     sync.Mutex
	opened uint64 // how often a breaker has opened; guarded by mu
	last   error  // the error after which a breaker has opened most recently; nil if none has ever opened; guarded by mu
}

// New returns the breakers of a store with this number of parts, which is at most [MaxParts]. The
// function wrap makes the error that callers get from an error of the store or from a refusal.
func New(parts int, wrap func(error) error) *Set {
	return &Set{list: make([]breaker, parts), wrap: wrap}
}

// Bit returns the bit that stands for the part with this number.
func Bit(part int) uint64 { return 1 << (uint(part) % MaxParts) }

// The function each yields, in increasing order, the numbers of the parts whose bits are set.
func each(parts uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; parts != 0; parts &= parts - 1 {
			if !yield(bits.TrailingZeros64(parts)) {
				return
			}
		}
	}
}

// A Pass is the permission to make one call of the store. The call asks some parts of the store.
type Pass struct {
	parts  uint64 // the parts that the call asks, one bit for each part
	probes uint64 // the bits of those asked parts whose breaker is open: for these parts, the call is a probe
}

// Probed returns a Pass for a second call of the same parts, after a call with the Pass p has succeeded.
// The second call is no probe, because the success has closed the breakers.
func (p Pass) Probed() Pass { return Pass{parts: p.parts} }

// The method named to returns the passage (permission) that the Pass p gives for one part of the store.
// The passage says whether the call is a normal call or a probe for this part.
func (p Pass) to(part int) passage { return passage{probe: p.probes&Bit(part) != 0} }

// Admit permits a call of these parts of the store at the instant now, or returns an error if it
// refuses the call. After a permitted call, the caller must call Succeeded, Failed or Abandoned with
// the Pass.
//
// Admit does not wait: while another caller probes one of the parts, Admit refuses the call. Every call of Admit
// tries the parts in the same order. So if several callers come when the pauses of all their parts are over, one
// of them gets a Pass. If each call used another order, all callers could be refused: each of them would probe one
// part, and be refused by a part that another caller already probes.
func (s *Set) Admit(parts uint64, now keytable.Instant) (p Pass, err error) {
	for part := range each(parts) {
		one, err := s.list[part].admit(now)
		if err != nil {
			s.Abandoned(p) // otherwise the probes of the parts before this one would not end, so no caller could probe these parts again
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

// Refusing reports whether any breaker is open. It costs one atomic load.
func (s *Set) Refusing() bool { return s.openCount.Load() != 0 }

// Refusal returns the error with which Admit would refuse a call of these parts at the instant now. It
// returns nil if Admit may permit the call. Refusal itself permits no call.
func (s *Set) Refusal(parts uint64, now keytable.Instant) error {
	for part := range each(parts) {
		if err := s.list[part].refusal(now); err != nil {
			return err
		}
	}
	return nil
}

// Succeeded notes that a call with the Pass p has succeeded: all parts in p have answered.
func (s *Set) Succeeded(p Pass) {
	for part := range each(p.parts) {
		s.list[part].succeeded(p.to(part))
	}
	if p.probes != 0 {
		s.openCount.Add(-int32(bits.OnesCount64(p.probes)))
	}
}

// Failed notes that a call with the Pass p has failed with the error err at the instant now. The
// parameter blamed has the bits of the parts that failed. If none of these parts is in p, all
// parts in p count as failed. The remaining parts in p count as abandoned, because the store may have
// given up before it asked them.
//
// If several callers have shared the call, they all pass its number in the parameter call, so that the
// failure counts once. Otherwise, they pass 0.
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

// Abandoned notes that a call with the Pass p was given up, so that nobody knows whether the parts in p
// would have answered.
func (s *Set) Abandoned(p Pass) {
	for part := range each(p.probes) {
		s.list[part].abandoned(p.to(part))
	}
}

// Stats are the totals of a Set.
type Stats struct {
	Asked  int    // number of parts for which a call was ever permitted
	Open   int    // number of these parts whose breaker is open now
	Opened uint64 // how often the breakers of all parts have opened
	Last   error  // the error after which a breaker has opened most recently; nil if none has ever opened

	Failures []Failure // the failed calls, ordered by part and class
}

// Stats returns the totals of s.
func (s *Set) Stats() (stats Stats) {
	for part := range each(s.asked.Load()) {
		stats.Asked++
		if s.list[part].pause.Load() != nil {
			stats.Open++
		}
	}
	stats.Failures = s.failed.list()
	s.mu.Lock()
	defer s.mu.Unlock()
	stats.Opened, stats.Last = s.opened, s.last
	return stats
}

// Blamed returns the parts of the store that failed, as bits. It calls the method Parts of the error
// err, which returns their numbers. If err has no such method, Blamed returns 0.
func Blamed(err error) (parts uint64) {
	var blaming interface{ Parts() []int }
	if errors.As(err, &blaming) {
		for _, part := range blaming.Parts() {
			parts |= Bit(part)
		}
	}
	return parts
}
