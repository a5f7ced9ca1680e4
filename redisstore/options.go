package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Option configures the environment of a [Store]; [New] takes any number of them.
type Option func(*settings)

// settings holds the values that the Options of one constructor call have set.
type settings struct {
	prefix  string
	timeout time.Duration
	denials time.Duration // how long a denial is remembered; 0: not at all
	leases  int64         // most units of one key that are taken ahead
	invalid error         // what is wrong with the Options themselves

	leaseTerm time.Duration // how long units are kept that no request spends; the default, except in tests

	// For tests only. A store whose now is set decides by now and not by the clock of the
	// server. Keys still expire by the server's clock, so pad must be long.
	now   func() time.Time
	pad   time.Duration
	heals bool // whether a state far ahead of now is moved to now
}

func newSettings(opts []Option) settings {
	set := settings{prefix: "ratelimit", timeout: 50 * time.Millisecond, denials: time.Second, leaseTerm: leaseTerm, pad: defaultPad, heals: true}
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

// WithPrefix makes every key in the server begin with prefix and a colon. The default is
// "ratelimit". The prefix must not be empty and must not contain a brace, because braces
// mark the hash tag of a key.
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithTimeout sets how long a call waits for the server, whatever timeouts the client has
// itself. The default is 50 ms.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithDenialCache makes the store remember, in this process, the state of a key that was
// denied. It then denies further requests for that key without a call, for as long as the
// server would deny them, but for at most d. The default is one second; zero turns the
// cache off.
//
// The cache does not deny what the server would grant, with one exception: if another
// process resets the key, or units of it are given back, this process notices up to d later. The
// RetryAfter of a cached denial may be longer than the server's, by at most the duration of
// the call from which the denial was learned.
func WithDenialCache(d time.Duration) Option { return func(s *settings) { s.denials = d } }

// WithLeases lets the store take units ahead. When a key is asked for often, a call that is
// needed anyway charges up to this many units more; later requests of this process spend
// them without a call. Units that are not spent within half a second are given back, and
// [Store.Close] gives back all. The default is 0: no units are taken ahead.
//
// Units are charged before they are spent. In one window, therefore, each process with such
// a store may grant up to units more than the limit; in the long run none are granted above
// it. One process may be denied units that another has taken ahead.
//
// How many units are taken depends on how often the key is asked for. It is at most an
// eighth of what is left, so that near the limit each request asks the server. The store
// never takes ahead for a leaky bucket, nor for a decision of several rules.
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
