package verify

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A limiter has the methods that the five algorithms have in common.
type limiter interface {
	ratelimit.Limiter
	Peek(key string) ratelimit.Result
	Reset(key string) error
	SetRate(r ratelimit.Rate) error
	Rate() ratelimit.Rate
	Len() int
}

// An algorithm is one of the five, with the models that its answers are compared with.
type algorithm struct {
	name   string
	bucket bool // whether its rate may have a burst
	make   func(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error)
	model  func(start time.Time, r ratelimit.Rate) ratelimittest.Model
	fits   constraint
	laws   []law
}

var algorithms = []algorithm{
	{
		name: "TokenBucket", bucket: true,
		make:  constructor(ratelimit.NewTokenBucket),
		model: ratelimittest.TokenBucketModel,
		fits:  bucketFits,
		laws:  []law{noIntervalAboveBurstAndRate},
	},
	{
		name: "FixedWindow", make: constructor(ratelimit.NewFixedWindow),
		model: ratelimittest.FixedWindowModel,
		fits:  fixedWindowFits,
		laws:  []law{noWindowAboveLimit, noIntervalAboveItsWindows},
	},
	{
		name: "SlidingWindowLog", make: constructor(ratelimit.NewSlidingWindowLog),
		model: ratelimittest.SlidingWindowLogModel,
		fits:  slidingLogFits,
		laws:  []law{noPerAboveLimit},
	},
	{
		name: "SlidingWindowCounter", make: constructor(ratelimit.NewSlidingWindowCounter),
		model: ratelimittest.SlidingWindowCounterModel,
		fits:  slidingCounterFits,
		laws:  []law{noWindowAboveLimit, estimateErrsWithinItsBounds, noPerAboveTwiceTheLimitLessOne},
	},
	{
		name: "LeakyBucket", bucket: true,
		make:  constructor(ratelimit.NewLeakyBucket),
		model: ratelimittest.LeakyBucketModel,
		fits:  bucketFits,
		laws:  []law{noIntervalAboveBurstAndRate, departuresAreSpaced},
	},
}

func constructor[L limiter](f func(ratelimit.Rate, ...ratelimit.Option) (L, error)) func(ratelimit.Rate, ...ratelimit.Option) (limiter, error) {
	return func(r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
		l, err := f(r, opts...)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
}

// each runs f for each of the five algorithms, in parallel.
func each(t *testing.T, f func(t *testing.T, a algorithm)) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			f(t, a)
		})
	}
}

// start returns a limiter at the rate r, which must be valid for a.
func (a algorithm) start(t require.TestingT, r ratelimit.Rate, opts ...ratelimit.Option) limiter {
	l, err := a.make(r, opts...)
	require.NoError(t, err, "%v", r)
	return l
}

// rate returns r, without its burst if a does not accept one.
func (a algorithm) rate(r ratelimit.Rate) ratelimit.Rate {
	if !a.bucket {
		r.Burst = 0
	}
	return r
}

// accepts reports whether a limiter of a can be made at the rate r.
func (a algorithm) accepts(r ratelimit.Rate) bool {
	_, err := a.make(r)
	if err != nil && !errors.Is(err, ratelimit.ErrInvalidConfig) {
		panic(err)
	}
	return err == nil
}

// those returns the rates that a accepts, each of them once.
func (a algorithm) those(rates []ratelimit.Rate) (accepted []ratelimit.Rate) {
	seen := make(map[ratelimit.Rate]bool)
	for _, r := range rates {
		if r = a.rate(r); !seen[r] && a.accepts(r) {
			seen[r] = true
			accepted = append(accepted, r)
		}
	}
	return accepted
}

// A manualClock moves only when it is told to. It is not safe for concurrent use.
type manualClock struct{ now time.Time }

func (c *manualClock) Now() time.Time { return c.now }

const (
	day  = 24 * time.Hour
	year = 366 * day
)

// count returns n as an int, or the largest int if n is larger.
func count(n int64) int { return int(min(n, math.MaxInt)) }

// everydayRates are mostly small, so that calls often fall on the instants at which
// something changes.
var everydayRates = []ratelimit.Rate{
	{Requests: 1, Per: 1},
	{Requests: 1, Per: 10},
	{Requests: 3, Per: 10},
	{Requests: 10, Per: 3},
	{Requests: 4, Per: 8},
	{Requests: 2, Per: 7},
	{Requests: 6, Per: 100},
	{Requests: 7, Per: 97},
	{Requests: 1, Per: 10, Burst: 3},
	{Requests: 3, Per: 10, Burst: 7},
	{Requests: 10, Per: 3, Burst: 2},
	{Requests: 5, Per: 7, Burst: 4},
	{Requests: 5, Per: 10 * time.Second},
	{Requests: 100, Per: time.Minute},
	{Requests: 5, Per: 10 * time.Second, Burst: 1},
}

// extremeRates are at the limits of what a Rate can express.
var extremeRates = []ratelimit.Rate{
	{Requests: 1, Per: day},
	{Requests: 3, Per: time.Second},
	{Requests: 123457, Per: day},
	{Requests: 7e8, Per: time.Second},
	{Requests: 1e9, Per: time.Second},
	{Requests: count(3e9), Per: time.Second},
	{Requests: 1, Per: math.MaxInt64},
	{Requests: 1, Per: math.MaxInt64, Burst: math.MaxInt},
	{Requests: 1, Per: math.MaxInt64 / 2},
	{Requests: 65536, Per: math.MaxInt64},
	{Requests: math.MaxInt32, Per: year},
	{Requests: math.MaxInt32, Per: 1, Burst: math.MaxInt32},
	{Requests: 1, Per: year, Burst: math.MaxInt32},
	{Requests: count(1 << 53), Per: time.Second},
	{Requests: 1, Per: day, Burst: count(1 << 53)},
	{Requests: math.MaxInt, Per: 1},
	{Requests: math.MaxInt, Per: math.MaxInt64},
	{Requests: math.MaxInt, Per: math.MaxInt64 / 2},
	{Requests: math.MaxInt, Per: math.MaxInt64 - 1, Burst: 1},
	{Requests: math.MaxInt - 1, Per: 366*day - 1, Burst: math.MaxInt},
}

// allRates are the everyday rates and the extreme rates.
var allRates = slices.Concat(everydayRates, extremeRates)

// starts are the instants at which limiters are made.
var starts = []time.Time{
	time.Date(2026, 3, 1, 12, 34, 56, 789012345, time.UTC),
	time.Unix(0, 0).UTC(),
	time.Unix(0, 1).UTC(),
	time.Unix(-1, 7).UTC(),
	time.Date(1900, 2, 28, 23, 59, 59, 999999999, time.UTC),
	{}, // year 1
	time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
}

func TestEveryAlgorithmHasItsExtremeRates(t *testing.T) {
	for _, a := range algorithms {
		n := len(a.those(extremeRates))
		t.Logf("%s: %d everyday and %d extreme rates, int has %d bits", a.name, len(a.those(everydayRates)), n, strconv.IntSize)
		require.GreaterOrEqual(t, n, 4, a.name)
	}
}
