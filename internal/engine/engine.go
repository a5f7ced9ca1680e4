// Package engine decides on requests for keys. An algorithm computes with the state of one key. The
// engine finds this state in a table, reads the clock, and calls the algorithm.
//
// A [Limiter] decides for the keys of one limiter, which all have the same rate. [Keys] decide for the
// keys of one rule, which may have several rates. [DecideAll] decides on one request by several rules
// at once: it charges all of them or none. While keys are locked, the engine calls no code of the user
// except Clock.Now.
package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Never is the RetryAfter of a request that will be denied however long the caller waits.
const Never time.Duration = 1<<63 - 1

// An Algorithm is an algorithm with a configuration for one rate. S is the type of a key's state. C is
// the type that implements Algorithm, which is a pointer to the configuration. A configuration never
// changes.
type Algorithm[S, C any] interface {
	// Step decides on n units, at least 1, for the key with state s. It changes s only if it grants the
	// units and the parameter charge is true. The result delay is how long the caller should delay a
	// granted request.
	//
	// If the instant now is before the last charge of the key, Step decides at the instant of that charge.
	// The durations in v still count from now, see [StepAhead].
	//
	// The debt of s (the granted units that still count) drains at the rate of the configuration in the
	// parameter pace. Usually, this is the configuration on which Step is called. It is a slower configuration
	// if keys of several rates share the debt, or if the key is to change from a slower rate to this one.
	Step(s *S, pace C, now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration)

	// Carry is the first step of a change of the rate, and Resize is the second. Carry converts the
	// state s from the rate of the old configuration (from) to the rate of this configuration. Until
	// the instant now, the debt drains at the old rate, and afterwards at the new rate. Carry does not
	// change what the key owes at the instant now.
	Carry(s *S, from C, now keytable.Instant)

	// Resize converts the state s, after Carry, from the limit of the old configuration (from) to the
	// limit of this configuration. If the algorithm counts in windows or in a log, the key keeps what it
	// has used: the units that the key has left grow by as much as the limit. With any other algorithm, a
	// used key has no more units left than before, and an unused key stays unused.
	//
	// The parameter ahead is true if the caller converts s in order to decide on a request by it: s is a
	// copy of the state of the key, or the caller undoes the conversion if the request is denied. The
	// result lost is true if the change has dropped a part of what the key has used.
	Resize(s *S, from C, ahead bool) (lost bool)

	// Fills reports whether a change from the old configuration (from) to this configuration may make a
	// used key seem unused. The change consists of Carry and Resize.
	Fills(from C) bool

	// Slower reports whether a debt drains more slowly under this configuration than under the given
	// one.
	Slower(than C) bool

	// Charged returns the instant of the last charge of s. One exception: if windows begin with the first
	// charge of a key, Charged returns the begin of the window in which the last charge was made.
	Charged(s *S) keytable.Instant

	// GiveBack subtracts units that were charged earlier from the state s. Units that do not count any
	// more, for example because their window is over, are not subtracted.
	GiveBack(s *S, back Returned)

	// Exceed charges n units at the instant now, whatever the limit, because the units were used
	// already. If now is before the last charge of s, the units are charged at the instant of that
	// charge.
	Exceed(s *S, now keytable.Instant, n int64)

	// Reached returns the earliest instant at which a decision on the state s is possible. If the clock
	// shows an earlier instant, Step decides as if it showed the instant that Reached returns.
	Reached(s *S) keytable.Instant

	// Clone returns a copy of s that shares no memory with it.
	Clone(s *S) S

	// The table of states calls the methods of [keytable.Algorithm].
	keytable.Algorithm[S]
}

// A Verdict is the answer of Step to a request for units.
type Verdict struct {
	Limit      int64         // the largest number of units that can ever be granted at once
	Left       int64         // how many units would be granted if they were asked for right after this decision
	RetryAfter time.Duration // the wait until the units would be granted; 0 if they are granted now
	ResetAfter time.Duration // the wait until the key is unused again, if no request comes
}

// StepAhead does what Step does, for a key whose last charge is after the instant now, because the
// limiter's clock has stepped back. The parameter last is the instant of that charge. StepAhead decides
// as if the clock showed the instant of that charge. It adds the time from the instant now until that
// charge to the durations in v.
func StepAhead[S any, C Algorithm[S, C]](
	alg C, s *S, pace C, last, now keytable.Instant, n int64, charge bool,
) (v Verdict, delay time.Duration) {
	v, delay = alg.Step(s, pace, last, n, charge)
	v.await(last, now)
	return v, delay
}

// await converts the durations in the verdict v. Before the call, they count from the instant in the
// parameter seen. After the call, they count from the instant in the parameter now, which is not later
// than seen. A RetryAfter of 0 stays 0, because the request is granted. A ResetAfter of 0 stays 0,
// because the key is unused.
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
