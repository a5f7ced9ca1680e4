package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// A Limiter grants units to keys. Each key has a budget of its own.
//
// A key is any sequence of bytes; the empty key is a key like any other. The
// algorithms of this package and a user's own are all Limiters, and the package
// ratelimittest checks that they keep what is promised here.
type Limiter interface {
	// Allow takes one unit for key if it is to be had now, and reports
	// whether it was.
	Allow(key string) Result

	// Take takes n units for key, all or nothing. It takes nothing and
	// returns the zero Result if n is negative, with [ErrInvalidCount], or
	// if ctx is over, with its error. With n 0 it looks: it answers as for
	// one unit, takes nothing and leaves Remaining unreduced.
	Take(ctx context.Context, key string, n int) (Result, error)
}

// An Option says what a limiter runs in, never what its limit is.
type Option func(*settings)

// settings is what the Options of one constructor call add up to.
type settings struct {
	clock   Clock // nil: the machine's monotonic clock
	maxKeys int

	problems []error
}

const defaultMaxKeys = 1 << 20

// WithClock makes a limiter read c instead of the machine's monotonic clock.
func WithClock(c Clock) Option {
	return func(s *settings) {
		if v := reflect.ValueOf(c); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
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

// newSettings applies opts to the defaults and returns all their problems,
// joined.
func newSettings(opts []Option) (settings, error) {
	s := settings{maxKeys: defaultMaxKeys}
	for i, opt := range opts {
		if opt == nil {
			s.problems = append(s.problems, &ConfigError{fmt.Sprintf("options[%d]", i), nil, "must not be nil"})
			continue
		}
		opt(&s)
	}
	return s, errors.Join(s.problems...)
}
