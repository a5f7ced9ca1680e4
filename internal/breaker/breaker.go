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

	// firstPause is how long a breaker refuses all calls after it has opened. Each failed
	// probe (test call) doubles the pause, up to lastPause.
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

	mu      sync.Mutex             // held while the field pause changes
	probing bool                   // whether a probe (test call) is under way; guarded by mu
	counted [failuresToOpen]uint64 // the numbers of the failed calls in a row, as passed to the method failed; guarded by mu
}

// A pause is a time in which a breaker refuses all calls.
type pause struct {
	from, to keytable.Instant // when the pause begins and ends
	length   time.Duration    // length of the pause before it was shortened at random
	refusal  error            // the error that refused callers get
}

// A passage is the permission to make one call.
type passage struct {
	probe bool // whether the call is a probe
}

// admit permits a call at the instant now, or returns an error if it refuses the call. After a
// permitted call, the caller must say how the call ended: by succeeded, failed or abandoned.
func (b *breaker) admit(now keytable.Instant) (passage, error) {
	// If the clock has stepped back to before the pause, the pause counts as over. Otherwise it might
	// take very long until the clock reaches the end of the pause.
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

// refusal returns the error with which the method admit would refuse a call at the instant now. It
// returns nil if admit may permit the call.
func (b *breaker) refusal(now keytable.Instant) error {
	if p := b.pause.Load(); p != nil && now >= p.from && now < p.to {
		return p.refusal
	}
	return nil
}

// succeeded notes that a call has succeeded. The breaker permitted this call with the passage p.
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

// failed notes that a call has failed with the error err at the instant now. The breaker permitted this
// call with the passage p. The result opens is true if the breaker was closed and this failure opens
// it. While the breaker is open, a refused caller gets an error that the function wrap makes.
//
// If several callers have shared one call of the store, they all pass the number of this call in the
// parameter call, so that the failure counts once. Otherwise, they pass 0.
func (b *breaker) failed(p passage, now keytable.Instant, err error, call uint64, wrap func(error) error) (opens bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.pause.Load()
	switch {
	case p.probe:
	case last != nil: // the breaker has opened since it permitted this call, so the failure changes nothing
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

// enough counts the failed call with the given number, and reports whether failuresToOpen calls in a
// row have failed. The caller must hold b.mu.
func (b *breaker) enough(call uint64) bool {
	n := b.failures.Load()
	if call != 0 && slices.Contains(b.counted[:n], call) {
		return false
	}
	b.counted[n] = call
	return b.failures.Add(1) == failuresToOpen
}

// abandoned notes that a call was given up, so that nobody knows whether the part of the store would
// have answered. The breaker permitted this call with the passage p.
func (b *breaker) abandoned(p passage) {
	if p.probe {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probing = false
	}
}
