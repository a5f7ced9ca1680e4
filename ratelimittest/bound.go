package ratelimittest

import (
	"fmt"
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Charge is one request that was granted.
type Charge struct {
	// At is the instant at which the request counted: the time of the clock or, if the clock had
	// stepped back, the instant of the key's previous charge.
	At time.Time

	// N is the number of units that were taken. It is at least 1.
	N int

	// Delay is the Delay in the Result of the request.
	Delay time.Duration
}

// A Bound returns an error if the charges of one key are more than an algorithm may ever grant at
// the rate r. The charges are in order of time. The Delay of each charge was rounded up to a
// multiple of resolution. Give a Bound to [TestLimiter] in a [Config].
type Bound func(r ratelimit.Rate, charges []Charge, resolution time.Duration) error

// TokenBucketBound is the [Bound] of [ratelimit.TokenBucket]: in any closed interval of
// length T at most Burst + Requests/Per·T units are granted.
func TokenBucketBound(r ratelimit.Rate, charges []Charge, _ time.Duration) error {
	return everyStretch(charges, func(first, last Charge, taken, length *big.Int) error {
		beyond := mul(sub(taken, num(int64(burst(r)))), num(int64(r.Per)))
		if beyond.Cmp(mul(num(int64(r.Requests)), length)) > 0 {
			return fmt.Errorf("%v units in the %v ns from %v to %v are more than the burst and what was earned",
				taken, length, stamp(first.At), stamp(last.At))
		}
		return nil
	})
}

// LeakyBucketBound is the [Bound] of [ratelimit.LeakyBucket]: in any closed interval of
// length T at most Burst + Requests/Per·T units are granted, as for a token bucket. In
// addition, requests must leave evenly spaced. A request leaves at its At plus its Delay. Each
// unit of a request delays the next request by Per/Requests. So take any two requests: if the
// earlier one and all requests between the two have n units together, then the two must leave
// at least n·Per/Requests apart. They may be closer than that by less than the parameter resolution.
func LeakyBucketBound(r ratelimit.Rate, charges []Charge, resolution time.Duration) error {
	if err := TokenBucketBound(r, charges, resolution); err != nil {
		return err
	}
	return everyStretch(charges, func(first, last Charge, taken, length *big.Int) error {
		if last.Delay == ratelimit.Never {
			return nil // the Delay does not fit into a Duration, so nobody knows when the request leaves
		}
		before := mul(sub(taken, num(int64(last.N))), num(int64(r.Per)))
		apart := add(length, num(int64(last.Delay-first.Delay)))
		if before.Sign() > 0 && before.Cmp(mul(num(int64(r.Requests)), add(apart, num(int64(resolution))))) >= 0 {
			return fmt.Errorf("asks of %v and %v leave only %v ns apart", stamp(first.At), stamp(last.At), apart)
		}
		return nil
	})
}

// FixedWindowBound is the [Bound] of [ratelimit.FixedWindow]: in each window, which begins
// at a multiple of Per since the Unix epoch, at most Requests units are granted.
func FixedWindowBound(r ratelimit.Rate, charges []Charge, _ time.Duration) error {
	taken := make(map[string]*big.Int)
	for _, c := range charges {
		window := floorDiv(sinceEpoch(c.At), num(int64(r.Per))).String()
		if taken[window] == nil {
			taken[window] = num(0)
		}
		taken[window] = add(taken[window], num(int64(c.N)))
		if taken[window].Cmp(num(int64(r.Requests))) > 0 {
			return fmt.Errorf("%v units in the window of %v", taken[window], stamp(c.At))
		}
	}
	return nil
}

// SlidingWindowLogBound is the [Bound] of [ratelimit.SlidingWindowLog]: in any half-open
// interval of length Per at most Requests units are granted.
func SlidingWindowLogBound(r ratelimit.Rate, charges []Charge, _ time.Duration) error {
	return everyPer(r, charges, num(int64(r.Requests)))
}

// SlidingWindowCounterBound is the [Bound] of [ratelimit.SlidingWindowCounter]: in any
// half-open interval of length Per at most 2·Requests - 1 units are granted, and at most
// Requests in each window that begins at a multiple of Per since the Unix epoch.
func SlidingWindowCounterBound(r ratelimit.Rate, charges []Charge, resolution time.Duration) error {
	if err := FixedWindowBound(r, charges, resolution); err != nil {
		return err
	}
	return everyPer(r, charges, sub(mul(num(2), num(int64(r.Requests))), num(1)))
}

// everyPer returns an error if more than limit units were granted in a half-open interval as long
// as the Per of the rate r.
func everyPer(r ratelimit.Rate, charges []Charge, limit *big.Int) error {
	return everyStretch(charges, func(first, last Charge, taken, length *big.Int) error {
		if length.Cmp(num(int64(r.Per))) < 0 && taken.Cmp(limit) > 0 {
			return fmt.Errorf("%v units in the %v ns from %v to %v, less than Per", taken, length, stamp(first.At), stamp(last.At))
		}
		return nil
	})
}

// everyStretch calls the function check for every pair of a first and a last charge. It passes the
// units of all charges from the first to the last, and the nanoseconds between the two. It returns
// the first error of check.
func everyStretch(charges []Charge, check func(first, last Charge, taken, length *big.Int) error) error {
	for i, first := range charges {
		taken := num(0)
		for _, last := range charges[i:] {
			taken = add(taken, num(int64(last.N)))
			length := sub(sinceEpoch(last.At), sinceEpoch(first.At))
			if err := check(first, last, taken, length); err != nil {
				return err
			}
		}
	}
	return nil
}

// stamp formats an instant to the nanosecond.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
