package ratelimit

import "time"

// An Observer is told of every decision, by [WithObserver].
//
// It is called by the goroutine that asked, when nothing is locked any more. It
// may call the limiter. A panic in it is dropped and harms nothing.
type Observer interface {
	// Observe is told of d.
	Observe(d Decision)
}

// A Source is what made a decision.
type Source string

// The sources of decisions.
const (
	SourceMemory  Source = "memory"  // state in this process
	SourceStore   Source = "store"   // a [Store]
	SourcePolicy  Source = "policy"  // a [FailurePolicy], as the store could not
	SourceLimiter Source = "limiter" // a custom [Limiter], if it decided alone
	SourceNone    Source = "none"    // no rule: the request passes
)

// A Decision is what an [Observer] is told. Looks are not decisions.
//
// A request is one Decision, in the name of the binding rule. Each shadow rule
// that took part is one more, with what it would have answered. A request that
// only shadow rules saw is those alone.
type Decision struct {
	Rule    string  // the rule's name; empty if none applied
	KeyType KeyType // the rule's
	Mode    Mode    // the rule's

	// Cost is how many units were asked for.
	Cost int

	// Result is what the caller was told; of a shadow rule, what it would
	// have been.
	Result Result

	// Source says what decided.
	Source Source

	// Err is why the store could not be asked, or why a resolved rate was
	// not used, or nil.
	Err error

	// Took is how long the decision took, on the machine's clock.
	Took time.Duration

	// Request is what was asked. It is the zero Request, but for
	// [WithObservedRequests]: keys are often personal data.
	Request Request
}

// observe tells o of d.
func observe(o Observer, d Decision) {
	defer func() { _ = recover() }() // an observer must not change what is decided
	o.Observe(d)
}
