package ratelimit

import "time"

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
type TokenBucket struct {
	keyed[tokenBucketState, *tokenBucketConfig]
}

// NewTokenBucket returns a TokenBucket that grants r. Its errors match
// [ErrInvalidConfig].
func NewTokenBucket(r Rate, opts ...Option) (*TokenBucket, error) {
	l := new(TokenBucket)
	return started(l, l.init(AlgorithmTokenBucket, r, opts, newTokenBucketConfig))
}

// Allow takes one token for key if it is there. A denial changes nothing.
func (l *TokenBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// tokenBucketConfig decides for all keys of one rate.
type tokenBucketConfig struct{ bucket }

func newTokenBucketConfig(r Rate, _ time.Time) (*tokenBucketConfig, error) {
	b, err := newBucket(r)
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
func (s *tokenBucketState) debt() level { return level{int64(s.whole), s.frac} }

// step takes n tokens at now and charges them if told to, or explains why not.
func (c *tokenBucketConfig) step(s *tokenBucketState, pace *tokenBucketConfig, now instant, n int64, charge bool) (v verdict, delay time.Duration) {
	now = max(now, s.last)
	hi, lo := pace.earned(now.Since(s.last))
	debt := pace.less(s.debt(), hi, lo)
	v.left = c.left(debt)
	switch {
	case n > v.left:
		v.retryAfter = pace.timeToFit(debt, n, c.burst)
	case charge:
		v.left -= n
		idle := min(s.idle, uint32(debt.whole))
		debt.whole += n
		*s = tokenBucketState{now, debt.frac, uint32(debt.whole), idle}
	}
	v.limit = c.burst
	v.resetAfter = pace.toDrain(pace.parts(debt))
	return v, 0
}

// carry makes s, which drained at the pace of from until now, drain at that of c.
func (c *tokenBucketConfig) carry(s *tokenBucketState, from *tokenBucketConfig, now instant) {
	now = max(now, s.last)
	debt := c.rescaled(from.drained(s.debt(), now.Since(s.last)), &from.bucket)
	*s = tokenBucketState{now, debt.frac, uint32(debt.whole), s.idle}
}

// resize makes s, a state of the limit of from, one of the limit of c.
func (c *tokenBucketConfig) resize(s *tokenBucketState, from *tokenBucketConfig) {
	debt := s.debt()
	used := c.minus(debt, level{int64(s.idle), 0})
	debt = c.converted(debt, used, &from.bucket)
	idle := c.minus(debt, used).whole
	*s = tokenBucketState{s.last, debt.frac, uint32(debt.whole), uint32(idle)}
}

// slower reports whether tokens are earned slower than under than.
func (c *tokenBucketConfig) slower(than *tokenBucketConfig) bool {
	return c.bucket.slower(&than.bucket)
}

// charged returns the instant of the last charge.
func (c *tokenBucketConfig) charged(s *tokenBucketState) instant { return s.last }

// giveBack takes back a charge of n tokens at then.
func (c *tokenBucketConfig) giveBack(s *tokenBucketState, then instant, n int64) {
	debt := c.minus(s.debt(), c.drained(level{n, 0}, s.last.Since(then)))
	s.whole, s.frac = uint32(debt.whole), debt.frac
}

// Idle reports whether the bucket is full.
func (c *tokenBucketConfig) Idle(s *tokenBucketState, now instant) bool {
	return now >= s.last && c.drained(s.debt(), now.Since(s.last)) == level{}
}

// Inherit returns s: a debt is owed alike by all who share it.
func (c *tokenBucketConfig) Inherit(s *tokenBucketState, _ instant) tokenBucketState { return *s }
