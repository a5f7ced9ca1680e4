package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// askCustom asks the custom limiter, if there is one, after all other rules were charged. If
// it denies, or panics, they get their units back.
func (d *decision) askCustom(ctx context.Context) error {
	if d.custom < 0 || !d.Passes || d.Late {
		return nil
	}
	rule, p, n := d.rules[d.custom], &d.parts[d.custom], 0
	if d.order.Take {
		n = int(d.order.N)
	}
	keep := false // whether the other rules keep what they have taken
	defer func() {
		if !keep && d.order.Take {
			d.giveBack()
		}
	}()
	key := rule.keyKind.text(&d.request)
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

// lookAtCustom gets the answer of the custom limiter for [RateLimiter.CheckAll], after another
// rule has denied the request. It changes nothing in the answer to the request itself.
func (d *decision) lookAtCustom(ctx context.Context) {
	rule := d.rules[d.custom]
	res, _, refused := rule.takeCustom(ctx, rule.keyKind.text(&d.request), 0)
	if refused != nil {
		res = rule.policyAnswer()
	}
	d.setCustom(res)
}

// takeCustom calls Take of the custom limiter of r. If that fails, the rule's policy answers,
// and failed says why; the answer has Degraded set. If it is the caller who must be told that
// nothing was decided, refused is the error for him, and the others are zero.
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
	r.totals.errors.Add(1)
	return res, err, nil
}

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

// A customLimiter is a Limiter that a BuildFunc has made, and the algoConfig that it was made
// of. While the algoConfig of a rule does not change, the rule keeps the Limiter.
type customLimiter struct {
	algoConfig map[string]any
	limiter    Limiter

	// build is nil once the limiter is made. A config that is read again makes none if the
	// rule will keep its own, which limiter is until then.
	build func() (*customLimiter, error)

	uses   atomic.Int64 // rules of RateLimiters that have the limiter
	closed atomic.Bool
}

// finish calls the BuildFunc.
func (m *customLimiter) finish() error {
	built, err := m.build()
	if err == nil {
		m.limiter, m.build = built.limiter, nil
	}
	return err
}

// made returns the customLimiter of r, or nil if r has none or code has given it another Limiter.
func (r *Rule) made() *customLimiter {
	if r.custom == nil || !confmap.Same(r.custom.limiter, r.Limiter) {
		return nil
	}
	return r.custom
}

// customsOf returns the customLimiters of rules that were read from configs.
func customsOf(rules []Rule, defaultRule *Rule) (customs []*customLimiter) {
	for i := range rules {
		customs = append(customs, rules[i].custom)
	}
	if defaultRule != nil {
		customs = append(customs, defaultRule.custom)
	}
	return customs
}

// newDecoder returns a decoder that makes no limiter for a rule that keeps its own.
func (l *RateLimiter) newDecoder() *decoder {
	d, set := newDecoder(l.settings.factory, l.settings.env()), l.set.Load()
	d.keeps = func(name string, a Algorithm, algoConfig map[string]any) Limiter {
		if old := set.byName[name]; old != nil && old.Limiter != nil && old.keeps(a, algoConfig) {
			return old.Limiter
		}
		return nil
	}
	return d
}

// keeps reports whether the Limiter of r stays when its config is read again: code has given it,
// or the config has not changed.
func (r *Rule) keeps(a Algorithm, algoConfig map[string]any) bool {
	made := r.made()
	return made == nil || r.Algorithm == a && confmap.Equal(made.algoConfig, algoConfig)
}

// keepCode gives r, which was read from a config, the functions and the Limiter of the rule that
// has its name now, if there is one. If r needs a Limiter of its own, keepCode asks for it.
func (c *change) keepCode(r *Rule, isDefault bool) error {
	if old := c.set.byName[r.completed(isDefault).Name]; old != nil {
		r.Resolve = old.Resolve
		switch made := old.made(); {
		case old.Limiter == nil:
		case made == nil, r.custom != nil && old.keeps(r.Algorithm, r.custom.algoConfig):
			r.Limiter, r.custom = old.Limiter, made
			return nil
		}
	}
	if r.custom == nil {
		return nil
	}
	if custom := r.custom; custom.build != nil {
		if err := c.calls.Ask(custom, custom.finish); err != nil {
			return err
		}
	}
	r.Limiter = r.custom.limiter
	return nil
}

