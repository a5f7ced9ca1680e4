package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// A TokenBucket is a [Limiter] that keeps a bucket of tokens for each key. The bucket holds at most [Rate.Burst] tokens
// and is full at first. It earns [Rate.Requests] tokens every [Rate.Per], and each granted unit takes one token.
//
// Bound: in any closed interval of length T, a key is granted at most Burst + T·Requests/Per units.
//
// Memory: 40 bytes per key, and up to 32 bytes more for the table that holds the keys.
//
// It has no windows: a key earns tokens continuously and exactly, to the nanosecond and without rounding.
//
// Choose a TokenBucket when in doubt. Choose a [LeakyBucket] if a burst after an idle time would do harm, and a
// [SlidingWindowLog] if no interval of length Per may have more than Requests units.
//
// The zero TokenBucket denies everything; [NewTokenBucket] makes one to use.
type TokenBucket struct{ tokenBucketKeys }

// NewTokenBucket returns a TokenBucket that grants the rate r. An error matches [ErrInvalidConfig].
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

// tokenBucketKeys embeds the generic type keyed, so that the documentation of TokenBucket does not show its type arguments.
type tokenBucketKeys struct {
	keyed[tokenBucketState, *tokenBucketConfig]
}

// tokenBucketConfig holds a rate and decides for all keys that have this rate.
type tokenBucketConfig struct{ exact.Bucket }

func newTokenBucketConfig(r Rate, _ *engine.Timeline) (*tokenBucketConfig, error) {
	b, err := r.bucket()
	if err != nil {
		return nil, err
	}
	return &tokenBucketConfig{b}, nil
}

// tokenBucketState is the state of one key. It holds the debt: the tokens missing from a full bucket, 0 at first.
//
// Invariant: debt() is at most the burst, except after charges past the burst.
type tokenBucketState struct {
	last  instant // the instant at which the debt was as the two fields below say; never decreases
	frac  int64   // fraction of a token in the debt, in the units of exact.Bucket
	whole int64   // whole tokens in the debt
}

// debt returns the tokens that are missing from a full bucket.
func (s *tokenBucketState) debt() exact.Level { return exact.Level{Whole: s.whole, Frac: s.frac} }

// Step decides on n tokens at the time now. If the bucket has them and charge is set, it takes them.
func (c *tokenBucketConfig) Step(
	s *tokenBucketState, pace *tokenBucketConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, pace, s.last, now, n, charge)
	}
	hi, lo := pace.Earned(now.Since(s.last))
	debt := pace.Less(s.debt(), hi, lo)
	v.Left = c.Left(debt)
	switch {
	case n > v.Left:
		v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)
		v.Left = max(v.Left, 0) // v.Left is negative if units were charged past the burst
	case charge:
		v.Left -= n
		debt.Whole += n
		*s = tokenBucketState{now, debt.Frac, debt.Whole}
	}
	v.Limit = c.Burst
	v.ResetAfter = pace.ToDrain(pace.Parts(debt))
	return v, 0
}

// StepYoung is the method Step for a key that still warms up and has only the portion p of the limit. Each unit takes
// 1/p tokens, which reduces both the burst and the rate of the key to that portion. The number of tokens is rounded up.
func (c *tokenBucketConfig) StepYoung(
	s *tokenBucketState, pace *tokenBucketConfig, p engine.Portion, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	debt := pace.Drained(s.debt(), now.Since(s.last))
	cost, left, granted := pace.Spend(debt, p, n, c.Burst, charge)
	switch {
	case !granted:
		v.RetryAfter = Never
	case charge:
		debt = pace.Plus(debt, cost)
		*s = tokenBucketState{now, debt.Frac, debt.Whole}
	}
	v.Limit, v.Left = c.Burst, left
	v.ResetAfter = pace.ToDrain(pace.Parts(debt))
	return v, 0
}

// Carry converts s from the old configuration (from) to c. Until the time now, the debt drains at the old rate.
func (c *tokenBucketConfig) Carry(s *tokenBucketState, from *tokenBucketConfig, now instant) {
	now = max(now, s.last)
	debt := c.Rescaled(from.Drained(s.debt(), now.Since(s.last)), &from.Bucket)
	*s = tokenBucketState{now, debt.Frac, debt.Whole}
}

// Resize converts the state s from the burst of the old configuration (from) to the burst of c. The key keeps its tokens, but
// at most the new burst. A full bucket stays full, because it has to answer like a bucket that was never used. The comment of
// engine.Algorithm describes the parameter ahead and the result.
func (c *tokenBucketConfig) Resize(s *tokenBucketState, from *tokenBucketConfig, ahead bool) bool {
	debt, lost := c.Converted(s.debt(), exact.Level{}, &from.Bucket, ahead)
	s.whole, s.frac = debt.Whole, debt.Frac
	return lost
}

// Fills reports whether the change from the old configuration (from) to c can make a bucket full that was not full.
func (c *tokenBucketConfig) Fills(from *tokenBucketConfig) bool { return c.Burst < from.Burst }

// Slower reports whether a bucket earns tokens more slowly under c than under the other configuration.
func (c *tokenBucketConfig) Slower(than *tokenBucketConfig) bool {
	return c.Bucket.Slower(&than.Bucket)
}

// Reached and Charged return the time of the last charge. Clone returns a copy; the state has no pointers.

func (c *tokenBucketConfig) Reached(s *tokenBucketState) instant        { return s.last }
func (c *tokenBucketConfig) Charged(s *tokenBucketState) instant        { return s.last }
func (c *tokenBucketConfig) Clone(s *tokenBucketState) tokenBucketState { return *s }

// Debt returns the debt of s at the time now or, if the last charge is later than now, at the last charge.
func (c *tokenBucketConfig) Debt(s *tokenBucketState, now instant) exact.Level {
	return c.Drained(s.debt(), max(now, s.last).Since(s.last))
}

// GiveBack returns units to the key: it lowers the debt by the part of these units that has not drained yet.
func (c *tokenBucketConfig) GiveBack(s *tokenBucketState, back engine.Returned) {
	debt := c.Minus(s.debt(), back.Debt)
	s.whole, s.frac = debt.Whole, debt.Frac
}

// Exceed charges n units at the time now, even past the burst.
func (c *tokenBucketConfig) Exceed(s *tokenBucketState, now instant, n int64) {
	c.Owe(s, now, exact.Level{Whole: n})
}

// Owe adds tokens to the debt of s at the time now, even past the burst. The parameter more says how many.
func (c *tokenBucketConfig) Owe(s *tokenBucketState, now instant, more exact.Level) {
	debt := c.Beyond(c.Debt(s, now), more)
	*s = tokenBucketState{max(now, s.last), debt.Frac, debt.Whole}
}

// Idle reports whether the bucket s is full at the time now.
func (c *tokenBucketConfig) Idle(s *tokenBucketState, now instant) bool {
	return now >= s.last && c.Drained(s.debt(), now.Since(s.last)) == exact.Level{}
}

// Pack writes the state s to f, or reads it from f.
func (c *tokenBucketConfig) Pack(s *tokenBucketState, f *packed.Form) {
	c.Bucket.Pack(f, &s.last, &s.whole, &s.frac)
}

// Inherit returns the state of a key that shared the state s with other keys until now: it gets the whole debt of s.
func (c *tokenBucketConfig) Inherit(s *tokenBucketState, _ instant) tokenBucketState { return *s }
