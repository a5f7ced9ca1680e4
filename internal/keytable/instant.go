package keytable

import (
	"math"
	"time"
)

// An Instant is nanoseconds since 2^63 ns before a limiter's start.
//
// The offset makes every representable instant non-negative, so that the zero
// Instant is earlier than all of them: the zero state of a key is one whose
// clock has never been moved.
type Instant uint64

// The Instants that have names.
const (
	// Start is the Instant of a limiter's start.
	Start Instant = 1 << 63

	// End is the last Instant, 292 years later.
	End Instant = math.MaxUint64
)

// InstantAt returns the Instant that lies d after the start, or before it if d
// is negative.
func InstantAt(d time.Duration) Instant { return Start + Instant(d) }

// Since returns the nanoseconds from earlier to t. It must not be called with
// an Instant after t.
func (t Instant) Since(earlier Instant) uint64 { return uint64(t - earlier) }

// Add returns the Instant that lies d after t, or the last there is. It must not
// be called with a negative d.
func (t Instant) Add(d time.Duration) Instant {
	if sum := t + Instant(d); sum >= t {
		return sum
	}
	return End
}

// Duration returns the time from the start to t.
func (t Instant) Duration() time.Duration { return time.Duration(t - Start) }
