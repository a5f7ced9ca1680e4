package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Cooldown is a [Limiter] that grants one unit to a key, and the next one no sooner than
// Per/Requests later. This package has five algorithms. This sixth one is an example for
// CONTRIBUTING.md: it shows that an algorithm is one file. Copy it to write another one.
//
// Bound: in any closed interval of length T, a key is granted at most
// 1 + T·Requests/Per units.
//
// Memory: 32 bytes per key, and up to four fifths as much again for the table around it.
//
// There are no boundaries: the time that a key has to wait runs from the last unit that it
// was granted.
//
// Choose a Cooldown for an action that may be repeated only after a pause, such as sending a
// code again. Choose a [TokenBucket] if a key may also have several units at once.
//
// The zero Cooldown denies everything.
type Cooldown struct{ cooldownKeys }

// NewCooldown returns a Cooldown that grants the rate r, which must have no Burst. An error
// matches [ErrInvalidConfig].
func NewCooldown(r Rate, opts ...Option) (*Cooldown, error) {
	l := new(Cooldown)
	if err := l.init("Cooldown", r, opts, newCooldownConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if the last one was granted long enough ago. A denial changes
// nothing.
func (l *Cooldown) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// cooldownKeys has the methods that all limiters share.
type cooldownKeys struct {
	keyed[cooldownState, *cooldownConfig]
}

// cooldownConfig decides for all keys that have the same rate.
type cooldownConfig struct{ gap time.Duration } // the shortest time between two units

func newCooldownConfig(r Rate, _ *engine.Timeline) (*cooldownConfig, error) {
	if err := r.faults(ruleconfig.CountFaults("cooldown")); err != nil {
		return nil, err
	}
	requests := time.Duration(r.Requests)
	return &cooldownConfig{gap: (r.Per-1)/requests + 1}, nil // rounded up, against the client
}

// cooldownState is the state of one key. A key with the zero state gets a unit at once.
type cooldownState struct {
	last instant // when the last unit was granted; never decreases
	cool instant // the first instant at which the next unit is granted
}

// Step decides on n units at now, and takes them if there are so many and charge is set.
func (c *cooldownConfig) Step(
	s *cooldownState, _ *cooldownConfig, now instant, n int64, charge bool,
) (v engine.Verdict, delay time.Duration) {
	if now < s.last {
		return engine.StepAhead(c, s, c, s.last, now, n, charge)
	}
	v.Limit = 1
	switch {
	case n > 1:
		v.RetryAfter = Never
	case now < s.cool:
		v.RetryAfter = time.Duration(s.cool.Since(now))
	case charge:
		*s = cooldownState{now, now.Add(c.gap)}
	}
	if now < s.cool {
		v.ResetAfter = time.Duration(s.cool.Since(now))
	} else {
		v.Left = 1
	}
	return v, 0
}

// Carry leaves s as it is: a key that waits goes on waiting for as long as the old rate said.
func (c *cooldownConfig) Carry(*cooldownState, *cooldownConfig, instant) {}

// Resize leaves s as it is: at any rate, the limit is 1.
func (c *cooldownConfig) Resize(*cooldownState, *cooldownConfig, bool) bool { return false }

// Slower reports whether a key waits longer under c than under than.
func (c *cooldownConfig) Slower(than *cooldownConfig) bool { return c.gap > than.gap }

// Reached returns the instant up to which s is worked out.
func (c *cooldownConfig) Reached(s *cooldownState) instant { return s.last }

// Clone returns a copy of s.
func (c *cooldownConfig) Clone(s *cooldownState) cooldownState { return *s }

// Fills reports false.
func (c *cooldownConfig) Fills(*cooldownConfig) bool { return false }

// Charged returns the instant at which s was charged last.
func (c *cooldownConfig) Charged(s *cooldownState) instant { return s.last }

// GiveBack takes back the charge at then: the next unit is granted at once. If the key was
// charged again since, s stays as it is.
func (c *cooldownConfig) GiveBack(s *cooldownState, back engine.Returned) {
	if s.last == back.At {
		s.cool = back.At
	}
}

// Exceed makes the next unit wait for n units more.
func (c *cooldownConfig) Exceed(s *cooldownState, now instant, n int64) {
	now = max(now, s.last)
	*s = cooldownState{now, max(now, s.cool).Add(c.gap * time.Duration(min(n, 1<<20)))}
}

// Idle reports whether the next unit is granted at now.
func (c *cooldownConfig) Idle(s *cooldownState, now instant) bool { return now >= max(s.last, s.cool) }

// Inherit returns s: a key that leaves the shared state waits as long as the other keys.
func (c *cooldownConfig) Inherit(s *cooldownState, _ instant) cooldownState { return *s }
