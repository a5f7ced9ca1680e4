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

// A decision is one request and what its rules say to it. Its way is run: find the rules
// and rates, settle here or in the store, ask a custom limiter, answer, tell the observer.
//
// Decisions are used again, so that deciding allocates nothing.
type decision struct {
	request Request
	order   engine.Order
	watch   stopwatch // running if there is an observer

	rules   []*activeRule // in the order of locks; the one with a custom limiter comes last
	named   []*activeRule // what rules are, if the request names them
	parts   []engine.Part // what each of rules says
	origins []origin      // where each of parts comes from
	custom  int           // the index of the rule with a custom limiter, or -1

	engine.Outcome
	failed error // why the store did not answer
}

var decisions = sync.Pool{New: func() any { return new(decision) }}

// newDecision returns a decision on req that takes, or looks.
func newDecision(req *Request, take bool) *decision {
	d := decisions.Get().(*decision)
	d.request = *req
	d.order = engine.Order{N: int64(max(req.Cost, 1)), Take: take, Within: engine.AnyDelay}
	return d
}

// free hands d back. It must not be used after.
func (d *decision) free() {
	clear(d.named)
	clear(d.parts)
	clear(d.origins)
	*d = decision{named: d.named[:0], parts: d.parts[:0], origins: d.origins[:0]}
	decisions.Put(d)
}

// run makes the decision d.
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
	observed := d.order.Take && l.settings.observer != nil
	if observed {
		d.watch = startWatch(&l.time)
	}
	if err := d.prepare(set); err != nil {
		return Result{}, err
	}
	switch {
	case len(d.rules) == 0:
		d.Passes = true
	case l.settings.store != nil:
		err = l.decideInStore(ctx, d)
	default:
		d.decideHere(&l.time)
		err = d.askCustom(ctx)
	}
	if err != nil {
		return Result{}, err
	}
	binding := d.answer(&res)
	err = d.problems()
	if observed && d.decided() {
		l.tell(&d.request, d.rules, &verdicts{parts: d.parts, origins: d.origins}, binding, &res, err, d.watch.took(&l.time))
	}
	return res, err
}

// prepare finds the rules that apply, and asks code for the rates that it sets.
func (d *decision) prepare(set *ruleSet) error {
	if len(d.request.Rules) == 0 {
		d.rules = set.match(d.request.Endpoint).rules
	} else {
		for _, name := range d.request.Rules {
			r := set.byName[name]
			if r == nil {
				return fmt.Errorf("%w %q", ErrUnknownRule, name)
			}
			d.named = append(d.named, r)
		}
		inLockOrder(d.named)
		d.named = slices.Compact(d.named)
		d.rules = d.named
	}
	n := len(d.rules)
	d.custom = -1
	if n > 0 && d.rules[n-1].Limiter != nil {
		d.custom = n - 1
	}
	if n > 1 && d.rules[n-2].Limiter != nil {
		first := slices.IndexFunc(d.rules, func(r *activeRule) bool { return r.Limiter != nil })
		return &ConfigError{"rules", fmt.Sprintf("%q and %q", d.rules[first].Name, d.rules[first+1].Name), "must have one limiter of one's own among them"}
	}
	d.parts = slices.Grow(d.parts, n)[:n]
	d.origins = slices.Grow(d.origins, n)[:n]
	for i, r := range d.rules {
		p, o := &d.parts[i], &d.origins[i]
		p.Keys, p.Hash, p.Shadow = r.keys, r.keyed.hash(&d.request), !r.enforces()
		p.Want.Tier = d.request.Tier
		if r.keys != nil {
			o.by = byMemory
		}
		if r.Resolve != nil {
			if rate, ok := r.Resolve(d.request); ok {
				o.resolved = engine.Rate(rate)
				p.Want.Rate = &o.resolved
			}
		}
	}
	return nil
}

// decideHere makes the decision by what is known in this process: all but a custom
// limiter.
func (d *decision) decideHere(t *engine.Timeline) {
	parts := d.parts
	if d.custom >= 0 {
		parts = parts[:d.custom]
		d.order.Revocable = d.order.Take
	}
	d.Outcome = engine.Settle(t, parts, d.order, d.watch.began)
}

