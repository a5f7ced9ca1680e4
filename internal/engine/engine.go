// Package engine decides for keys: it joins an algorithm, which is arithmetic on the state of
// one key, with the table of states and the clock.
//
// A [Limiter] decides for the keys of one limiter, which all have the same rate. [Keys] are
// those of one rule, which may have several rates. [Settle] decides by several rules at once:
// it charges all of them or none. While keys are locked, no code of the user's is called
// except Clock.Now.
package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Never is the RetryAfter of a request that is denied after any wait.
const Never time.Duration = 1<<63 - 1

// An Algorithm is the configuration of an algorithm for one rate. It decides by states of type
// S. C is the configuration's own type, a pointer. A configuration never changes.
type Algorithm[S, C any] interface {
	// Step decides on n units, at least 1, for the key with state s. It changes s
	// only if it grants them and charge is set. A now before the last charge counts
	// as the time of that charge, and v includes the time until then, see
	// [StepAhead]. The debt of s drains at the rate of pace: that is
	// this configuration itself, except for a debt that keys of several rates
	// share. delay is how long the caller should hold a granted request.
	Step(s *S, pace C, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration)

	// Carry brings s to the rate of this configuration: until now s drained at the
	// rate of from, and from now on it drains at this one. Its debt stays the same.
	// It is the first step of a change of the rate; Resize is the second.
	Carry(s *S, from C, now keytable.Instant)

	// Resize brings s, after Carry, from the limit of from to that of this
	// configuration. The key keeps what it has used: it can have more left than
	// before only by as much as the limit of a window or log is higher.
	Resize(s *S, from C)

	// Fills reports whether Carry and Resize, from a state of from, may make a key as
	// good as new that is not.
	Fills(from C) bool

	// Slower reports whether a debt drains more slowly under this configuration
	// than under the configuration than.
	Slower(than C) bool

	// Charged returns the instant at which s was charged last.
	Charged(s *S) keytable.Instant

	// GiveBack takes units that were charged off s, as far as they still count.
	GiveBack(s *S, back Returned)

	// Exceed charges n units at now, whatever the limit: they were used already. A now
	// before the last charge counts as the time of that charge.
	Exceed(s *S, now keytable.Instant, n int64)

	// Reached returns the instant that the clock of s stands at: a reading before it
	// counts as that.
	Reached(s *S) keytable.Instant

	// Clone returns a copy of s that shares no memory with it.
	Clone(s *S) S

	// The methods that the table of states calls.
	keytable.Algorithm[S]
}

// A Verdict is the answer of a step.
type Verdict struct {
	Limit      int64         // the largest number of units that could be granted at once
	Left       int64         // units that would be granted now, after this decision
	RetryAfter time.Duration // 0 if the units are granted
	ResetAfter time.Duration // how long until the key is as if it had never been used
}

// StepAhead is Step for a key whose clock stands at last, which is after now: the limiter's clock
// has stepped back. Until that has reached last again, time stands still for the key.
func StepAhead[S any, C Algorithm[S, C]](alg C, s *S, pace C, last, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration) {
	v, delay = alg.Step(s, pace, last, n, charge)
	v.await(last, now)
	return v, delay
}

// await adds the time from now to seen, at which v was decided, to the times that v gives. A
// ResetAfter of 0 stays: the key is as new already.
func (v *Verdict) await(seen, now keytable.Instant) {
	ahead := min(seen.Since(now), uint64(Never))
	if v.RetryAfter > 0 {
		v.RetryAfter = time.Duration(min(uint64(v.RetryAfter)+ahead, uint64(Never)))
	}
	if v.ResetAfter > 0 {
		v.ResetAfter = time.Duration(min(uint64(v.ResetAfter)+ahead, uint64(Never)))
	}
}

// Granted reports whether the units are granted.
func (v *Verdict) Granted() bool { return v.RetryAfter == 0 }
