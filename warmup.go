package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// A Warmup makes the limit of a new key grow: it is From units at first, and the full limit, which
// is [Rate.Requests], once Over has passed since the key's first grant. In between, it grows
// evenly, in whole units. The zero Warmup means that every key has the full limit at once.
//
// A window, a counter or a log grants a young key so many units fewer. A bucket charges it as many
// times more for each unit, rounded up, so that its burst and its rate are lower in the same
// proportion.
//
// Bound, for any interval since the key was new, at whose end it has the limit l, of L Requests: a
// bucket grants at most (Burst + T·L/Per)·l/L units in a closed interval of length T; a fixed window
// at most l units in each window; a log at most l, and a counter at most 2·l - 1, in any half-open
// interval of length Per.
//
// A key ages with time, whether it is used or not. But once a key has been as good as new for Over,
// its age is forgotten, and it is new again. So [WithMaxKeys] should have room for all clients of
// that time. A key that has no state of its own, because there is no room for it, does not age.
//
// [Result.Limit] is the full limit, and [Result.Remaining] is what the key would be granted now. A
// new key that is asked for more than it is granted at first is denied with a RetryAfter of
// [Never]: waiting does not make it older. [Result.ResetAfter] is at least the time until the key
// has the full limit.
type Warmup struct {
	From int           // units that a new key is granted; from 1 to Requests
	Over time.Duration // from the first grant to the full limit; from a microsecond to 366 days
}

// engine returns w as the engine has it: nil if w is zero.
func (w Warmup) engine() *engine.Warmup {
	if w == (Warmup{}) {
		return nil
	}
	return &engine.Warmup{From: int64(w.From), Over: w.Over}
}

// warmupOf returns the Warmup that w is.
func warmupOf(w *engine.Warmup) Warmup { return Warmup{int(w.From), w.Over} }

// leastPortion returns how many of its Requests a key must have for a bucket to grant it one unit.
func (r Rate) leastPortion() int64 {
	requests, burst := int64(r.Requests), int64(r.burst())
	return (requests-1)/burst + 1
}

// config returns w as the config of a rule has it: nil if w is zero.
func (w Warmup) config() map[string]any {
	if w == (Warmup{}) {
		return nil
	}
	return map[string]any{"from": w.From, "over": w.Over.String()}
}

// fits returns the error for a rate under which a new key would be granted nothing, or nil.
func (w Warmup) fits(r Rate) error {
	if w == (Warmup{}) || int64(min(w.From, r.Requests)) >= r.leastPortion() {
		return nil
	}
	least := (r.Requests-1)/w.From + 1
	return &ConfigError{"burst", r.Burst, fmt.Sprintf("must be at least %d: with less, a warm-up from %d of %d grants a new key nothing", least, w.From, r.Requests)}
}

// validate returns everything that is wrong with w by itself, joined, or nil. The errors name the
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

// checkWarmup returns everything that is wrong with the Warmup of r, whose rates are right, joined,
// or nil. The errors name the fields of a Rule.
func (r *Rule) checkWarmup() error {
	w, algorithm := r.Warmup, algorithms[r.Algorithm]
	errs := atPath("warmup", w.validate())
	if w.From < 1 || algorithm.validate == nil || algorithm.validate(r.Rate) != nil { // which is reported
		return errors.Join(errs...)
	}
	switch least := r.Rate.leastPortion(); {
	case w.From > r.Rate.Requests:
		errs = append(errs, &ConfigError{"warmup.from", w.From, "must be at most " + strconv.Itoa(r.Rate.Requests) + ", the requests of the rule's rate"})
	case int64(w.From) < least:
		errs = append(errs, &ConfigError{"warmup.from", w.From, fmt.Sprintf("must be at least %d: with less, a burst of %d grants a new key nothing", least, r.Rate.burst())})
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if rate := r.Tiers[tier]; rate != unlimitedRate && algorithm.validate(rate) == nil {
			errs = append(errs, atPath("tiers["+strconv.Quote(tier)+"]", w.fits(rate))...)
		}
	}
	return errors.Join(errs...)
}
