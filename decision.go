package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A decision holds one request and the answers of its rules. RateLimiter.run finds the rules and their rates, then
// calls the functions in the list steps. order.Mode says whether the decision charges, only looks, or is a dry run.
//
// Decisions are kept in a pool, so that making one allocates nothing.
type decision struct {
	request Request
	order   engine.Order
	watch   engine.Stopwatch // started if there is an observer

	rules         []*activeRule    // sorted by inLockOrder: a rule with a custom limiter comes last
	named         []*activeRule    // memory for the field rules if d needs its own list; usually many requests share one list
	exempt        []*activeRule    // rules that apply, but do not limit the request; the field rules does not list them
	ruled         override.Ruling  // what overrides say about the request
	unasked       []*activeRule    // rules that do not count the request: the request lacks their Unit, or they count only reservations
	resolvedRates map[string]Rate  // rates that an earlier try got from Resolve, by rule name; nil if Resolve must be called
	spots         []engine.Spot    // the keys in this process and their answers; used only while callers wait for one of these keys
	waiting       waitline.Request // identifies the request, its keys, and the queue in which it waits; set by gather
	memoryLine    keytable.Hash    // identifies the queue for the keys of all rules except the one with a custom limiter
	byResolve     []*activeRule    // in a dry run: the rules in the field exempt that Resolve, or an override, has exempted
	noStrike      bool             // true if a denial must not count for a Penalty: this request waits, or others wait before it
	held          bool             // whether Wait has charged all rules but the one with a custom limiter
	parts         []engine.Part    // the answers of the rules, in the order of the field rules
	origins       []origin         // what gave the answer of each rule, in the order of the field rules
	binding       int              // the index of the rule whose answer the caller gets, or -1
	custom        int              // the index of the rule with a custom limiter, or -1
	uncounted     bool             // true if the keys in this process have not counted this decision

	records *replay.Log   // earlier grants of requests with an ID; nil if they are not kept in this process
	ttl     time.Duration // for how long a recorded grant answers retries
	id      keytable.Hash // identifies the request in the field records; zero if it is not recorded there
	begun   bool          // whether the method records.Begin was called, so that records.End must be called
	waits   bool          // whether the request waits in a queue: its answers are in the field spots, not yet in parts

	engine.Outcome
	failed  error         // the error of the store, from Take or from giving units back; nil if there was none
	receipt uint64        // number by which the store can find the charges, to give them back; 0 if they are final
	term    time.Duration // how long a reservation holds its units; 0 if there is no reservation

	sorted []int // memory for the indexes that appendEach sorts
}

var decisionPool = sync.Pool{New: func() any { return new(decision) }}

// newDecision returns a decision from the pool, for the request req.
func newDecision(req *Request, mode engine.Mode) *decision {
	d := decisionPool.Get().(*decision)
	d.request = *req
	d.order = engine.Order{Mode: mode, Within: engine.AnyDelay}
	return d
}

// free puts d back into the pool. The caller must not use d afterwards.
func (d *decision) free() {
	clear(d.named)
	clear(d.exempt)
	clear(d.unasked)
	clear(d.parts)
	clear(d.spots)
	clear(d.origins)
	*d = decision{
		named: d.named[:0], exempt: d.exempt[:0], unasked: d.unasked[:0], spots: d.spots[:0], parts: d.parts[:0], origins: d.origins[:0],
		sorted: d.sorted[:0], ruled: d.ruled.Cleared(), waiting: waitline.Request{Keys: d.waiting.Keys[:0]},
	}
	decisionPool.Put(d)
}

// run decides on the request of d and returns the answer.
func (l *RateLimiter) run(ctx context.Context, d *decision) (res Result, err error) {
	if err := d.request.validate(); err != nil {
		return Result{}, err
	}
	ctx = orBackground(ctx)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	set := l.set.Load()
	if set == nil {
		return unlimited, nil
	}
	if err := l.takesID(&d.request, d.order.Mode.Takes()); err != nil {
		return Result{}, err
	}
	d.records, d.ttl = l.records, l.settings.requestIDs
	l.time.Renew()
	if d.order.Mode.Charges() && l.settings.observer != nil {
		d.watch = l.time.StartWatch()
	}
	if err := d.prepare(set, l.overrides.For(ctx)); err != nil {
		return Result{}, err
	}
	return l.decide(ctx, d)
}

