package bench

import (
	"context"
	"math"

	"github.com/ratelimit-go/ratelimit"
)

// Each limiter of this module has its own adapter type, which calls the limiter directly. An adapter for all limiters would
// call them through an interface. This would take extra time, which the adapters for other modules' limiters do not need.

type tokenBucket struct{ *ratelimit.TokenBucket }

func newTokenBucket(l Limit) (Subject, error) {
	lim, err := ratelimit.NewTokenBucket(l.bucket(), l.options()...)
	return tokenBucket{lim}, err
}

func (s tokenBucket) Allow(key string) bool { return s.TokenBucket.Allow(key).Allowed }

type fixedWindow struct{ *ratelimit.FixedWindow }

func newFixedWindow(l Limit) (Subject, error) {
	lim, err := ratelimit.NewFixedWindow(l.window(), l.options()...)
	return fixedWindow{lim}, err
}

func (s fixedWindow) Allow(key string) bool { return s.FixedWindow.Allow(key).Allowed }

type slidingWindowLog struct{ *ratelimit.SlidingWindowLog }

func newSlidingWindowLog(l Limit) (Subject, error) {
	lim, err := ratelimit.NewSlidingWindowLog(l.window(), l.options()...)
	return slidingWindowLog{lim}, err
}

func (s slidingWindowLog) Allow(key string) bool { return s.SlidingWindowLog.Allow(key).Allowed }

type slidingWindowCounter struct {
	*ratelimit.SlidingWindowCounter
}

func newSlidingWindowCounter(l Limit) (Subject, error) {
	lim, err := ratelimit.NewSlidingWindowCounter(l.window(), l.options()...)
	return slidingWindowCounter{lim}, err
}

func (s slidingWindowCounter) Allow(key string) bool {
	return s.SlidingWindowCounter.Allow(key).Allowed
}

type leakyBucket struct{ *ratelimit.LeakyBucket }

func newLeakyBucket(l Limit) (Subject, error) {
	lim, err := ratelimit.NewLeakyBucket(l.bucket(), l.options()...)
	return leakyBucket{lim}, err
}

func (s leakyBucket) Allow(key string) bool { return s.LeakyBucket.Allow(key).Allowed }

// cost is the number of units that a subject of the type taker takes in each call.
const cost = 5

// A taker takes several units of a TokenBucket in each call. The burst and the rate of its bucket are
// multiplied by that number of units, so it grants as many calls as a limiter that takes one unit a call.
type taker struct {
	*ratelimit.TokenBucket
	ctx context.Context
}

func newTaker(l Limit) (Subject, error) {
	l.Rate, l.Burst = cost*l.Rate, min(cost*l.Burst, math.MaxInt32)
	lim, err := ratelimit.NewTokenBucket(l.bucket(), l.options()...)
	return taker{lim, context.Background()}, err
}

func (s taker) Allow(key string) bool {
	res, err := s.Take(s.ctx, key, cost)
	return res.Allowed && err == nil
}

// weighs reports whether the key has used units in the previous window, and none in the current window.
// The field ResetAfter shows this. It is zero if the key has used units in neither window. It is longer
// than one window if the key has used units in the current window.
func (s slidingWindowCounter) weighs(key string) bool {
	reset := s.Peek(key).ResetAfter
	return 0 < reset && reset <= s.Rate().Per
}
