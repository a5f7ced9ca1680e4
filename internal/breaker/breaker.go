package breaker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

const (
	// failuresToOpen is how many calls in a row must fail for a breaker to open.
	failuresToOpen = 5

	// firstPause is how long a breaker that has opened refuses all calls. Each
	// failed probe doubles it, up to lastPause.
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// A breaker decides whether calls of one part of a store are made. It is closed at first and
// permits all calls. When several calls in a row have failed, it opens: it refuses all calls for
// a pause, and then permits one call, a probe. If the probe succeeds, the breaker closes. If it
// fails, the next pause is twice as long. Each pause is shortened at random by up to a half, so
// that several processes do not probe at the same time.
//
// The zero breaker is closed.
type breaker struct {
	pause    atomic.Pointer[pause] // nil while the breaker is closed
	failures atomic.Int32          // failed calls in a row, while the breaker is closed

	mu      sync.Mutex             // held while the pause changes
	probing bool                   // whether a probe is under way; guarded by mu
	counted [failuresToOpen]uint64 // the calls that failures counts, or 0 where unknown; guarded by mu
}

// A pause is a time in which a breaker refuses all calls.
type pause struct {
	from, to keytable.Instant
	length   time.Duration // before it was shortened
	refusal  error         // the error for callers that are refused
}

// A passage is the permission to make one call.
type passage struct {
	probe bool // whether the call is a probe
}

// admit permits a call at now, or returns the error for the caller. After the call, its caller
// must call succeeded, failed or abandoned.
func (b *breaker) admit(now keytable.Instant) (passage, error) {
	// If the clock has stepped back to before the pause, the pause counts as over:
	// it might otherwise last for very long.
	switch p := b.pause.Load(); {
	case p == nil:
		return passage{}, nil
	case now >= p.from && now < p.to:
		return passage{}, p.refusal
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pause.Load()
	switch {
	case p == nil:
		return passage{}, nil
	case b.probing || now >= p.from && now < p.to:
		return passage{}, p.refusal
	}
	b.probing = true
	return passage{probe: true}, nil
}

// refusal returns the error with which a call at now is refused, or nil if it may be permitted.
func (b *breaker) refusal(now keytable.Instant) error {
	if p := b.pause.Load(); p != nil && now >= p.from && now < p.to {
		return p.refusal
	}
	return nil
}

// succeeded says that the call of p has succeeded.
func (b *breaker) succeeded(p passage) {
	if b.failures.Load() > 0 {
		b.failures.Store(0)
	}
	if p.probe {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probing = false
		b.pause.Store(nil)
	}
}

// failed says that the call of p has failed with err at now. It reports whether a closed breaker
// opens because of that. wrap is applied to the error for callers that are refused.
//
// Several callers may have shared the call. call is the same number for all of them, so that it
// counts once. If call is 0, the caller was the only one.
func (b *breaker) failed(p passage, now keytable.Instant, err error, call uint64, wrap func(error) error) (opens bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.pause.Load()
	switch {
	case p.probe:
	case last != nil: // the call was permitted before the breaker opened
		return false
	case !b.enough(call):
		return false
	}
	length := firstPause
	if last != nil {
		length = min(2*last.length, lastPause)
	}
	b.failures.Store(0)
	b.probing = false
	b.pause.Store(&pause{
		from:    now,
		to:      now.Add(length - rand.N(length/2)),
		length:  length,
		refusal: wrap(fmt.Errorf("not asked, as it has failed too often: %w", err)),
	})
	return last == nil
}

// enough counts a failed call, and reports whether so many in a row have failed that a closed
// breaker opens. The caller must hold b.mu.
func (b *breaker) enough(call uint64) bool {
	n := b.failures.Load()
	if call != 0 && slices.Contains(b.counted[:n], call) {
		return false
	}
	b.counted[n] = call
	return b.failures.Add(1) == failuresToOpen
}

// abandoned says that it is not known whether the part would have answered.
func (b *breaker) abandoned(p passage) {
	if p.probe {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probing = false
	}
}
