package keytable

import (
	"math"
	"time"
)

// An Instant is a point in time. It counts nanoseconds from an origin 2^63 nanoseconds (292 years)
// before the start of a limiter.
//
// With this origin, every instant that can be represented is positive or zero, and the
// zero Instant is earlier than all others. In the state of a key, a zero Instant therefore
// means that no request has set it yet.
type Instant uint64

// The start of a limiter and the end of all time.
const (
	// Start is the Instant at which a limiter starts.
	Start Instant = 1 << 63

	// End is the last Instant, 292 years after Start.
	End Instant = math.MaxUint64
)

// InstantAt returns the Instant that is the duration d after the start of the limiter. If d is
// negative, the Instant is before the start.
func InstantAt(d time.Duration) Instant { return Start + Instant(d) }

// Since returns the number of nanoseconds from the given earlier instant until t. The earlier instant
// must not be after t.
func (t Instant) Since(earlier Instant) uint64 { return uint64(t - earlier) }

// Until returns the time from t to the given later instant, which must not be before t. The result is
// at most the longest Duration, 292 years.
func (t Instant) Until(later Instant) time.Duration {
	return time.Duration(min(later.Since(t), math.MaxInt64))
}

// Add returns the Instant that is the duration d after t. If an Instant cannot be so late, Add returns
// End. The duration d must not be negative.
func (t Instant) Add(d time.Duration) Instant {
	if sum := t + Instant(d); sum >= t {
		return sum
	}
	return End
}

// Duration returns the time from the start of the limiter to the instant t.
func (t Instant) Duration() time.Duration { return time.Duration(t - Start) }
