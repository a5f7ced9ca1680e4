package ratelimit

import (
	"slices"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// RuleStats are the totals of one rule since it was made. [RateLimiter.Stats] returns them. If a change of the rule
// keeps what its keys have used, the totals are kept too. [Counters] describes the totals that only grow.
type RuleStats struct {
	Rule string // the rule's name

	// A request that this rule grants but another rule denies is counted in none of these four fields. A call of
	// [RateLimiter.Wait] counts once, when it is granted or refused.
	Allowed      uint64 // requests that the rule granted, an [Unlimited] rate and [FailOpen] included
	Denied       uint64 // requests that the rule denied, [FailClosed] included
	ShadowDenied uint64 // requests that the rule would have denied, in [ModeShadow]
	Advised      uint64 // requests that the rule would have denied, in [ModeAdvise]

	Degraded uint64 // requests in the four counts above that the rule's [FailurePolicy] answered
	Errors   uint64 // failed calls of the [Store], or of a custom [Limiter], for the rule

	// GivenBack is how many units were given back when a [Reservation] was settled or canceled. With a [Store], it
	// counts the units that the Store was told to give back, even if the term was over.
	GivenBack uint64

	// Replayed counts the requests that got the answer of an earlier grant by their [Request.ID]. No count above has them.
	Replayed uint64

	// NotAsked counts the requests without this rule's [Rule.Unit], to which it did not apply. No other count includes them.
	NotAsked uint64

	// Unheld counts the requests that a rule with [AlgorithmInFlight] did not limit, because they did not come by
	// [RateLimiter.Reserve] or [RateLimiter.ReserveWait]. They are included in no other count.
	Unheld uint64

	// UnknownTier counts the requests in the first four counts whose [Request.Tier] is not among the rule's Tiers, so that
	// the rule used its own Rate. A rule without Tiers counts none.
	UnknownTier uint64

	// Penalized counts the blocks of keys that the rule's [Penalty] has begun; with a [Store], those that this process has
	// been told of.
	Penalized uint64

	LiveKeys   int    // number of keys that have state in this process now
	Evicted    uint64 // keys that were forgotten because their state was as if they had never been used
	Overflowed uint64 // requests charged to the budget that new keys share while the table is full, see [WithMaxKeys]
}

// A Counter describes one number of [RuleStats] that only grows, for exporters of metrics; see [Counters].
type Counter struct {
	Field  string // the name of the field in RuleStats, such as "Allowed"
	Name   string // name for a metric in snake case, without a prefix; four counters are named "requests" and differ in Result
	Result string // "allowed", "denied", "shadow_denied" or "advised" if Name is "requests"; otherwise empty
	Unit   string // what is counted: "request", "error", "unit" or "key"
	Help   string // what is counted, as a sentence

	of func(s *RuleStats) *uint64
}

// Value returns the number in the RuleStats s that the Counter c describes.
func (c Counter) Value(s *RuleStats) uint64 { return *c.of(s) }

// Counters describes all numbers of [RuleStats] that only grow, in the order of the fields.
func Counters() []Counter { return slices.Clone(counters[:]) }

// The indices of the counters in totals and in the table counters. The last rows of the table, Evicted and Overflowed,
// have no name here: the keys of a rule count them.
const (
	numAllowed = iota
	numDenied
	numShadowDenied
	numAdvised
	numDegraded
	numErrors
	numGivenBack
	numReplayed
	numNotAsked
	numUnheld
	numUnknownTier
	numPenalized
	numTotals
)

// counters has one row for each counter. A new counter also needs a field of RuleStats and a call of totals.add.
var counters = [...]Counter{
	numAllowed: {"Allowed", "requests", "allowed", "request",
		"Requests that the rule granted, also without a charge: by a tier without a limit, or by the policy FailOpen.",
		func(s *RuleStats) *uint64 { return &s.Allowed }},
	numDenied: {"Denied", "requests", "denied", "request",
		"Requests that the rule denied, also by the policy FailClosed; not those that only other rules denied.",
		func(s *RuleStats) *uint64 { return &s.Denied }},
	numShadowDenied: {"ShadowDenied", "requests", "shadow_denied", "request", "Requests that the rule, in shadow mode, would have denied.",
		func(s *RuleStats) *uint64 { return &s.ShadowDenied }},
	numAdvised: {"Advised", "requests", "advised", "request", "Requests that the rule, in advise mode, would have denied.",
		func(s *RuleStats) *uint64 { return &s.Advised }},
	numDegraded: {"Degraded", "degraded_requests", "", "request", "Of the requests, those that the rule's failure policy has answered.",
		func(s *RuleStats) *uint64 { return &s.Degraded }},
	numErrors: {"Errors", "store_errors", "", "error", "Calls of the store, or of a custom limiter, for the rule that failed.",
		func(s *RuleStats) *uint64 { return &s.Errors }},
	numGivenBack: {"GivenBack", "given_back_units", "", "unit",
		"Units of the rule that reservations gave back when they were settled or canceled.",
		func(s *RuleStats) *uint64 { return &s.GivenBack }},
	numReplayed: {"Replayed", "replayed_requests", "", "request",
		"Requests that got the answer of an earlier grant by their ID, and are in no other count.",
		func(s *RuleStats) *uint64 { return &s.Replayed }},
	numNotAsked: {"NotAsked", "not_asked_requests", "", "request",
		"Requests to which the rule did not apply because they do not have its unit.",
		func(s *RuleStats) *uint64 { return &s.NotAsked }},
	numUnheld: {"Unheld", "unheld_requests", "", "request",
		"Requests that a rule with the algorithm InFlight did not limit because they were not reserved.",
		func(s *RuleStats) *uint64 { return &s.Unheld }},
	numUnknownTier: {"UnknownTier", "unknown_tier_requests", "", "request",
		"Of the requests, those with a tier that the rule does not list among its tiers, so that it used its own rate.",
		func(s *RuleStats) *uint64 { return &s.UnknownTier }},
	numPenalized: {"Penalized", "penalized_keys", "", "key", "Blocks of keys that the rule's penalty has begun.",
		func(s *RuleStats) *uint64 { return &s.Penalized }},
	{"Evicted", "evicted_keys", "", "key", "Keys that were forgotten because they were as if never used.",
		func(s *RuleStats) *uint64 { return &s.Evicted }},
	{"Overflowed", "overflowed_requests", "", "request",
		"Of the requests, those charged to the budget that keys share beyond the bound on their number.",
		func(s *RuleStats) *uint64 { return &s.Overflowed }},
}

// totals are the counts of a rule that its keys do not keep: decisions by a store, a failure policy or a custom
// limiter, errors, units given back, and replays (answers of an earlier grant).
type totals [numTotals]atomic.Uint64

// add adds n to the counter with this index, such as numErrors.
func (t *totals) add(counter int, n uint64) { t[counter].Add(n) }

// countDecision counts a decision that no key in this process has counted, by a rule in this mode.
func (t *totals) countDecision(mode Mode, granted bool) {
	switch {
	case granted:
		t.add(numAllowed, 1)
	case mode == ModeShadow:
		t.add(numShadowDenied, 1)
	case mode == ModeAdvise:
		t.add(numAdvised, 1)
	default:
		t.add(numDenied, 1)
	}
}

// replacedKeys adds the counts of the keys for FailLocal that a change of the rule has replaced by new keys.
func (t *totals) replacedKeys(c keytable.Counts) {
	t.add(numAllowed, c.Allowed)
	t.add(numDenied, c.Denied)
	t.add(numShadowDenied, c.Shadowed)
	t.add(numAdvised, c.Advised)
	t.add(numDegraded, c.Allowed+c.Denied+c.Shadowed+c.Advised)
}

// StoreStats are the totals of a [Store]. [RateLimiter.StoreStats] returns them. A [StorePartitioner] has several
// parts; any other Store is one part. Each part has a circuit breaker, which opens after several failed calls in a
// row. An open breaker lets only one call through from time to time, to find out whether the part answers again.
type StoreStats struct {
	Parts     int    // number of parts that have been called
	Open      int    // number of parts whose breaker is open now
	Opened    uint64 // how often the breakers of all parts have opened
	LastError error  // the error of the call that last opened a breaker, or nil; it matches [ErrStore]
}
