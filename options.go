package ratelimit

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// An Option says what a limiter runs in, never what its limit is.
type Option func(*settings)

// settings is what the Options of one constructor call add up to.
type settings struct {
	clock           Clock // nil: the machine's monotonic clock
	maxKeys         int
	store           Store // nil: this process
	name            string
	policy          FailurePolicy // never the zero value
	observer        Observer      // nil: nobody
	observeRequests bool
	factory         *Factory // nil: the algorithms of this package alone
	solo            bool     // whether this is for a limiter by itself, see solo

	problems []error
}

const defaultMaxKeys = 1 << 20

// WithClock makes a limiter read c instead of the machine's monotonic clock.
func WithClock(c Clock) Option {
	return func(s *settings) {
		if isNil(c) {
			s.problems = append(s.problems, &ConfigError{"clock", c, "must not be nil"})
			return
		}
		s.clock = c
	}
}

// WithMaxKeys bounds how many keys a limiter keeps state for; the default is
// 1,048,576. A key that is as good as new makes room for another. Where there
// is none, unseen keys share a budget, so that no key ever gets more than its
// own.
func WithMaxKeys(n int) Option {
	return func(s *settings) {
		if n < 1 {
			s.problems = append(s.problems, &ConfigError{"maxKeys", n, "must be at least 1"})
			return
		}
		s.maxKeys = n
	}
}

// WithStore makes a limiter keep its state in st, where other processes share it;
// the default is this process. The store's clock then decides. A limiter outside a
// [RateLimiter] needs a name as well, see [WithName].
func WithStore(st Store) Option {
	return func(s *settings) {
		if isNil(st) {
			s.problems = append(s.problems, &ConfigError{"store", st, "must not be nil"})
			return
		}
		s.store = st
	}
}

// WithName makes name a part of every key in the store, so that limiters in one
// store do not share state. Limiters of the same name do: that is how processes
// share a limit.
func WithName(name string) Option {
	return func(s *settings) {
		if name == "" || strings.Contains(name, ":") {
			s.problems = append(s.problems, &ConfigError{"name", strconv.Quote(name), `must not be empty or have a ":"`})
			return
		}
		s.name = name
	}
}

// WithFailurePolicy says how to answer while the store can not; the default is
// FailLocal(1).
func WithFailurePolicy(p FailurePolicy) Option {
	return func(s *settings) {
		if err := p.validate("failurePolicy"); err != nil {
			s.problems = append(s.problems, err)
			return
		}
		s.policy = p.or(s.policy)
	}
}

// WithObserver makes a limiter tell o of every decision.
func WithObserver(o Observer) Option {
	return func(s *settings) {
		if isNil(o) {
			s.problems = append(s.problems, &ConfigError{"observer", o, "must not be nil"})
			return
		}
		s.observer = o
	}
}

// WithObservedRequests makes a limiter tell its observer whom a decision was
// about, in [Decision.Request].
func WithObservedRequests() Option {
	return func(s *settings) { s.observeRequests = true }
}

// WithFactory makes the algorithms that are registered with f known to the configs
// that a [RateLimiter] is made of.
func WithFactory(f *Factory) Option {
	return func(s *settings) {
		if f == nil {
			s.problems = append(s.problems, &ConfigError{"factory", f, "must not be nil"})
			return
		}
		s.factory = f
	}
}

// isNil reports whether v is nil or a nil pointer in an interface.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// newSettings applies opts to the defaults and returns all their problems,
// joined.
func newSettings(opts []Option) (settings, error) {
	s := settings{maxKeys: defaultMaxKeys, policy: FailLocal(1)}
	for i, opt := range opts {
		if opt == nil {
			s.problems = append(s.problems, &ConfigError{fmt.Sprintf("options[%d]", i), nil, "must not be nil"})
			continue
		}
		opt(&s)
	}
	return s, errors.Join(s.problems...)
}
