// Package engine decides for keys: it joins an algorithm, which is pure arithmetic on
// one small state, with the table of states and the clock.
//
// A [Limiter] decides for the keys of one limiter, all at one rate. [Keys] are those of
// one rule, which may have several rates. [Settle] decides by several rules at once: it
// charges all of them or none. Nothing of the user's is called while keys are locked,
// except Clock.Now.
package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Never is the wait of a request that no wait is long enough for.
const Never time.Duration = 1<<63 - 1

// An Algorithm is a configuration that decides on states S. C is the configuration's
// own type, a pointer. A configuration does not change once it is made.
type Algorithm[S, C any] interface {
	// Step takes n units, at least 1, for the key with state s, or says why not. It
	// changes s only if it grants them and charge is set. A now before the last
	// charge counts as the time of that charge. What s owes drains at the pace of
	// pace: that is this configuration itself, except for a debt that keys of
	// several rates share. delay is how long to hold a request that is granted.
	Step(s *S, pace C, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration)

	// Carry makes s, which drained at the pace of from until now, a state that
	// drains at the pace of this configuration. What is owed stays owed.
	Carry(s *S, from C, now keytable.Instant)

	// Resize makes s, a state of the limit of from and the pace of this
	// configuration, one of its limit too. The key keeps what it has used: it may
	// have more than before only because a higher limit leaves more beside that.
	Resize(s *S, from C)

	// Slower reports whether a debt drains slower than under the configuration
	// than.
	Slower(than C) bool

	// Charged returns the instant at which s was charged last.
	Charged(s *S) keytable.Instant

	// GiveBack takes back a charge of n units that was made at then, as far as they
	// have not drained.
	GiveBack(s *S, then keytable.Instant, n int64)

	// Algorithm is what the table of states asks.
	keytable.Algorithm[S]
}

// A Verdict is what a step finds.
type Verdict struct {
	Limit      int64         // units that could ever be granted at once
	Left       int64         // units that would be granted now, after this decision
	RetryAfter time.Duration // 0 if granted
	ResetAfter time.Duration // until the key is as good as new
}

// Granted reports whether the units were there.
func (v *Verdict) Granted() bool { return v.RetryAfter == 0 }