// steps lists the functions that may answer a decision d, in the order of their calls. If a function returns true, d is
// answered, and the functions after it are not called.
var steps = [...]func(l *RateLimiter, ctx context.Context, d *decision) (answered bool, err error){
	(*RateLimiter).replay,       // answers from the record of an earlier grant of the same request
	(*RateLimiter).standBehind,  // denies if other callers wait for the store or the custom limiter
	(*RateLimiter).decideByKeys, // decides by keys in this process or in the store
	(*RateLimiter).askCustom,    // asks the custom limiter, if a rule has one; all other rules have decided before
}

// decide calls the functions in steps for d, which the method prepare has filled in, and returns the answer.
func (l *RateLimiter) decide(ctx context.Context, d *decision) (res Result, err error) {
	if d.ruled.Block != nil {
		return l.denyBlocked(ctx, d), nil
	}
	defer d.endAttempt()
	for _, step := range steps {
		answered, err := step(l, ctx, d)
		if err != nil {
			return Result{}, err
		}
		if answered {
			break
		}
	}
	return l.answered(ctx, d)
}

// decideByKeys decides d by all rules without a custom limiter. The function askCustom asks the custom limiter later.
func (l *RateLimiter) decideByKeys(ctx context.Context, d *decision) (answered bool, err error) {
	switch {
	case len(d.rules) == 0:
		d.Passes, d.Now = true, l.time.Now()
	case d.held: // Wait has already charged all rules without a custom limiter
	case l.remote != nil:
		return false, l.remote.decide(ctx, d)
	default:
		for d.decideHere(&l.time); d.Queued && !l.denyBehindWaiters(d); {
			d.decideHere(&l.time)
		}
	}
	return false, nil
}

// answered finishes d when all its rules have answered: it counts d, calls the observer, and returns the answer.
func (l *RateLimiter) answered(ctx context.Context, d *decision) (res Result, err error) {
	if d.Replayed && d.order.Mode.Charges() {
		for i := range d.rules {
			d.origins[i].by, d.parts[i].Err = byReplay, nil
		}
	}
	strike(d)
	if d.count(); d.decided() {
		l.overrides.Count(&d.ruled)
	}
	d.binding = d.answer(&res)
	d.recordCustomGrant(&res)
	err = d.problems()
	if l.settings.observer != nil && d.decided() {
		vs := verdicts{parts: d.parts, origins: d.origins, now: d.Now, ruled: d.ruled.Freed > 0, took: d.watch.Elapsed(&l.time)}
		l.tell(ctx, &d.request, d.rules, &vs, d.binding, &res, err)
	}
	return res, err
}

// find finds the rules that apply to the request.
func (d *decision) find(set *ruleSet) error {
	if len(d.request.Rules) == 0 {
		d.rules = set.match(d.request.Endpoint).rules
		return nil
	}
	for _, name := range d.request.Rules {
		r := set.Named(name)
		if r == nil {
			return &unknownRule{name, set}
		}
		d.named = append(d.named, r)
	}
	d.named = append(d.named, set.Additional(d.request.Endpoint)...)
	inLockOrder(d.named)
	d.named = slices.Compact(d.named)
	d.rules = d.named
	return nil
}

