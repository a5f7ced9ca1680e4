package ratelimit

import (
	"context"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// An Observer sees every decision of a limiter, for logs and metrics. [WithObserver] gives
// it to a limiter; [SlogObserver] is one that writes a log.
//
// The goroutine that calls the limiter also calls the Observer, after all locks are released.
// So an Observer may call the limiter. It must be safe for concurrent use by multiple
// goroutines. A panic in an Observer is recovered and dropped; the decision stands.
type Observer interface {
	// Observe is called with each decision. ctx is the one that the caller gave to the
	// limiter, so that a log line or a trace can belong to the caller's request.
	// Allow has none, and gives [context.Background].
	Observe(ctx context.Context, d Decision)
}

// A Source says what has made a [Decision].
type Source string

// The values of [Decision.Source].
const (
	SourceMemory  Source = "memory"  // state in this process
	SourceStore   Source = "store"   // a [Store]
	SourcePolicy  Source = "policy"  // a [FailurePolicy], because the store or a custom limiter has failed
	SourceLimiter Source = "limiter" // the custom [Limiter] of a rule
	SourceNone    Source = "none"    // no rule applies, so the request is granted
)

// A Decision is what an [Observer] sees of one decision. Peek, and Take with n 0, make no
// Decision. A call of Wait makes one, however often it tries: a grant when it has its units,
// or a denial if it is refused, which is also when its deadline would pass first.
//
// There is one Decision for each request, with the name of the binding rule, see
// [RateLimiter.Check]. There is one more for each rule in [ModeShadow] that applies to the
// request. If only such rules apply, theirs are the only ones.
type Decision struct {
	Rule      string    // name of the rule; empty if no rule applies
	Algorithm Algorithm // [Rule.Algorithm] of that rule
	KeyType   KeyType   // [Rule.Key] of that rule
	Mode      Mode      // [Rule.Mode] of that rule

	// Tier is the [Request.Tier], if the rule has decided by its entry in
	// [Rule.Tiers]; otherwise it is empty.
	Tier string

	// Rate is the rate by which the rule has decided: that of the Tier, one that
	// [Rule.Resolve] has returned, or [Rule.Rate]. It is the zero Rate if no rule
	// applies, and for a rule with a custom [Limiter].
	Rate Rate

	// Key is a number for the key that the request took from. Decisions by one rule
	// on one key have the same Key, which tells the key to nobody: it is a hash with
	// a random seed of this process. It is 0 if no rule applies.
	Key uint64

	// Cost is how many units the request needs. It is at least 1.
	Cost int

	// Result is the answer that the caller gets. For a rule in [ModeShadow],
	// it is the answer that this rule would have given.
	Result Result

	// Source says what has decided.
	Source Source

	// Err is the error that the caller gets beside the Result, or nil.
	// It matches [ErrStore] or [ErrInvalidConfig].
	Err error

	// Time is when the decision was made, by the limiter's clock. It does not follow
	// steps of the machine's wall clock that are later than the limiter.
	Time time.Time

	// Took is how long the decision took, on the machine's clock.
	Took time.Duration

	// Request is the request that was decided on. It is the zero Request
	// unless the limiter has the option [WithObservedRequests].
	Request Request
}

// A stopwatch measures how long a decision takes, on the machine's clock.
type stopwatch struct {
	began instant   // the start, if the limiter reads the machine's clock; otherwise 0
	start time.Time // the start, if the limiter has another clock
}

// startWatch returns a stopwatch for a limiter with the timeline t. If that is the machine's
// clock, the decision can use the reading began and need not read the clock again.
func startWatch(t *engine.Timeline) stopwatch {
	if t.Machine() {
		return stopwatch{began: t.Now()}
	}
	return stopwatch{start: time.Now()}
}

// elapsed returns the time since w was started.
func (w stopwatch) elapsed(t *engine.Timeline) time.Duration {
	if t.Machine() {
		return time.Duration(t.Now().Since(w.began))
	}
	return time.Since(w.start)
}

// An answerer is a Source as a number, or 0 if nothing has answered. If it were a string,
// which reaches the observer, the compiler would move the parts beside it to the heap.
type answerer uint8

const (
	byMemory answerer = 1 + iota
	byStore
	byPolicy
	byLimiter
)

var sources = [...]Source{byMemory: SourceMemory, byStore: SourceStore, byPolicy: SourcePolicy, byLimiter: SourceLimiter}

// An origin says where the answer of a rule comes from, and at which rate it was asked for.
type origin struct {
	by       answerer    // 0 if the rule was not asked
	rate     Rate        // the rate in the Ask for a store
	resolved engine.Rate // the rate that Resolve has returned; the part's Want points to it
}

// verdicts are the answers of the rules of a request.
type verdicts struct {
	parts   []engine.Part
	origins []origin // one for each of parts; if nil, by has answered for all
	by      answerer
	hash    keytable.Hash // of the key, if parts is nil: only one rule was asked
	now     instant       // the reading of the clock that decided
}

// from returns what has answered for the i-th part.
func (vs *verdicts) from(i int) answerer {
	if vs.origins != nil {
		return vs.origins[i].by
	}
	return vs.by
}

// tell calls the observer with a decision on req by rules: once with the answer res, which is
// that of the binding rule, and once for each shadow rule that was asked.
func (l *RateLimiter) tell(ctx context.Context, req *Request, rules []*activeRule, vs *verdicts, binding int, res *Result, err error, took time.Duration) {
	told := Decision{Cost: max(req.Cost, 1), Source: SourceNone, Err: err, Time: l.time.Time(vs.now), Took: took}
	if l.settings.observeRequests {
		told.Request = *req
	}
	if binding >= 0 || len(rules) == 0 {
		told.Result = *res
		if binding >= 0 {
			told.setRule(rules[binding], req, vs, binding)
		}
		observe(ctx, l.settings.observer, &told)
	}
	for i := range vs.parts {
		p, by := &vs.parts[i], vs.from(i)
		if !p.Shadow || by == 0 {
			continue
		}
		told.setRule(rules[i], req, vs, i)
		told.Result = shadowResult(rules[i].Name, p, by == byPolicy)
		observe(ctx, l.settings.observer, &told)
	}
}

// setRule sets the fields of t that say which rule has decided, by which rate, and what has
// answered for it. r is the i-th rule that was asked.
func (t *Decision) setRule(r *activeRule, req *Request, vs *verdicts, i int) {
	t.Rule, t.Algorithm, t.KeyType, t.Mode, t.Source = r.Name, r.Algorithm, r.Key, r.Mode, sources[vs.from(i)]
	t.Tier, t.Rate, t.Key = "", r.Rate, vs.hash.Hi
	if r.Limiter != nil {
		t.Rate = Rate{} // it has a rate of its own
	}
	if vs.parts != nil {
		p := &vs.parts[i]
		t.Key = p.Hash.Hi
		switch {
		case p.Err != nil: // by r.Rate, because the rate that Resolve has returned is invalid
			return
		case p.Want.Rate != nil && vs.origins[i].rate == Rate{}:
			t.Rate = Rate(*p.Want.Rate)
			return
		case p.Want.Rate != nil: // asked of a store; the Want may be a share of it
			t.Rate = vs.origins[i].rate
			return
		}
	}
	if len(r.Tiers) > 0 {
		if rate, ok := r.Tiers[req.Tier]; ok {
			t.Tier, t.Rate = req.Tier, rate
		}
	}
}

// shadowResult returns the answer that the rule with this name would have given. p is its
// part.
func shadowResult(rule string, p *engine.Part, degraded bool) (res Result) {
	fill(&res, &p.Verdict)
	res.Delay, res.Rule, res.Degraded = p.Delay, rule, degraded
	return res
}

// observe calls o with d. A panic in o must not change what is decided.
func observe(ctx context.Context, o Observer, d *Decision) {
	defer func() { _ = recover() }()
	o.Observe(ctx, *d)
}

// RuleStats are the totals of one rule, from [RateLimiter.Stats]. They count from the time
// when the rule was made. A change of the rule that keeps what its keys have used keeps its
// totals too.
type RuleStats struct {
	Rule string // the rule's name

	// A request that only other rules have denied is in none of these three. A call
	// of Wait counts once, when it is granted or refused.
	Allowed      uint64 // requests that the rule granted, also by an [Unlimited] tier or by [FailOpen]
	Denied       uint64 // requests that the rule denied, also by [FailClosed]
	ShadowDenied uint64 // requests that the rule would have denied, in [ModeShadow]

	Degraded uint64 // of all these, requests that the rule's [FailurePolicy] answered
	Errors   uint64 // calls of the [Store], or of a custom [Limiter], for the rule that failed

	// GivenBack is how many units Settle and Cancel of a [Reservation] have given back. Those
	// that a [Store] was told to give back count, also if their term was over there.
	GivenBack uint64

	LiveKeys   int    // keys that have state in this process now
	Evicted    uint64 // keys that were forgotten because they were as if never used
	Overflowed uint64 // requests charged to the budget that keys share beyond [WithMaxKeys]
}

// Stats returns the totals of each rule, in the order of the rules. The default rule comes
// last. The totals are counted in any case, so Stats does not make decisions slower.
func (l *RateLimiter) Stats() []RuleStats {
	set := l.set.Load()
	if set == nil {
		return nil
	}
	stats := make([]RuleStats, len(set.rules))
	for i, r := range set.rules {
		stats[i] = r.stats()
	}
	return stats
}

func (r *activeRule) stats() RuleStats {
	s := RuleStats{
		Rule:         r.Name,
		Allowed:      r.totals.allowed.Load(),
		Denied:       r.totals.denied.Load(),
		ShadowDenied: r.totals.shadowed.Load(),
		Degraded:     r.totals.degraded.Load(),
		Errors:       r.totals.errors.Load(),
		GivenBack:    r.totals.givenBack.Load(),
	}
	if r.local == nil {
		return s
	}
	counts := r.local.Counts()
	s.Allowed += counts.Allowed
	s.Denied += counts.Denied
	s.ShadowDenied += counts.Shadowed
	if r.remote != nil { // its keys in this process decide only while the store does not
		s.Degraded += counts.Allowed + counts.Denied + counts.Shadowed
	}
	s.LiveKeys, s.Evicted, s.Overflowed = r.local.Len(), counts.Evicted, counts.Overflowed
	return s
}

// StoreStats are the totals of a [Store], from [RateLimiter.StoreStats]. A part is what the
// method Part of the Store returns; a Store without that method is one part. Each part has a
// circuit breaker: after several failed calls in a row it opens, and then lets through only
// one call from time to time, to find out whether the part answers again.
type StoreStats struct {
	Parts     int    // parts that have been called
	Open      int    // parts whose breaker is open now
	Opened    uint64 // how often a breaker has opened, of all parts together
	LastError error  // the error for which a breaker opened last, or nil; it matches [ErrStore]
}

// StoreStats returns the totals of the limiter's [Store]. It returns the zero StoreStats if
// there is no Store.
func (l *RateLimiter) StoreStats() (s StoreStats) {
	if l.breakers != nil {
		stats := l.breakers.Stats()
		s = StoreStats{Parts: stats.Asked, Open: stats.Open, Opened: stats.Opened, LastError: stats.Last}
	}
	return s
}
