package bench

import "github.com/ratelimit-go/ratelimit"

// Each limiter of this module has an adapter of its own, so that its Allow is
// reached through one interface call, as a peer's is, and not through two.

type tokenBucket struct{ *ratelimit.TokenBucket }

func newTokenBucket(l Limit) (Subject, error) {
	lim, err := ratelimit.NewTokenBucket(l.bucket(), l.room())
	return tokenBucket{lim}, err
}

func (s tokenBucket) Allow(key string) bool { return s.TokenBucket.Allow(key).Allowed }

type fixedWindow struct{ *ratelimit.FixedWindow }

func newFixedWindow(l Limit) (Subject, error) {
	lim, err := ratelimit.NewFixedWindow(l.window(), l.room())
	return fixedWindow{lim}, err
}

func (s fixedWindow) Allow(key string) bool { return s.FixedWindow.Allow(key).Allowed }

type slidingWindowLog struct{ *ratelimit.SlidingWindowLog }

func newSlidingWindowLog(l Limit) (Subject, error) {
	lim, err := ratelimit.NewSlidingWindowLog(l.window(), l.room())
	return slidingWindowLog{lim}, err
}

func (s slidingWindowLog) Allow(key string) bool { return s.SlidingWindowLog.Allow(key).Allowed }

type slidingWindowCounter struct {
	*ratelimit.SlidingWindowCounter
}

func newSlidingWindowCounter(l Limit) (Subject, error) {
	lim, err := ratelimit.NewSlidingWindowCounter(l.window(), l.room())
	return slidingWindowCounter{lim}, err
}

func (s slidingWindowCounter) Allow(key string) bool {
	return s.SlidingWindowCounter.Allow(key).Allowed
}

type leakyBucket struct{ *ratelimit.LeakyBucket }

func newLeakyBucket(l Limit) (Subject, error) {
	lim, err := ratelimit.NewLeakyBucket(l.bucket(), l.room())
	return leakyBucket{lim}, err
}

func (s leakyBucket) Allow(key string) bool { return s.LeakyBucket.Allow(key).Allowed }

// bucket returns l for an algorithm with a burst.
func (l Limit) bucket() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per, Burst: l.Burst}
}

// window returns l for an algorithm without one.
func (l Limit) window() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per}
}

// room bounds the keys.
func (l Limit) room() ratelimit.Option { return ratelimit.WithMaxKeys(l.MaxKeys) }
