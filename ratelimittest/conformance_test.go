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

// TestConformanceOfWindows checks a FixedWindow whose windows are those of a calendar, and one whose windows begin with the
// first use. The clock moves around two days in Berlin that have 23 and 25 hours.
func TestConformanceOfWindows(t *testing.T) {
	for _, r := range []ratelimit.Rate{
		{Requests: 3, Window: ratelimit.Calendar("day", "Europe/Berlin")},
		{Requests: 3, Per: 10, Window: "first"},
	} {
		t.Run(r.String(), func(t *testing.T) {
			ratelimittest.TestLimiter(t, ratelimittest.Config{
				New:       made(ratelimit.NewFixedWindow),
				Model:     ratelimittest.FixedWindowModel,
				Bound:     ratelimittest.FixedWindowBound,
				Rates:     []ratelimit.Rate{r},
				Starts:    []time.Time{time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC)},
				Span:      366 * 24 * time.Hour,
				Schedules: 400,
				// If Per changes while the clock is behind the last charge, the new window of the model begins with that charge. The
				// window of the limiter keeps its begin, because the limiter has not stored when the last charge was.
				KeepRate: r.Window == "first",
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