// A told is a custom limiter that is told the rate of its rule.
type told struct {
	old    *activeRule // the rule before the change
	rate   Rate
	before Rate // the limiter's rate before; zero if that is not known
	kept   bool // whether the change was made, and the rate stays
}

// tell plans to tell the custom limiter of old the rate r.
func (c *change) tell(old *activeRule, r Rate) {
	if !slices.ContainsFunc(c.telling, func(t *told) bool { return t.old == old }) {
		c.telling = append(c.telling, &told{old: old, rate: r})
	}
}

// askTo asks the hook that tells t its rate. If another change of the same rule comes between,
// that one may have told the limiter another rate, so the key of the hook is that very rule.
func (c *change) askTo(t *told) error {
	name, limiter := t.old.Name, t.old.Limiter
	setter, ok := limiter.(interface{ SetRate(r Rate) error })
	if !ok {
		return &ConfigError{ruleAt(name, "limiter"), fmt.Sprintf("%T", limiter), "must have a method SetRate(Rate) error: its rule gets another rate"}
	}
	return c.calls.Ask(told{old: t.old, rate: t.rate}, func() error {
		if has, ok := limiter.(interface{ Rate() Rate }); ok {
			t.before = has.Rate()
		} else {
			t.before = t.old.Rate
		}
		c.told = append(c.told, t) // also if SetRate panics
		err := setter.SetRate(t.rate)
		if err == nil {
			return nil
		}
		c.told = c.told[:len(c.told)-1]
		err = errors.Join(atPath(ruleAt(name, "rate"), err)...)
		if !errors.Is(err, ErrInvalidConfig) {
			err = fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
		return err
	})
}

// count notes which customLimiters rules have now. The caller holds RateLimiter.changing.
func (c *change) count() {
	for _, t := range c.telling {
		for _, done := range c.told {
			done.kept = done.kept || done.old == t.old && done.rate == t.rate
		}
	}
	swaps := c.swaps
	if c.replaces {
		for _, r := range c.set.rules {
			swaps = append(swaps, swap{old: r})
		}
		for _, r := range c.all {
			swaps = append(swaps, swap{new: r})
		}
	}
	for _, s := range swaps {
		if s.new != nil && s.new.made() != nil {
			s.new.custom.uses.Add(1)
		}
		if s.old != nil && s.old.made() != nil {
			s.old.custom.uses.Add(-1)
			c.unused = append(c.unused, s.old.custom)
		}
	}
}

// settle ends c, made or not: limiters that know a rate which no rule has get the one before, and
// limiters that no rule uses any more are closed.
func (c *change) settle() {
	for _, t := range c.told {
		if t.kept {
			continue
		}
		rate := t.before
		if now := c.l.set.Load().byName[t.old.Name]; now != nil && now != t.old && confmap.Same(now.Limiter, t.old.Limiter) {
			rate = now.Rate // of another change, which was made meanwhile
		}
		if rate != (Rate{}) {
			_ = t.old.Limiter.(interface{ SetRate(r Rate) error }).SetRate(rate)
		}
	}
	closeUnused(c.l, append(c.made, c.unused...)...)
}

// closeUnused closes those of customs that no rule uses. A BuildFunc may return one limiter for
// several rules, so closeUnused leaves out the limiters that a rule of l has. l may be nil.
func closeUnused(l *RateLimiter, customs ...*customLimiter) {
	for _, m := range customs {
		if m == nil || m.build != nil || m.uses.Load() > 0 {
			continue
		}
		closer, ok := m.limiter.(io.Closer)
		used := func(r *activeRule) bool { return confmap.Same(r.Limiter, m.limiter) }
		if ok && (l == nil || !slices.ContainsFunc(l.set.Load().rules, used)) && m.closed.CompareAndSwap(false, true) {
			closeQuietly(closer)
		}
	}
}

// closeQuietly closes c. The change has been made, so neither an error nor a panic can stop it.
func closeQuietly(c io.Closer) {
	defer func() { _ = recover() }()
	_ = c.Close()
}
