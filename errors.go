package ratelimit

import (
	"errors"
	"fmt"
)

// The errors that a caller can act on. Test for them with [errors.Is].
var (
	// ErrInvalidConfig reports a limiter, a rate or an option that can not
	// work. Each problem is a [*ConfigError]; several are joined.
	ErrInvalidConfig = errors.New("ratelimit: invalid config")

	// ErrInvalidCount reports a negative number of units.
	ErrInvalidCount = errors.New("ratelimit: count must not be negative")

	// ErrExceedsLimit reports that no wait is long enough: more units were
	// asked for than could ever be granted at once, or than 292 years bring.
	ErrExceedsLimit = errors.New("ratelimit: count exceeds the limit")

	// ErrUnknownRule reports the name of a rule that does not exist.
	ErrUnknownRule = errors.New("ratelimit: unknown rule")

	// ErrStore reports that state kept outside this process could not be
	// reached. The Result that comes with it is the failure policy's.
	ErrStore = errors.New("ratelimit: store failed")
)

// A ConfigError reports one bad field. It matches [ErrInvalidConfig].
type ConfigError struct {
	Field  string // path from the root, such as "rules[2].burst"
	Value  any    // what was given
	Reason string // what a good value is, such as "must be at least 1"
}

// Error names the field, its value and what a good value is.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("ratelimit: %s is %v: %s", e.Field, e.Value, e.Reason)
}

// Unwrap returns [ErrInvalidConfig].
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

// errZeroLimiter is what the methods of a zero limiter return.
var errZeroLimiter error = &ConfigError{"limiter", "the zero value", "must be made by its constructor"}
