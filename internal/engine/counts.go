package engine

import "github.com/ratelimit-go/ratelimit/internal/keytable"

// Counts has the methods of [Algorithm] that are the same for all algorithms that count granted units,
// such as those with windows. The configurations of these algorithms embed Counts. The state of a key
// in these algorithms consists of numbers of granted units, which mean the same under any limit.
type Counts[S, C any] struct{}

// A beginner is an [Algorithm] that can be configured for windows that begin with the first charge of each key.
type beginner[S any] interface {
	// Begin records in the state s that the window of the last charge began at the given instant. It does nothing if the
	// configuration has other windows, which do not begin with the first charge of a key.
	Begin(s *S, at keytable.Instant)
}

// Clone returns a copy of s, which is a struct without pointers. The algorithm that keeps a log of instants has a method
// Clone of its own.
func (Counts[S, C]) Clone(s *S) S { return *s }

// Inherit is called for a key that shared the state s with other keys until now. It returns the key's own state: a
// copy of s. The algorithm that keeps a log of instants has a method Inherit of its own.
func (Counts[S, C]) Inherit(s *S, _ keytable.Instant) S { return *s }

// Resize leaves the state of a key as it is, because a count means the same under any limit.
func (Counts[S, C]) Resize(*S, C, bool) bool { return false }

// Fills reports whether a change of the limit may make a used key seem unused. It returns false,
// because the change leaves the counts of granted units as they are.
func (Counts[S, C]) Fills(C) bool { return false }

// Slower reports whether granted units stop counting later than at another rate. It returns false: with
// windows of the same length, granted units stop counting at the same instants, whatever the rate.
func (Counts[S, C]) Slower(C) bool { return false }
