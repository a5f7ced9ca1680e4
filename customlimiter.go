package ratelimit

import (
	"context"
	"errors"
	"math"
)

// askCustom asks the custom limiter, if there is one, after all others have taken
// what they were asked for. If it denies, they are given it back.
func (d *decision) askCustom(ctx context.Context) error {
	if d.custom == nil || !d.passes || d.late {
		return nil
	}
	a, n := d.custom, 0
	if d.take {
		n = int(d.n)
	}
	keep := false // whether the others keep what they have taken
	defer func() {
		if !keep && d.take {
			d.giveBack()
		}
	}()
	limiter, key := a.rule.Limiter, a.rule.key(&d.request)
	if d.take && d.within < math.MaxInt64 && a.rule.enforces() {
		// What it has taken can not be given back: look first.
		if res, err := limiter.Take(ctx, key, 0); err == nil && res.Allowed && res.Delay > d.within {
			a.setResult(res, SourceLimiter)
			d.late = true
			return nil
		}
	}
	res, err := limiter.Take(ctx, key, n)
	switch {
	case err == nil || errors.Is(err, ErrStore):
	case a.rule.enforces() || ctx.Err() != nil:
		return err
	default: // it denies nobody, not even by an error
		keep, a.err = true, storeError(err)
		return nil
	}
	a.err = err
	a.setResult(res, SourceLimiter)
	if res.Degraded {
		a.source = SourcePolicy
	}
	d.passes = res.Allowed || !a.rule.enforces()
	keep = d.passes
	if d.take && (d.passes || !d.waits) {
		a.rule.totals.count(a.rule, res.Allowed)
	}
	return nil
}

// giveBack gives back what was taken from the states in this process.
func (d *decision) giveBack() {
	for i := range d.asks {
		if a := &d.asks[i]; a.states != nil && a.verdict.retryAfter == 0 {
			a.verdict, a.delay = a.states.giveBack(a.hash, a.then, d.n)
		}
	}
}
