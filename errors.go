package ratelimit

import (
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// The errors that a caller can act on. Test for them with [errors.Is]: the errors of this
// package wrap them and say more.
var (
	// ErrInvalidConfig is matched by the error for a limiter, a rate, a rule
	// or an option that cannot work. Each problem is a [*ConfigError]; if
	// there are several, they are joined.
	ErrInvalidConfig = errors.New("ratelimit: invalid config")

	// ErrInvalidCount is returned for a negative number of units.
	ErrInvalidCount = errors.New("ratelimit: count must not be negative")

	// ErrExceedsLimit is returned by a Wait that could never succeed: the
	// request needs more units than the limit can ever grant at once, or it
	// would have to wait for more than 292 years.
	ErrExceedsLimit = errors.New("ratelimit: count exceeds the limit")

	// ErrUnknownRule is matched by the error for the name of a rule that does not exist.
	ErrUnknownRule = errors.New("ratelimit: unknown rule")

	// ErrStore is matched by the error for a [Store] that could not be reached,
	// or a custom [Limiter] that has failed. If a Result comes with it, the
	// [FailurePolicy] has answered: act on [Result.Allowed] and log the error.
	ErrStore = errors.New("ratelimit: store failed")

	// ErrNotReset is matched by the error of a Reset that has not done what it was asked
	// for: no rule has a key that belongs to the request, or a key has no state of its own
	// and is denied because of the budget that such keys share, see [WithMaxKeys].
	ErrNotReset = errors.New("ratelimit: not reset")

	// ErrSettled is returned by a second Settle of a [Reservation].
	ErrSettled = errors.New("ratelimit: the reservation is settled already")

	// ErrTooManyWaiters is returned by a Wait that finds as many callers
	// waiting as there may be, see [WithMaxWaiters].
	ErrTooManyWaiters = errors.New("ratelimit: too many waiters")
)

// A ConfigError says what is wrong with one field of a config, a rule, a rate or the
// options. It matches [ErrInvalidConfig].
type ConfigError struct {
	Field  string // path of the field, such as "rules[2].burst"
	Value  any    // the value that the field had
	Reason string // what a good value is, such as "must be at least 1"
}

// Error returns a text with the field, its value and the reason.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("ratelimit: %s is %v: %s", e.Field, e.Value, e.Reason)
}

// Unwrap returns [ErrInvalidConfig].
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

// An unknownRule is the error for a name that no rule of set has.
type unknownRule struct {
	name string
	set  *ruleSet
}

// Error returns a text with the name, and with the nearest name that a rule has. It is looked for
// only here, because that takes time.
func (e *unknownRule) Error() string {
	names := make([]string, len(e.set.rules))
	for i, r := range e.set.rules {
		names[i] = r.Name
	}
	text := ErrUnknownRule.Error() + " " + confmap.Quote(e.name)
	if near := confmap.Nearest(e.name, names); near != "" {
		text += "; did you mean " + confmap.Quote(near) + "?"
	}
	return text
}

// Unwrap returns [ErrUnknownRule].
func (e *unknownRule) Unwrap() error { return ErrUnknownRule }

// errOverflown is the error of a Reset of a key that the shared budget denies.
var errOverflown = fmt.Errorf("%w: the key has no state of its own, and the budget that such keys share denies it", ErrNotReset)

// errZeroLimiter is the error of the methods of a zero limiter.
var errZeroLimiter error = &ConfigError{"limiter", "the zero value", "must be made by its constructor"}

// storeError returns err, wrapped if need be so that it matches ErrStore.
func storeError(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// errPanicked is the error that the breakers get for a store that has panicked.
var errPanicked = errors.New("it panicked")
