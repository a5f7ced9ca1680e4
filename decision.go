package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/replay"
)

// A decision is one request and the answers of its rules. The method run makes it, step by
// step: find the rules and their rates, decide in this process or in the store, ask the
// custom limiter, put the answer together, tell the observer.
//
// Decisions are kept in a pool, so that a decision allocates nothing.
type decision struct {
	request Request
	order   engine.Order
	watch   stopwatch // started if there is an observer

	rules   []*activeRule   // in the order of inLockOrder: a rule with a custom limiter comes last
	named   []*activeRule   // memory for rules, used unless they are those of a group
	exempt  []*activeRule   // rules for which the request is unlimited: they are not among rules
	kept    map[string]Rate // what Resolve has returned before, by rule; nil if it must be called
	spots   []engine.Spot   // of the parts with keys in this process, while others wait for one of them
	line    keytable.Hash   // of its rules and keys; gather sets it
	plain   keytable.Hash   // line without the rule with a custom limiter
	trial   *trial          // for Explain; otherwise nil
	held    bool            // whether all rules but the one with a custom limiter are charged already
	parts   []engine.Part   // the answers of rules, one for each
	origins []origin        // where the answers come from, one for each of rules
	binding int             // the index of the binding rule, or -1
	custom  int             // the index of the rule with a custom limiter, or -1

	records *replay.Log   // of the limiter
	ttl     time.Duration // how long records answers
	id      keytable.Hash // what the request is recorded under in records; zero if it is not
	waits   bool          // whether the answers are in spots, and not yet in parts

	engine.Outcome
	failed  error         // why the store did not answer, or did not give back what it has charged, or nil
	receipt uint64        // of the charges in the store, if they may be given back; otherwise 0
	term    time.Duration // of a reservation, otherwise 0

	sorted []int // memory for appendEach
}

var decisions = sync.Pool{New: func() any { return new(decision) }}

// newDecision returns a decision on req from the pool. If take is false, it only looks.
func newDecision(req *Request, take bool) *decision {
	d := decisions.Get().(*decision)
	d.request = *req
	d.order = engine.Order{N: int64(max(req.Cost, 1)), Take: take, Within: engine.AnyDelay}
	return d
}

// free puts d back into the pool. The caller must not use d afterwards.
func (d *decision) free() {
	clear(d.named)
	clear(d.exempt)
	clear(d.parts)
	clear(d.spots)
	clear(d.origins)
	*d = decision{named: d.named[:0], exempt: d.exempt[:0], spots: d.spots[:0], parts: d.parts[:0], origins: d.origins[:0], sorted: d.sorted[:0]}
	decisions.Put(d)
}

// run decides d and returns its answer.
func (l *RateLimiter) run(ctx context.Context, d *decision) (res Result, err error) {
	if d.request.Cost < 0 {
		return Result{}, ErrInvalidCount
	}
	if ctx == nil {
		ctx = context.Background()
	} else if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	set := l.set.Load()
	if set == nil {
		return unlimited, nil
	}
	if err := l.takesID(&d.request, d.order.Take); err != nil {
		return Result{}, err
	}
	d.records, d.ttl = l.records, l.settings.requestIDs
	l.time.Renew()
	if d.order.Take && l.settings.observer != nil {
		d.watch = startWatch(&l.time)
	}
	if err := d.prepare(set); err != nil {
		return Result{}, err
	}
	return l.decide(ctx, d)
}

// decide decides d, which is prepared, and returns its answer.
func (l *RateLimiter) decide(ctx context.Context, d *decision) (res Result, err error) {
	if d.rehearses() && l.recalled(ctx, d) {
		return l.answered(ctx, d)
	}
	if d.id.Hi != 0 && d.custom >= 0 && !d.rehearses() {
		found, land, err := l.takeOff(ctx, d)
		if err != nil {
			return Result{}, err
		}
		if found {
			return l.answered(ctx, d)
		}
		defer land()
	}
	if !d.order.AskAgain {
		if _, _, denied := l.behindAsking(ctx, d); denied {
			if d.order.Take && !d.rehearses() {
				d.countDenied()
			}
			return l.answered(ctx, d)
		}
	}
	switch {
	case len(d.rules) == 0:
		d.Passes, d.Now = true, l.time.Now()
	case d.held:
		err = l.askCustom(ctx, d)
	case l.settings.store != nil:
		err = l.decideInStore(ctx, d)
	default:
		for d.decideHere(&l.time); d.Queued && !l.behind(d); {
			d.decideHere(&l.time)
		}
		err = l.askCustom(ctx, d)
	}
	if err != nil {
		return Result{}, err
	}
	return l.answered(ctx, d)
}

// answered returns the answer of d, which is decided, and tells it to the observer.
func (l *RateLimiter) answered(ctx context.Context, d *decision) (res Result, err error) {
	switch {
	case d.rehearses():
	case d.Replayed:
		d.countReplayed()
	case d.order.Take && d.Passes && d.decided():
		for _, r := range d.exempt {
			r.totals.allowed.Add(1)
		}
	}
	d.binding = d.answer(&res)
	d.keepLanded(&res)
	err = d.problems()
	if d.order.Take && l.settings.observer != nil && d.decided() {
		l.tell(ctx, &d.request, d.rules, &verdicts{parts: d.parts, origins: d.origins, now: d.Now}, d.binding, &res, err, d.watch.elapsed(&l.time))
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
		r := set.named(name)
		if r == nil {
			return &unknownRule{name, set}
		}
		d.named = append(d.named, r)
	}
	d.named = append(d.named, set.groups.Additional(d.request.Endpoint)...)
	inLockOrder(d.named)
	d.named = slices.Compact(d.named)
	d.rules = d.named
	return nil
}

