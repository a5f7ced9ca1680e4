package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
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

	rules   []*activeRule // in the order of inLockOrder: a rule with a custom limiter comes last
	named   []*activeRule // memory for rules, used unless they are those of a group
	exempt  []*activeRule // rules for which the request is unlimited: they are not among rules
	parts   []engine.Part // the answers of rules, one for each
	origins []origin      // where the answers come from, one for each of rules
	custom  int           // the index of the rule with a custom limiter, or -1

	engine.Outcome
	failed error // why the store did not answer, or nil

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
	clear(d.origins)
	*d = decision{named: d.named[:0], exempt: d.exempt[:0], parts: d.parts[:0], origins: d.origins[:0], sorted: d.sorted[:0]}
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
	l.time.Renew()
	observed := d.order.Take && l.settings.observer != nil
	if observed {
		d.watch = startWatch(&l.time)
	}
	if err := d.prepare(set); err != nil {
		return Result{}, err
	}
	switch {
	case len(d.rules) == 0:
		d.Passes, d.Now = true, l.time.Now()
	case l.settings.store != nil:
		err = l.decideInStore(ctx, d)
	default:
		d.decideHere(&l.time)
		err = d.askCustom(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	if d.order.Take && d.Passes && d.decided() {
		for _, r := range d.exempt {
			r.totals.allowed.Add(1)
		}
	}
	binding := d.answer(&res)
	err = d.problems()
	if observed && d.decided() {
		l.tell(ctx, &d.request, d.rules, &verdicts{parts: d.parts, origins: d.origins, now: d.Now}, binding, &res, err, d.watch.elapsed(&l.time))
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
			return fmt.Errorf("%w %q", ErrUnknownRule, name)
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
		rate, resolved, exempt := r.resolved(&d.request)
		if exempt {
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
	}
	return nil
}

// decideHere decides by all rules in this process, except for the one with a custom limiter.
func (d *decision) decideHere(t *engine.Timeline) {
	parts := d.parts
	if d.custom >= 0 {
		parts = parts[:d.custom]
		d.order.Revocable = d.order.Take
	}
	d.Outcome = engine.Settle(t, parts, d.order, 0)
}

// settle ends the receipts of what d has charged in this process. If keep is not set, it is
// given back.
func (d *decision) settle(keep bool) {
	for i := range d.parts {
		switch p := &d.parts[i]; {
		case p.Keys == nil || !p.Granted():
		case keep:
			p.Keys.Settle(p.Hash, p.Receipt, d.order.N)
		default:
			p.Verdict, p.Delay = p.Keys.Revoke(p.Hash, p.Receipt, d.Now, d.order.N)
		}
	}
}

// decided reports whether d, which takes, is to be counted and observed. It is not if it was
// not charged because of its Delay, or was denied and the caller, who waits, will try again.
func (d *decision) decided() bool {
	return !d.Late && (d.Passes || !d.order.AskAgain)
}

// count counts a decision of a store or a custom limiter.
func (t *totals) count(shadow, allowed bool) {
	switch {
	case allowed:
		t.allowed.Add(1)
	case shadow:
		t.shadowed.Add(1)
	default:
		t.denied.Add(1)
	}
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

// combine writes the answer to a request to res. parts are the answers of rules, one for
// each. The answer is that of the binding rule, but Remaining is the smallest of all and
// Delay the largest. It returns the index of the binding rule. If no rule enforces, that is
// -1, and no limit applies.
func combine(rules []*activeRule, parts []engine.Part, passes bool, res *Result) (binding int) {
	binding = -1
	left, delay := uint64(math.MaxUint64), time.Duration(0)
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			continue
		}
		if binding < 0 || binds(p, &parts[binding], passes, rules[i].index < rules[binding].index) {
			binding = i
		}
		// If no limit applies, Left is -1. As a uint64, that is the largest number.
		left, delay = min(left, uint64(max(p.Left, -1))), max(delay, p.Delay)
	}
	if binding < 0 {
		*res = unlimited
		return binding
	}
	fill(res, &parts[binding].Verdict)
	res.Allowed, res.Remaining, res.Rule = passes, int(int64(left)), rules[binding].resultName
	if passes {
		res.Delay = delay
	}
	return binding
}

// binds reports whether the rule of a binds rather than that of b. For a denied request, the
// one with the longer RetryAfter binds; for a granted one, the one with fewer units left. Of
// two that are equal in this, the earlier one binds.
func binds(a, b *engine.Part, passes, earlier bool) bool {
	switch {
	case !passes && a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case passes && a.Left != b.Left:
		return uint64(a.Left) < uint64(b.Left)
	}
	return earlier
}

// problems returns the error that comes with the answer, or nil: the store has failed, or a
// rule could not use the rate that Resolve returned.
func (d *decision) problems() error {
	err := d.failed
	for i := range d.parts {
		if p := &d.parts[i]; p.Err != nil {
			path := "rules[" + strconv.Quote(d.rules[i].Name) + "].resolve"
			if i == d.custom {
				err = errors.Join(err, fmt.Errorf("rules[%q].limiter: %w", d.rules[i].Name, p.Err))
				continue
			}
			err = errors.Join(append([]error{err}, atPath(path, p.Err)...)...)
		}
	}
	return err
}
