package ratelimit

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// An Option says what surrounds a limiter, such as its clock, its store and its observer. It
// never says what the limit is; that is a [Rate]. An invalid Option is reported by the
// constructor that gets it, with an error that matches [ErrInvalidConfig].
type Option func(*settings)

// settings is what the Options of one constructor call say together.
type settings struct {
	clock           Clock // nil for the machine's monotonic clock
	maxKeys         int
	store           Store // nil for state in this process
	name            string
	policy          FailurePolicy // never the zero value
	observer        Observer      // may be nil
	observeRequests bool
	factory         *Factory // nil if there are no custom algorithms
	solo            bool     // true for the RateLimiter in a solo

	problems []error
}

const defaultMaxKeys = 1 << 20

// WithClock makes a limiter read the time from c instead of the machine's monotonic clock.
// A test passes a [FakeClock]. A limiter with a [Store] decides by the store's clock.
func WithClock(c Clock) Option {
	return func(s *settings) {
		if isNil(c) {
			s.problems = append(s.problems, &ConfigError{"clock", c, "must not be nil"})
			return
		}
		s.clock = c
	}
}

// WithMaxKeys makes a limiter keep the state of at most n keys, which bounds its memory; in a
// [RateLimiter], n is for each rule. n is at least 1, and without this option 1,048,576.
//
// To make room for a new key, a limiter forgets only keys whose state is as if they had
// never been used. While there is no such key, new keys share one budget between them, so
// that no key is ever granted more than its limit.
func WithMaxKeys(n int) Option {
	return func(s *settings) {
		if n < 1 {
			s.problems = append(s.problems, &ConfigError{"maxKeys", n, "must be at least 1"})
			return
		}
		s.maxKeys = n
	}
}

// WithStore makes a limiter keep its state in st, where other processes share it. The
// store's clock then decides. Without this option, the state is in this process. A limiter with
// a store needs [WithName] as well, so that two services on one store share nothing by
// accident. [WithFailurePolicy] says what happens while the store cannot be reached.
func WithStore(st Store) Option {
	return func(s *settings) {
		if isNil(st) {
			s.problems = append(s.problems, &ConfigError{"store", st, "must not be nil"})
			return
		}
		s.store = st
	}
}

// WithName makes name a part of every key in the [Store]. Limiters with different names do
// not share state there. Limiters with the same name do, and so several processes share one
// limit. A rule of a [RateLimiter] has the name of the limiter, a colon and its own name there,
// see [Ask]. name must not be empty or contain a colon.
func WithName(name string) Option {
	return func(s *settings) {
		if name == "" || strings.Contains(name, ":") {
			s.problems = append(s.problems, &ConfigError{"name", strconv.Quote(name), `must not be empty or have a ":"`})
			return
		}
		s.name = name
	}
}

// WithFailurePolicy makes a limiter answer by p while its [Store] cannot be reached. Without
// this option, it answers by [FailLocal](1). [Rule.OnStoreError] sets a policy for one rule.
func WithFailurePolicy(p FailurePolicy) Option {
	return func(s *settings) {
		if err := p.validate("failurePolicy"); err != nil {
			s.problems = append(s.problems, err)
			return
		}
		s.policy = p.or(s.policy)
	}
}

// WithObserver makes a limiter call o for every decision, see [Observer].
func WithObserver(o Observer) Option {
	return func(s *settings) {
		if isNil(o) {
			s.problems = append(s.problems, &ConfigError{"observer", o, "must not be nil"})
			return
		}
		s.observer = o
	}
}

// WithObservedRequests makes a limiter show its [Observer] the request of each decision, in
// [Decision.Request]. Without this option, that field is empty, because the names and
// addresses of clients are often personal data.
func WithObservedRequests() Option {
	return func(s *settings) { s.observeRequests = true }
}

// WithFactory lets the configs of [NewFromConfig], [DecodeRules] and [RateLimiter.Reload]
// name the custom algorithms that are registered with f.
func WithFactory(f *Factory) Option {
	return func(s *settings) {
		if f == nil {
			s.problems = append(s.problems, &ConfigError{"factory", f, "must not be nil"})
			return
		}
		s.factory = f
	}
}

// named returns the error for a limiter that has a store but no name, or nil.
func (s *settings) named() error {
	if s.store != nil && s.name == "" {
		return &ConfigError{"name", `""`, "must be set by WithName: it tells the limiters in a store apart"}
	}
	return nil
}

// isNil reports whether v is a nil interface or holds a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// newSettings applies opts to the defaults. The error is everything that is wrong with
// opts, joined.
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
