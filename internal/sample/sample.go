// Package sample thins out events: of each kind it lets one through in a time.
package sample

import (
	"sync"
	"time"
)

// MaxKinds is how many kinds of events a Sampler tells apart at one time.
const MaxKinds = 4096

// A Sampler decides which events are let through: of each kind of type K the first, and then one
// each time that a fixed time has passed. It is safe for concurrent use by multiple goroutines.
//
// It remembers at most MaxKinds kinds. When there are more, it forgets those of which it has let
// nothing through for the fixed time. If that is not enough, all further kinds count as one.
type Sampler[K comparable] struct {
	every time.Duration

	mu    sync.Mutex
	kinds map[K]*kind
	rest  kind      // of the kinds that are not remembered
	swept time.Time // when idle kinds were last looked for
}

// A kind is what is known of one kind of events.
type kind struct {
	at      time.Time // when one was last let through; the zero Time if never
	skipped int       // events since then
}

// New returns a Sampler that lets one event of each kind through in the time every, or all
// events if every is not positive.
func New[K comparable](every time.Duration) *Sampler[K] {
	return &Sampler[K]{every: every, kinds: make(map[K]*kind)}
}

// Due reports whether an event of the kind k at now is let through and, if it is, how many
// events of the kind were not since the last one that was.
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

// addLocked returns a new entry for k or, if there are too many kinds, the one for the rest. The
// caller holds s.mu.
func (s *Sampler[K]) addLocked(k K, now time.Time) *kind {
	// A kind cannot become idle twice within s.every, so a search for idle ones is not worth
	// more than that.
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
