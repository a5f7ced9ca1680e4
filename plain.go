package ratelimit

import (
	"context"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// takePlain decides on req by the rules of g, which is plain, and writes the answer to res.
// done is false if req must be decided in another way, as if others wait for a key. If the
// breakers refuse the call of the store, the keys for FailLocal decide, and err is the refusal.
// Unless it calls the store, takePlain allocates nothing.
func (l *RateLimiter) takePlain(ctx context.Context, g *ruleGroup, req *Request, res *Result) (done bool, err error) {
	if ctx == nil {
		ctx = context.Background()
	}
	r, observed := g.only, l.settings.observer != nil
	var watch stopwatch
	if observed {
		watch = startWatch(&l.time)
	}
	if l.settings.store != nil {
		if done, err = l.takeStored(ctx, g, req, res, watch); done || err == nil || r.local == nil {
			return done, err
		}
	}
	switch {
	case r != nil:
		hash := r.key.hash(req)
		v, delay, now, queued := r.local.Decide(hash, req.Tier, int64(max(req.Cost, 1)), watch.began)
		if queued {
			return false, nil
		}
		res.Delay = delay
		fill(res, &v)
		res.Rule, res.Degraded = r.resultName, err != nil
		if observed {
			l.tellPlain(ctx, g, req, &verdicts{hash: hash, now: now}, 0, res, err, watch)
		}
	case len(g.rules) <= 2:
		// To zero the larger array would take a tenth of the decision's time.
		var parts [2]engine.Part
		return l.settlePlain(ctx, g, req, parts[:len(g.rules)], res, watch), nil
	default:
		var parts [maxPlain]engine.Part
		return l.settlePlain(ctx, g, req, parts[:len(g.rules)], res, watch), nil
	}
	return true, err
}

// checkAll is CheckAll for all requests that takePlain does not decide.
func (l *RateLimiter) checkAll(ctx context.Context, req *Request, each []Result) (Result, []Result, error) {
	d := newDecision(req, true)
	defer d.free()
	res, err := l.run(ctx, d)
	if err == nil || res != (Result{}) {
		each = d.appendEach(ctx, each)
	}
	return res, each, err
}

// takeStored is takePlain for one rule with a store. It decides as decideInStore does, but without
// a decision from the pool. If the breakers refuse the call, done is false and err is the refusal.
func (l *RateLimiter) takeStored(ctx context.Context, g *ruleGroup, req *Request, res *Result, watch stopwatch) (done bool, err error) {
	l.time.Renew()
	if l.asking.Len() > 0 {
		return false, nil
	}
	r := g.only
	if l.breakers.Refusing() {
		if err = l.breakers.Refusal(l.partOf(r, req, r.Rate), l.time.Now()); err != nil {
			return false, err
		}
	}
	if l.denier != nil && len(r.Tiers) == 0 && l.settings.observer == nil {
		ask := r.ask(req, r.Rate)
		ask.N = max(req.Cost, 1)
		if known, denied := l.denier.Denied(ask); denied {
			r.totals.denied.Add(1)
			*res, res.Rule = known, r.resultName
			return true, nil
		}
	}
	return l.callStored(ctx, g, req, res, watch)
}

// callStored is the part of takeStored that calls the store. It is apart because the usual
// denial needs little of the stack.
func (l *RateLimiter) callStored(ctx context.Context, g *ruleGroup, req *Request, res *Result, watch stopwatch) (done bool, err error) {
	r := g.only
	parts, from, now := [1]engine.Part{{Hash: r.key.hash(req), Want: engine.Wanted{Tier: req.Tier}}}, origin{}, l.time.Now()
	l.resolve(r, &parts[0], &from, Ask{})
	asks := []Ask{r.ask(req, from.rate)}
	asks[0].N = max(req.Cost, 1)
	pass, err := l.breakers.Admit(l.partsOf(asks), now)
	if err != nil {
		return false, nil
	}
	results, err := l.takeFrom(ctx, pass, asks)
	switch {
	case err == nil:
		r.setAnswer(&parts[0], results[0])
		r.totals.count(false, results[0].Allowed)
		binding := combine(g.rules, parts[:], results[0].Allowed, res)
		if l.settings.observer != nil {
			l.tell(ctx, req, g.rules, &verdicts{parts: parts[:], by: byStore, now: now}, binding, res, nil, watch.elapsed(&l.time))
		}
		return true, nil
	case ctx.Err() != nil:
		return true, ctx.Err()
	}
	r.totals.errors.Add(1)
	d := newDecision(req, true)
	defer d.free()
	d.rules, d.parts, d.origins, d.custom = g.rules, append(d.parts, parts[0]), append(d.origins, from), -1
	d.watch, d.Now = watch, now
	l.fallBack(d, err)
	d.countRemote()
	*res, err = l.answered(ctx, d)
	return true, err
}

// settlePlain is takePlain for a group without an only rule: several rules, or one shadow
// rule. parts has one zero Part for each rule. It returns false if others wait for a key.
func (l *RateLimiter) settlePlain(ctx context.Context, g *ruleGroup, req *Request, parts []engine.Part, res *Result, watch stopwatch) bool {
	for i, r := range g.rules {
		p := &parts[i]
		p.Keys, p.Hash, p.Shadow = r.local, r.key.hash(req), !r.enforces()
		p.Want.Tier = req.Tier
	}
	order := engine.Order{N: int64(max(req.Cost, 1)), Take: true, Within: engine.AnyDelay}
	outcome := engine.Settle(&l.time, parts, &order, watch.began)
	if outcome.Queued {
		return false
	}
	binding := combine(g.rules, parts, outcome.Passes, res)
	if l.settings.observer != nil {
		l.tellPlain(ctx, g, req, &verdicts{parts: parts, now: outcome.Now}, binding, res, nil, watch)
	}
	return true
}

// reservePlain is settlePlain for a reservation, without an observer. It returns nil if req must be
// decided in another way.
func (l *RateLimiter) reservePlain(g *ruleGroup, req *Request, term time.Duration) *Reservation {
	if !g.plain || l.settings.store != nil || l.settings.observer != nil {
		return nil
	}
	n := int64(max(req.Cost, 1))
	if rule := g.only; rule != nil {
		hash := rule.key.hash(req)
		v, delay, receipt, queued := rule.local.Hold(hash, req.Tier, n, term)
		if queued {
			return nil
		}
		r := &Reservation{limiter: l, n: n}
		r.result.Delay, r.result.Rule = delay, rule.resultName
		fill(&r.result, &v)
		if v.Granted() {
			r.one[0] = reserved{rule: rule, hash: hash, receipt: receipt, tier: req.Tier}
			r.parts = r.one[:]
		}
		return r
	}
	var all [maxPlain]engine.Part
	parts := all[:len(g.rules)]
	for i, rule := range g.rules {
		p := &parts[i]
		p.Keys, p.Hash, p.Shadow = rule.local, rule.key.hash(req), !rule.enforces()
		p.Want = engine.Wanted{Tier: req.Tier}
	}
	order := engine.Order{N: n, Take: true, Within: engine.AnyDelay, Revocable: true}
	outcome := engine.Settle(&l.time, parts, &order, 0)
	if outcome.Queued {
		return nil
	}
	r := &Reservation{limiter: l, n: order.N}
	r.parts = r.one[:0]
	combine(g.rules, parts, outcome.Passes, &r.result)
	for i, rule := range g.rules {
		if p := &parts[i]; outcome.Passes && p.Granted() {
			r.keep(rule, p, outcome.Now, term)
		}
	}
	return r
}

// tellPlain tells the observer of a decision by the rules of g. If err is not nil, the failure
// policy has answered, and err says why.
func (l *RateLimiter) tellPlain(ctx context.Context, g *ruleGroup, req *Request, vs *verdicts, binding int, res *Result, err error, watch stopwatch) {
	vs.by = byMemory
	if err != nil {
		vs.by = byPolicy
	}
	l.tell(ctx, req, g.rules, vs, binding, res, err, watch.elapsed(&l.time))
}
