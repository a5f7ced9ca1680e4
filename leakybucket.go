package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// A LeakyBucket is a [Limiter] that spaces requests evenly. It keeps a queue of at most [Rate.Burst] units for each
// key, and [Rate.Requests] units leave it every [Rate.Per]. [Result.Delay] says for how long the caller should hold a
// granted request; [LeakyBucket.Wait] holds it for the caller.
//
// Bound: in any closed interval of length T, a key is granted at most Burst + T·Requests/Per units, as with a
// [TokenBucket]. If callers hold each request for its Delay, then after a request for n units, the next request
// leaves at least n·Per/Requests later, less at most 1 ns by rounding. The roundings do not add up.
//
// Memory: 56 bytes per key, and at most 45 bytes more per key for the table that holds the keys.
//
// There are no windows: the queue drains continuously and exactly, to the nanosecond and without rounding.
//
// Choose a LeakyBucket to protect something that bursts would harm, and a [TokenBucket] if callers will not hold requests for the Delay.
//
// The zero LeakyBucket denies everything; [NewLeakyBucket] makes one to use.
type LeakyBucket struct{ leakyBucketKeys }

// NewLeakyBucket returns a LeakyBucket that grants the rate r. An error matches [ErrInvalidConfig].
func NewLeakyBucket(r Rate, opts ...Option) (*LeakyBucket, error) {
	l := new(LeakyBucket)
	if err := l.init(AlgorithmLeakyBucket, r, opts, newLeakyBucketConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if its queue has room. Callers should hold the request for [Result.Delay]. A denial changes nothing.
func (l *LeakyBucket) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// leakyBucketKeys embeds the generic type keyed, so that the documentation of LeakyBucket does not show its type arguments.
type leakyBucketKeys struct {
	keyed[leakyBucketState, *leakyBucketConfig]
}

// leakyBucketConfig decides for all keys that have the same rate.
type leakyBucketConfig struct{ exact.Bucket }

func newLeakyBucketConfig(r Rate, _ *engine.Timeline) (*leakyBucketConfig, error) {
	b, err := r.bucket()
	if err != nil {
		return nil, err
	}
	return &leakyBucketConfig{b}, nil
}

// leakyBucketState is the state of one key. The zero state is an empty queue.
//
// The levels debt and queue differ only after a change of the burst or a return of units. Each of these two events changes how
// many units the key may still be granted, but may leave the queue as it was.
//
// Invariant: the field debt is at most the burst, except after charges beyond the burst.
type leakyBucketState struct {
	last  instant     // the instant at which the levels debt and queue were computed; never decreases
	debt  exact.Level // the burst minus the units that may still be granted
	queue exact.Level // units that have yet to leave the queue
}

// Step decides on n units at the instant now. It queues them if there is room and the parameter charge is true.
func (c *leakyBucketConfig) Step(
	s *leakyBucketState, pace *leakyBucketConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, pace, s.last, now, n, charge)
	}
	hi, lo := pace.Earned(now.Since(s.last))
	debt := pace.Less(s.debt, hi, lo)
	queue := debt
	apart := s.queue != s.debt
	if apart {
		queue = pace.Less(s.queue, hi, lo)
	}
	v.Left = c.Left(debt)
	if n > v.Left {
		v.RetryAfter = pace.TimeToFit(debt, n, c.Burst)
		v.Left = max(v.Left, 0) // v.Left is negative after charges beyond the burst
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
	if apart {
		v.ResetAfter = max(v.ResetAfter, pace.ToDrain(pace.Parts(queue)))
	}
	return v, delay
}

// StepYoung does what Step does for a new key, which has only the portion p of the limit because the rule has a Warmup. In the
// queue, n units count as n/p units, rounded up: if p is 1/4, 3 units count as 12. So the room and the rate of the queue grow with p.
func (c *leakyBucketConfig) StepYoung(
	s *leakyBucketState, pace *leakyBucketConfig, p engine.Portion, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	elapsed := now.Since(s.last)
	debt, queue := pace.Drained(s.debt, elapsed), pace.Drained(s.queue, elapsed)
	cost, left, granted := pace.Spend(debt, p, n, c.Burst, charge)
	if !granted {
		v.RetryAfter = Never
	} else {
		delay = pace.ToDrain(pace.Parts(queue))
		if charge {
			debt, queue = pace.Plus(debt, cost), pace.Plus(queue, cost)
			*s = leakyBucketState{now, debt, queue}
		}
	}
	v.Limit, v.Left = c.Burst, left
	v.ResetAfter = max(pace.ToDrain(pace.Parts(debt)), pace.ToDrain(pace.Parts(queue)))
	return v, delay
}

// Carry drains the state s at the rate of the old configuration until now, and converts it to the units of c.
func (c *leakyBucketConfig) Carry(s *leakyBucketState, from *leakyBucketConfig, now instant) {
	now = max(now, s.last)
	elapsed := now.Since(s.last)
	debt := c.Rescaled(from.Drained(s.debt, elapsed), &from.Bucket)
	queue := c.Rescaled(from.Drained(s.queue, elapsed), &from.Bucket)
	*s = leakyBucketState{now, debt, queue}
}

// Resize converts the state s from the burst of the old configuration (from) to the burst of c. Queued units count as used. The
// comment of engine.Algorithm describes the parameter ahead and the result lost.
func (c *leakyBucketConfig) Resize(s *leakyBucketState, from *leakyBucketConfig, ahead bool) (lost bool) {
	s.debt, lost = c.Converted(s.debt, s.queue, &from.Bucket, ahead)
	return lost
}

// Fills reports whether the change from the old configuration (from) to c can make a used key seem unused (debt 0).
func (c *leakyBucketConfig) Fills(from *leakyBucketConfig) bool { return c.Burst < from.Burst }

// Slower reports whether a queue drains more slowly with c than with the other configuration.
func (c *leakyBucketConfig) Slower(than *leakyBucketConfig) bool {
	return c.Bucket.Slower(&than.Bucket)
}

// Reached and Charged return the instant of the last charge. Clone copies the struct, which has no pointers.

func (c *leakyBucketConfig) Reached(s *leakyBucketState) instant        { return s.last }
func (c *leakyBucketConfig) Charged(s *leakyBucketState) instant        { return s.last }
func (c *leakyBucketConfig) Clone(s *leakyBucketState) leakyBucketState { return *s }

// Debt returns the debt of the state s at the instant now, or at the last charge if that is later.
func (c *leakyBucketConfig) Debt(s *leakyBucketState, now instant) exact.Level {
	return c.Drained(s.debt, max(now, s.last).Since(s.last))
}

// GiveBack subtracts the returned units from the debt, as far as they have not drained yet. The queue shrinks only if
// no unit was queued after the returned units, because later requests keep the Delay that they were told.
func (c *leakyBucketConfig) GiveBack(s *leakyBucketState, back engine.Returned) {
	s.debt = c.Minus(s.debt, back.Debt)
	if back.Last {
		s.queue = c.Minus(s.queue, back.Paid)
	}
}

// Exceed charges n units at the instant now, even past the burst. These units wait in the queue like all others.
func (c *leakyBucketConfig) Exceed(s *leakyBucketState, now instant, n int64) {
	c.Owe(s, now, exact.Level{Whole: n})
}

// Owe adds the given level to the debt and the queue at the instant now, even past the burst.
func (c *leakyBucketConfig) Owe(s *leakyBucketState, now instant, more exact.Level) {
	now = max(now, s.last)
	elapsed := now.Since(s.last)
	debt, queue := c.Drained(s.debt, elapsed), c.Drained(s.queue, elapsed)
	*s = leakyBucketState{now, c.Beyond(debt, more), c.Beyond(queue, more)}
}

// Pack writes the state s to f, or reads it from f.
func (c *leakyBucketConfig) Pack(s *leakyBucketState, f *packed.Form) {
	c.Bucket.Pack(f, &s.last, &s.debt.Whole, &s.debt.Frac, &s.queue.Whole, &s.queue.Frac)
}

// Idle reports whether the levels debt and queue have both drained to zero at the instant now.
func (c *leakyBucketConfig) Idle(s *leakyBucketState, now instant) bool {
	return now >= s.last &&
		c.Drained(s.debt, now.Since(s.last)) == exact.Level{} && c.Drained(s.queue, now.Since(s.last)) == exact.Level{}
}

// Inherit returns the state for a key that shared the state s and now gets its own: a copy, with the same queue.
func (c *leakyBucketConfig) Inherit(s *leakyBucketState, _ instant) leakyBucketState { return *s }
