package ratelimit

import (
	"errors"
	"fmt"
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

	// ErrTooManyWaiters is matched by the error of a Wait that would have to
	// wait although as many callers wait as [WithMaxWaiters] allows.
	ErrTooManyWaiters = errors.New("ratelimit: too many callers wait")

	// ErrUnknownRule is matched by the error for the name of a rule that does not exist.
	ErrUnknownRule = errors.New("ratelimit: unknown rule")

	// ErrStore is matched by the error for a [Store] that could not be
	// reached. If a Result comes with it, the [FailurePolicy] has answered:
	// the caller should act on [Result.Allowed] and log the error.
	ErrStore = errors.New("ratelimit: store failed")
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

// errZeroLimiter is the error of the methods of a zero limiter.
var errZeroLimiter error = &ConfigError{"limiter", "the zero value", "must be made by its constructor"}
