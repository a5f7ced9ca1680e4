package exact

import (
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Window does the arithmetic for two algorithms: the fixed window and the sliding window counter.
// Time is cut into intervals of length Per, which begin at multiples of Per since the Unix epoch. At
// most Requests units are granted in each interval.
//
// Two windows are equal by == if and only if they have the same intervals and the same Requests.
type Window struct {
	Requests int64  // the most units that are granted in each interval
	Per      uint64 // length of an interval in nanoseconds, above 0

	phase uint64  // how many nanoseconds the zero Instant is after the beginning of the interval that contains it
	byPer divisor // divides numbers by Per
}

// NewWindow returns a Window for a limiter that was made at the time in start. The parameter requests is
// the number of units in each interval, and per is the length of an interval. Both must be positive.
func NewWindow(requests int64, per time.Duration, start time.Time) Window {
	w := Window{Requests: requests, Per: uint64(per), byPer: newDivisor(uint64(per))}
	// Compute the time from the beginning of the interval that contains start until start. The seconds
	// since the epoch and the nanoseconds are treated separately, because their sum in nanoseconds may be
	// too large for 64 bits.
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

// Offset returns the nanoseconds from the beginning of the current interval to the instant now.
func (w *Window) Offset(now keytable.Instant) uint64 {
	_, rest := w.byPer.divide(uint64(now))
	if rest += w.phase; rest >= w.Per {
		rest -= w.Per
	}
	return rest
}

// Weighted estimates how many units of the previous interval were granted less than Per ago. The
// parameter count is the number of units granted in the previous interval; Weighted assumes that they
// were spread evenly over that interval. The parameter offset is the time since the beginning of the
// current interval, in nanoseconds. The result is rounded up.
func (w *Window) Weighted(count int64, offset uint64) int64 {
	if count == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(count), w.Per-offset)
	var quotient, rest uint64
	if hi == 0 {
		quotient, rest = w.byPer.divide(lo)
	} else {
		quotient, rest = bits.Div64(hi, lo, w.Per) // the quotient fits, because it is at most count
	}
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

// Faded finds the first instant of the current interval at which [Window.Weighted] returns at most room units
// for the given count. The result is the number of nanoseconds from this instant to the end of the interval.
// (The units that Weighted returns are most at the beginning of the interval, and become fewer while it
// passes.) The parameter room is at least 0 and below count.
func (w *Window) Faded(count, room int64) uint64 {
	hi, lo := bits.Mul64(uint64(room), w.Per)
	// The quotient is rounded down: one nanosecond earlier in the interval, the result of Weighted would
	// still be above room units.
	before, _ := bits.Div64(hi, lo, uint64(count)) // the quotient fits, because room < count
	return before
}

// Counted returns how many units of a key were granted in the interval before the current one (prev) and in the current interval
// (cur). The current interval began offset nanoseconds before the instant now. The parameters before and units are the same two
// numbers for the interval that contains an earlier instant (last): before is the number for the interval before that interval.
func (w *Window) Counted(before, units int64, last, now keytable.Instant, offset uint64) (prev, cur int64) {
	switch ago := now.Since(last); {
	case ago <= offset:
		return before, units
	case ago-offset <= w.Per:
		return units, 0
	}
	return 0, 0
}

// ResetAfter returns the time until neither cur (the units of the current interval) nor prev (of the interval before) counts in a
// decision of the sliding window counter.
func (w *Window) ResetAfter(prev, cur int64, offset uint64) time.Duration {
	switch {
	case cur > 0:
		return time.Duration(2*w.Per - offset)
	case prev > 0:
		return time.Duration(w.Per - offset)
	}
	return 0
}

// RetryAfter returns the time until n units fit within the limit of the sliding window counter. It is called only if they do not
// fit now.
//
// If cur+n is within the limit, the units fit later in this interval, when the weight of prev is small enough. Otherwise, they fit
// in the next interval: cur is then the count of the previous interval, and its weight becomes smaller.
func (w *Window) RetryAfter(prev, cur int64, offset uint64, n int64) time.Duration {
	end, fading, room := w.Per, prev, w.Requests-cur-n
	if room < 0 {
		end, fading, room = 2*w.Per, cur, w.Requests-n
	}
	return time.Duration(end - w.Faded(fading, room) - offset)
}
