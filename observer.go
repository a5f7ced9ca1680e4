package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/sample"
)

// An Observer sees every decision of a limiter, for logs and metrics. [WithObserver] gives an Observer to a limiter.
// [SlogObserver] returns an Observer that writes a log.
//
// The goroutine that calls the limiter also calls the Observer, after all locks are released, so an Observer may call the
// limiter. It must be safe for concurrent use by multiple goroutines. A panic in it is dropped; the decision stands.
type Observer interface {
	// Observe is called with each decision. ctx is the context that the caller gave to the limiter, so that a log line
	// or a trace can belong to the request. For Allow, which has no context, it is [context.Background].
	Observe(ctx context.Context, d Decision)
}

// A Source says what made a [Decision].
type Source string

// The values of [Decision.Source].
const (
	SourceMemory   Source = "memory"   // state in this process
	SourceStore    Source = "store"    // a [Store]
	SourcePolicy   Source = "policy"   // a [FailurePolicy], because the store or a custom limiter has failed
	SourceLimiter  Source = "limiter"  // the custom [Limiter] of a rule
	SourceReplay   Source = "replay"   // an earlier grant with the same [Request.ID]; nothing was charged again
	SourceOverride Source = "override" // an [Override] that blocks the request, or exempts it from all rules
	SourceNone     Source = "none"     // no rule applies, so the request is granted
)

// A Decision is what an [Observer] sees of one decision. Peek, and Take with n 0, make no Decision. A call of Wait
// makes one, however often it tries: a grant when it has its units, or a denial if it is refused.
//
// There is one Decision for each request; it names the rule that gave the Result, see [RateLimiter.Check]. There is one more for
// each rule in [ModeShadow] or [ModeAdvise] that applies. If all rules are in these modes, there are only those Decisions.
type Decision struct {
	Rule      string    // name of the rule; empty if no rule applies
	Algorithm Algorithm // [Rule.Algorithm] of the rule named Rule
	KeyType   KeyType   // [Rule.Key] of the rule named Rule
	Mode      Mode      // [Rule.Mode] of the rule named Rule

	// Tier is [Request.Tier] if the rule has decided by its entry in [Rule.Tiers]; otherwise it is empty.
	Tier string

	// Rate is the rate by which the rule has decided: the rate of the Tier, the rate that [Rule.Resolve] has returned,
	// or [Rule.Rate]. It is the zero Rate if no rule applies, and for a rule with a custom [Limiter].
	Rate Rate

	// Key is a hash of the key that the request took from, with a random seed of this process. The hash is the same for
	// all decisions by one rule on one key, and does not reveal the key. It is 0 if no rule applies.
	Key uint64

	Unit string // [Rule.Unit] of the rule named Rule
	Cost int    // how many units of the Unit the request needs; it is 0 only if [Request.Costs] have an N of 0

	Result Result // the answer to the caller or, if Mode is ModeShadow or ModeAdvise, the answer that the rule would have given
	Source Source // what decided for the rule: its state in this process, a store, a policy and so on
	Err    error  // the error that the caller gets with the Result: it matches [ErrStore] or [ErrInvalidConfig], or is nil

	// Time is when the decision was made, by the limiter's clock. Setting the machine's wall clock later does not change it.
	Time time.Time

	Took    time.Duration // how long the decision took, on the machine's clock
	Request Request       // the request; it is zero without the option [WithObservedRequests]
}

// An answerer is a Source as a number, or 0 if nothing has answered yet. It is not a string, because the string
// would be passed to the observer, and the compiler would then allocate the parts of each decision on the heap.
type answerer uint8

const (
	byMemory answerer = 1 + iota
	byStore
	byPolicy
	byLimiter
	byReplay
)

var sources = [...]Source{
	byMemory: SourceMemory, byStore: SourceStore, byPolicy: SourcePolicy, byLimiter: SourceLimiter, byReplay: SourceReplay,
}

