package redisstore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Option changes a setting of a [Store], such as its timeout; [New] takes any number of Options.
type Option func(*settings)

// settings contains the values that the Options of one call of New have set.
type settings struct {
	prefix  string
	timeout time.Duration
	denials time.Duration // how long the state of a denied key is kept in the denial cache; 0 means no denial cache
	leases  int64         // how many units of one key may be taken for later requests; 0 means none
	invalid error         // the joined errors of invalid Options

	leaseTerm time.Duration // how long unspent units taken for later requests are kept; only tests change it

	// These fields are for tests only. If now is not nil, the store uses the time that this function returns
	// in place of the server's clock. The duration pad is how long the server keeps a key after its
	// state is no longer needed. A test that sets now must make pad long, because the keys still expire by
	// the server's clock.
	now   func() time.Time
	wall  func() time.Time // the clock of this process
	pad   time.Duration
	heals bool // whether scripts move a state that is far ahead of the clock back to the present; outside of tests always true
}

func newSettings(opts []Option) settings {
	set := settings{
		prefix: "ratelimit", timeout: 50 * time.Millisecond, denials: time.Second,
		leaseTerm: leaseTerm, wall: time.Now, pad: defaultPad, heals: true,
	}
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

// WithTimeout sets how long a caller waits for the reply to its call, whatever the timeouts of the
// client are. The default is 50 ms. The timeout must be longer than a round trip.
//
// A call may have to wait until an earlier call has ended. If the server answers other calls meanwhile, the timeout
// begins again when the call is sent, so that the caller waits for at most twice the timeout in all. If
// the server answers nothing, the caller waits for one timeout.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithDenialCache makes the store remember, in this process, the state of a key that was
// denied. It then denies further requests for that key without a call, for as long as the
// server would deny them, but for at most d. The default is one second; zero turns the
// cache off. A rule with a [ratelimit.Penalty] must count each denial, so the store remembers only
// the keys that such a rule has blocked.
//
// The cache does not deny a request that the server would grant, with one exception: if another
// process resets or pardons the key, or gives back units of the key, this process may deny requests for up
// to d longer. The RetryAfter of a denial from the cache may be longer than the server's RetryAfter would be,
// by at most the time that the remembered call took.
func WithDenialCache(d time.Duration) Option { return func(s *settings) { s.denials = d } }

// WithLeases lets the store take units ahead. For a key with many requests, a call that is needed
// anyway charges more units than its requests need, and later requests in this process spend these
// units without a call. The argument is how many unspent units the process may hold for one key.
// Units that are not spent within half a second are given back, and [Store.Close] gives back all.
// The default is 0: no units are taken ahead.
//
// Units may be charged in one window and spent in the next one. In the next window, each process that
// uses this option may therefore grant more units than the limit: at most as many more as the argument
// says. In the long run, the limit is not exceeded. A process may deny requests because another process
// has taken the units ahead.
//
// The more requests a key has, the more units are taken ahead, but at most an eighth of the units that
// remain. Near the limit, therefore, each request calls the server. No units are taken ahead for a leaky
// bucket, for a rule with a [ratelimit.Penalty] or a [ratelimit.Window], nor for a decision of several rules.
func WithLeases(units int) Option { return func(s *settings) { s.leases = int64(units) } }

// validate returns the joined errors of all invalid settings, or nil.
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
