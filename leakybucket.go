package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A LeakyBucket is a [Limiter] that spaces requests evenly. It keeps a queue of at most
// [Rate.Burst] units for each key, and [Rate.Requests] units leave it every [Rate.Per].
// [Result.Delay] says for how long the caller should hold a granted request;
// [LeakyBucket.Wait] holds it for the caller.
//
// Bound: in any closed interval of length T, a key is granted at most
// Burst + T·Requests/Per units, as by a [TokenBucket]. If all requests are held for their
// Delay, the one after a request for n units leaves at least n·Per/Requests later, to within
// 1 ns. These errors do not add up.
//
// Memory: 56 bytes per key, and up to four fifths as much again for the table around it.
//
// There are no boundaries: the queue drains continuously and exactly, to the nanosecond
// and without rounding.
//
// Choose a LeakyBucket to protect something that bursts would harm. Choose a [TokenBucket]
// if callers will not hold requests for their Delay.
//
// The zero LeakyBucket denies everything; [NewLeakyBucket] makes one to use.
type LeakyBucket struct{ leakyBucketKeys }

// NewLeakyBucket returns a LeakyBucket that grants the rate r. An error matches
// [ErrInvalidConfig].
func NewLeakyBucket(r Rate, opts ...Option) (*LeakyBucket, error) {
	l := new(LeakyBucket)
	if err := l.init(AlgorithmLeakyBucket, r, opts, newLeakyBucketConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if its queue has room for one more. The caller should then
// hold the request for [Result.Delay]. A denial changes nothing.
func (l *LeakyBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// leakyBucketKeys has the methods that all five limiters share.
type leakyBucketKeys struct {
	keyed[leakyBucketState, *leakyBucketConfig]
}

// leakyBucketConfig decides for all keys that have the same rate.
type leakyBucketConfig struct{ exact.Bucket }

func newLeakyBucketConfig(r Rate, _ time.Time) (*leakyBucketConfig, error) {
	b, err := r.bucket()
	if err != nil {
		return nil, err
	}
	return &leakyBucketConfig{b}, nil
}

// leakyBucketState is the state of one key. The zero state is empty.
//
// The two levels differ only after a change of the burst. That changes how many units the
// key may still be granted, but not how many are in the queue.
//
// Invariant: debt is at most the burst.
type leakyBucketState struct {
	last  instant     // the instant for which both levels hold; never decreases
	debt  exact.Level // units by which less than the burst may be granted
	queue exact.Level // units that have yet to leave the queue
}

// Step decides on n units at now, and queues them if there is room and charge is set.
func (c *leakyBucketConfig) Step(s *leakyBucketState, pace *leakyBucketConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, pace, s.last, now, n, charge)
	}
	hi, lo := pace.Earned(now.Since(s.last))
	debt := pace.Less(s.debt, hi, lo)
	queue := debt
	if s.queue != s.debt {
		queue = pace.Less(s.queue, hi, lo)
	}
	v.Left = c.Left(debt)
	if n > v.Left {
		v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)
		v.Left = max(v.Left, 0) // negative after units beyond the burst
	} else {
		delay = pace.ToDrain(pace.Parts(queue))
		if charge {
			v.Left -= n
			debt.Whole += n
			queue.Whole += n
			*s = leakyBucketState{now, debt, queue}
		}
	}
	v.Limit = c.Burst
	v.ResetAfter = pace.ToDrain(pace.Parts(debt))
	if queue != debt {
		v.ResetAfter = max(v.ResetAfter, pace.ToDrain(pace.Parts(queue)))
	}
	return v, delay
}

// Carry brings s, which drained at the rate of from until now, to the units of c.
func (c *leakyBucketConfig) Carry(s *leakyBucketState, from *leakyBucketConfig, now instant) {
	now = max(now, s.last)
	elapsed := now.Since(s.last)
	debt := c.Rescaled(from.Drained(s.debt, elapsed), &from.Bucket)
	queue := c.Rescaled(from.Drained(s.queue, elapsed), &from.Bucket)
	*s = leakyBucketState{now, debt, queue}
}

// Resize brings s from the burst of from to that of c. The key has used what is in its
// queue.
func (c *leakyBucketConfig) Resize(s *leakyBucketState, from *leakyBucketConfig) {
	s.debt = c.Converted(s.debt, s.queue, &from.Bucket)
}

// Fills reports false: the queue stays as it is.
func (c *leakyBucketConfig) Fills(*leakyBucketConfig) bool { return false }

// Slower reports whether a queue drains more slowly under c than under than.
func (c *leakyBucketConfig) Slower(than *leakyBucketConfig) bool {
	return c.Bucket.Slower(&than.Bucket)
}

// The clock of s stands at its last charge, and s points to nothing.

func (c *leakyBucketConfig) Reached(s *leakyBucketState) instant        { return s.last }
func (c *leakyBucketConfig) Charged(s *leakyBucketState) instant        { return s.last }
func (c *leakyBucketConfig) Clone(s *leakyBucketState) leakyBucketState { return *s }

// Debt returns what s owes at now or, if that is later, at its last charge.
func (c *leakyBucketConfig) Debt(s *leakyBucketState, now instant) exact.Level {
	return c.Drained(s.debt, max(now, s.last).Since(s.last))
}

// GiveBack takes off the debt what is still owed for units that are given back. The queue shrinks
// only if no unit came after them: a request that was told its Delay keeps its place.
func (c *leakyBucketConfig) GiveBack(s *leakyBucketState, back engine.Returned) {
	s.debt = c.Minus(s.debt, back.Debt)
	if back.Last {
		s.queue = c.Minus(s.queue, exact.Level{Whole: back.N})
	}
}

// Exceed charges n units at now, past the burst. They stand in the queue as any others.
func (c *leakyBucketConfig) Exceed(s *leakyBucketState, now instant, n int64) {
	now = max(now, s.last)
	elapsed := now.Since(s.last)
	debt, queue := c.Drained(s.debt, elapsed), c.Drained(s.queue, elapsed)
	debt.Whole, queue.Whole = exact.Beyond(debt.Whole, n, exact.MaxUsed), exact.Beyond(queue.Whole, n, exact.MaxUsed)
	*s = leakyBucketState{now, debt, queue}
}

// Idle reports whether both levels have drained to zero by now.
func (c *leakyBucketConfig) Idle(s *leakyBucketState, now instant) bool {
	return now >= s.last &&
		c.Drained(s.debt, now.Since(s.last)) == exact.Level{} &&
		c.Drained(s.queue, now.Since(s.last)) == exact.Level{}
}

// Inherit returns s: a key that leaves the shared debt owes all of it.
func (c *leakyBucketConfig) Inherit(s *leakyBucketState, _ instant) leakyBucketState { return *s }