// prepare finds the rules that apply to the request, and calls Resolve of those that have
// one.
func (d *decision) prepare(set *ruleSet) error {
	if err := d.find(set); err != nil {
		return err
	}
	n := len(d.rules)
	if n > 1 && d.rules[n-2].Limiter != nil {
		first := slices.IndexFunc(d.rules, func(r *activeRule) bool { return r.Limiter != nil })
		return &ConfigError{"rules", fmt.Sprintf("%q and %q", d.rules[first].Name, d.rules[first+1].Name), "must have one limiter of one's own among them"}
	}
	d.parts = slices.Grow(d.parts, n)[:n]
	d.origins = slices.Grow(d.origins, n)[:n]
	kept := 0
	for i, r := range d.rules {
		rate, resolved, exempt := r.resolved(&d.request, d.kept)
		if exempt {
			if resolved && d.rehearses() {
				d.trial.byResolve = append(d.trial.byResolve, r)
			}
			if d.exempt = append(d.exempt, r); len(d.named) == 0 {
				d.named = append(d.named, d.rules...) // the group's own list must not change
				d.rules = d.named
			}
			continue
		}
		p, o := &d.parts[kept], &d.origins[kept]
		p.Keys, p.Hash, p.Shadow = r.keys, r.key.hash(&d.request), !r.enforces()
		p.Want.Tier = d.request.Tier
		if r.keys != nil {
			o.by = byMemory
		}
		if resolved {
			o.resolved = engine.Rate(rate)
			p.Want.Rate = &o.resolved
		}
		if kept++; kept <= i {
			d.rules[kept-1] = r
		}
	}
	d.rules, d.parts, d.origins = d.rules[:kept], d.parts[:kept], d.origins[:kept]
	d.custom = -1
	if kept > 0 && d.rules[kept-1].Limiter != nil {
		d.custom = kept - 1
		if d.term > 0 {
			return errNotReserved(d.rules[d.custom])
		}
	}
	if d.request.ID != "" && d.order.Take {
		return d.identify()
	}
	return nil
}

// decideHere decides by all rules in this process, except for the one with a custom limiter.
func (d *decision) decideHere(t *engine.Timeline) {
	parts := d.parts
	if d.custom >= 0 {
		parts = parts[:d.custom]
		d.order.Revocable, d.order.Unsettled = d.order.Take, d.order.Take
	}
	d.Outcome = engine.Settle(t, parts, &d.order, 0)
}

// settle ends the receipts of what d has charged in this process. If keep is not set, it is
// given back.
func (d *decision) settle(keep bool) {
	for i := range d.parts {
		switch p := &d.parts[i]; {
		case p.Keys == nil || !p.Granted():
		case keep:
			p.Keys.Confirm(p.Hash, p.Receipt, d.order.N, d.Now)
		default:
			p.Verdict, p.Delay = p.Keys.Revoke(p.Hash, p.Receipt, p.Want, d.Now, d.order.N)
		}
	}
}

// uncharge makes the answers of d, which a custom limiter denies, those without the charges.
func (d *decision) uncharge() {
	for i := range d.parts {
		switch p := &d.parts[i]; {
		case i == d.custom || !p.Granted():
		case p.Keys != nil:
			p.Verdict, p.Delay = d.trial.Parts[i].Verdict, d.trial.Parts[i].Delay
		case d.origins[i].by == byStore:
			p.Left = min(p.Left+d.order.N, p.Limit)
		}
	}
}

// decided reports whether d, which takes, is to be counted and observed. It is not if it was
// not charged because of its Delay, or was denied and the caller, who waits, will try again, or if
// it is for [RateLimiter.Explain].
func (d *decision) decided() bool {
	return !d.Late && (d.Passes || !d.order.AskAgain) && !d.rehearses()
}

// answer writes the answer to the request to res. It returns the index of the binding rule,
// or -1 if no rule enforces.
func (d *decision) answer(res *Result) (binding int) {
	n := len(d.rules)
	if d.custom >= 0 && d.origins[d.custom].by == 0 {
		n = d.custom // the custom limiter was not asked
	}
	binding = combine(d.rules[:n], d.parts[:n], d.Passes, res)
	for i := range d.origins[:n] {
		if d.origins[i].by == byPolicy && !d.parts[i].Shadow {
			res.Degraded = true
		}
	}
	return binding
}

// problems returns the error that comes with the answer, or nil: the store has failed, or a
// rule could not use the rate that Resolve returned.
func (d *decision) problems() error {
	err := d.failed
	for i := range d.parts {
		if d.parts[i].Err != nil {
			err = errors.Join(append([]error{err}, d.problemsOf(i)...)...)
		}
	}
	return err
}

// problemsOf returns what the i-th rule adds to problems.
func (d *decision) problemsOf(i int) []error {
	name, err := d.rules[i].Name, d.parts[i].Err
	if err != nil && i == d.custom {
		return []error{&limiterError{name, err}}
	}
	return atPath("rules["+strconv.Quote(name)+"].resolve", err)
}
