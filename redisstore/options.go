package redisstore

import (
	"errors"
	"fmt"
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
	denials time.Duration // how long a state is believed; none are kept if 0
	leases  int64         // how many units of a key are taken ahead
	invalid error         // what is wrong with the Options themselves

	// For tests only. A store whose now is set decides by it, not by the
	// clock of the server: its keys must not expire by that, so pad is long.
	now   func() time.Time
	pad   time.Duration
	heals bool // whether times far ahead of now are read as now
}

func newSettings(opts []Option) settings {
	set := settings{prefix: "ratelimit", timeout: 50 * time.Millisecond, denials: time.Second, pad: defaultPad, heals: true}
	for i, o := range opts {
		if o == nil {
			nilOption := &ratelimit.ConfigError{Field: fmt.Sprintf("options[%d]", i), Value: nil, Reason: "must not be nil"}
			set.invalid = errors.Join(set.invalid, nilOption)
			continue
		}
		o(&set)
	}
	return set
}

// WithPrefix has all keys begin with prefix and a colon. It is "ratelimit" by
// default, and must have no brace: those are the hash tag's.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithTimeout bounds how long a call waits for the server, whatever the client's
// own timeouts. It is 50 ms by default.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithDenialCache has a key that was denied be denied in this process, without a
// call, for as long as the server would deny it, but for at most d: only a Reset, or
// what another decision gives back, is seen so much later. A denial that comes too
// late by less than the time of the call that it was learned from is possible, one
// that the server would not give is not, but for those. It is one second by default;
// zero keeps none.
func WithDenialCache(d time.Duration) Option { return func(s *settings) { s.denials = d } }

// WithLeases has keys that are asked for often take up to units ahead of need, in the
// call that they need anyway, and spend them in this process, without a call. What is
// not spent in half a second is given back, and all of it by [Store.Close]. It is 0
// by default: nothing is taken ahead.
//
// In any window, at most units for each process with such a store are granted above
// the limit, as they were charged before; in the long run, none. A process may be denied what others have taken ahead. How many are
// taken goes by how often the key is asked for, and is at most an eighth of what is left,
// so near its limit a key asks for each unit. Units of leaky buckets are never taken
// ahead, nor are those of decisions of several rules.
func WithLeases(units int) Option { return func(s *settings) { s.leases = int64(units) } }

// validate returns all the problems of s, joined, or nil.
func (s *settings) validate() error {
	errs := []error{s.invalid}
	if s.prefix == "" || strings.ContainsAny(s.prefix, "{}") {
		errs = append(errs, &ratelimit.ConfigError{Field: "prefix", Value: s.prefix, Reason: "must not be empty and have no brace"})
	}
	if s.timeout <= 0 {
		errs = append(errs, &ratelimit.ConfigError{Field: "timeout", Value: s.timeout, Reason: "must be longer than zero"})
	}
	if s.denials < 0 {
		errs = append(errs, &ratelimit.ConfigError{Field: "denialCache", Value: s.denials, Reason: "must not be negative"})
	}
	if s.leases < 0 {
		errs = append(errs, &ratelimit.ConfigError{Field: "leases", Value: s.leases, Reason: "must not be negative"})
	}
	return errors.Join(errs...)
}
