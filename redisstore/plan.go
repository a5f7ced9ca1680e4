package redisstore

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A plan is a rate in the numbers that the scripts compute with.
//
// For a bucket, a token is divided into unit parts, of which gain drain in a microsecond:
// the rate in lowest terms. For a window, gain is the requests that it grants, and unit is
// its length in microseconds.
type plan struct {
	kind       byte // the letter of the algorithm, in keys and scripts
	gain, unit int64
	burst      int64 // 0 for a window
	limit      int64 // most units that are ever granted at once
}

// A planCache makes plans and keeps some, because few rates are in use at the same time. The
// place of a plan follows from its rate; a new one replaces another in its place.
type planCache [64]atomic.Pointer[cachedPlan]

// A cachedPlan is the plan for a rate and an algorithm, with the arguments that describe it
// to the scripts for one key.
type cachedPlan struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	plan
	args []any
}

// planOf returns the plan for r by algorithm a, or an error that says why there is none.
func (c *planCache) planOf(a ratelimit.Algorithm, r ratelimit.Rate) (*cachedPlan, error) {
	hash := uint64(r.Requests)*31 + uint64(r.Burst)*37 + uint64(r.Per) + uint64(algorithms[a])<<8
	place := &c[hash*0x9e3779b97f4a7c15>>58]
	if p := place.Load(); p != nil && p.algorithm == a && p.rate == r {
		return p, nil
	}
	plan, err := planOf(a, r)
	if err != nil {
		return nil, err
	}
	p := &cachedPlan{a, r, plan, plan.args()}
	place.Store(p)
	return p, nil
}

var algorithms = map[ratelimit.Algorithm]byte{
	ratelimit.AlgorithmTokenBucket:          't',
	ratelimit.AlgorithmLeakyBucket:          'l',
	ratelimit.AlgorithmFixedWindow:          'f',
	ratelimit.AlgorithmSlidingWindowCounter: 'c',
	ratelimit.AlgorithmSlidingWindowLog:     's',
}

const (
	// maxNumber is the largest number that the scripts are given. It is small enough that
	// the sum of a few such numbers is exact in a double.
	maxNumber = 1 << 50

	// maxLogged is how many requests a sliding window log may have to store for one key.
	maxLogged = 1 << 16
)

// planOf returns the plan for r by algorithm a, or an error that says why there is none and
// matches [ratelimit.ErrInvalidConfig].
func planOf(a ratelimit.Algorithm, r ratelimit.Rate) (plan, error) {
	kind, ok := algorithms[a]
	if !ok {
		return plan{}, noAlgorithm(a)
	}
	if err := r.Validate(); err != nil {
		return plan{}, err
	}
	if kind == 't' || kind == 'l' {
		return bucketPlan(kind, r)
	}
	return windowPlan(kind, r)
}

func noAlgorithm(a ratelimit.Algorithm) error {
	return &ratelimit.ConfigError{Field: "algorithm", Value: a, Reason: "must be one of the five"}
}

func unsupported(field string, value any, format string, args ...any) error {
	return &ratelimit.ConfigError{Field: field, Value: value, Reason: fmt.Sprintf(format, args...)}
}

func bucketPlan(kind byte, r ratelimit.Rate) (plan, error) {
	p := plan{kind: kind, burst: int64(r.Burst)}
	if r.Burst == 0 {
		p.burst = int64(r.Requests)
	}
	if p.burst > math.MaxUint32 {
		return plan{}, unsupported("burst", p.burst, "must be at most 4294967295")
	}
	p.limit = p.burst
	d := gcd(int64(r.Requests), int64(r.Per))
	p.gain, p.unit = int64(r.Requests)/d, int64(r.Per)/d
	// Until here gain and unit are for a nanosecond. In a microsecond a thousand times as
	// many parts drain. The common divisor of 1000 and unit is divided out.
	d = gcd(1000, p.unit)
	if p.gain > maxNumber/(1000/d) {
		return plan{}, unsupported("requests", r.Requests, "must be at most 2^50 a microsecond, in lowest terms, in a Redis store")
	}
	p.gain, p.unit = p.gain*(1000/d), p.unit/d
	if p.unit > maxNumber {
		return plan{}, unsupported("per", r.Per, "must be at most 2^50 microseconds, in lowest terms, in a Redis store")
	}
	return p, nil
}

func windowPlan(kind byte, r ratelimit.Rate) (plan, error) {
	p := plan{kind: kind, gain: int64(r.Requests), unit: r.Per.Microseconds(), limit: int64(r.Requests)}
	bound := int64(maxNumber)
	if kind == 's' {
		bound = maxLogged
	}
	switch {
	case r.Burst != 0:
		return plan{}, unsupported("burst", r.Burst, "must be 0: windows have no burst")
	case p.gain > bound:
		return plan{}, unsupported("requests", r.Requests, "must be at most %d in a Redis store", bound)
	case r.Per%time.Microsecond != 0:
		return plan{}, unsupported("per", r.Per, "must be whole microseconds in a Redis store: its clock has no finer ones")
	case p.unit > maxNumber:
		return plan{}, unsupported("per", r.Per, "must be at most 2^50 microseconds in a Redis store")
	}
	return p, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
