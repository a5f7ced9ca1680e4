package ratelimit

import (
	"errors"
	"time"
)

// A Penalty makes a rule block a key for some time after many denials. The zero Penalty does not.
//
// A denial by the rule is a strike. If a key has After strikes within the time Within, it is blocked for the time For: all
// its requests are denied, with [ReasonPenalty]. While a key is blocked, denials are no strikes, so a client who goes on
// sending is not blocked for longer. Not every denial is a strike: only one by the key's own state, of a request that does
// not wait. A denial because others wait, or by a [FailurePolicy], and the repeated answer of a retry are none.
//
// [RateLimiter.Reset] ends the block of a key, and so does an [Override] with [EffectPardon].
type Penalty struct {
	After  int           // how many denials begin a block: at least 1; 0 only in the zero Penalty
	Within time.Duration // how long strikes count together, from the first one: from a microsecond to 366 days
	For    time.Duration // how long the first block lasts: from a microsecond to 366 days

	// If Most is not 0, a block that begins less than Most after the end of the last one lasts twice as long as that, but
	// no longer than Most. Most is at least For, and at most 366 days.
	Most time.Duration
}

// validate returns all that makes the Penalty p invalid, joined, or nil. Each error has a field of Penalty.
func (p Penalty) validate() error {
	if p == (Penalty{}) {
		return nil
	}
	var errs []error
	if p.After < 1 {
		errs = append(errs, &ConfigError{"after", p.After, "must be at least 1"})
	}
	if !validSpan(p.Within) {
		errs = append(errs, &ConfigError{"within", p.Within, spanRange})
	}
	if !validSpan(p.For) {
		errs = append(errs, &ConfigError{"for", p.For, spanRange})
	}
	switch {
	case p.Most == 0:
	case !validSpan(p.Most):
		errs = append(errs, &ConfigError{"most", p.Most, spanRange})
	case p.Most < p.For:
		errs = append(errs, &ConfigError{"most", p.Most, "must be at least " + p.For.String() + ", the length of the first block"})
	}
	return errors.Join(errs...)
}
