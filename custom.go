package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
)

// askCustom asks the custom limiter, if there is one, after all other rules were charged. If
// it denies, or panics, they get their units back, and those who wait for them are told.
func (l *RateLimiter) askCustom(ctx context.Context, d *decision) (err error) {
	if d.custom < 0 || !d.Passes || d.Late {
		return nil
	}
	rule, p, n := d.rules[d.custom], &d.parts[d.custom], 0
	if d.order.Take && !d.rehearses() {
		n = int(d.order.N)
	}
	keep := false // whether the other rules keep what they have taken
	defer func() {
		switch {
		case d.rehearses():
			if !keep {
				d.uncharge()
			}
		case d.order.Take:
			d.settle(keep)
			if !keep {
				if failed := l.settleInStore(ctx, d); failed != nil && err != nil {
					err = errors.Join(err, failed) // nothing was decided, but units stay charged
				}
				l.waiters.Freed(d.parts)
			}
		}
	}()
	key := rule.key.text(&d.request)
	if d.order.Take && d.order.Within < engine.AnyDelay && !p.Shadow {
		// It cannot give units back, so a first call looks at the Delay.
		if res, err := rule.Limiter.Take(ctx, key, 0); err == nil && res.Allowed && res.Delay > d.order.Within {
			d.setCustom(res)
			d.Late = true
			return nil
		}
	}
	res, failed, refused := rule.takeCustom(ctx, key, n)
	if refused != nil {
		return refused
	}
	if failed != nil && !d.rehearses() {
		rule.totals.errors.Add(1)
	}
	d.setCustom(res)
	p.Err = failed
	d.Passes = res.Allowed || p.Shadow
	keep = d.Passes
	if d.order.Take && d.decided() {
		rule.totals.count(p.Shadow, res.Allowed)
		if res.Degraded {
			rule.totals.degraded.Add(1)
		}
	}
	return nil
}

// revocable is an Ask whose charge can be given back until the custom limiter has answered.
var revocable = Ask{Receipt: 1, Term: time.Second}

