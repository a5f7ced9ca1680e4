package ratelimit

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// A Warmup makes the limit of a new key grow. At first, the limit is From units. It grows evenly, in whole units, until
// the time Over has passed since the first grant to the key; it is then the full limit, [Rate.Requests]. The zero
// Warmup means that every key has the full limit at once.
//
// A key of a [FixedWindow], [SlidingWindowCounter] or [SlidingWindowLog] has the lower limit. A key of a bucket pays
// more tokens for each unit: both its burst and its rate are lower, by the ratio of the two limits. What a request costs
// is rounded up, once for all its units.
//
// Bound: L is the full limit, and l is the limit that the key has at the end of an interval. Since the key was new, a
// bucket grants at most (Burst + T·L/Per)·l/L units in any closed interval of length T; a fixed window grants at most l
// units in each window; in any half-open interval of length Per, a log grants at most l units, and a counter at most
// 2·l - 1.
//
// A key ages with time, whether it is used or not. But once nothing has been counted against a key for the time Over,
// the age of the key is forgotten, and the key is new again. So [WithMaxKeys] should have room for all clients of that
// time. A key for which there is no room, so that it has no state of its own, does not age.
//
// [Result.Limit] is the full limit, and [Result.Remaining] is what the key would be granted now. If a request for a new
// key needs more than From, it is denied with a RetryAfter of [Never]: the key does not age before its first grant.
// [Result.ResetAfter] is at least the time until the key has the full limit.
type Warmup struct {
	From int           // units that a new key is granted; from 1 to Rate.Requests
	Over time.Duration // time from the first grant to the full limit; from a microsecond to 366 days
}

// engine converts w to the type of the package engine. It returns nil if w is zero.
func (w Warmup) engine() *engine.Warmup {
	if w == (Warmup{}) {
		return nil
	}
	return &engine.Warmup{From: int64(w.From), Over: w.Over}
}

// minPortion returns the smallest Warmup.From at which a bucket with the rate r grants a new key one unit.
func (r Rate) minPortion() int64 {
	requests, burst := int64(r.Requests), int64(r.burst())
	return (requests-1)/burst + 1
}

// config returns the Warmup w as a map, in the form that a config of a rule has, or nil if w is zero.
func (w Warmup) config() map[string]any {
	if w == (Warmup{}) {
		return nil
	}
	return map[string]any{"from": w.From, "over": w.Over.String()}
}

// fits returns an error if the Warmup w would grant a new key no unit at the rate r, and otherwise nil.
func (w Warmup) fits(r Rate) error {
	if w == (Warmup{}) || int64(min(w.From, r.Requests)) >= r.minPortion() {
		return nil
	}
	minBurst := (r.Requests-1)/w.From + 1
	reason := "must be at least %d: with less, a warm-up from %d of %d grants a new key nothing"
	return &ConfigError{"burst", r.Burst, fmt.Sprintf(reason, minBurst, w.From, r.Requests)}
}

// validate returns nil if the Warmup w can be valid for some rate, and otherwise all errors, joined. They name the
// fields of a Warmup.
func (w Warmup) validate() error {
	if w == (Warmup{}) {
		return nil
	}
	var errs []error
	if w.From < 1 {
		errs = append(errs, &ConfigError{"from", w.From, "must be at least 1"})
	}
	if !validSpan(w.Over) {
		errs = append(errs, &ConfigError{"over", w.Over, spanRange})
	}
	return errors.Join(errs...)
}
