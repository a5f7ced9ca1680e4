package ratelimit

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/packed"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A SlidingWindowCounter is a [Limiter] that estimates how many units a key was granted within the last [Rate.Per], and
// grants while the estimate is at most [Rate.Requests]. It counts units in windows of length Per, which begin at
// multiples of Per since the Unix epoch. The estimate is the count of the current window, plus the count of the
// previous one weighted by how much of that window lies within the last Per.
//
// Bound: a key is granted at most 2·Requests - 1 units in any half-open interval of length Per, and at most Requests
// units in each of the counted windows. The first bound can be reached if Per is at least 2·Requests ns. The estimate
// is exact if the units of the previous window were spread evenly.
//
// Memory: 40 bytes per key, and up to 32 bytes more for the table that holds the keys.
//
// When a window begins, the count of the previous window counts in full at first, then less and less until the new window ends.
//
// Choose a SlidingWindowCounter for many keys or a large limit. Choose a [SlidingWindowLog] if no interval of length
// Per may have more than Requests units.
//
// The zero SlidingWindowCounter denies everything; [NewSlidingWindowCounter] makes one to use.
type SlidingWindowCounter struct{ slidingCounterKeys }

// NewSlidingWindowCounter returns a SlidingWindowCounter that grants the rate r, which must have no Burst and a Per of
// at most 146 years. An error matches [ErrInvalidConfig].
func NewSlidingWindowCounter(r Rate, opts ...Option) (*SlidingWindowCounter, error) {
	l := new(SlidingWindowCounter)
	if err := l.init(AlgorithmSlidingWindowCounter, r, opts, newSlidingCounterConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the estimate is then at most Requests. A denial changes nothing.
func (l *SlidingWindowCounter) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// slidingCounterKeys embeds the generic type keyed, so that the documentation of SlidingWindowCounter does not show its type arguments.
type slidingCounterKeys struct {
	keyed[slidingCounterState, *slidingCounterConfig]
}

// slidingCounterConfig holds a rate and decides for all keys that have this rate.
type slidingCounterConfig struct {
	engine.Counts[slidingCounterState, *slidingCounterConfig]
	exact.Window
}

func newSlidingCounterConfig(r Rate, t *engine.Timeline) (*slidingCounterConfig, error) {
	if err := r.faults(ruleconfig.CounterFaults); err != nil {
		return nil, err
	}
	return &slidingCounterConfig{Window: exact.NewWindow(int64(r.Requests), r.Per, t.Start())}, nil
}

// slidingCounterState is the state of one key. The zero state has used nothing.
type slidingCounterState struct {
	last      instant // when the last unit was granted; never decreases
	prev, cur int64   // units granted: cur in the window that contains the instant in the field last, prev in the window before it
}

// Step decides on n units at the time now. If they fit and charge is set, it counts them.
func (c *slidingCounterConfig) Step(
	s *slidingCounterState, _ *slidingCounterConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, c, s.last, now, n, charge)
	}
	offset := c.Offset(now)
	prev, cur := c.Counted(s.prev, s.cur, s.last, now, offset)
	left := c.Requests - c.Weighted(prev, offset) - cur
	v.Limit = c.Requests
	switch {
	case n > c.Requests:
		v.RetryAfter = Never
	case n > left:
		v.RetryAfter = c.RetryAfter(prev, cur, offset, n)
	case charge:
		cur += n
		left -= n
		*s = slidingCounterState{now, prev, cur}
	}
	v.Left = max(left, 0) // left is negative after the limit was lowered
	v.ResetAfter = c.ResetAfter(prev, cur, offset)
	return v, 0
}

// StepYoung is the method Step for a key that still warms up and has only the portion p of the limit.
func (c *slidingCounterConfig) StepYoung(
	s *slidingCounterState, _ *slidingCounterConfig, p engine.Portion, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	offset := c.Offset(now)
	prev, cur := c.Counted(s.prev, s.cur, s.last, now, offset)
	left := p.Units - c.Weighted(prev, offset) - cur
	switch {
	case n > left:
		v.RetryAfter = Never
	case charge:
		cur += n
		left -= n
		*s = slidingCounterState{now, prev, cur}
	}
	v.Limit, v.Left, v.ResetAfter = c.Requests, max(left, 0), c.ResetAfter(prev, cur, offset)
	return v, 0
}

// Carry converts the state s from the windows of the old configuration (from) to the windows of the new one (c). If
// their lengths differ, the estimate at the time now becomes the count of the window that contains the time now.
func (c *slidingCounterConfig) Carry(s *slidingCounterState, from *slidingCounterConfig, now instant) {
	if c.Per == from.Per {
		return
	}
	now = max(now, s.last)
	offset := from.Offset(now)
	prev, cur := from.Counted(s.prev, s.cur, s.last, now, offset)
	*s = slidingCounterState{last: now, cur: cur + from.Weighted(prev, offset)}
}

// Reached and Charged return the time of the last charge.

func (c *slidingCounterConfig) Reached(s *slidingCounterState) instant { return s.last }
func (c *slidingCounterConfig) Charged(s *slidingCounterState) instant { return s.last }

// GiveBack subtracts the returned units from the count of the window in which they were charged.
func (c *slidingCounterConfig) GiveBack(s *slidingCounterState, back engine.Returned) {
	switch ago, offset := s.last.Since(back.At), c.Offset(s.last); {
	case ago <= offset:
		s.cur = max(s.cur-back.N, 0)
	case ago-offset <= c.Per:
		s.prev = max(s.prev-back.N, 0)
	}
}

// Exceed charges n units at the time now, even past the limit.
func (c *slidingCounterConfig) Exceed(s *slidingCounterState, now instant, n int64) {
	now = max(now, s.last)
	prev, cur := c.Counted(s.prev, s.cur, s.last, now, c.Offset(now))
	most := min(max(c.Requests, exact.MaxUsed), math.MaxInt64-prev) // the largest value of cur; it keeps prev plus cur from overflowing
	*s = slidingCounterState{now, prev, exact.Beyond(cur, n, most)}
}

// Pack writes the state s to f, or reads it from f.
func (c *slidingCounterConfig) Pack(s *slidingCounterState, f *packed.Form) {
	packed.Counts(f, &s.last, &s.prev, &s.cur)
}

// Idle reports whether both counts of s are zero at the time now.
func (c *slidingCounterConfig) Idle(s *slidingCounterState, now instant) bool {
	if now < s.last {
		return false
	}
	prev, cur := c.Counted(s.prev, s.cur, s.last, now, c.Offset(now))
	return prev == 0 && cur == 0
}
