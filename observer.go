package ratelimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// An Observer sees every decision of a limiter, for logs and metrics. [WithObserver] gives
// it to a limiter; [SlogObserver] is one that writes a log.
//
// The goroutine that calls the limiter also calls the Observer, after all locks are released.
// So an Observer may call the limiter. It must be safe for concurrent use by multiple
// goroutines. A panic in an Observer is recovered and dropped; the decision stands.
type Observer interface {
	// Observe is called with each decision.
	Observe(d Decision)
}

// A Source says what has made a [Decision].
type Source string

// The values of [Decision.Source].
const (
	SourceMemory  Source = "memory"  // state in this process
	SourceStore   Source = "store"   // a [Store]
	SourcePolicy  Source = "policy"  // a [FailurePolicy], because the store could not be reached
	SourceLimiter Source = "limiter" // the custom [Limiter] of a rule
	SourceNone    Source = "none"    // no rule applies, so the request is granted
)

// A Decision is what an [Observer] sees of one decision. Peek, and Take with n 0, make no
// Decision. A call of Wait makes one only if it is granted.
//
// There is one Decision for each request, with the name of the binding rule, see
// [RateLimiter.Check]. There is one more for each rule in [ModeShadow] that applies to the
// request. If only such rules apply, theirs are the only ones.
type Decision struct {
	Rule    string  // name of the rule; empty if no rule applies
	KeyType KeyType // [Rule.Key] of that rule
	Mode    Mode    // [Rule.Mode] of that rule

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
func (l *RateLimiter) tell(req *Request, rules []*activeRule, vs *verdicts, binding int, res *Result, err error, took time.Duration) {
	told := Decision{Cost: max(req.Cost, 1), Source: SourceNone, Err: err, Took: took}
	if l.settings.observeRequests {
		told.Request = *req
	}
	if binding >= 0 || len(rules) == 0 {
		told.Result = *res
		if binding >= 0 {
			told.setRule(rules[binding], vs.from(binding))
		}
		observe(l.settings.observer, &told)
	}
	for i := range vs.parts {
		p, by := &vs.parts[i], vs.from(i)
		if !p.Shadow || by == 0 {
			continue
		}
		told.setRule(rules[i], by)
		told.Result = shadowResult(rules[i].Name, p, by == byPolicy)
		observe(l.settings.observer, &told)
	}
}

// setRule sets the fields of t that say which rule has decided, and what has answered for it.
func (t *Decision) setRule(r *activeRule, by answerer) {
	t.Rule, t.KeyType, t.Mode, t.Source = r.Name, r.Key, r.Mode, sources[by]
}

// shadowResult returns the answer that the rule with this name would have given. p is its
// part.
func shadowResult(rule string, p *engine.Part, degraded bool) (res Result) {
	fill(&res, &p.Verdict)
	res.Delay, res.Rule, res.Degraded = p.Delay, rule, degraded
	return res
}

// observe calls o with d. A panic in o must not change what is decided.
func observe(o Observer, d *Decision) {
	defer func() { _ = recover() }()
	o.Observe(*d)
}

// RuleStats are the totals of one rule, from [RateLimiter.Stats]. They count from the time
// when the rule was made. A change of the rule that keeps what its keys have used keeps its
// totals too.
type RuleStats struct {
	Rule string // the rule's name

	// A request that only other rules have denied is in none of these three.
	Allowed      uint64 // requests that were charged to the rule
	Denied       uint64 // requests that the rule denied
	ShadowDenied uint64 // requests that the rule would have denied, in [ModeShadow]

	Degraded uint64 // requests that the rule's [FailurePolicy] answered
	Errors   uint64 // calls of the [Store] for the rule that failed

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

// SlogObserver returns an [Observer] that writes to log. It writes denials, including those
// that a rule in [ModeShadow] would have made, at level Info. It writes errors, and answers
// of the [FailurePolicy], at level Warn. It does not write other granted requests.
//
// For each rule and kind of message, it writes at most one line in the time every, by the
// machine's clock, or all lines if every is 0. The attribute "skipped" says how many were
// left out since the last one. The client, endpoint and IP of a request are written only if
// the limiter has the option [WithObservedRequests].
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	return &slogObserver{log: log, every: every, written: make(map[slogKind]*slogSample)}
}

type slogObserver struct {
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	written map[slogKind]*slogSample
}

// A slogKind is a kind of lines. Each kind is sampled by itself.
type slogKind struct {
	rule    string
	message string
}

// A slogSample says when a line was last written, and how many were skipped since.
type slogSample struct {
	at      time.Time
	skipped int
}

// Observe writes a line for d, if d is one to be written and it is the turn of its kind.
func (o *slogObserver) Observe(d Decision) {
	level, message := slog.LevelInfo, "rate limit: denied"
	switch {
	case d.Err != nil || d.Result.Degraded:
		level, message = slog.LevelWarn, "rate limit: not decided as configured"
	case d.Result.Allowed:
		return
	case d.Mode == ModeShadow:
		message = "rate limit: would have denied"
	}
	skipped, ok := o.due(slogKind{d.Rule, message}, time.Now())
	if !ok {
		return
	}
	attrs := []slog.Attr{
		slog.String("rule", d.Rule),
		slog.String("key_type", string(d.KeyType)),
		slog.Int("cost", d.Cost),
		slog.Bool("allowed", d.Result.Allowed),
		slog.Int("limit", d.Result.Limit),
		slog.Duration("retry_after", d.Result.RetryAfter),
		slog.String("source", string(d.Source)),
		slog.Int("skipped", skipped),
	}
	if d.Err != nil {
		attrs = append(attrs, slog.Any("error", d.Err))
	}
	if r := d.Request; r.Client != "" || r.Endpoint != "" || r.IP != "" {
		attrs = append(attrs, slog.String("client", r.Client), slog.String("endpoint", r.Endpoint), slog.String("ip", r.IP))
	}
	o.log.LogAttrs(context.Background(), level, message, attrs...)
}

// due reports whether a line of this kind is to be written at now, and how many were
// skipped since the last one.
func (o *slogObserver) due(kind slogKind, now time.Time) (skipped int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.written[kind]
	switch {
	case s == nil:
		o.written[kind] = &slogSample{at: now}
		return 0, true
	case now.Sub(s.at) < o.every:
		s.skipped++
		return 0, false
	}
	skipped = s.skipped
	*s = slogSample{at: now}
	return skipped, true
}
