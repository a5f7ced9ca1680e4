package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A LeakyBucket queues up to Burst units for each key and lets Requests of them
// leave every Per, evenly spaced: each granted request is told how long to hold
// on, in [Result.Delay], or is held by Wait.
//
// Bound: in any closed interval of length T, a key is granted at most
// Burst + T·Requests/Per units, as by a [TokenBucket]; held by their Delay, they
// leave no closer than n·Per/Requests after a request for n, to within 1 ns,
// which does not add up.
//
// Memory: 56 bytes per key, and up to four fifths as much again for the table around it.
//
// There are no boundaries: the queue drains continuously and exactly, to the
// nanosecond and without rounding.
//
// Choose it to shield something that suffers from bursts. Choose [TokenBucket]
// if nobody will honour the Delay.
//
// The zero LeakyBucket denies everything.
type LeakyBucket struct{ leakyBucketKeys }

// NewLeakyBucket returns a LeakyBucket that grants r. Its errors match
// [ErrInvalidConfig].
func NewLeakyBucket(r Rate, opts ...Option) (*LeakyBucket, error) {
	l := new(LeakyBucket)
	if err := l.init(AlgorithmLeakyBucket, r, opts, newLeakyBucketConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the bucket has room for it. A denial changes nothing.
func (l *LeakyBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// leakyBucketKeys has the methods that all algorithms share.
type leakyBucketKeys struct {
	keyed[leakyBucketState, *leakyBucketConfig]
}

// leakyBucketConfig decides for all keys of one rate.
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
// The two levels differ only after a change of the burst, which moves what may
// be admitted but not what waits to leave.
//
// Invariant: debt is at most the burst.
type leakyBucketState struct {
	last  instant     // when both levels were true; never decreases
	debt  exact.Level // tokens that an empty bucket would admit more
	queue exact.Level // tokens that have yet to leave
}

// Step admits n tokens at now and charges them if told to, or explains why not.
func (c *leakyBucketConfig) Step(s *leakyBucketState, pace *leakyBucketConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	now = max(now, s.last)
	hi, lo := pace.Earned(now.Since(s.last))
	debt := pace.Less(s.debt, hi, lo)
	queue := debt
	if s.queue != s.debt {
		queue = pace.Less(s.queue, hi, lo)
	}
	v.Left = c.Left(debt)
	if n > v.Left {
		v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)
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

// Carry makes s, which drained at the pace of from until now, drain at that of c.
func (c *leakyBucketConfig) Carry(s *leakyBucketState, from *leakyBucketConfig, now instant) {
	now = max(now, s.last)
	elapsed := now.Since(s.last)
	debt := c.Rescaled(from.Drained(s.debt, elapsed), &from.Bucket)
	queue := c.Rescaled(from.Drained(s.queue, elapsed), &from.Bucket)
	*s = leakyBucketState{now, debt, queue}
}

// Resize makes s, a state of the limit of from, one of the limit of c. What is
// queued is what was used.
func (c *leakyBucketConfig) Resize(s *leakyBucketState, from *leakyBucketConfig) {
	s.debt = c.Converted(s.debt, s.queue, &from.Bucket)
}

// Slower reports whether the bucket leaks slower than under than.
func (c *leakyBucketConfig) Slower(than *leakyBucketConfig) bool {
	return c.Bucket.Slower(&than.Bucket)
}

// Charged returns the instant of the last charge.
func (c *leakyBucketConfig) Charged(s *leakyBucketState) instant { return s.last }

// GiveBack takes back a charge of n units at then.
func (c *leakyBucketConfig) GiveBack(s *leakyBucketState, then instant, n int64) {
	still := c.Drained(exact.Level{Whole: n}, s.last.Since(then))
	s.debt, s.queue = c.Minus(s.debt, still), c.Minus(s.queue, still)
}

// Idle reports whether nothing is owed and nothing waits to leave.
func (c *leakyBucketConfig) Idle(s *leakyBucketState, now instant) bool {
	return now >= s.last &&
		c.Drained(s.debt, now.Since(s.last)) == exact.Level{} &&
		c.Drained(s.queue, now.Since(s.last)) == exact.Level{}
}

// Inherit returns s: a debt is owed alike by all who share it.
func (c *leakyBucketConfig) Inherit(s *leakyBucketState, _ instant) leakyBucketState { return *s }
