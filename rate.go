package ratelimit

import (
	"errors"
	"time"
)

// A Rate is what a limit is: Requests units granted every Per.
//
// A Rate is plain data: it compares with ==, and [Rate.String] and [ParseRate]
// are inverses. The zero Rate is invalid.
type Rate struct {
	// Requests is how many units are granted every Per. It is at least 1.
	Requests int

	// Per is the time in which Requests units are granted. It is positive.
	Per time.Duration

	// Burst is the most units granted at once; 0 means Requests. Only
	// [TokenBucket] and [LeakyBucket] take one.
	Burst int
}

// PerSecond returns the Rate of n units a second.
func PerSecond(n int) Rate { return Rate{Requests: n, Per: time.Second} }

// PerMinute returns the Rate of n units a minute.
func PerMinute(n int) Rate { return Rate{Requests: n, Per: time.Minute} }

// PerHour returns the Rate of n units an hour.
func PerHour(n int) Rate { return Rate{Requests: n, Per: time.Hour} }

// PerDay returns the Rate of n units every 24 hours.
func PerDay(n int) Rate { return Rate{Requests: n, Per: day} }

// WithBurst returns r with at most n units granted at once.
func (r Rate) WithBurst(n int) Rate {
	r.Burst = n
	return r
}

// Validate returns all the problems that r would have with any algorithm,
// joined, or nil.
func (r Rate) Validate() error {
	var errs []error
	if r.Requests < 1 {
		errs = append(errs, &ConfigError{"requests", r.Requests, "must be at least 1"})
	}
	if r.Per <= 0 {
		errs = append(errs, &ConfigError{"per", r.Per, "must be longer than zero"})
	}
	if r.Burst < 0 {
		errs = append(errs, &ConfigError{"burst", r.Burst, "must be at least 1, or 0 for as many as requests"})
	}
	return errors.Join(errs...)
}

// burst returns the most units that r grants at once.
func (r Rate) burst() int {
	if r.Burst == 0 {
		return r.Requests
	}
	return r.Burst
}

// reduced returns the rate that a bucket can not tell from r, with the smallest
// Requests and Per. r is valid.
func (r Rate) reduced() Rate {
	d := gcd(int64(r.Requests), int64(r.Per))
	return Rate{r.Requests / int(d), r.Per / time.Duration(d), r.burst()}
}

// withoutBurst returns the problems that r has with an algorithm that has no
// burst: what it grants at once is Requests.
func (r Rate) withoutBurst(algorithm string) error {
	if r.Burst <= 0 {
		return r.Validate()
	}
	return errors.Join(r.Validate(), &ConfigError{"burst", r.Burst, "must be 0: a " + algorithm + " has no burst"})
}
