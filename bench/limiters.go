package bench

import (
	"context"
	"math"

	"github.com/ratelimit-go/ratelimit"
)

// Each limiter of this module has an adapter of its own, so that its Allow is
// reached through one interface call, as a peer's is, and not through two.

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

// cost is how many units a taker takes at once.
const cost = 5

// taker takes several units at once of a TokenBucket. Its burst and rate are as
// many times higher, so that the outcomes are those of a single unit.
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

// weighs reports whether key has a count in the window before this one, and none in
// this one: if neither has a count ResetAfter is zero, and if this one has, it is
// longer than a window.
func (s slidingWindowCounter) weighs(key string) bool {
	reset := s.Peek(key).ResetAfter
	return 0 < reset && reset <= s.Rate().Per
}
