package engine

import (
	"math"
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// Share returns the rates that each of n processes enforces if they divide the rates r among them.
func (r Rates) Share(n int) Rates {
	warms := r.Warmup != nil
	if warms {
		w := *r.Warmup
		if w.Raise = true; r.Windows {
			w.From = max(w.From/int64(n), 1)
		}
		r.Warmup = &w
	}
	r.Base = r.Base.Share(n, r.Windows, warms)
	tiers := make(map[string]Rate, len(r.Tiers))
	for tier, rate := range r.Tiers {
		tiers[tier] = rate.Share(n, r.Windows, warms)
	}
	r.Tiers = tiers
	return r
}

// Share returns the rate that each of n processes enforces if they divide the rate r among them. For 4
// processes, 100 per minute becomes 25 per minute. The parameter windows says whether the algorithm
// counts in windows, and the parameter warms says whether new keys have a lower limit.
//
// The units in a window and the Burst are rounded down, but are at least 1. The rate at which a bucket refills
// is divided exactly. If keys have a Warmup, the result keeps the Requests of r where possible, and has a longer
// Per instead: a young key (one that is still warming up) has a fraction of the Requests, rounded to whole
// units, and fewer Requests would be rounded to another fraction.
func (r Rate) Share(n int, windows, warms bool) Rate {
	if windows {
		return Rate{Requests: max(r.Requests/n, 1), Per: r.Per, Window: r.Window}
	}
	share := r.refillShare(n)
	if warms {
		if times := r.Requests / share.Requests; share.Per <= math.MaxInt64/time.Duration(times) {
			share.Requests, share.Per = share.Requests*times, share.Per*time.Duration(times)
		}
	}
	share.Burst = r.Burst / n
	if r.Burst == 0 {
		share.Burst = r.Requests / n
	}
	share.Burst = max(share.Burst, 1)
	return share
}

// refillShare returns the Requests and the Per of a bucket that refills at one n-th of the rate r. If
// this Per does not fit into a Duration, the rate is rounded down.
func (r Rate) refillShare(n int) Rate {
	d := int(exact.GCD(int64(r.Requests), int64(n)))
	requests := uint64(r.Requests / d)
	hi, lo := bits.Mul64(uint64(r.Per), uint64(n/d))
	if hi > 0 || lo > math.MaxInt64 {
		// The Per of the result is the longest Duration, 292 years. Its Requests is the number of units
		// in that time, at least 1.
		top, low := bits.Mul64(requests, math.MaxInt64)
		for hi > 0 { // halve both numbers until Per fits: Per is rounded up and the units down, so that the rate does not rise
			hi, lo = hi>>1, hi<<63|lo>>1|lo&1
			top, low = top>>1, top<<63|low>>1
		}
		requests, _ = bits.Div64(top, low, lo)
		requests, lo = max(requests, 1), math.MaxInt64
	}
	return Rate{Requests: int(requests), Per: time.Duration(lo)}
}
