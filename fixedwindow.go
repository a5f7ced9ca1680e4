package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
)

// A FixedWindow is a [Limiter] that counts the units of each key in windows of length [Rate.Per] and grants
// [Rate.Requests] units in each window. The windows begin at multiples of Per since the Unix epoch.
//
// Bound: a key is granted at most Requests units in each window. In an interval of length Per that lies in two windows,
// it is granted at most 2·Requests units: so many if its requests come just before and just after a boundary.
//
// Memory: 32 bytes per key, and at most 26 bytes more per key for the table that holds the keys.
//
// At a boundary, the count of every key starts again from zero. That instant is the same for all keys and processes.
//
// Choose a FixedWindow for a limit that people know by the clock, such as 1000 a day, if twice the limit around a
// boundary does no harm. Otherwise choose a [SlidingWindowCounter] or a [SlidingWindowLog].
//
// The zero FixedWindow denies everything; [NewFixedWindow] makes one to use.
type FixedWindow struct{ fixedWindowKeys }

// NewFixedWindow returns a FixedWindow that grants the rate r, which has no Burst. Errors match [ErrInvalidConfig].
func NewFixedWindow(r Rate, opts ...Option) (*FixedWindow, error) {
	l := new(FixedWindow)
	if err := l.init(AlgorithmFixedWindow, r, opts, newFixedWindowConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the key has one left in the current window. A denial changes nothing.
func (l *FixedWindow) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// fixedWindowKeys embeds the type keyed for its methods, and hides its type arguments from the documentation.
type fixedWindowKeys struct {
	keyed[fixedWindowState, *fixedWindowConfig]
}

// fixedWindowConfig decides for all keys that have the same rate.
type fixedWindowConfig struct {
	engine.Counts[fixedWindowState, *fixedWindowConfig]
	exact.Window
}

func newFixedWindowConfig(r Rate, start time.Time) (*fixedWindowConfig, error) {
	if err := r.withoutBurst(fixedWindow); err != nil {
		return nil, err
	}
	if r.Window != "" {
		return nil, &ConfigError{"window", r.Window, "is not supported yet"}
	}
	return &fixedWindowConfig{Window: exact.NewWindow(int64(r.Requests), r.Per, start)}, nil
}

// fixedWindowState is the state of one key. The zero state has used nothing.
type fixedWindowState struct {
	last instant // when the last unit was granted; never decreases
	used int64   // units granted in the window that contains the instant last
}

// Step decides on n units at the instant now. It counts them if they fit and charge is true.
func (c *fixedWindowConfig) Step(
	s *fixedWindowState, _ *fixedWindowConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, c, s.last, now, n, charge)
	}
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
	v.Left = max(c.Requests-used, 0) // the difference is negative if the limit was lowered
	if used > 0 {
		v.ResetAfter = time.Duration(c.Per - offset)
	}
	return v, 0
}

// StepYoung does what Step does for a key that still warms up: its limit is only p.Units units.
func (c *fixedWindowConfig) StepYoung(
	s *fixedWindowState, _ *fixedWindowConfig, p engine.Portion, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	offset := c.Offset(now)
	used := c.used(s, now, offset)
	switch {
	case n > p.Units-used:
		v.RetryAfter = Never
	case charge:
		used += n
		*s = fixedWindowState{now, used}
	}
	v.Limit, v.Left = c.Requests, max(p.Units-used, 0)
	if used > 0 {
		v.ResetAfter = time.Duration(c.Per - offset)
	}
	return v, 0
}

// used returns how many units of the state s count in the window that began offset nanoseconds before the instant now.
func (c *fixedWindowConfig) used(s *fixedWindowState, now instant, offset uint64) int64 {
	if now.Since(s.last) > offset {
		return 0
	}
	return s.used
}

// Carry converts the state s from the old configuration to the configuration c, at the instant now. If the window
// lengths differ, the count goes into the window that contains the instant now.
func (c *fixedWindowConfig) Carry(s *fixedWindowState, from *fixedWindowConfig, now instant) {
	if c.Per == from.Per {
		return
	}
	now = max(now, s.last)
	*s = fixedWindowState{now, from.used(s, now, from.Offset(now))}
}

// Reached and Charged return the instant of the last charge.

func (c *fixedWindowConfig) Reached(s *fixedWindowState) instant { return s.last }
func (c *fixedWindowConfig) Charged(s *fixedWindowState) instant { return s.last }

// GiveBack subtracts the returned units from the count if the window in which they were granted has not ended.
func (c *fixedWindowConfig) GiveBack(s *fixedWindowState, back engine.Returned) {
	if s.last.Since(back.At) <= c.Offset(s.last) {
		s.used = max(s.used-back.N, 0)
	}
}

// Exceed charges n units at the instant now, even past the limit.
func (c *fixedWindowConfig) Exceed(s *fixedWindowState, now instant, n int64) {
	now = max(now, s.last)
	*s = fixedWindowState{now, exact.Beyond(c.used(s, now, c.Offset(now)), n, max(c.Requests, exact.MaxUsed))}
}

// Idle reports whether the key has used nothing in the window that contains the instant now.
func (c *fixedWindowConfig) Idle(s *fixedWindowState, now instant) bool {
	return now >= s.last && c.used(s, now, c.Offset(now)) == 0
}
