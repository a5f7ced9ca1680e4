package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A TokenBucket holds up to Burst tokens for each key, earns Requests of them
// every Per, and takes one for each unit granted. A new key starts full.
//
// Bound: in any closed interval of length T, a key is granted at most
// Burst + T·Requests/Per units.
//
// Memory: 40 bytes per key, and up to four fifths as much again for the table around it.
//
// There are no boundaries: tokens are earned continuously and exactly, to the
// nanosecond and without rounding, so no instant is better to ask at than the one
// before.
//
// It is the one to choose when in doubt. Choose another if a burst right after
// an idle time does harm ([LeakyBucket]), or if no window of length Per may see
// more than Requests ([SlidingWindowLog]).
//
// The zero TokenBucket denies everything.
type TokenBucket struct{ tokenBucketKeys }

// NewTokenBucket returns a TokenBucket that grants r. Its errors match
// [ErrInvalidConfig].
func NewTokenBucket(r Rate, opts ...Option) (*TokenBucket, error) {
	l := new(TokenBucket)
	if err := l.init(AlgorithmTokenBucket, r, opts, newTokenBucketConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one token for key if it is there. A denial changes nothing.
func (l *TokenBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// tokenBucketKeys has the methods that all algorithms share.
type tokenBucketKeys struct {
	keyed[tokenBucketState, *tokenBucketConfig]
}

// tokenBucketConfig decides for all keys of one rate.
type tokenBucketConfig struct{ exact.Bucket }

func newTokenBucketConfig(r Rate, _ time.Time) (*tokenBucketConfig, error) {
	b, err := r.bucket()
	if err != nil {
		return nil, err
	}
	return &tokenBucketConfig{b}, nil
}

// tokenBucketState is the state of one key. The zero state is full.
//
// Invariant: debt() is at most the burst.
type tokenBucketState struct {
	last  instant // when debt() was true; never decreases
	frac  int64   // parts of a token, and
	whole uint32  // tokens, that a full bucket has more
	idle  uint32  // tokens in debt() that nobody took: the burst was raised by them
}

// debt returns how much more a full bucket has.
func (s *tokenBucketState) debt() exact.Level {
	return exact.Level{Whole: int64(s.whole), Frac: s.frac}
}

// Step takes n tokens at now and charges them if told to, or explains why not.
func (c *tokenBucketConfig) Step(s *tokenBucketState, pace *tokenBucketConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	now = max(now, s.last)
	hi, lo := pace.Earned(now.Since(s.last))
	debt := pace.Less(s.debt(), hi, lo)
	v.Left = c.Left(debt)
	switch {
	case n > v.Left:
		v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)
	case charge:
		v.Left -= n
		idle := min(s.idle, uint32(debt.Whole))
		debt.Whole += n
		*s = tokenBucketState{now, debt.Frac, uint32(debt.Whole), idle}
	}
	v.Limit = c.Burst
	v.ResetAfter = pace.ToDrain(pace.Parts(debt))
	return v, 0
}

// Carry makes s, which drained at the pace of from until now, drain at that of c.
func (c *tokenBucketConfig) Carry(s *tokenBucketState, from *tokenBucketConfig, now instant) {
	now = max(now, s.last)
	debt := c.Rescaled(from.Drained(s.debt(), now.Since(s.last)), &from.Bucket)
	*s = tokenBucketState{now, debt.Frac, uint32(debt.Whole), s.idle}
}

// Resize makes s, a state of the limit of from, one of the limit of c.
func (c *tokenBucketConfig) Resize(s *tokenBucketState, from *tokenBucketConfig) {
	debt := s.debt()
	used := c.Minus(debt, exact.Level{Whole: int64(s.idle)})
	debt = c.Converted(debt, used, &from.Bucket)
	idle := c.Minus(debt, used).Whole
	*s = tokenBucketState{s.last, debt.Frac, uint32(debt.Whole), uint32(idle)}
}

// Slower reports whether tokens are earned slower than under than.
func (c *tokenBucketConfig) Slower(than *tokenBucketConfig) bool {
	return c.Bucket.Slower(&than.Bucket)
}

// Charged returns the instant of the last charge.
func (c *tokenBucketConfig) Charged(s *tokenBucketState) instant { return s.last }

// GiveBack takes back a charge of n tokens at then.
func (c *tokenBucketConfig) GiveBack(s *tokenBucketState, then instant, n int64) {
	debt := c.Minus(s.debt(), c.Drained(exact.Level{Whole: n}, s.last.Since(then)))
	s.whole, s.frac = uint32(debt.Whole), debt.Frac
}

// Idle reports whether the bucket is full.
func (c *tokenBucketConfig) Idle(s *tokenBucketState, now instant) bool {
	return now >= s.last && c.Drained(s.debt(), now.Since(s.last)) == exact.Level{}
}

// Inherit returns s: a debt is owed alike by all who share it.
func (c *tokenBucketConfig) Inherit(s *tokenBucketState, _ instant) tokenBucketState { return *s }
