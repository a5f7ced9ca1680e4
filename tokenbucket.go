package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A TokenBucket is a [Limiter] that keeps a bucket of tokens for each key. The bucket holds
// at most [Rate.Burst] tokens and is full at first. It earns [Rate.Requests] tokens every
// [Rate.Per], and each granted unit takes one token.
//
// Bound: in any closed interval of length T, a key is granted at most
// Burst + T·Requests/Per units.
//
// Memory: 40 bytes per key, and up to four fifths as much again for the table around it.
//
// There are no boundaries: a key earns tokens continuously and exactly, to the nanosecond
// and without rounding.
//
// Choose a TokenBucket when in doubt. Choose a [LeakyBucket] if a burst after an idle time
// would do harm. Choose a [SlidingWindowLog] if no interval of length Per may have more than
// Requests units.
//
// The zero TokenBucket denies everything; [NewTokenBucket] makes one to use.
type TokenBucket struct{ tokenBucketKeys }

// NewTokenBucket returns a TokenBucket that grants the rate r. An error matches
// [ErrInvalidConfig].
func NewTokenBucket(r Rate, opts ...Option) (*TokenBucket, error) {
	l := new(TokenBucket)
	if err := l.init(AlgorithmTokenBucket, r, opts, newTokenBucketConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if its bucket has a token left. A denial changes nothing.
func (l *TokenBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// tokenBucketKeys has the methods that all five limiters share.
type tokenBucketKeys struct {
	keyed[tokenBucketState, *tokenBucketConfig]
}

// tokenBucketConfig decides for all keys that have the same rate.
type tokenBucketConfig struct{ exact.Bucket }

func newTokenBucketConfig(r Rate, _ time.Time) (*tokenBucketConfig, error) {
	b, err := r.bucket()
	if err != nil {
		return nil, err
	}
	return &tokenBucketConfig{b}, nil
}

// tokenBucketState is the state of one key. It keeps the debt: the tokens that are missing
// from a full bucket. The zero state is full.
//
// Invariant: debt() is at most the burst.
type tokenBucketState struct {
	last  instant // the instant for which debt() holds; never decreases
	frac  int64   // parts of a token in the debt, beside whole
	whole int64   // whole tokens in the debt
}

// debt returns the tokens that are missing from a full bucket.
func (s *tokenBucketState) debt() exact.Level {
	return exact.Level{Whole: s.whole, Frac: s.frac}
}

// Step decides on n tokens at now, and takes them if they are there and charge is set.
func (c *tokenBucketConfig) Step(s *tokenBucketState, pace *tokenBucketConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, pace, s.last, now, n, charge)
	}
	hi, lo := pace.Earned(now.Since(s.last))
	debt := pace.Less(s.debt(), hi, lo)
	v.Left = c.Left(debt)
	switch {
	case n > v.Left:
		v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)
		v.Left = max(v.Left, 0) // negative after units beyond the burst
	case charge:
		v.Left -= n
		debt.Whole += n
		*s = tokenBucketState{now, debt.Frac, debt.Whole}
	}
	v.Limit = c.Burst
	v.ResetAfter = pace.ToDrain(pace.Parts(debt))
	return v, 0
}

// Carry brings s, whose debt drained at the rate of from until now, to the units of c.
func (c *tokenBucketConfig) Carry(s *tokenBucketState, from *tokenBucketConfig, now instant) {
	now = max(now, s.last)
	debt := c.Rescaled(from.Drained(s.debt(), now.Since(s.last)), &from.Bucket)
	*s = tokenBucketState{now, debt.Frac, debt.Whole}
}

// Resize brings s from the burst of from to that of c. The key keeps its tokens, as far as they
// fit. A full bucket stays full: nobody can tell it from one that was never used.
func (c *tokenBucketConfig) Resize(s *tokenBucketState, from *tokenBucketConfig) {
	if s.whole > 0 || s.frac > 0 {
		debt := c.Converted(s.debt(), exact.Level{}, &from.Bucket)
		s.whole, s.frac = debt.Whole, debt.Frac
	}
}

// Fills reports whether a smaller burst may make a bucket full that was not.
func (c *tokenBucketConfig) Fills(from *tokenBucketConfig) bool { return c.Burst < from.Burst }

// Slower reports whether a bucket earns tokens more slowly under c than under than.
func (c *tokenBucketConfig) Slower(than *tokenBucketConfig) bool {
	return c.Bucket.Slower(&than.Bucket)
}

// The clock of s stands at its last charge, and s points to nothing.

func (c *tokenBucketConfig) Reached(s *tokenBucketState) instant        { return s.last }
func (c *tokenBucketConfig) Charged(s *tokenBucketState) instant        { return s.last }
func (c *tokenBucketConfig) Clone(s *tokenBucketState) tokenBucketState { return *s }

// Debt returns what s owes at now or, if that is later, at its last charge.
func (c *tokenBucketConfig) Debt(s *tokenBucketState, now instant) exact.Level {
	return c.Drained(s.debt(), max(now, s.last).Since(s.last))
}

// GiveBack takes off the debt what is still owed for units that are given back.
func (c *tokenBucketConfig) GiveBack(s *tokenBucketState, back engine.Returned) {
	debt := c.Minus(s.debt(), back.Debt)
	s.whole, s.frac = debt.Whole, debt.Frac
}

// Exceed charges n units at now, past the burst.
func (c *tokenBucketConfig) Exceed(s *tokenBucketState, now instant, n int64) {
	debt := c.Debt(s, now)
	*s = tokenBucketState{max(now, s.last), debt.Frac, exact.Beyond(debt.Whole, n, exact.MaxUsed)}
}

// Idle reports whether the bucket is full at now.
func (c *tokenBucketConfig) Idle(s *tokenBucketState, now instant) bool {
	return now >= s.last && c.Drained(s.debt(), now.Since(s.last)) == exact.Level{}
}

// Inherit returns s: a key that leaves the shared debt owes all of it.
func (c *tokenBucketConfig) Inherit(s *tokenBucketState, _ instant) tokenBucketState { return *s }
