package ratelimittest_test

import (
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// algorithms are the limiters of the package ratelimit, each with its model and its bound.
var algorithms = []struct {
	name  string
	new   func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error)
	model func(time.Time, ratelimit.Rate) ratelimittest.Model
	bound ratelimittest.Bound
}{
	{"TokenBucket", made(ratelimit.NewTokenBucket), ratelimittest.TokenBucketModel, ratelimittest.TokenBucketBound},
	{"FixedWindow", made(ratelimit.NewFixedWindow), ratelimittest.FixedWindowModel, ratelimittest.FixedWindowBound},
	{"SlidingWindowLog", made(ratelimit.NewSlidingWindowLog), ratelimittest.SlidingWindowLogModel, ratelimittest.SlidingWindowLogBound},
	{"SlidingWindowCounter", made(ratelimit.NewSlidingWindowCounter),
		ratelimittest.SlidingWindowCounterModel, ratelimittest.SlidingWindowCounterBound},
	{"LeakyBucket", made(ratelimit.NewLeakyBucket), ratelimittest.LeakyBucketModel, ratelimittest.LeakyBucketBound},
}

// made turns a constructor into a function for Config.New.
func made[L ratelimit.Limiter](
	construct func(ratelimit.Rate, ...ratelimit.Option) (L, error),
) func(ratelimit.Rate, ratelimit.Clock) (ratelimit.Limiter, error) {
	return func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
		return construct(r, ratelimit.WithClock(clock))
	}
}

func TestConformance(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			ratelimittest.TestLimiter(t, ratelimittest.Config{New: a.new, Model: a.model, Bound: a.bound})
		})
	}
}

// TestConformanceInMicroseconds checks the limiters as the kit checks a store whose clock
// counts microseconds.
func TestConformanceInMicroseconds(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			ratelimittest.TestLimiter(t, ratelimittest.Config{
				New:        a.new,
				Model:      a.model,
				Bound:      a.bound,
				Resolution: time.Microsecond,
				Schedules:  200,
				Seed:       1,
			})
		})
	}
}

// TestCooldown is the test of the example. Its limiter is not one of the five, has no Reset
// and no SetRate, and refuses most rates.
func TestCooldown(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		ratelimittest.TestLimiter(t, ratelimittest.Config{New: newCooldown})
	})
	t.Run("compared", func(t *testing.T) {
		ratelimittest.TestLimiter(t, ratelimittest.Config{
			New:   newCooldown,
			Rates: []ratelimit.Rate{{Requests: 1, Per: 10}, {Requests: 1, Per: time.Hour}},
			Bound: ratelimittest.SlidingWindowLogBound,
			Model: ratelimittest.SlidingWindowLogModel,
		})
	})
}
