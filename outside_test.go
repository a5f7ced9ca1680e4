package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// unmoved is an observer that nothing moves.
type unmoved struct{}

func (unmoved) Observe(ratelimit.Decision) {}

// exemplars are the model and the bound of each algorithm.
var exemplars = map[string]struct {
	model func(start time.Time, r ratelimit.Rate) ratelimittest.Model
	bound ratelimittest.Bound
}{
	"token bucket":           {ratelimittest.TokenBucketModel, ratelimittest.TokenBucketBound},
	"fixed window":           {ratelimittest.FixedWindowModel, ratelimittest.FixedWindowBound},
	"sliding window log":     {ratelimittest.SlidingWindowLogModel, ratelimittest.SlidingWindowLogBound},
	"sliding window counter": {ratelimittest.SlidingWindowCounterModel, ratelimittest.SlidingWindowCounterBound},
	"leaky bucket":           {ratelimittest.LeakyBucketModel, ratelimittest.LeakyBucketBound},
}

// TestLimitersWithAnObserverConform runs the kit on limiters that are observed: they
// keep all that is promised of limiters that are not.
func TestLimitersWithAnObserverConform(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			ratelimittest.TestLimiter(t, ratelimittest.Config{
				New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
					return a.make(r, ratelimit.WithClock(clock), ratelimit.WithObserver(unmoved{}))
				},
				Model:     exemplars[a.name].model,
				Bound:     exemplars[a.name].bound,
				Schedules: 100,
			})
		})
	}
}

// TestLimitersWithAStoreConform does so for limiters whose state is in a store. A
// store is not told of a change of the rate, and makes it when it is next asked, so
// that is left to the kit for stores.
func TestLimitersWithAStoreConform(t *testing.T) {
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			ratelimittest.TestLimiter(t, ratelimittest.Config{
				New: func(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
					store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
					require.NoError(t, err)
					return a.make(r, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("kit"))
				},
				Model:     exemplars[a.name].model,
				Bound:     exemplars[a.name].bound,
				KeepRate:  true,
				Schedules: 100,
			})
		})
	}
}