// prepare finds the rules that apply, calls Resolve, and fills d.parts with one element for each rule that limits the
// request: the key, the number of units and, later, the answer.
func (d *decision) prepare(set *ruleSet, overrides override.At) error {
	if err := d.find(set); err != nil {
		return err
	}
	d.ruled.Begin(overrides, d.request.Client, d.request.IP)
	n := len(d.rules)
	d.parts = slices.Grow(d.parts, n)[:n]
	d.origins = slices.Grow(d.origins, n)[:n]
	limiting := 0
	for i, r := range d.rules {
		n, asked := d.request.cost(r.Unit)
		if d.order.Mode == engine.ModeLook {
			n = 1
		}
		if !asked || r.holds() && d.term == 0 {
			leaveOut(d, &d.unasked, r)
			continue
		}
		rate, resolved, exempt := ruledBy(&d.ruled, r)
		if !resolved {
			rate, resolved, exempt = r.resolved(&d.request, d.resolvedRates)
		}
		if exempt {
			if resolved && d.order.Mode == engine.ModeDryRun {
				d.byResolve = append(d.byResolve, r)
			}
			leaveOut(d, &d.exempt, r)
			continue
		}
		p, o := &d.parts[limiting], &d.origins[limiting]
		p.Keys, p.Hash, p.Shadow, p.Ends = r.keys, r.key.hash(&d.request), !r.enforces(), r.holds()
		p.Advises = r.Mode == ModeAdvise
		p.Want.Tier, p.N = d.request.Tier, n
		if o.bar.Strikes = r.penal; r.keys != nil {
			o.by = byMemory
		}
		if resolved {
			o.resolved = engine.Rate(rate.data())
			p.Want.Rate = &o.resolved
		}
		if limiting++; limiting <= i {
			d.rules[limiting-1] = r
		}
	}
	d.rules, d.parts, d.origins = d.rules[:limiting], d.parts[:limiting], d.origins[:limiting]
	if limiting == 0 {
		d.ruled.None()
	}
	if err := findCustom(d); err != nil {
		return err
	}
	if d.request.ID != "" && d.order.Mode.Takes() {
		return d.identify()
	}
	return nil
}

// leaveOut adds the rule r, which does not decide, to d.exempt or d.unasked. The caller then removes r from d.rules.
func leaveOut(d *decision, list *[]*activeRule, r *activeRule) {
	if *list = append(*list, r); len(d.named) == 0 {
		d.named = append(d.named, d.rules...) // a copy, because other requests share the list
		d.rules = d.named
	}
}

// decideHere decides by all rules in this process, except for the one with a custom limiter.
func (d *decision) decideHere(t *engine.Timeline) {
	parts := d.parts
	if d.custom >= 0 {
		parts = parts[:d.custom]
		d.order.Revocable, d.order.Unsettled = d.order.Mode.Takes(), d.order.Mode.Takes()
	}
	for i := range parts {
		d.origins[i].bar.Deny(t, &parts[i])
	}
	d.Outcome = engine.DecideAll(t, parts, &d.order, 0)
}

// decided reports whether d must be counted and shown to the observer. It returns false if d charges nothing because
// of its mode, if the Delay is too long, or if the caller waits and will try again.
func (d *decision) decided() bool {
	return d.order.Mode.Charges() && !d.Late && (d.Passes || d.order.Mode == engine.ModeTake)
}

// count adds d to the totals of its rules. Keys in this process usually count a decision themselves, while they are locked, so count
// skips the rules of these keys unless d.uncounted is set.
func (d *decision) count() {
	if !d.decided() {
		return
	}
	d.request.countUnasked(d.unasked)
	if d.Replayed {
		for _, r := range d.rules {
			r.totals.Add(counters.Replayed, 1)
		}
		for _, r := range d.exempt {
			r.totals.Add(counters.Replayed, 1)
		}
		return
	}
	for i, r := range d.rules {
		p, by := &d.parts[i], d.origins[i].by
		r.countTier(d.request.Tier, p.Want.Rate == nil && (d.Passes || !p.Granted()))
		if by == 0 || p.Keys != nil && !d.uncounted || p.Granted() && !d.Passes { // last case: this rule granted, another denied
			continue
		}
		r.totals.Decided(p.Granted(), p.Shadow, p.Advises)
		if by == byPolicy {
			r.totals.Add(counters.Degraded, 1)
		}
	}
	for _, r := range d.exempt {
		if d.Passes && d.ruled.Of(r.Name) == nil {
			r.totals.Add(counters.Allowed, 1)
		}
	}
}

// answer sets res to the answer to the request. It returns the index of the rule that gave the answer, or -1.
func (d *decision) answer(res *Result) (binding int) {
	n := len(d.rules)
	if d.custom >= 0 && d.origins[d.custom].by == 0 {
		n = d.custom // leave out the custom limiter, which was not asked
	}
	binding = combine(d.rules[:n], d.parts[:n], d.Passes, &d.request, res)
	for i := range d.origins[:n] {
		if d.origins[i].by == byPolicy && !d.parts[i].Shadow {
			res.Degraded = true
		}
	}
	if binding >= 0 && !d.Passes {
		res.Reason = reasonOf(&d.parts[binding], &d.origins[binding])
	}
	return binding
}

