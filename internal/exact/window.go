package exact

import (
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Window is the arithmetic that fixed window and sliding window counter share: intervals of
// length Per, which begin at multiples of Per since the Unix epoch, and the number of units
// granted in each.
//
// Two windows are equal by == if and only if they mean the same.
type Window struct {
	Requests int64  // units granted in each interval
	Per      uint64 // nanoseconds, above 0

	phase uint64  // nanoseconds from the beginning of an interval to the zero Instant in it
	byPer divisor // divides by Per
}

// NewWindow returns the window of requests units every per, for a limiter that was made at
// start. requests and per are positive.
func NewWindow(requests int64, per time.Duration, start time.Time) Window {
	w := Window{Requests: requests, Per: uint64(per), byPer: newDivisor(uint64(per))}
	// The time from the beginning of its interval to start is computed of the
	// seconds and the nanoseconds since the epoch one by one, because their sum in
	// nanoseconds may be too large for 64 bits.
	sec := start.Unix() % int64(w.Per)
	if sec < 0 {
		sec += int64(w.Per)
	}
	hi, lo := bits.Mul64(uint64(sec), 1e9)
	phase := bits.Rem64(hi, lo, w.Per) + uint64(start.Nanosecond())%w.Per
	// The zero Instant is keytable.Start nanoseconds before start.
	w.phase = (phase%w.Per + w.Per - uint64(keytable.Start)%w.Per) % w.Per
	return w
}

// Offset returns how many nanoseconds before now the interval began in which now lies.
func (w *Window) Offset(now keytable.Instant) uint64 {
	_, rest := w.byPer.divide(uint64(now))
	if rest += w.phase; rest >= w.Per {
		rest -= w.Per
	}
	return rest
}

// Weighted returns how many of count units lie less than Per before an instant that is offset
// after the beginning of the next interval, if the units were spread evenly over their
// interval. It is rounded up. Units are whole, so rounding changes no decision.
func (w *Window) Weighted(count int64, offset uint64) int64 {
	if count == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(count), w.Per-offset)
	var quotient, rest uint64
	if hi == 0 {
		quotient, rest = w.byPer.divide(lo)
	} else {
		quotient, rest = bits.Div64(hi, lo, w.Per) // fits: the quotient is at most count
	}
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// Faded returns when the weight of count units falls to room, as the number of nanoseconds
// before the end of the next interval: from then on, [Window.Weighted] is at most room. room is
// at least 0 and below count.
func (w *Window) Faded(count, room int64) uint64 {
	hi, lo := bits.Mul64(uint64(room), w.Per)
	// Rounded down: one nanosecond earlier, they would still weigh more.
	before, _ := bits.Div64(hi, lo, uint64(count)) // fits: room < count
	return before
}