// askCustom asks the custom limiter, if there is one, after all other rules have taken
// what they were asked for. If it denies, they are given it back.
func (d *decision) askCustom(ctx context.Context) error {
	if d.custom < 0 || !d.Passes || d.Late {
		return nil
	}
	rule, p, o, n := d.rules[d.custom], &d.parts[d.custom], &d.origins[d.custom], 0
	if d.order.Take {
		n = int(d.order.N)
	}
	keep := false // whether the other rules keep what they have taken
	defer func() {
		if !keep && d.order.Take {
			d.giveBack()
		}
	}()
	limiter, key := rule.Limiter, rule.keyed.text(&d.request)
	if d.order.Take && d.order.Within < engine.AnyDelay && !p.Shadow {
		// What it has taken cannot be given back: look first.
		if res, err := limiter.Take(ctx, key, 0); err == nil && res.Allowed && res.Delay > d.order.Within {
			setResult(p, res)
			o.by = byLimiter
			d.Late = true
			return nil
		}
	}
	res, err := limiter.Take(ctx, key, n)
	switch {
	case err == nil || errors.Is(err, ErrStore):
	case !p.Shadow || ctx.Err() != nil:
		return err
	default: // a shadow rule denies nobody, not even by an error
		keep, p.Err = true, storeError(err)
		return nil
	}
	setResult(p, res)
	p.Err = err
	o.by = byLimiter
	if res.Degraded {
		o.by = byPolicy
	}
	d.Passes = res.Allowed || p.Shadow
	keep = d.Passes
	if d.order.Take && d.decided() {
		rule.totals.count(p.Shadow, res.Allowed)
	}
	return nil
}

// giveBack gives back what was taken from the keys in this process.
func (d *decision) giveBack() {
	for i := range d.parts {
		if p := &d.parts[i]; p.Keys != nil && p.Granted() {
			p.Verdict, p.Delay = p.Keys.GiveBack(p.Hash, p.Then, d.order.N)
		}
	}
}

// decided reports whether d, which takes, is a decision: not if the caller will ask again,
// as it was denied, or not charged because of its Delay.
func (d *decision) decided() bool {
	return !d.Late && (d.Passes || !d.order.AskAgain)
}

// setResult makes res what p has to say.
func setResult(p *engine.Part, res Result) {
	p.Verdict = engine.Verdict{Limit: int64(res.Limit), Left: int64(res.Remaining), RetryAfter: res.RetryAfter, ResetAfter: res.ResetAfter}
	p.Delay = res.Delay
	switch {
	case res.Allowed:
		p.RetryAfter = 0
	case res.RetryAfter <= 0:
		// A limiter that denies without saying for how long is not to be asked
		// without pause.
		p.RetryAfter = time.Millisecond
	}
}

// count counts a decision of a rule whose keys do not.
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

// answer puts the answer to the request where res points, and returns the index of the
// binding rule, or -1 if no rule enforces.
func (d *decision) answer(res *Result) (binding int) {
	n := len(d.rules)
	if d.custom >= 0 && d.origins[d.custom].by == 0 {
		n = d.custom // it was not asked
	}
	binding = answer(d.rules[:n], d.parts[:n], d.Passes, res)
	for i := range d.origins[:n] {
		if d.origins[i].by == byPolicy && !d.parts[i].Shadow {
			res.Degraded = true
		}
	}
	return binding
}

// answer puts the answer to a request where res points: that of the binding one of rules,
// and what parts, which are what rules have said, come to together. It returns the index of
// the binding rule, or -1 if no rule enforces, and then no limit applies.
func answer(rules []*activeRule, parts []engine.Part, passes bool, res *Result) (binding int) {
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
		// Where no limit applies, Left is -1, which as a uint64 is more than any.
		left, delay = min(left, uint64(p.Left)), max(delay, p.Delay)
	}
	if binding < 0 {
		*res = unlimited
		return binding
	}
	fill(res, &parts[binding].Verdict)
	res.Allowed, res.Remaining, res.Rule = passes, int(int64(left)), rules[binding].title
	if passes {
		res.Delay = delay
	}
	return binding
}

// binds reports whether a binds rather than b: of a denied request the rule that has to be
// waited for longest, of a granted one that with least left, and of equal ones the earlier.
func binds(a, b *engine.Part, passes, earlier bool) bool {
	switch {
	case !passes && a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case passes && a.Left != b.Left:
		return uint64(a.Left) < uint64(b.Left)
	}
	return earlier
}

// problems returns why something in the decision is not as was asked for, or nil.
func (d *decision) problems() error {
	err := d.failed
	for i := range d.parts {
		if p := &d.parts[i]; p.Err != nil {
			path := "rules[" + strconv.Quote(d.rules[i].Name) + "].resolve"
			err = errors.Join(append([]error{err}, at(path, p.Err)...)...)
		}
	}
	return err
}
