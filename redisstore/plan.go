package redisstore

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// A plan is a rate and an algorithm, expressed by the numbers with which the scripts compute.
//
// For a bucket, a token is divided into equal parts: the field unit is the number of parts in a token, and the
// field gain is the number of parts that drain in a microsecond. The fraction gain/unit is in lowest terms.
// For a window, gain is the number of units that the window grants, and unit is its length in microseconds, or 0 if
// the windows are those of a calendar.
type plan struct {
	kind       byte // the letter of the algorithm, as keys and scripts contain it
	gain, unit int64
	burst      int64 // the capacity of a bucket, in tokens; 0 for a window
	limit      int64 // the most units that can be granted at once
}

// A planCache keeps the plans of the rates that are in use, which are few. A hash of the rate and the
// algorithm selects one of 64 places for a plan. A new plan replaces the old plan in the same place.
type planCache [64]atomic.Pointer[cachedPlan]

// A cachedPlan is the plan for a rate and an algorithm, together with the script arguments that describe
// the plan.
type cachedPlan struct {
	algorithm ratelimit.Algorithm
	rate      ratelimit.Rate
	plan
	args []any

	window calendar.Window // the Window of the rate
	frame  string          // if the rate has a Window: the first word of the states that are stored at this rate, see window.lua
}

// planOf returns the plan for this algorithm and rate. If the plan is not in the cache, planOf makes the plan
// and stores it there. It returns an error if the store cannot decide exactly with this algorithm and rate.
func (c *planCache) planOf(a ratelimit.Algorithm, r ratelimit.Rate) (*cachedPlan, error) {
	hash := uint64(r.Requests)*31 + uint64(r.Burst)*37 + uint64(r.Per) + uint64(algorithms[a])<<8
	if r.Window != "" {
		hash += maphash.String(ruleSeed, string(r.Window))
	}
	place := &c[hash*0x9e3779b97f4a7c15>>58]
	if p := place.Load(); p != nil && p.algorithm == a && p.rate == r {
		return p, nil
	}
	plan, err := planOf(a, r)
	if err != nil {
		return nil, err
	}
	w, err := calendar.Parse(string(r.Window))
	if err != nil {
		return nil, err
	}
	p := &cachedPlan{a, r, plan, plan.args(), w, frameOf(w, plan.unit)}
	place.Store(p)
	return p, nil
}

var algorithms = map[ratelimit.Algorithm]byte{
	ratelimit.AlgorithmTokenBucket:          't',
	ratelimit.AlgorithmLeakyBucket:          'l',
	ratelimit.AlgorithmFixedWindow:          'f',
	ratelimit.AlgorithmSlidingWindowCounter: 'c',
	ratelimit.AlgorithmSlidingWindowLog:     's',
	ratelimit.AlgorithmInFlight:             'h',
}

const (
	// maxNumber is the largest number that scripts get as an argument. Lua computes with doubles,
	// in which a sum of a few such numbers is still exact.
	maxNumber = 1 << 50

	// maxLogged is the largest limit of a sliding window log. For each key, the server may have to store as
	// many entries as the limit.
	maxLogged = 1 << 16

	// maxHeld is the longest Per of a rule with AlgorithmInFlight: how long a request counts as in flight if
	// nobody says that it has ended.
	maxHeld = 24 * time.Hour
)

// planOf returns the plan for this algorithm and rate. If the store cannot decide exactly with this
// algorithm and rate, planOf returns an error that matches [ratelimit.ErrInvalidConfig].
func planOf(a ratelimit.Algorithm, r ratelimit.Rate) (plan, error) {
	kind, ok := algorithms[a]
	if !ok {
		return plan{}, noAlgorithm(a)
	}
	if err := r.Validate(); err != nil {
		return plan{}, err
	}
	if r.Window != "" && kind != 'f' {
		return plan{}, unsupported("window", r.Window, "needs the algorithm FixedWindow: no other counts in such windows")
	}
	if kind == 't' || kind == 'l' {
		return bucketPlan(kind, r)
	}
	return windowPlan(kind, r)
}

func noAlgorithm(a ratelimit.Algorithm) error {
	return &ratelimit.ConfigError{Field: "algorithm", Value: a, Reason: "must be one of the five, or InFlight"}
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
	// Here gain is in parts per nanosecond. Multiply gain by 1000, so that it is in parts per microsecond.
	// Before that, divide 1000 and unit by their greatest common divisor.
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
	case kind == 'h' && r.Per > maxHeld:
		return plan{}, unsupported("per", r.Per, "must be at most 24h for what is in flight")
	}
	return p, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
