package redisstore

import (
	"errors"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Option sets what a [Store] runs in.
type Option func(*settings)

// settings is what the Options of one constructor call add up to.
type settings struct {
	prefix  string
	timeout time.Duration

	// For tests only. A store whose now is set decides by it, not by the
	// clock of the server: its keys must not expire by that, so pad is long.
	now   func() time.Time
	pad   time.Duration
	heals bool // whether times far ahead of now are read as now
}

func newSettings(opts []Option) settings {
	set := settings{prefix: "ratelimit", timeout: 50 * time.Millisecond, pad: defaultPad, heals: true}
	for _, o := range opts {
		if o != nil {
			o(&set)
		}
	}
	return set
}

// WithPrefix has all keys begin with prefix and a colon. It is "ratelimit" by
// default, and must have no brace: those are the hash tag's.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithTimeout bounds how long a call waits for the server, whatever the client's
// own timeouts. It is 50 ms by default.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// validate returns all the problems of s, joined, or nil.
func (s *settings) validate() error {
	var errs []error
	if s.prefix == "" || strings.ContainsAny(s.prefix, "{}") {
		errs = append(errs, &ratelimit.ConfigError{Field: "prefix", Value: s.prefix, Reason: "must not be empty and have no brace"})
	}
	if s.timeout <= 0 {
		errs = append(errs, &ratelimit.ConfigError{Field: "timeout", Value: s.timeout, Reason: "must be longer than zero"})
	}
	return errors.Join(errs...)
}
