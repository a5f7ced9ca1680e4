package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// askCustom asks the custom limiter, if a rule of d has one. All other rules were charged before. If the custom limiter
// denies or panics, the other rules get their units back, and callers that wait for these units are served.
func (l *RateLimiter) askCustom(ctx context.Context, d *decision) (answered bool, err error) {
	if d.custom < 0 || !d.Passes || d.Late {
		return false, nil
	}
	committed := false
	defer func() { err = endCharge(ctx, l, d, committed, err) }()
	rule, p, n := d.rules[d.custom], &d.parts[d.custom], 0
	if d.order.Mode.Charges() {
		n = int(p.N)
	}
	key := rule.key.text(&d.request)
	if d.order.Mode.Takes() && d.order.Within < engine.AnyDelay && !p.Shadow {
		// Ask for 0 units first: if the Delay is too long, nothing must be taken, and a custom limiter cannot give units back.
		if res, err := rule.Limiter.Take(ctx, key, 0); err == nil && res.Allowed && res.Delay > d.order.Within {
			d.setCustom(res)
			d.Late = true
			return false, nil
		}
	}
	res, failed, refused := rule.takeCustom(ctx, key, n)
	if refused != nil {
		return false, refused
	}
	if failed != nil && d.order.Mode != engine.ModeDryRun {
		rule.totals.Add(counters.Errors, 1)
	}
	d.setCustom(res)
	p.Err = failed
	d.Passes = res.Allowed || p.Shadow
	committed = d.Passes
	return false, nil
}

// endCharge completes the charges that d made before the custom limiter was asked: they become final if committed is true, and are given
// back otherwise. err says why nothing was decided, or is nil. If err is not nil and the store does not give units back, both are returned.
func endCharge(ctx context.Context, l *RateLimiter, d *decision, committed bool, err error) error {
	switch mode := d.order.Mode; {
	case mode == engine.ModeDryRun && !committed:
		revokeDry(d)
	case mode.Charges() && committed:
		engine.ConfirmAll(d.parts, d.Now)
	case mode.Charges():
		engine.RevokeAll(d.parts, d.Now)
		if l.remote != nil {
			if failed := l.remote.giveBack(ctx, d); failed != nil && err != nil {
				err = errors.Join(err, failed)
			}
		}
		l.waiters.FreedParts(d.parts)
	}
	return err
}

// revokeDry is called if the custom limiter denies d, a dry run. It sets the answers of all other rules as if nothing was charged.
func revokeDry(d *decision) {
	for i := range d.parts {
		switch p := &d.parts[i]; {
		case i == d.custom || !p.Granted():
		case p.Keys != nil:
			p.Verdict, p.Delay = d.order.Found[i].Verdict, d.order.Found[i].Delay
		case d.origins[i].by == byStore:
			p.Left = min(p.Left+p.N, p.Limit)
		}
	}
}

// findCustom sets d.custom. It returns an error if two rules of d have a custom limiter, or if d is a reservation and a rule has one.
func findCustom(d *decision) error {
	d.custom = slices.IndexFunc(d.rules, func(r *activeRule) bool { return r.Limiter != nil })
	switch {
	case d.custom < 0:
	case d.custom < len(d.rules)-1: // rules with a Limiter come last
		names := fmt.Sprintf("%q and %q", d.rules[d.custom].Name, d.rules[d.custom+1].Name)
		return &ConfigError{"rules", names, "must have one limiter of one's own among them"}
	case d.term > 0:
		r, reason := d.rules[d.custom], "must not be asked for a reservation: a custom limiter gives no units back"
		return &ConfigError{"rules[" + strconv.Quote(r.Name) + "].limiter", fmt.Sprintf("%T", r.Limiter), reason}
	}
	return nil
}

// lookAtCustom asks the custom limiter for 0 units. CheckAll and Explain call it if another rule has denied the
// request, to show the answer of each rule. The answer to the request stays the same.
func (d *decision) lookAtCustom(ctx context.Context) {
	ctx = orBackground(ctx)
	rule := d.rules[d.custom]
	res, failed, refused := rule.takeCustom(ctx, rule.key.text(&d.request), 0)
	if refused != nil {
		res = rule.policyAnswer()
	}
	if d.order.Mode != engine.ModeDryRun && (failed != nil || refused != nil && ctx.Err() == nil) {
		rule.totals.Add(counters.Errors, 1)
	}
	d.setCustom(res)
}

// takeCustom calls Take of the custom limiter of the rule r. If Take fails, res is the answer of the failure policy,
// and failed is the error of Take. If there is no answer at all, res is zero, and refused is the error to return.
func (r *activeRule) takeCustom(ctx context.Context, key string, n int) (res Result, failed, refused error) {
	res, err := r.Limiter.Take(ctx, key, n)
	switch {
	case err == nil:
		return res, nil, nil
	case res.Degraded && errors.Is(err, ErrStore): // the FailurePolicy of the custom limiter has answered
	case ctx.Err() != nil:
		return Result{}, nil, ctx.Err()
	case r.enforces() && (errors.Is(err, ErrInvalidCount) || errors.Is(err, ErrExceedsLimit)):
		return Result{}, nil, err
	default:
		res, err = r.policyAnswer(), storeError(err)
	}
	return res, err, nil
}

// policyAnswer returns the answer of the failure policy of r, which is FailOpen or FailClosed.
func (r *activeRule) policyAnswer() Result {
	return resultOf(&engine.Part{Answer: engine.Answer{Verdict: r.OnStoreError.verdict(r.Rate)}}, &origin{by: byPolicy})
}

// setCustom stores res in d as the answer of the custom limiter.
func (d *decision) setCustom(res Result) {
	setResult(&d.parts[d.custom], res)
	d.origins[d.custom].by = byLimiter
	if res.Degraded {
		d.origins[d.custom].by = byPolicy
	}
}
