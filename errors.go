package ratelimit

import (
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// The errors that a caller can act on. Test for them with [errors.Is], because errors with more details wrap them.
var (
	// ErrInvalidConfig is matched by the error for a limiter, a rate, a rule or an option that cannot work. Each
	// problem is a [*ConfigError]; several problems are joined.
	ErrInvalidConfig = errors.New("ratelimit: invalid config")

	// ErrInvalidCount is returned for a negative number of units.
	ErrInvalidCount = errors.New("ratelimit: count must not be negative")

	// ErrExceedsLimit is returned by a Wait that could never succeed: the request needs more units than the limit can
	// ever grant at once, or it would have to wait for more than 292 years.
	ErrExceedsLimit = errors.New("ratelimit: count exceeds the limit")

	// ErrUnknownRule is matched by the error for a name that no rule has.
	ErrUnknownRule = errors.New("ratelimit: unknown rule")

	// ErrStore is matched by the error for a [Store] that could not be reached, or a custom [Limiter] that has failed.
	// If a Result comes with it, act on [Result.Allowed] and log the error: usually the [FailurePolicy] has answered.
	ErrStore = errors.New("ratelimit: store failed")

	// ErrNotReset is matched by the error of a Reset that could not reset a key. Either the request has no key that can be
	// reset, or the limiter is full, and the budget that the key shares with other keys has no unit left; see [WithMaxKeys].
	ErrNotReset = errors.New("ratelimit: not reset")

	// ErrSettled is returned by a second Settle of a [Reservation].
	ErrSettled = errors.New("ratelimit: the reservation is settled already")

	// ErrTooManyWaiters is returned by a Wait when as many callers wait already as [WithMaxWaiters] allows.
	ErrTooManyWaiters = errors.New("ratelimit: too many waiters")
)

// A ConfigError describes a mistake in a field of a config, a rule, a rate or the options. It matches [ErrInvalidConfig].
type ConfigError struct {
	Field  string // path of the field, such as "rules[2].burst"
	Value  any    // the value of the field
	Reason string // what a good value is, such as "must be at least 1"
}

// Error returns a text with the field, its value and the reason.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("ratelimit: %s is %v: %s", e.Field, e.Value, e.Reason)
}

// Unwrap returns [ErrInvalidConfig].
func (e *ConfigError) Unwrap() error { return ErrInvalidConfig }

// A limiterError is an error of the custom limiter of a rule.
type limiterError struct {
	rule string
	err  error
}

func (e *limiterError) Error() string { return fmt.Sprintf("rules[%q].limiter: %v", e.rule, e.err) }
func (e *limiterError) Unwrap() error { return e.err }

// errOverflown is the error of Reset for a key that shares a budget with other keys, if that budget would deny a request.
var errOverflown = fmt.Errorf("%w: the key has no state of its own, and the budget that such keys share denies it", ErrNotReset)

// errZeroLimiter is returned by the methods of a limiter that no constructor has made.
var errZeroLimiter error = &ConfigError{"limiter", "the zero value", "must be made by its constructor"}

// storeError returns err if it matches ErrStore, and otherwise an error that wraps err and matches ErrStore.
func storeError(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// atPath splits err into the errors that are joined in it, and puts path before the name of the field in each of them.
func atPath(path string, err error) (problems []error) {
	switch e := any(err).(type) { // not errors.As: an error that wraps a ConfigError must keep its own text
	case nil:
	case *ConfigError:
		problems = append(problems, &ConfigError{path + "." + e.Field, e.Value, e.Reason})
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			problems = append(problems, atPath(path, part)...)
		}
	default:
		problems = append(problems, fmt.Errorf("%s: %w", path, err))
	}
	return problems
}

// joinFaults returns the faults as errors, joined, or nil if there are none.
func joinFaults(faults []ruleconfig.Fault) error {
	var errs []error
	for _, f := range faults {
		errs = append(errs, (*ConfigError)(&f))
	}
	return errors.Join(errs...)
}
