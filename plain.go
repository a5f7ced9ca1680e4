package ratelimit

import (
	"context"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// takePlain decides on req by the rules of g, which is plain, and writes the answer to res.
// done is false if a store must be called to decide, or if others wait for a key. If there is
// a store, takePlain decides only if the store's own Denied denies the request, or if the
// breakers refuse the call: the keys for FailLocal then decide, and err is the refusal. It
// allocates nothing.
func (l *RateLimiter) takePlain(ctx context.Context, g *ruleGroup, req *Request, res *Result) (done bool, err error) {
	if l.settings.store != nil {
		l.time.Renew()
		if l.asking.Len() > 0 {
			return false, nil
		}
		if err = l.refusal(g, req); err == nil {
			return l.deniedAtOnce(g, req, res), nil
		}
	}
	r, observed := g.only, l.settings.observer != nil
	var watch stopwatch
	if observed {
		watch = startWatch(&l.time)
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
		return l.settlePlain(ctx, g, req, parts[:len(g.rules)], res, err, watch), err
	default:
		var parts [maxPlain]engine.Part
		return l.settlePlain(ctx, g, req, parts[:len(g.rules)], res, err, watch), err
	}
	return true, err
}

// settlePlain is takePlain for a group without an only rule: several rules, or one shadow
// rule. parts has one zero Part for each rule. It returns false if others wait for a key.
func (l *RateLimiter) settlePlain(ctx context.Context, g *ruleGroup, req *Request, parts []engine.Part, res *Result, err error, watch stopwatch) bool {
	for i, r := range g.rules {
		p := &parts[i]
		p.Keys, p.Hash, p.Shadow = r.local, r.key.hash(req), !r.enforces()
		p.Want.Tier = req.Tier
	}
	order := engine.Order{N: int64(max(req.Cost, 1)), Take: true, Within: engine.AnyDelay}
	outcome := engine.Settle(&l.time, parts, order, watch.began)
	if outcome.Queued {
		return false
	}
	binding := combine(g.rules, parts, outcome.Passes, res)
	res.Degraded = err != nil && binding >= 0
	if l.settings.observer != nil {
		l.tellPlain(ctx, g, req, &verdicts{parts: parts, now: outcome.Now}, binding, res, err, watch)
	}
	return true
}

// tellPlain tells the observer of a decision by the rules of g. If err is not nil, the failure
// policy has answered, and err says why.
func (l *RateLimiter) tellPlain(ctx context.Context, g *ruleGroup, req *Request, vs *verdicts, binding int, res *Result, err error, watch stopwatch) {
	if ctx == nil {
		ctx = context.Background()
	}
	vs.by = byMemory
	if err != nil {
		vs.by = byPolicy
	}
	l.tell(ctx, req, g.rules, vs, binding, res, err, watch.elapsed(&l.time))
}
