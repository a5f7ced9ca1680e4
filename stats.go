package ratelimit

import (
	"reflect"
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/counters"
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

	// Replayed counts the requests that got the answer of an earlier grant by their [Request.ID]. No count above includes them.
	Replayed uint64
	// NotAsked counts the requests without this rule's [Rule.Unit], to which it did not apply. No other count includes them.
	NotAsked uint64
	// Unheld counts the requests that a rule with [AlgorithmInFlight] did not limit, because they did not come by
	// [RateLimiter.Reserve] or [RateLimiter.ReserveWait]. No other count includes them.
	Unheld uint64
	// UnknownTier counts the requests in the first four counts whose [Request.Tier] is not among the rule's Tiers, so that
	// the rule used its own Rate. A rule without Tiers counts none.
	UnknownTier uint64
	// Penalized counts the blocks that the rule's [Penalty] has begun; with a [Store], those of which the Store has told this process.
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

	field int // index of the field in RuleStats
}

// of returns the field of s that c describes.
func (c *Counter) of(s *RuleStats) reflect.Value { return reflect.ValueOf(s).Elem().Field(c.field) }

// Value returns the number in the RuleStats s that the Counter c describes.
func (c Counter) Value(s *RuleStats) uint64 { return c.of(s).Uint() }

// Counters describes all numbers of [RuleStats] that only grow, in the order of the fields.
func Counters() []Counter { return slices.Clone(counterList) }

// counterList is what Counters returns.
var counterList = func() (all []Counter) {
	for _, row := range counters.Table {
		field, _ := reflect.TypeFor[RuleStats]().FieldByName(row.Field)
		all = append(all, Counter{row.Field, row.Name, row.Result, row.Unit, row.Help, field.Index[0]})
	}
	return all
}()

// stats returns the totals of the rule r, with the counts of its keys.
func (r *activeRule) stats() RuleStats {
	s, sums := RuleStats{Rule: r.Name}, r.totals.Sums()
	if r.local != nil { // with a store, the keys in this process decide only while the store fails
		sums.AddKeys(r.local.Counts(), r.remote != nil)
		s.LiveKeys = r.local.Len()
	}
	for i, c := range counterList {
		c.of(&s).SetUint(sums[i])
	}
	return s
}

// StoreStats are the totals of a [Store]. [RateLimiter.StoreStats] returns them. A [StorePartitioner] has several
// parts; any other Store is one part. Each part has a circuit breaker, which opens after several failed calls in a
// row. An open breaker lets only one call through from time to time, to find out whether the part answers again.
type StoreStats struct {
	Parts     int    // number of parts that have been called
	Open      int    // number of parts whose breaker is open now
	Opened    uint64 // how often the breakers of all parts have opened
	LastError error  // the error of the call that last opened a breaker, or nil; it matches [ErrStore]

	Failures []StoreFailures // the calls that have failed, ordered by part and class; nil if none has
}

// StoreFailures says how many calls of one part of a [Store] have failed with errors of one [StoreErrorClass].
type StoreFailures struct {
	Part  int    // number of the part, from 0 to 63
	Class string // "other" if the error has no class; "panic" if the Store has panicked
	Calls uint64 // if several callers share a call, it counts once for each, except for those that gave up earlier
}
