package ratelimit

import "time"

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
type LeakyBucket struct {
	keyed[leakyBucketState, *leakyBucketConfig]
}

// NewLeakyBucket returns a LeakyBucket that grants r. Its errors match
// [ErrInvalidConfig].
func NewLeakyBucket(r Rate, opts ...Option) (*LeakyBucket, error) {
	l := new(LeakyBucket)
	return started(l, l.init(AlgorithmLeakyBucket, r, opts, newLeakyBucketConfig))
}

// Allow takes one unit for key if the bucket has room for it. A denial changes nothing.
func (l *LeakyBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// leakyBucketConfig decides for all keys of one rate.
type leakyBucketConfig struct{ bucket }

func newLeakyBucketConfig(r Rate, _ time.Time) (*leakyBucketConfig, error) {
	b, err := newBucket(r)
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
	last  instant // when both levels were true; never decreases
	debt  level   // tokens that an empty bucket would admit more
	queue level   // tokens that have yet to leave
}

// step admits n tokens at now and charges them if told to, or explains why not.
func (c *leakyBucketConfig) step(s *leakyBucketState, pace *leakyBucketConfig, now instant, n int64, charge bool) (v verdict, delay time.Duration) {
	now = max(now, s.last)
	hi, lo := pace.earned(now.Since(s.last))
	debt := pace.less(s.debt, hi, lo)
	queue := debt
	if s.queue != s.debt {
		queue = pace.less(s.queue, hi, lo)
	}
	v.left = c.left(debt)
	if n > v.left {
		v.retryAfter = pace.timeToFit(debt, n, c.burst)
	} else {
		delay = pace.toDrain(pace.parts(queue))
		if charge {
			v.left -= n
			debt.whole += n
			queue.whole += n
			*s = leakyBucketState{now, debt, queue}
		}
	}
	v.limit = c.burst
	v.resetAfter = pace.toDrain(pace.parts(debt))
	if queue != debt {
		v.resetAfter = max(v.resetAfter, pace.toDrain(pace.parts(queue)))
	}
	return v, delay
}

// carry makes s, which drained at the pace of from until now, drain at that of c.
func (c *leakyBucketConfig) carry(s *leakyBucketState, from *leakyBucketConfig, now instant) {
	now = max(now, s.last)
	elapsed := now.Since(s.last)
	debt := c.rescaled(from.drained(s.debt, elapsed), &from.bucket)
	queue := c.rescaled(from.drained(s.queue, elapsed), &from.bucket)
	*s = leakyBucketState{now, debt, queue}
}

// resize makes s, a state of the limit of from, one of the limit of c. What is
// queued is what was used.
func (c *leakyBucketConfig) resize(s *leakyBucketState, from *leakyBucketConfig) {
	s.debt = c.converted(s.debt, s.queue, &from.bucket)
}

// slower reports whether the bucket leaks slower than under than.
func (c *leakyBucketConfig) slower(than *leakyBucketConfig) bool {
	return c.bucket.slower(&than.bucket)
}

// charged returns the instant of the last charge.
func (c *leakyBucketConfig) charged(s *leakyBucketState) instant { return s.last }

// giveBack takes back a charge of n units at then.
func (c *leakyBucketConfig) giveBack(s *leakyBucketState, then instant, n int64) {
	still := c.drained(level{n, 0}, s.last.Since(then))
	s.debt, s.queue = c.minus(s.debt, still), c.minus(s.queue, still)
}

// Idle reports whether nothing is owed and nothing waits to leave.
func (c *leakyBucketConfig) Idle(s *leakyBucketState, now instant) bool {
	return now >= s.last &&
		c.drained(s.debt, now.Since(s.last)) == level{} &&
		c.drained(s.queue, now.Since(s.last)) == level{}
}

// Inherit returns s: a debt is owed alike by all who share it.
func (c *leakyBucketConfig) Inherit(s *leakyBucketState, _ instant) leakyBucketState { return *s }