// An origin says what answered for one rule of a request, and at which rate.
type origin struct {
	by       answerer    // what answered for the rule; 0 until the rule is asked
	rate     Rate        // the rate that a store was asked to decide by, if a store decides
	resolved engine.Rate // the rate from Rule.Resolve or an Override; the Want.Rate of an engine.Part points here if there is one
	bar      engine.Bar  // the denials that the rule's Penalty counts, and whether they block the key
}

// reasonOf returns the Reason of the Result for a rule's answer p. o says what gave the answer.
func reasonOf(p *engine.Part, o *origin) Reason {
	switch {
	case p.Granted():
		return ""
	case o.bar.Blocks:
		return ReasonPenalty
	case o.by == byPolicy:
		return ReasonPolicy
	case p.Ends:
		return ReasonBusy
	}
	return ReasonLimit
}

// resultOf returns the Result for the answer p of one rule. o says what gave the answer. Rule and Advised are not set.
func resultOf(p *engine.Part, o *origin) (res Result) {
	fill(&res, &p.Verdict)
	res.Delay, res.Degraded, res.Reason = p.Delay, o.by == byPolicy, reasonOf(p, o)
	return res
}

// verdicts holds the answers of all rules for one request, for the observer.
type verdicts struct {
	parts   []engine.Part
	origins []origin // what answered for each part; if nil, the next field says what answered for all parts
	by      answerer
	now     instant       // the time of the decision
	ruled   bool          // whether an override blocks the request, or exempts it from a rule
	whom    uint64        // if an override blocks the request, a hash of the client and IP
	took    time.Duration // how long the decision took
}

// from returns what answered for the rule with the index i in the slices of vs.
func (vs *verdicts) from(i int) answerer {
	if vs.origins != nil {
		return vs.origins[i].by
	}
	return vs.by
}

// tell passes the decision on req to the observer: one Decision with the Result res, and one for each rule in
// ModeShadow or ModeAdvise that was asked. binding is the index in rules of the rule that gave res, or -1.
func (l *RateLimiter) tell(ctx context.Context, req *Request, rules []*activeRule, vs *verdicts, binding int, res *Result, err error) {
	if binding >= 0 || len(rules) == 0 {
		vs.tell(ctx, l, req, rules, binding, res, err)
	}
	for i := range vs.parts {
		p, by := &vs.parts[i], vs.from(i)
		if !p.Shadow || by == 0 {
			continue
		}
		res := resultOf(p, &origin{by: by})
		res.Rule = rules[i].Name
		vs.tell(ctx, l, req, rules, i, &res, err)
	}
}

// tell calls the observer of l with the Result res of the rule with the index i in rules, or of no rule if i is -1. A panic in
// the observer is dropped, so that it changes no decision.
func (vs *verdicts) tell(ctx context.Context, l *RateLimiter, req *Request, rules []*activeRule, i int, res *Result, err error) {
	defer func() { _ = recover() }()
	var told Decision // not a literal, and passed on only once, because a Decision is large: each copy takes some nanoseconds
	told.Result, told.Cost, told.Source = *res, max(req.Cost, 1), SourceNone
	told.Err, told.Time, told.Took = err, l.time.Time(vs.now), vs.took
	if l.settings.observeRequests {
		told.Request = *req
	}
	if len(rules) == 0 && vs.ruled {
		told.Source, told.Key = SourceOverride, vs.whom
	}
	if i >= 0 {
		told.setRule(rules[i], req, vs, i)
	}
	l.settings.observer.Observe(ctx, told)
}

