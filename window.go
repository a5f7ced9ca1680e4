package ratelimit

import (
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A window is what fixed window and sliding window counter share: intervals of
// length per, which begin at multiples of per since the Unix epoch, and what may
// be granted in each.
type window struct {
	requests int64  // units
	per      uint64 // nanoseconds
	phase    uint64 // how far the zero instant lies into its interval
}

// newWindow returns the window of r, for a limiter that was started at start.
func newWindow(r Rate, start time.Time) window {
	w := window{requests: int64(r.Requests), per: uint64(r.Per)}
	// How far start lies into its interval, from its seconds and nanoseconds
	// since the epoch: their sum in nanoseconds need not fit 64 bits.
	sec := start.Unix() % int64(w.per)
	if sec < 0 {
		sec += int64(w.per)
	}
	hi, lo := bits.Mul64(uint64(sec), 1e9)
	phase := bits.Rem64(hi, lo, w.per) + uint64(start.Nanosecond())%w.per
	// The zero instant lies keytable.Start before it.
	w.phase = (phase%w.per + w.per - uint64(keytable.Start)%w.per) % w.per
	return w
}

// offset returns how far now lies into its interval.
func (w *window) offset(now instant) uint64 {
	e := uint64(now)%w.per + w.phase
	if e >= w.per {
		e -= w.per
	}
	return e
}
