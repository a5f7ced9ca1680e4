// Package sample thins out repeated events, such as log messages: in a given time, it lets one event of
// each kind through.
package sample

import (
	"sync"
	"time"
)

// MaxKinds is the largest number of kinds of events that a Sampler tells apart at one time.
const MaxKinds = 4096

// A Sampler decides which events are let through: the first event of each kind, and then each event
// that comes at least a fixed time after the last event of its kind that was let through. A Sampler is
// safe for concurrent use by multiple goroutines.
//
// It remembers at most MaxKinds kinds. To make room for a new kind, it forgets each kind for which it
// has let no event through for the fixed time. If there is still no room, all new kinds count as one.
type Sampler[K comparable] struct {
	every time.Duration // the fixed time between two events of a kind

	mu sync.Mutex

	// The fields below are guarded by mu.

	kinds map[K]*kind
	rest  kind      // the state that the kinds without an entry in the map kinds share, because there are too many
	swept time.Time // when the Sampler last looked for kinds to forget
}

// A kind holds the state of one kind of events.
type kind struct {
	at      time.Time // when an event was last let through; the zero Time if never
	skipped int       // number of events of the kind that were held back since the time kind.at
}

// New returns a Sampler. The parameter every is the shortest time between two events of a kind that the
// Sampler lets through. If this time is not positive, the Sampler lets all events through.
func New[K comparable](every time.Duration) *Sampler[K] {
	return &Sampler[K]{every: every, kinds: make(map[K]*kind)}
}

// Due reports whether an event of the kind k at the time now is let through. If it is, skipped is the
// number of events of that kind that were held back since the last event was let through.
func (s *Sampler[K]) Due(k K, now time.Time) (skipped int, ok bool) {
	if s.every <= 0 {
		return 0, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.kinds[k]
	if known == nil {
		known = s.addLocked(k, now)
	}
	if !known.at.IsZero() && now.Sub(known.at) < s.every {
		known.skipped++
		return 0, false
	}
	skipped = known.skipped
	*known = kind{at: now}
	return skipped, true
}

// addLocked returns a new entry for the kind k. If there are too many kinds, it returns the entry that
// they share. The caller holds s.mu.
func (s *Sampler[K]) addLocked(k K, now time.Time) *kind {
	// The search for kinds to forget looks at all kinds, so it runs at most once in the time s.every.
	if len(s.kinds) >= MaxKinds && now.Sub(s.swept) >= s.every {
		s.swept = now
		for old, known := range s.kinds {
			if now.Sub(known.at) >= s.every {
				s.rest.skipped += known.skipped
				delete(s.kinds, old)
			}
		}
	}
	if len(s.kinds) >= MaxKinds {
		return &s.rest
	}
	s.kinds[k] = new(kind)
	return s.kinds[k]
}
