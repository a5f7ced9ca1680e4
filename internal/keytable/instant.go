package keytable

import (
	"math"
	"time"
)

// An Instant is a point in time, in nanoseconds since 2^63 ns before the start of a
// limiter.
//
// Because of this offset every instant that can be represented is positive or zero, and the
// zero Instant is earlier than all others. The zero state of a key thus means that its
// clock was never moved.
type Instant uint64

// Named instants.
const (
	// Start is the Instant at which a limiter starts.
	Start Instant = 1 << 63

	// End is the last Instant, 292 years after Start.
	End Instant = math.MaxUint64
)

// InstantAt returns the Instant that is d after the start, or before it if d is negative.
func InstantAt(d time.Duration) Instant { return Start + Instant(d) }

// Since returns the nanoseconds from earlier to t. earlier must not be after t.
func (t Instant) Since(earlier Instant) uint64 { return uint64(t - earlier) }

// Until returns the time from t to later, or the longest Duration if it is longer than that. t must
// not be after later.
func (t Instant) Until(later Instant) time.Duration {
	return time.Duration(min(later.Since(t), math.MaxInt64))
}

// Add returns the Instant that is d after t, or End if that is too far away. d must not be
// negative.
func (t Instant) Add(d time.Duration) Instant {
	if sum := t + Instant(d); sum >= t {
		return sum
	}
	return End
}

// Duration returns the time from the start to t.
func (t Instant) Duration() time.Duration { return time.Duration(t - Start) }
