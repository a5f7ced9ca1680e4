package ratelimit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

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

// A stopwatch measures how long a decision takes, on the machine's clock.
type stopwatch struct {
	began instant   // by the limiter's clock, if that is the machine's; else 0
	start time.Time // if the limiter has another clock
}

// startWatch returns a stopwatch for a limiter with the timeline t. If that is the
// machine's, the decision may go by the same reading.
func startWatch(t *engine.Timeline) stopwatch {
	if t.Machine() {
		return stopwatch{began: t.Now()}
	}
	return stopwatch{start: time.Now()}
}

// took returns the time since w was started.
func (w stopwatch) took(t *engine.Timeline) time.Duration {
	if t.Machine() {
		return time.Duration(t.Now().Since(w.began))
	}
	return time.Since(w.start)
}

// An answerer is a Source, or 0 where nothing has answered. It is a number, so that what
// is told to the observer does not hold on to the memory of the decision.
type answerer uint8

const (
	byMemory answerer = 1 + iota
	byStore
	byPolicy
	byLimiter
)

var sources = [...]Source{byMemory: SourceMemory, byStore: SourceStore, byPolicy: SourcePolicy, byLimiter: SourceLimiter}

// An origin says where the answer of a rule comes from.
type origin struct {
	by       answerer    // 0 if the rule was not asked
	rate     Rate        // what a store is asked for
	resolved engine.Rate // what Resolve has given; the part's Want points to it
}

// verdicts are what the rules of a request have said.
type verdicts struct {
	parts   []engine.Part
	origins []origin // of parts, or nil: by has answered for all
	by      answerer
}

// from returns what has answered for the i-th part.
func (vs *verdicts) from(i int) answerer {
	if vs.origins != nil {
		return vs.origins[i].by
	}
	return vs.by
}

// tell tells the observer of a decision on req by rules: of the answer res, which is that of
// the binding rule, and of what each shadow rule would have answered.
func (l *RateLimiter) tell(req *Request, rules []*activeRule, vs *verdicts, binding int, res *Result, err error, took time.Duration) {
	told := Decision{Cost: max(req.Cost, 1), Source: SourceNone, Err: err, Took: took}
	if l.settings.observeRequests {
		told.Request = *req
	}
	if binding >= 0 || len(rules) == 0 {
		told.Result = *res
		if binding >= 0 {
			told.of(rules[binding], vs.from(binding))
		}
		observe(l.settings.observer, &told)
	}
	for i := range vs.parts {
		p, by := &vs.parts[i], vs.from(i)
		if !p.Shadow || by == 0 {
			continue
		}
		told.of(rules[i], by)
		told.Result = shadowResult(rules[i].Name, p, by == byPolicy)
		observe(l.settings.observer, &told)
	}
}

// of makes t what the rule r has decided, but for the Result.
func (t *Decision) of(r *activeRule, by answerer) {
	t.Rule, t.KeyType, t.Mode, t.Source = r.Name, r.Key, r.Mode, sources[by]
}

// shadowResult returns what the rule of this name, whose part is p, would have answered.
func shadowResult(rule string, p *engine.Part, degraded bool) (res Result) {
	fill(&res, &p.Verdict)
	res.Delay, res.Rule, res.Degraded = p.Delay, rule, degraded
	return res
}

// observe tells o of d. A panic in o must not change what is decided.
func observe(o Observer, d *Decision) {
	defer func() { _ = recover() }()
	o.Observe(*d)
}

// RuleStats are the totals of one rule since it was made. A change that keeps its
// keys' state keeps its totals.
type RuleStats struct {
	Rule string // the rule's name

	// A request that only other rules denied is in none of these.
	Allowed      uint64 // requests charged to the rule
	Denied       uint64 // requests that it denied
	ShadowDenied uint64 // requests that it would have denied, in [ModeShadow]

	Degraded uint64 // requests that its failure policy answered
	Errors   uint64 // calls of the store for it that failed

	LiveKeys   int    // keys that have state in this process
	Evicted    uint64 // keys that were forgotten, being as good as new
	Overflowed uint64 // requests charged to what unseen keys share at the bound on keys
}

// Stats returns the totals of each rule, in the order of the rules; the default rule
// comes last. It costs nothing to those who ask: they are kept where a decision
// writes anyway.
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
	if r.remote != nil { // while the store did not answer
		s.Degraded += counts.Allowed + counts.Denied + counts.Shadowed
	}
	s.LiveKeys, s.Evicted, s.Overflowed = r.local.Len(), counts.Evicted, counts.Overflowed
	return s
}

// StoreStats say how a [Store] answers. A store without a method Part is one part.
type StoreStats struct {
	Parts     int    // parts that have been asked
	Open      int    // of these, parts that are not asked but to find out whether they are back
	Opened    uint64 // how often that began, of all parts together
	LastError error  // why it last did, or nil; it matches ErrStore
}

// StoreStats returns how the store answers, or the zero StoreStats if there is none.
func (l *RateLimiter) StoreStats() (s StoreStats) {
	if l.breakers != nil {
		stats := l.breakers.Stats()
		s = StoreStats{Parts: stats.Asked, Open: stats.Open, Opened: stats.Opened, LastError: stats.Last}
	}
	return s
}

// SlogObserver returns an [Observer] that writes what went wrong to log: denials, also
// those of shadow rules, at level Info, and errors and the failure policy's answers at
// level Warn. Granted requests are not written.
//
// It samples: of each rule it writes one of each kind every interval of the machine's
// time, with how many it left out since the last. An interval of 0 writes all. Keys
// are written only if the limiter has [WithObservedRequests].
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	return &slogObserver{log: log, every: every, written: make(map[slogKind]*slogSample)}
}

type slogObserver struct {
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	written map[slogKind]*slogSample
}

// A slogKind is what one sample is taken of.
type slogKind struct {
	rule    string
	message string
}

// A slogSample is when one of a kind was last written.
type slogSample struct {
	at      time.Time
	skipped int
}

// Observe writes d, if it is the turn of its kind.
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
	skipped, ok := o.turn(slogKind{d.Rule, message}, time.Now())
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

// turn reports whether one of kind is to be written at now, and how many were not
// since the last.
func (o *slogObserver) turn(kind slogKind, now time.Time) (skipped int, ok bool) {
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
