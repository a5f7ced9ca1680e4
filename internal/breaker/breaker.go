package breaker

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

const (
	// failuresToOpen is how many calls in a row fail before no more are made.
	failuresToOpen = 5

	// firstPause is how long none are made then. Each failed probe doubles it,
	// up to lastPause.
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// A breaker decides whether calls of one part of a store are made. It lets all through
// until several in a row have failed. Then it refuses them, but lets one at a time
// through, after a pause, to find out whether that part answers again: a probe. Pauses
// double, and each is shortened at random by up to a half, so that processes do not all
// probe at once.
//
// The zero breaker lets calls through.
type breaker struct {
	pause    atomic.Pointer[pause] // nil while calls are let through
	failures atomic.Int32          // in a row, while calls are let through

	mu      sync.Mutex // held while the pause changes
	probing bool       // whether a probe is under way
}

// A pause is a time in which no calls are made.
type pause struct {
	from, to keytable.Instant
	length   time.Duration // before it was shortened
	refusal  error         // what callers get
}

// A passage is the right to make one call.
type passage struct {
	probe bool // whether the call finds out whether the part answers again
}

// admit lets a call through at now, or says why not. The caller tells by succeeded,
// failed or abandoned what became of the call.
func (b *breaker) admit(now keytable.Instant) (passage, error) {
	// A clock that has stepped back does not say when the pause is over.
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

// refusal returns why no call is made at now, or nil if one may be.
func (b *breaker) refusal(now keytable.Instant) error {
	if p := b.pause.Load(); p != nil && now >= p.from && now < p.to {
		return p.refusal
	}
	return nil
}

// succeeded says that the part has answered.
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

// failed says that the part has not answered, by now, because of err. It reports whether
// that ends a time in which calls were let through. wrap makes what callers get of why
// they are refused.
func (b *breaker) failed(p passage, now keytable.Instant, err error, wrap func(error) error) (opens bool) {
	if !p.probe && b.failures.Add(1) < failuresToOpen {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.pause.Load()
	if last != nil && !p.probe {
		return false // a call that was let through before the pause
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

// abandoned says that nobody knows whether the part would have answered.
func (b *breaker) abandoned(p passage) {
	if p.probe {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.probing = false
	}
}