// appendEach appends the answers of the rules that enforce or advise to the slice each, in the order of the rules.
func (d *decision) appendEach(ctx context.Context, each []Result) []Result {
	n := len(d.rules)
	rule := func(i int) *activeRule {
		if i < n {
			return d.rules[i]
		}
		return d.exempt[i-n]
	}
	for i := range n + len(d.exempt) {
		if rule(i).Mode != ModeShadow {
			d.sorted = append(d.sorted, i)
		}
	}
	slices.SortFunc(d.sorted, func(a, b int) int { return cmp.Compare(rule(a).Index, rule(b).Index) })
	for _, i := range d.sorted {
		res := unlimited
		if i < n {
			if i == d.custom && d.origins[i].by == 0 {
				d.lookAtCustom(ctx)
			}
			res = resultOf(&d.parts[i], &d.origins[i])
		}
		res.Rule, res.Advised = rule(i).resultName(), rule(i).Mode == ModeAdvise
		each = append(each, res)
	}
	return each
}

// problems returns the error that comes with the answer: the store or the custom limiter has failed, or a rule could
// not use the rate that Resolve returned. It returns nil if there was no problem.
func (d *decision) problems() error {
	err := d.failed
	for i := range d.parts {
		if d.parts[i].Err != nil {
			err = errors.Join(append([]error{err}, d.problemsOf(i)...)...)
		}
	}
	return err
}

// problemsOf returns the errors of the rule with the index i.
func (d *decision) problemsOf(i int) []error {
	name, err := d.rules[i].Name, d.parts[i].Err
	if err != nil && i == d.custom {
		return []error{&limiterError{name, err}}
	}
	return atPath("rules["+strconv.Quote(name)+"].resolve", err)
}

// receiptTemplate returns an Ask whose Receipt and HoldFor are set if the store must be able to give the charges of d
// back. HoldFor says for how long. Both fields are 0 if the charges are final.
func (d *decision) receiptTemplate() Ask {
	if d.custom >= 0 {
		return revocableAsk
	}
	if d.term > 0 {
		return Ask{Receipt: 1, HoldFor: d.term}
	}
	return Ask{}
}

// stored returns the rules of d that a store decides: all but the one with a custom limiter.
func (d *decision) stored() []*activeRule {
	if d.custom >= 0 {
		return d.rules[:d.custom]
	}
	return d.rules
}

// denies reports whether d can be denied, because one of its rules enforces.
func (d *decision) denies() bool { return slices.ContainsFunc(d.rules, (*activeRule).enforces) }

// allResolved returns the rates that Resolve has returned, by the names of the rules.
func (d *decision) allResolved() map[string]Rate {
	if d.resolvedRates != nil || d.ruled.Decides() {
		return d.resolvedRates
	}
	rates := make(map[string]Rate)
	for i := range d.parts {
		if rate := d.parts[i].Want.Rate; rate != nil {
			rates[d.rules[i].Name] = rateOf(*rate)
		}
	}
	for _, r := range d.exempt {
		if r.Resolve != nil {
			rates[r.Name] = Unlimited
		}
	}
	return rates
}

// gather sets the fields of d that are needed to wait in a queue: d.spots, d.waiting and d.memoryLine. Requests on the
// same keys of the same rules wait in the same queue.
func (d *decision) gather() {
	d.spots, d.memoryLine = waitline.Gather(d.spots[:0], d.parts), globalHash
	w := waitline.Request{Set: globalHash, Keys: d.waiting.Keys[:0], ID: d.id}
	for i, r := range d.rules {
		if p := &d.parts[i]; !p.Shadow {
			w.Add(globalHash.With(r.serial, p.Hash), p.N)
			w.Set = w.Set.With(r.serial, p.Hash)
		}
		if i != d.custom {
			d.memoryLine = w.Set
		}
	}
	d.waiting = w
}