// setRule sets the fields of t that describe the rule r, such as its rate, and returns where the rate comes from. i is the
// index of r in the slices of vs.
func (t *Decision) setRule(r *activeRule, req *Request, vs *verdicts, i int) RateFrom {
	p := &vs.parts[i]
	t.Rule, t.Algorithm, t.KeyType, t.Mode, t.Source = r.Name, r.Algorithm, r.Key, r.Mode, sources[vs.from(i)]
	t.Tier, t.Key, t.Unit, t.Cost = "", p.Hash.Hi, r.Unit, int(p.N)
	t.Rate = r.Rate
	switch {
	case r.Limiter != nil:
		t.Rate = Rate{} // the rate of a custom limiter is not known here
		return "limiter"
	case p.Err != nil: // Rule.Resolve returned an invalid rate, so the rate of the rule decided
	case p.Want.Rate != nil:
		if t.Rate = vs.origins[i].rate; t.Rate == (Rate{}) { // no store was asked; if one was, p.Want.Rate may be a share of the rate
			t.Rate = rateOf(*p.Want.Rate)
		}
		return "resolve" // an Override may have set the rate instead; explainRule corrects the text then
	case len(r.Tiers) > 0:
		if rate, ok := r.Tiers[req.Tier]; ok {
			t.Tier, t.Rate = req.Tier, rate
			return "tier"
		}
	}
	return "rule"
}

// SlogObserver returns an [Observer] that writes to log. At level Info, it writes denials, including those that a rule
// in [ModeShadow] or [ModeAdvise] would have made. At level Warn, it writes the decisions in which the store or a
// custom [Limiter] has failed, or [Rule.Resolve] has returned an invalid rate. It writes no other decisions.
//
// The parameter every is a length of time on the machine's clock. In each interval of this length, SlogObserver writes at most
// one denial for each key of each rule, and at most one failure of each kind for each rule. So the denials of one client do not
// hide those of another. If every is 0, it writes all lines. The attribute "skipped" says how many lines of the same kind were
// left out before this one. Beyond 4,096 keys and kinds of failures, all further ones count as one. The client, endpoint and IP
// of a request are written only with [WithObservedRequests].
//
// The interval does not affect the lines about an outage of the store. SlogObserver writes one line when the outage begins. Every
// minute, it writes a line with the number of decisions that were made without the store so far. When the store has not failed for
// a second, it writes a last line with the length of the outage. If the outage began less than a minute after the end of the
// previous one, it writes the last line when the store has not failed for a minute. SlogObserver panics if log is nil.
func SlogObserver(log *slog.Logger, every time.Duration) Observer {
	if log == nil {
		panic("ratelimit: SlogObserver: the logger must not be nil; slog.Default() returns one")
	}
	return slogObserver{sample.NewLog(log, every)}
}

type slogObserver struct{ log *sample.Log }

// Observe hands to the log those parts of the decision d that a line of the log shows.
func (o slogObserver) Observe(ctx context.Context, d Decision) {
	r, res := &d.Request, &d.Result
	o.log.Write(ctx, &sample.Decision{
		Kind:    sample.Kind{Rule: d.Rule, Key: d.Key, Allowed: res.Allowed, Shadow: !d.Mode.Denies(), Cause: causeOf(&d)},
		KeyType: string(d.KeyType), Tier: d.Tier, Cost: d.Cost, Limit: res.Limit, RetryAfter: res.RetryAfter, Reason: res.Reason,
		Source: string(d.Source), FromStore: d.Source == SourceStore, Err: d.Err, Client: r.Client, Endpoint: r.Endpoint, IP: r.IP,
	})
}

// causeOf returns what has failed in the decision d, or sample.CauseLimit if nothing has.
func causeOf(d *Decision) string {
	var failed *limiterError
	switch {
	case d.Err == nil && !d.Result.Degraded:
		return sample.CauseLimit
	case errors.Is(d.Err, ErrInvalidConfig) && !d.Result.Degraded:
		return sample.CauseResolve
	case d.Source == SourceLimiter || d.Key != 0 && d.Rate == Rate{}:
		return sample.CauseLimiter
	case errors.As(d.Err, &failed):
		return sample.CauseOther
	}
	return sample.CauseStore
}
