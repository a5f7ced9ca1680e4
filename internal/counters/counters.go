// Package counters counts what the rules of a limiter decide, and describes each counter for exporters of metrics.
package counters

import (
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// The indices of the counters in Table, Totals and Sums.
const (
	Allowed = iota
	Denied
	ShadowDenied
	Advised
	Degraded
	Errors
	GivenBack
	Replayed
	NotAsked
	Unheld
	UnknownTier
	Penalized
	numTotals
)

// The indices of the further counters in Table and Sums. Totals does not have these counters, because the tables of
// keys count them, see Sums.AddKeys.
const (
	Evicted = numTotals + iota
	Overflowed
	numAll
)

// A Row describes a counter. It has the same fields as the type Counter of the root package.
type Row struct {
	Field  string // the name of the field in RuleStats
	Name   string // name for a metric, without a prefix
	Result string // what was decided, such as "denied", if Name is "requests"; otherwise empty
	Unit   string // what is counted, in a word, such as "request" or "key"
	Help   string // what is counted, as a sentence for people
}

// Table has a row for each counter. A new counter also needs a field in the struct RuleStats of the root package,
// in the same order, and a call of Totals.Add.
var Table = [numAll]Row{
	Allowed: {"Allowed", "requests", "allowed", "request",
		"Requests that the rule granted, also without a charge: by a tier without a limit, or by the policy FailOpen."},
	Denied: {"Denied", "requests", "denied", "request",
		"Requests that the rule denied, also by the policy FailClosed; not those that only other rules denied."},
	ShadowDenied: {"ShadowDenied", "requests", "shadow_denied", "request", "Requests that the rule, in shadow mode, would have denied."},
	Advised:      {"Advised", "requests", "advised", "request", "Requests that the rule, in advise mode, would have denied."},
	Degraded:     {"Degraded", "degraded_requests", "", "request", "Of the requests, those that the rule's failure policy has answered."},
	Errors:       {"Errors", "store_errors", "", "error", "Calls of the store, or of a custom limiter, for the rule that failed."},
	GivenBack: {"GivenBack", "given_back_units", "", "unit",
		"Units of the rule that reservations gave back when they were settled or canceled."},
	Replayed: {"Replayed", "replayed_requests", "", "request",
		"Requests that got the answer of an earlier grant by their ID, and are in no other count."},
	NotAsked: {"NotAsked", "not_asked_requests", "", "request",
		"Requests to which the rule did not apply because they do not have its unit."},
	Unheld: {"Unheld", "unheld_requests", "", "request",
		"Requests that a rule with the algorithm InFlight did not limit because they were not reserved."},
	UnknownTier: {"UnknownTier", "unknown_tier_requests", "", "request",
		"Of the requests, those with a tier that the rule does not list among its tiers, so that it used its own rate."},
	Penalized: {"Penalized", "penalized_keys", "", "key", "Blocks of keys that the rule's penalty has begun."},
	Evicted:   {"Evicted", "evicted_keys", "", "key", "Keys that were forgotten because they were as if never used."},
	Overflowed: {"Overflowed", "overflowed_requests", "", "request",
		"Of the requests, those charged to the budget that keys share beyond the bound on their number."},
}

// Totals are the counts of a rule that its table of keys does not keep: decisions by a store, a failure policy or a
// custom limiter, errors, units given back, and replays (answers of an earlier grant). Totals are safe for concurrent
// use by multiple goroutines.
type Totals [numTotals]atomic.Uint64

// Add adds n to the counter with this index, such as Errors.
func (t *Totals) Add(counter int, n uint64) { t[counter].Add(n) }

// Decided counts one decision of a rule. The parameter shadow is true for a rule that only observes, so that its
// denials stop no request. The parameter advises is true if the rule only observes, but its denials are told to the
// caller.
func (t *Totals) Decided(granted, shadow, advises bool) {
	switch {
	case granted:
		t.Add(Allowed, 1)
	case advises:
		t.Add(Advised, 1)
	case shadow:
		t.Add(ShadowDenied, 1)
	default:
		t.Add(Denied, 1)
	}
}

// Keep adds the counts c of a table of keys that has decided while the store failed. It is called when that table is
// given up, so that its counts are not lost.
func (t *Totals) Keep(c keytable.Counts) {
	var s Sums
	s.AddKeys(c, true)
	for i := range t {
		t.Add(i, s[i])
	}
}

// Sums returns the present counts in t.
func (t *Totals) Sums() (s Sums) {
	for i := range t {
		s[i] = t[i].Load()
	}
	return s
}

// Sums are the values of all counters of a rule, in the order of Table.
type Sums [numAll]uint64

// AddKeys adds the counts c of a table of keys. The parameter degraded is true if this table decides only while
// the store fails.
func (s *Sums) AddKeys(c keytable.Counts, degraded bool) {
	s[Allowed] += c.Allowed
	s[Denied] += c.Denied
	s[ShadowDenied] += c.Shadowed
	s[Advised] += c.Advised
	if degraded {
		s[Degraded] += c.Allowed + c.Denied + c.Shadowed + c.Advised
	}
	s[Evicted] += c.Evicted
	s[Overflowed] += c.Overflowed
}
