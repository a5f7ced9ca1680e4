package exact

import (
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Window is the arithmetic that fixed window and sliding window counter share:
// intervals of length Per, which begin at multiples of Per since the Unix epoch, and
// how many units may be granted in each.
//
// Two windows are equal if and only if they mean the same, so they compare with ==.
type Window struct {
	Requests int64  // units granted in each interval
	Per      uint64 // nanoseconds, above 0

	phase uint64  // nanoseconds from the start of its interval to the zero Instant
	byPer divisor // divides by Per
}

// NewWindow returns the window of requests units every per, for a limiter that was
// started at start. Both are positive.
func NewWindow(requests int64, per time.Duration, start time.Time) Window {
	w := Window{Requests: requests, Per: uint64(per), byPer: newDivisor(uint64(per))}
	// How far start lies into its interval, from its seconds and nanoseconds
	// since the epoch: their sum in nanoseconds need not fit 64 bits.
	sec := start.Unix() % int64(w.Per)
	if sec < 0 {
		sec += int64(w.Per)
	}
	hi, lo := bits.Mul64(uint64(sec), 1e9)
	phase := bits.Rem64(hi, lo, w.Per) + uint64(start.Nanosecond())%w.Per
	// The zero Instant lies keytable.Start before it.
	w.phase = (phase%w.Per + w.Per - uint64(keytable.Start)%w.Per) % w.Per
	return w
}

// Offset returns how many nanoseconds of its interval have passed at now.
func (w *Window) Offset(now keytable.Instant) uint64 {
	_, rest := w.byPer.divide(uint64(now))
	if rest += w.phase; rest >= w.Per {
		rest -= w.Per
	}
	return rest
}

// Weighted returns the part of count units, spread evenly over an interval, that lies
// less than Per before an instant at offset in the next interval. It is rounded up:
// units are whole, so that decides nothing.
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

// Faded returns how long before the end of the next interval count units weigh just
// room: at any later nanosecond, they weigh no more. room is at least 0 and below count.
func (w *Window) Faded(count, room int64) uint64 {
	hi, lo := bits.Mul64(uint64(room), w.Per)
	// Rounded down: one nanosecond more before the end, they would still weigh more.
	before, _ := bits.Div64(hi, lo, uint64(count)) // fits: room < count
	return before
}
