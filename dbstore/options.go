package dbstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// An Option changes a setting of a [Store], such as its time limit; [New] takes any number of Options.
type Option func(*settings)

type settings struct {
	timeout time.Duration
	denials time.Duration
	clock   ratelimit.Clock // nil for the clock of the machine
	invalid error
}

// WithTimeout sets how long a caller waits for a decision. The default is 200 ms. It must be longer than a few round trips to the
// database: if another process changes the same row at the same time, a decision takes another round trip.
func WithTimeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// WithDenialCache sets for how long the store may deny requests without a call of the database. After a request for a key was denied,
// the store denies further requests for this key by itself, as long as the database would deny them, too. It does so for at most d
// after it has seen the value of the row. The default is one second; zero means that every request needs the database. If a denial
// would change the row, the request needs the database, too.
//
// No request is denied that the database would grant, with one exception: if another process resets or pardons the key, or gives
// back units of the key, this process may deny requests for up to d longer. The RetryAfter of a denial without a call may be
// longer than the RetryAfter of a decision by the database, by at most the time that the last call took.
func WithDenialCache(d time.Duration) Option { return func(s *settings) { s.denials = d } }

// WithClock sets the clock by which the store measures the time that has passed since the database told its time. It is for tests
// whose Backend takes its time from the same [ratelimit.FakeClock]. If a row has a time far ahead of the time of the database, a wrong
// clock must have written it. Without this Option, the store moves such a row back to the present time; with this Option, it does not.
func WithClock(c ratelimit.Clock) Option { return func(s *settings) { s.clock = c } }

func newSettings(opts []Option) (settings, error) {
	set := settings{timeout: 200 * time.Millisecond, denials: time.Second}
	for i, o := range opts {
		if o == nil {
			set.invalid = errors.Join(set.invalid, configError(fmt.Sprintf("options[%d]", i), nil, "must not be nil"))
			continue
		}
		o(&set)
	}
	errs := []error{set.invalid}
	if set.timeout <= 0 {
		errs = append(errs, configError("timeout", set.timeout, "must be longer than zero"))
	}
	if set.denials < 0 {
		errs = append(errs, configError("denialCache", set.denials, "must not be negative"))
	}
	return set, errors.Join(errs...)
}

func configError(field string, value any, reason string) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: reason}
}

// now returns the time of this process.
func (s *settings) now() time.Time {
	if s.clock != nil {
		return s.clock.Now()
	}
	return time.Now()
}
