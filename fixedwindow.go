package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/packed"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A FixedWindow is a [Limiter] that counts the units of each key in windows of length [Rate.Per] and grants
// [Rate.Requests] units in each window. The windows begin at multiples of Per since the Unix epoch. If [Rate.Window] is a calendar, the
// windows are its days, weeks, months or years. If it is "first", each window of a key begins with the first use after the last one.
//
// Bound: a key is granted at most Requests units in each window. In an interval of length Per that lies in two windows,
// a key is granted at most 2·Requests units: Requests of them just before the boundary, and Requests just after it.
//
// Memory: 32 bytes per key, and at most 26 bytes more per key for the table that holds the keys.
//
// At a boundary, the count of every key starts again from zero. That instant is the same for all keys and processes,
// except with the Window "first". The windows of a calendar follow the wall clock of the machine: if the clock is set, they
// change within a second, and one may be longer or shorter. If it is set back by an hour or more, a window begins again.
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

// fixedWindowKeys embeds the generic type keyed, so that the documentation of FixedWindow does not show its type arguments.
type fixedWindowKeys struct {
	keyed[fixedWindowState, *fixedWindowConfig]
}

// fixedWindowConfig decides for all keys that have the same rate.
type fixedWindowConfig struct {
	engine.Counts[fixedWindowState, *fixedWindowConfig]
	engine.Windows
}

func newFixedWindowConfig(r Rate, t *engine.Timeline) (*fixedWindowConfig, error) {
	if err := r.faults(ruleconfig.FixedFaults); err != nil {
		return nil, err
	}
	return &fixedWindowConfig{Windows: t.Windows(engine.Rate(r.data()))}, nil
}

// fixedWindowState is the state of one key. The zero state has used nothing.
type fixedWindowState struct {
	// last is when the last unit was granted or, if windows begin with the first use, when the last window began. It never decreases,
	// even if all units are given back. Otherwise GiveBack could subtract units of an earlier window from the count of a later one.
	last instant
	used int64 // units granted in the window that contains the instant last
}

// Step decides on n units at the instant now. It counts them if they fit and the parameter charge is true.
func (c *fixedWindowConfig) Step(
	s *fixedWindowState, _ *fixedWindowConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, c, s.last, now, n, charge)
	}
	var used int64
	var left time.Duration
	if c.FromEpoch() { // what Current does, without a call of it: the call would make each decision slower
		offset := c.Offset(now)
		if left = time.Duration(c.Per - offset); now.Since(s.last) <= offset {
			used = s.used
		}
	} else {
		used, left = c.Current(now, s.last, s.used)
	}
	v.Limit = c.Requests
	switch {
	case n > c.Requests:
		v.RetryAfter = Never
	case n > c.Requests-used:
		v.RetryAfter = left
	case charge:
		c.count(s, now, used, n)
		used += n
	}
	v.Left = max(c.Requests-used, 0) // the difference is negative if the limit was lowered
	if used > 0 {
		v.ResetAfter = left
	}
	return v, 0
}

// StepYoung does what Step does for a new key, whose limit is still only p.Units units because the rule has a Warmup.
func (c *fixedWindowConfig) StepYoung(
	s *fixedWindowState, _ *fixedWindowConfig, p engine.Portion, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	used, left := c.Current(now, s.last, s.used)
	switch {
	case n > p.Units-used:
		v.RetryAfter = Never
	case charge:
		c.count(s, now, used, n)
		used += n
	}
	v.Limit, v.Left = c.Requests, max(p.Units-used, 0)
	if used > 0 {
		v.ResetAfter = left
	}
	return v, 0
}

// count adds n to the number of used units, for the window that contains the instant now, and stores the sum in s.
func (c *fixedWindowConfig) count(s *fixedWindowState, now instant, used, n int64) {
	if s.used = used + n; used == 0 || !c.FromFirst() {
		s.last = now
	}
}

// Carry converts the state s from the old configuration to the configuration c, at the instant now. If the windows
// differ, the count goes into the window that contains the instant now. With the Window "first", that window begins now.
func (c *fixedWindowConfig) Carry(s *fixedWindowState, from *fixedWindowConfig, now instant) {
	if !c.Same(&from.Windows) {
		now = max(now, s.last)
		used, _ := from.Current(now, s.last, s.used)
		*s = fixedWindowState{now, used}
	}
}

// Reached and Charged return the instant of the last charge, or the begin of a window that begins with the first use.

func (c *fixedWindowConfig) Reached(s *fixedWindowState) instant { return s.last }
func (c *fixedWindowConfig) Charged(s *fixedWindowState) instant { return s.last }

// Begin sets the begin of the window of the state s, if windows begin with the first use.
func (c *fixedWindowConfig) Begin(s *fixedWindowState, at instant) {
	if c.FromFirst() && s.used > 0 {
		s.last = at
	}
}

// GiveBack subtracts the returned units from the count if the window in which they were granted has not ended. A window
// that begins with the first use keeps its begin if something is left in it.
func (c *fixedWindowConfig) GiveBack(s *fixedWindowState, back engine.Returned) {
	if c.SameWindow(back.At, s.last) {
		s.used = max(s.used-back.N, 0)
	}
}

// Exceed charges n units at the instant now, even past the limit.
func (c *fixedWindowConfig) Exceed(s *fixedWindowState, now instant, n int64) {
	now = max(now, s.last)
	used, _ := c.Current(now, s.last, s.used)
	c.count(s, now, used, exact.Beyond(used, n, max(c.Requests, exact.MaxUsed))-used)
}

// Pack writes the state s to f, or reads it from f.
func (c *fixedWindowConfig) Pack(s *fixedWindowState, f *packed.Form) {
	packed.Counts(f, &s.last, &s.used)
}

// Idle reports whether the key has used nothing in the window that contains the instant now.
func (c *fixedWindowConfig) Idle(s *fixedWindowState, now instant) bool {
	if now < s.last {
		return false
	}
	used, _ := c.Current(now, s.last, s.used)
	return used == 0
}