// settleInStore has the store give back what d has charged there, because the custom limiter has
// denied the request, also if ctx has ended. If it fails, the denial stands, and d.failed, which is
// returned, says why.
func (l *RateLimiter) settleInStore(ctx context.Context, d *decision) error {
	var asks []Ask
	for i, r := range d.stored() {
		if d.origins[i].by == byStore && d.parts[i].Granted() {
			ask := r.ask(&d.request, d.origins[i].rate)
			ask.Receipt, ask.Was = d.receipt, int(d.order.N)
			asks = append(asks, ask)
		}
	}
	if len(asks) == 0 {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	pass, err := l.breakers.Admit(l.partsOf(asks), l.time.Now())
	if err == nil {
		err = l.guarded(ctx, pass, func() error { return l.settings.store.(settler).Settle(ctx, asks) })
	}
	if err != nil {
		err = storeError(err)
		d.failed = err
	}
	for i, r := range d.stored() {
		switch p := &d.parts[i]; {
		case !p.Granted():
		case err != nil:
			r.totals.errors.Add(1)
		default:
			p.Left = min(p.Left+d.order.N, p.Limit) // not for the share: others may have taken units since
		}
	}
	return err
}

// appendEach appends to each the answer of each rule that enforces, in the order of the rules.
func (d *decision) appendEach(ctx context.Context, each []Result) []Result {
	n := len(d.rules)
	rule := func(i int) *activeRule {
		if i < n {
			return d.rules[i]
		}
		return d.exempt[i-n]
	}
	for i := range n + len(d.exempt) {
		if rule(i).enforces() {
			d.sorted = append(d.sorted, i)
		}
	}
	slices.SortFunc(d.sorted, func(a, b int) int { return cmp.Compare(rule(a).index, rule(b).index) })
	for _, i := range d.sorted {
		res := unlimited
		if i < n {
			if i == d.custom && d.origins[i].by == 0 {
				d.lookAtCustom(ctx)
			}
			fill(&res, &d.parts[i].Verdict)
			res.Delay, res.Degraded = d.parts[i].Delay, d.origins[i].by == byPolicy
		}
		res.Rule = rule(i).resultName
		each = append(each, res)
	}
	return each
}

// lookAtCustom gets the answer of the custom limiter for [RateLimiter.CheckAll], after another
// rule has denied the request. It changes nothing in the answer to the request itself.
func (d *decision) lookAtCustom(ctx context.Context) {
	if ctx == nil {
		ctx = context.Background()
	}
	rule := d.rules[d.custom]
	res, failed, refused := rule.takeCustom(ctx, rule.key.text(&d.request), 0)
	if refused != nil {
		res = rule.policyAnswer()
	}
	if !d.rehearses() && (failed != nil || refused != nil && ctx.Err() == nil) {
		rule.totals.errors.Add(1)
	}
	d.setCustom(res)
}

// takeCustom calls Take of the custom limiter of r. If that fails, the rule's policy answers, with
// Degraded set, and failed says why; whoever calls takeCustom counts it. If the user must be told
// that nothing was decided, refused is the error for that, and the others are zero.
func (r *activeRule) takeCustom(ctx context.Context, key string, n int) (res Result, failed, refused error) {
	res, err := r.Limiter.Take(ctx, key, n)
	switch {
	case err == nil:
		return res, nil, nil
	case res.Degraded && errors.Is(err, ErrStore): // its own policy has answered
	case ctx.Err() != nil:
		return Result{}, nil, ctx.Err()
	case r.enforces() && (errors.Is(err, ErrInvalidCount) || errors.Is(err, ErrExceedsLimit)):
		return Result{}, nil, err
	default:
		res, err = r.policyAnswer(), storeError(err)
	}
	return res, err, nil
}

// A limiterError is the error of the custom limiter of a rule.
type limiterError struct {
	rule string
	err  error
}

func (e *limiterError) Error() string { return fmt.Sprintf("rules[%q].limiter: %v", e.rule, e.err) }

// Unwrap returns the error of the limiter.
func (e *limiterError) Unwrap() error { return e.err }

// policyAnswer returns the answer of the policy of r, which is FailOpen or FailClosed.
func (r *activeRule) policyAnswer() Result {
	if r.OnStoreError == FailClosed {
		return Result{Limit: r.Rate.burst(), RetryAfter: closedFor, ResetAfter: closedFor, Degraded: true}
	}
	return Result{Allowed: true, Limit: -1, Remaining: -1, Degraded: true}
}

// setCustom makes res the answer of the custom limiter.
func (d *decision) setCustom(res Result) {
	setResult(&d.parts[d.custom], res)
	d.origins[d.custom].by = byLimiter
	if res.Degraded {
		d.origins[d.custom].by = byPolicy
	}
}

// setResult makes res the answer of p.
func setResult(p *engine.Part, res Result) {
	p.Verdict = engine.Verdict{Limit: int64(res.Limit), Left: int64(res.Remaining), RetryAfter: res.RetryAfter, ResetAfter: res.ResetAfter}
	p.Delay = res.Delay
	switch {
	case res.Allowed:
		p.RetryAfter = 0
	case res.RetryAfter <= 0:
		// A limiter that denies without a RetryAfter is not called in a busy loop.
		p.RetryAfter = time.Millisecond
	}
}

// made returns what has made the Limiter of r, or nil if that was no BuildFunc but code.
func (r *Rule) made() *hooks.Made {
	if r.custom == nil || !confmap.Same(r.custom.Value, r.Limiter) {
		return nil
	}
	return r.custom
}

// keeps reports whether r keeps its Limiter when its config is read again: code has given it, or
// the config has not changed.
func (r *Rule) keeps(a Algorithm, algoConfig map[string]any) bool {
	made := r.made()
	return made == nil || r.Algorithm == a && confmap.Equal(made.Config, algoConfig)
}

// madeFor returns what BuildFuncs have made for rules that were read from configs.
func madeFor(rules []Rule, defaultRule *Rule) (all []*hooks.Made) {
	for i := range rules {
		all = append(all, rules[i].custom)
	}
	if defaultRule != nil {
		all = append(all, defaultRule.custom)
	}
	return all
}

// closeMade closes what BuildFuncs have made for rules that are not used after all.
func closeMade(made ...*hooks.Made) { hooks.CloseUnused(func(any) bool { return false }, made...) }

// newDecoder returns a decoder that makes no Limiter for a rule that keeps its own.
func (l *RateLimiter) newDecoder() *decoder {
	d, set := newDecoder(l.settings.factory, l.settings.env()), l.set.Load()
	d.keeps = func(name string, a Algorithm, algoConfig map[string]any) Limiter {
		if old := set.named(name); old != nil && old.Limiter != nil && old.keeps(a, algoConfig) {
			return old.Limiter
		}
		return nil
	}
	return d
}

// keepCode gives r, which was read from a config, the functions and the Limiter of the rule that
// has its name now, if there is one. If r needs a Limiter of its own, keepCode asks for it.
func (c *change) keepCode(r *Rule, isDefault bool) error {
	if old := c.set.named(r.completed(isDefault).Name); old != nil {
		r.Resolve = old.Resolve
		switch made := old.made(); {
		case old.Limiter == nil:
		case made == nil, r.custom != nil && old.keeps(r.Algorithm, r.custom.Config):
			r.Limiter, r.custom = old.Limiter, made
			return nil
		}
	}
	if r.custom == nil {
		return nil
	}
	if r.custom.Build != nil {
		if err := c.calls.Ask(r.custom, r.custom.Finish); err != nil {
			return err
		}
	}
	r.Limiter = r.custom.Value.(Limiter)
	return nil
}

// A ratedRule is a rule whose custom Limiter has a rate of its own.
type ratedRule struct {
	*activeRule
	limiter interface{ SetRate(r Rate) error }
}

// Rate returns the rate of the Limiter. If it does not say, it is that of its rule.
func (r ratedRule) Rate() Rate {
	if has, ok := r.Limiter.(interface{ Rate() Rate }); ok {
		return has.Rate()
	}
	return r.activeRule.Rate
}

// SetRate tells the Limiter a rate. Its error is that of a bad rate of the rule.
func (r ratedRule) SetRate(rate Rate) error {
	err := errors.Join(atPath("rules["+strconv.Quote(r.Name)+"].rate", r.limiter.SetRate(rate))...)
	if err != nil && !errors.Is(err, ErrInvalidConfig) {
		err = fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return err
}

// tell plans to tell the custom Limiter of old its new rate.
func (c *change) tell(old *activeRule, r Rate) error {
	limiter, ok := old.Limiter.(interface{ SetRate(r Rate) error })
	if !ok {
		return &ConfigError{"rules[" + strconv.Quote(old.Name) + "].limiter", fmt.Sprintf("%T", old.Limiter), "must have a method SetRate(Rate) error: the rule gets another rate"}
	}
	c.rates.Plan(old.Name, old, ratedRule{old, limiter}, r)
	return nil
}

// settle ends c, made or not: Limiters that know a rate which no rule has get the one before, and
// Limiters that no rule has any more are closed.
func (c *change) settle() {
	c.rates.Undo(func(old *activeRule) (rate Rate, other bool) {
		now := c.l.set.Load().named(old.Name)
		if now == nil || now == old || !confmap.Same(now.Limiter, old.Limiter) {
			return Rate{}, false
		}
		return now.Rate, true // of another change, which was made meanwhile
	})
	hooks.CloseUnused(func(limiter any) bool {
		return slices.ContainsFunc(c.l.set.Load().rules, func(r *activeRule) bool { return confmap.Same(r.Limiter, limiter) })
	}, c.made...)
}
