package ratelimit

import (
	"maps"
)

// An Algorithm names how a rule counts. The empty Algorithm is
// [AlgorithmTokenBucket].
type Algorithm string

// The algorithms of this package. A [Factory] may know more.
const (
	AlgorithmTokenBucket          Algorithm = "TokenBucket"          // see [TokenBucket]
	AlgorithmFixedWindow          Algorithm = "FixedWindow"          // see [FixedWindow]
	AlgorithmSlidingWindowLog     Algorithm = "SlidingWindowLog"     // see [SlidingWindowLog]
	AlgorithmSlidingWindowCounter Algorithm = "SlidingWindowCounter" // see [SlidingWindowCounter]
	AlgorithmLeakyBucket          Algorithm = "LeakyBucket"          // see [LeakyBucket]
)

// A KeyType says whose budget a request takes from. The empty KeyType is
// [KeyUser].
type KeyType string

// What a rule keeps a budget for.
const (
	KeyUser         KeyType = "user"          // each Client
	KeyEndpoint     KeyType = "endpoint"      // each Endpoint, as the request names it
	KeyUserEndpoint KeyType = "user_endpoint" // each pair of Client and Endpoint
	KeyIP           KeyType = "ip"            // each IP
	KeyGlobal       KeyType = "global"        // one budget for all
)

// A Mode says what a rule's denials do. The empty Mode is [ModeEnforce].
type Mode string

// What a rule does.
const (
	ModeEnforce Mode = "enforce" // denies what does not fit
	ModeShadow  Mode = "shadow"  // decides, counts and is observed, and denies nothing
)

// A Rule says which requests are limited, by what, and to what.
//
// A rule with an Endpoint applies to the requests for it; one with a Name alone
// applies where [Request.Rules] names it. A Rule is data: once handed over it is
// copied, and changes to it have no effect.
type Rule struct {
	// Name identifies the rule in results, statistics and changes. Empty
	// means the Endpoint, and for the default rule "default". It occurs once.
	Name string

	// Endpoint is what [Request.Endpoint] must be, or, with a final "*", begin
	// with. Rules may share one if they have names; then all apply. The default
	// rule has none.
	Endpoint string

	// Key says whose budget a request takes from.
	Key KeyType

	// Algorithm is how the rule counts.
	Algorithm Algorithm

	// Rate is what it grants.
	Rate Rate

	// Tiers are the rates of plans, by [Request.Tier]; a tier that is not
	// among them has Rate. A client whose tier changes keeps what it has used.
	// The rates of a window algorithm must have Rate's Per.
	Tiers map[string]Rate

	// Resolve is the same in code: it gives a request a rate, or reports false
	// to keep that of Tiers and Rate. It is called before anything is locked,
	// once for each decision and by several goroutines at a time. An invalid
	// rate means Rate, with an error that matches [ErrInvalidConfig].
	Resolve func(Request) (Rate, bool)

	// Limiter decides in place of Algorithm and Rate. A decision may ask one
	// such Limiter, and does so last; see [RateLimiter.Check].
	Limiter Limiter

	// Mode says whether the rule denies.
	Mode Mode

	// OnStoreError answers for the rule while its store can not. The zero
	// value means the limiter's, see [WithFailurePolicy].
	OnStoreError FailurePolicy

	custom *customLimiter // what made Limiter, if that was a Factory
}

// A customLimiter is what a Factory made a Limiter of, so that a reload can tell
// whether it would make the same one.
type customLimiter struct {
	algoConfig map[string]any
	limiter    Limiter
}

// defaultName is the name of a default rule that has none.
const defaultName = "default"

// completed returns r with its defaults filled in and with maps of its own.
func (r Rule) completed(isDefault bool) Rule {
	switch {
	case r.Name != "":
	case isDefault:
		r.Name = defaultName
	default:
		r.Name = r.Endpoint
	}
	if r.Key == "" {
		r.Key = KeyUser
	}
	if r.Mode == "" {
		r.Mode = ModeEnforce
	}
	if r.Algorithm == "" && r.Limiter == nil {
		r.Algorithm = AlgorithmTokenBucket
	}
	r.Tiers = maps.Clone(r.Tiers)
	return r
}
