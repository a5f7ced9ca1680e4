package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// Cooldown is the sixth algorithm of CONTRIBUTING.md: it grants one unit, and the
// next one no sooner than Per/Requests later. It stands here to show that this
// one file is all that an algorithm takes.
//
// Bound: in any closed interval of length T, a key is granted at most
// 1 + T·Requests/Per units.
type Cooldown struct{ cooldownKeys }

// NewCooldown returns a Cooldown that grants r, which has no burst.
func NewCooldown(r Rate, opts ...Option) (*Cooldown, error) {
	l := new(Cooldown)
	if err := l.init("Cooldown", r, opts, newCooldownConfig); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for key if it has cooled down.
func (l *Cooldown) Allow(key string) (res Result) {
	l.decide(key, 1, true, &res)
	return
}

// cooldownKeys has the methods that all algorithms share.
type cooldownKeys struct {
	keyed[cooldownState, *cooldownConfig]
}

// cooldownConfig decides for all keys of one rate.
type cooldownConfig struct{ gap time.Duration }

func newCooldownConfig(r Rate, _ time.Time) (*cooldownConfig, error) {
	if err := r.withoutBurst("cooldown"); err != nil {
		return nil, err
	}
	requests := time.Duration(r.Requests)
	return &cooldownConfig{gap: (r.Per-1)/requests + 1}, nil // rounded up, against the client
}

// cooldownState is the state of one key. The zero state is cool.
type cooldownState struct {
	last instant // of the last unit granted; never decreases
	cool instant // when the next one is granted
}

func (c *cooldownConfig) Step(s *cooldownState, _ *cooldownConfig, now instant, n int64, charge bool) (v engine.Verdict, delay time.Duration) {
	now = max(now, s.last)
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

// Carry leaves s as it is: a key that waits to cool down does so at the old rate.
func (c *cooldownConfig) Carry(*cooldownState, *cooldownConfig, instant) {}

// Resize leaves s as it is: the limit is 1 at any rate.
func (c *cooldownConfig) Resize(*cooldownState, *cooldownConfig) {}

// Slower reports whether it takes longer to cool down than under than.
func (c *cooldownConfig) Slower(than *cooldownConfig) bool { return c.gap > than.gap }

// Charged returns the instant of the last charge.
func (c *cooldownConfig) Charged(s *cooldownState) instant { return s.last }

// GiveBack cools the key down, unless a later charge has heated it again.
func (c *cooldownConfig) GiveBack(s *cooldownState, then instant, _ int64) {
	if s.last == then {
		s.cool = then
	}
}

// Idle reports whether s has cooled down.
func (c *cooldownConfig) Idle(s *cooldownState, now instant) bool { return now >= max(s.last, s.cool) }

// Inherit returns s: all the keys that share it wait equally long.
func (c *cooldownConfig) Inherit(s *cooldownState, _ instant) cooldownState { return *s }
