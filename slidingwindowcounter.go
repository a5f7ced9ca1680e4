package ratelimit

import (
	"errors"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A SlidingWindowCounter counts the units of each key in windows of length Per,
// which begin at multiples of Per since the Unix epoch, and estimates the last
// Per from two of them: the current count, and the previous one weighted by how
// much of its window still lies within the last Per. It grants while the estimate
// stays within Requests.
//
// Bound: a key is granted at most 2·Requests - 1 units in any half-open window of
// length Per, reached when Per is at least 2·Requests ns, and Requests in each
// aligned window. The estimate is exact if the previous window's units were spread
// evenly.
//
// Memory: 40 bytes per key, and up to four fifths as much again for the table around it.
//
// At a boundary nothing is forgotten: the current count becomes the previous one,
// at its full weight, which then fades.
//
// Choose it for a sliding limit on many keys or a large limit. Choose
// [SlidingWindowLog] if no window may see more than Requests.
//
// The zero SlidingWindowCounter denies everything.
type SlidingWindowCounter struct{ slidingCounterKeys }

// NewSlidingWindowCounter returns a SlidingWindowCounter that grants r, which
// has no burst and whose Per is at most 146 years. Its errors match
// [ErrInvalidConfig].
func NewSlidingWindowCounter(r Rate, opts ...Option) (*SlidingWindowCounter, error) {
	l := new(SlidingWindowCounter)
	if err := l.init(AlgorithmSlidingWindowCounter, r, opts, newSlidingCounterConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the estimate has room for it. A denial changes nothing.
func (l *SlidingWindowCounter) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// slidingCounterKeys has the methods that all algorithms share.
type slidingCounterKeys struct {
	keyed[slidingCounterState, *slidingCounterConfig]
}

// slidingCounterConfig decides for all keys of one rate.
type slidingCounterConfig struct{ exact.Window }

func newSlidingCounterConfig(r Rate, start time.Time) (*slidingCounterConfig, error) {
	err := r.withoutBurst("sliding window counter")
	if r.Per > math.MaxInt64/2 {
		err = errors.Join(err, &ConfigError{"per", r.Per, "must be at most 146 years: a wait may last two windows"})
	}
	if err != nil {
		return nil, err
	}
	return &slidingCounterConfig{exact.NewWindow(int64(r.Requests), r.Per, start)}, nil
}

// slidingCounterState is the state of one key. The zero state has used nothing.
type slidingCounterState struct {
	last      instant // of the last unit granted; never decreases
	prev, cur int64   // units granted in the window before that of last, and in it
}

// Step takes n units at now and charges them if told to, or explains why not.
func (c *slidingCounterConfig) Step(s *slidingCounterState, _ *slidingCounterConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	now = max(now, s.last)
	offset := c.Offset(now)
	prev, cur := c.counts(s, now, offset)
	left := c.Requests - c.Weighted(prev, offset) - cur
	v.Limit = c.Requests
	switch {
	case n > c.Requests:
		v.RetryAfter = Never
	case n > left:
		v.RetryAfter = c.retryAfter(prev, cur, offset, n)
	case charge:
		cur += n
		left -= n
		*s = slidingCounterState{now, prev, cur}
	}
	v.Left = max(left, 0) // a lower limit may have been set
	switch {
	case cur > 0:
		v.ResetAfter = time.Duration(2*c.Per - offset)
	case prev > 0:
		v.ResetAfter = time.Duration(c.Per - offset)
	}
	return v, 0
}

// counts returns the units granted in the window before the one that began
// offset before now, and in it.
func (c *slidingCounterConfig) counts(s *slidingCounterState, now instant, offset uint64) (prev, cur int64) {
	switch ago := now.Since(s.last); {
	case ago <= offset:
		return s.prev, s.cur
	case ago-offset <= c.Per:
		return s.cur, 0
	}
	return 0, 0
}

// retryAfter returns how long it takes until n units fit, which do not now.
//
// While cur leaves room for n, that is when the weight of prev has fallen to what
// is then left; else it is when cur has become the previous count and its own
// weight has.
func (c *slidingCounterConfig) retryAfter(prev, cur int64, offset uint64, n int64) time.Duration {
	end, fading, room := c.Per, prev, c.Requests-cur-n
	if room < 0 {
		end, fading, room = 2*c.Per, cur, c.Requests-n
	}
	return time.Duration(end - c.Faded(fading, room) - offset)
}

// Carry makes s, which was decided on by from until now, a state of c. With
// another length, the estimate goes into the window that now lies in.
func (c *slidingCounterConfig) Carry(s *slidingCounterState, from *slidingCounterConfig, now instant) {
	if c.Per == from.Per {
		return
	}
	now = max(now, s.last)
	offset := from.Offset(now)
	prev, cur := from.counts(s, now, offset)
	*s = slidingCounterState{last: now, cur: cur + from.Weighted(prev, offset)}
}

// Resize leaves s alone: a count is what it is under any limit.
func (c *slidingCounterConfig) Resize(*slidingCounterState, *slidingCounterConfig) {}

// Slower reports false: nothing drains within a window.
func (c *slidingCounterConfig) Slower(*slidingCounterConfig) bool { return false }

// Charged returns the instant of the last charge.
func (c *slidingCounterConfig) Charged(s *slidingCounterState) instant { return s.last }

// GiveBack takes back a charge of n units at then, from the window that it lies in.
func (c *slidingCounterConfig) GiveBack(s *slidingCounterState, then instant, n int64) {
	switch ago, offset := s.last.Since(then), c.Offset(s.last); {
	case ago <= offset:
		s.cur = max(s.cur-n, 0)
	case ago-offset <= c.Per:
		s.prev = max(s.prev-n, 0)
	}
}

// Idle reports whether neither count matters at now.
func (c *slidingCounterConfig) Idle(s *slidingCounterState, now instant) bool {
	if now < s.last {
		return false
	}
	prev, cur := c.counts(s, now, c.Offset(now))
	return prev == 0 && cur == 0
}

// Inherit returns s: a count is owed alike by all who share it.
func (c *slidingCounterConfig) Inherit(s *slidingCounterState, _ instant) slidingCounterState {
	return *s
}
