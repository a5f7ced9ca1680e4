package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A FixedWindow counts the units of each key in windows of length Per, which
// begin at multiples of Per since the Unix epoch, and grants Requests in each.
//
// Bound: a key is granted at most Requests units in each window, hence at most
// 2·Requests in any interval of length Per, and a client that asks on both sides
// of an edge gets them.
//
// Memory: 32 bytes per key, and up to four fifths as much again for the table around it.
//
// At a boundary the count of every key starts again from zero, at the same
// instant for all keys and all processes.
//
// Choose it where people know the limit by the clock, as in "1000 per day", and
// twice the limit around an edge does no harm. Choose [SlidingWindowCounter] or
// [SlidingWindowLog] if it does.
//
// The zero FixedWindow denies everything.
type FixedWindow struct{ fixedWindowKeys }

// NewFixedWindow returns a FixedWindow that grants r, which has no burst. Its
// errors match [ErrInvalidConfig].
func NewFixedWindow(r Rate, opts ...Option) (*FixedWindow, error) {
	l := new(FixedWindow)
	if err := l.init(AlgorithmFixedWindow, r, opts, newFixedWindowConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if its window has one left. A denial changes nothing.
func (l *FixedWindow) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// fixedWindowKeys has the methods that all algorithms share.
type fixedWindowKeys struct {
	keyed[fixedWindowState, *fixedWindowConfig]
}

// fixedWindowConfig decides for all keys of one rate.
type fixedWindowConfig struct{ exact.Window }

func newFixedWindowConfig(r Rate, start time.Time) (*fixedWindowConfig, error) {
	if err := r.withoutBurst("fixed window"); err != nil {
		return nil, err
	}
	return &fixedWindowConfig{exact.NewWindow(int64(r.Requests), r.Per, start)}, nil
}

// fixedWindowState is the state of one key. The zero state has used nothing.
type fixedWindowState struct {
	last instant // of the last unit granted; never decreases
	used int64   // units granted in the window of last
}

// Step takes n units at now and charges them if told to, or explains why not.
func (c *fixedWindowConfig) Step(s *fixedWindowState, _ *fixedWindowConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	now = max(now, s.last)
	offset := c.Offset(now)
	used := c.used(s, now, offset)
	v.Limit = c.Requests
	switch {
	case n > c.Requests:
		v.RetryAfter = Never
	case n > c.Requests-used:
		v.RetryAfter = time.Duration(c.Per - offset)
	case charge:
		used += n
		*s = fixedWindowState{now, used}
	}
	v.Left = max(c.Requests-used, 0) // a lower limit may have been set
	if used > 0 {
		v.ResetAfter = time.Duration(c.Per - offset)
	}
	return v, 0
}

// used returns what s has used of the window that began offset before now.
func (c *fixedWindowConfig) used(s *fixedWindowState, now instant, offset uint64) int64 {
	if now.Since(s.last) > offset {
		return 0
	}
	return s.used
}

// Carry makes s, which was decided on by from until now, a state of c. With
// another length, the count goes into the window that now lies in.
func (c *fixedWindowConfig) Carry(s *fixedWindowState, from *fixedWindowConfig, now instant) {
	if c.Per == from.Per {
		return
	}
	now = max(now, s.last)
	*s = fixedWindowState{now, from.used(s, now, from.Offset(now))}
}

// Resize leaves s alone: a count is what it is under any limit.
func (c *fixedWindowConfig) Resize(*fixedWindowState, *fixedWindowConfig) {}

// Slower reports false: nothing drains within a window.
func (c *fixedWindowConfig) Slower(*fixedWindowConfig) bool { return false }

// Charged returns the instant of the last charge.
func (c *fixedWindowConfig) Charged(s *fixedWindowState) instant { return s.last }

// GiveBack takes back a charge of n units at then, if its window has not ended.
func (c *fixedWindowConfig) GiveBack(s *fixedWindowState, then instant, n int64) {
	if s.last.Since(then) <= c.Offset(s.last) {
		s.used = max(s.used-n, 0)
	}
}

// Idle reports whether nothing is used of the window that now lies in.
func (c *fixedWindowConfig) Idle(s *fixedWindowState, now instant) bool {
	return now >= s.last && c.used(s, now, c.Offset(now)) == 0
}

// Inherit returns s: a count is owed alike by all who share it.
func (c *fixedWindowConfig) Inherit(s *fixedWindowState, _ instant) fixedWindowState { return *s }
