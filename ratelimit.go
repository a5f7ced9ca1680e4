package ratelimit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A RateLimiter finds the rules for a request and decides by all of them at once:
// the request passes if and only if each of them alone would let it, and either all
// of them are charged or none.
//
// The rules for a request are those whose Endpoint it names, else those of the
// longest prefix that its endpoint begins with, else the default rule. A request
// without rules passes, with Limit and Remaining -1. All that a decision is made by
// is of one set of rules, also while they change.
//
// A RateLimiter is safe for concurrent use by multiple goroutines. The zero
// RateLimiter passes everything.
type RateLimiter struct {
	set atomic.Pointer[ruleSet] // nil in the zero value

	settings settings
	time     engine.Timeline
	denier   denier                       // the store, if it is one
	parted   interface{ Part(a Ask) int } // the store, if it has parts
	breakers *breaker.Set                 // nil without a store
	waiters  waitline.Lines

	changing sync.Mutex // held while the rules change
	made     uint64     // keys of rules made; guarded by changing
}

// New returns a RateLimiter with these rules. Requests that no rule matches are for
// the default rule, or pass if it is nil. New reports all that is wrong with the
// rules at once; its errors match [ErrInvalidConfig].
func New(rules []Rule, defaultRule *Rule, opts ...Option) (*RateLimiter, error) {
	set, err := newSettings(opts)
	return newRateLimiter(rules, defaultRule, set, err)
}

// NewFromConfig returns a RateLimiter whose rules are read from maps, as JSON and
// YAML decode to, see [DecodeRules]. There must be at least one, or a default.
func NewFromConfig(configs []map[string]any, defaultConfig map[string]any, opts ...Option) (*RateLimiter, error) {
	set, err := newSettings(opts)
	rules, defaultRule, invalid := decodeRules(configs, defaultConfig, &set)
	if invalid != nil {
		return nil, errors.Join(err, invalid)
	}
	return newRateLimiter(rules, defaultRule, set, err)
}

// newRateLimiter is New with the options applied; err is what is wrong with them.
func newRateLimiter(rules []Rule, defaultRule *Rule, set settings, err error) (*RateLimiter, error) {
	l := &RateLimiter{settings: set, time: newTimeline(set.clock)}
	l.setStore(set.store)
	if err := errors.Join(err, checkRules(rules, defaultRule, &set)); err != nil {
		return nil, err
	}
	if err := l.replace(rules, defaultRule); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit for a request of clientID for endpoint, if each rule for it
// lets it. A denial changes nothing. Where a [Store] can not be asked, the failure
// policy answers.
func (l *RateLimiter) Allow(clientID, endpoint string) (res Result) {
	set := l.set.Load()
	if set == nil {
		return unlimited
	}
	req := Request{Client: clientID, Endpoint: endpoint}
	group := set.match(endpoint)
	if group.plain {
		if done, _ := l.takePlain(group, &req, &res); done {
			return
		}
	}
	res, _ = l.check(context.Background(), &req, true)
	return
}

// Check takes req.Cost units from each rule for req, if each has them. The Result is
// that of the binding rule: of a denied request the one that has to be waited for
// longest, of a granted one that which leaves least. Remaining is the smallest of
// all, Delay the largest.
//
// An error that matches [ErrUnknownRule] or [ErrInvalidCount], or that of ctx, comes
// with the zero Result and takes nothing. With [ErrStore] the Result is the failure
// policy's answer, and with [ErrInvalidConfig], if a rule's Resolve gave an invalid
// rate, it is that of the rule's Rate: act on Allowed and log the error.
//
// If a rule has a [Limiter] of its own, that is asked last, and the other rules get
// back what they were charged if it denies. More than one for a request is an error
// that matches [ErrInvalidConfig].
func (l *RateLimiter) Check(ctx context.Context, req Request) (res Result, err error) {
	if set := l.set.Load(); set != nil && len(req.Rules) == 0 && req.Cost >= 0 {
		if ctx != nil && ctx.Err() != nil {
			return res, ctx.Err()
		}
		if group := set.match(req.Endpoint); group.plain {
			if done, err := l.takePlain(group, &req, &res); done {
				return res, err
			}
		}
	}
	return l.check(ctx, &req, true)
}

// Peek answers as Check would for a cost of 1, takes nothing and leaves Remaining
// unreduced. Nobody is told of it.
func (l *RateLimiter) Peek(ctx context.Context, req Request) (Result, error) {
	if req.Cost > 0 {
		req.Cost = 1
	}
	return l.check(ctx, &req, false)
}

// check decides on req, or looks. It is the way of every request that takePlain does not
// decide.
func (l *RateLimiter) check(ctx context.Context, req *Request, take bool) (Result, error) {
	d := newDecision(req, take)
	defer d.free()
	return l.run(ctx, d)
}

// takePlain decides on req by the rules of g, which is plain, and puts the answer where
// res points. It reports whether it has: if there is a store, it has only if that would
// not be asked. err then says why the failure policy has answered.
//
// It allocates nothing: what a decision needs is on the stack.
func (l *RateLimiter) takePlain(g *ruleGroup, req *Request, res *Result) (done bool, err error) {
	if l.settings.store != nil {
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
		var v engine.Verdict
		v, res.Delay = r.local.Decide(r.keyed.hash(req), req.Tier, int64(max(req.Cost, 1)), watch.began)
		fill(res, &v)
		res.Rule, res.Degraded = r.title, err != nil
		if observed {
			l.tellPlain(g, req, nil, 0, res, err, watch)
		}
	case len(g.rules) <= 2:
		// To zero the larger array would take a tenth of the decision's time.
		var parts [2]engine.Part
		l.settlePlain(g, req, parts[:len(g.rules)], res, err, watch)
	default:
		var parts [maxPlain]engine.Part
		l.settlePlain(g, req, parts[:len(g.rules)], res, err, watch)
	}
	return true, err
}

// settlePlain is takePlain for a group of several rules. parts are zero, one for each rule.
func (l *RateLimiter) settlePlain(g *ruleGroup, req *Request, parts []engine.Part, res *Result, err error, watch stopwatch) {
	for i, r := range g.rules {
		p := &parts[i]
		p.Keys, p.Hash, p.Shadow = r.local, r.keyed.hash(req), !r.enforces()
		p.Want.Tier = req.Tier
	}
	order := engine.Order{N: int64(max(req.Cost, 1)), Take: true, Within: engine.AnyDelay}
	outcome := engine.Settle(&l.time, parts, order, watch.began)
	binding := answer(g.rules, parts, outcome.Passes, res)
	res.Degraded = err != nil && binding >= 0
	if l.settings.observer != nil {
		l.tellPlain(g, req, parts, binding, res, err, watch)
	}
}

// tellPlain tells the observer of a decision by the rules of g. parts may be nil if there
// is one rule. err says why the store was not asked, if there is one.
func (l *RateLimiter) tellPlain(g *ruleGroup, req *Request, parts []engine.Part, binding int, res *Result, err error, watch stopwatch) {
	by := byMemory
	if err != nil {
		by = byPolicy
	}
	l.tell(req, g.rules, &verdicts{parts: parts, by: by}, binding, res, err, watch.took(&l.time))
}

// Reset makes clientID as good as new for endpoint, and wakes the waiters, who try again.
// It reaches the client's own state only: that of the rules for endpoint whose Key
// is [KeyUser] or [KeyUserEndpoint].
func (l *RateLimiter) Reset(clientID, endpoint string) error {
	set := l.set.Load()
	if set == nil {
		return nil
	}
	req := Request{Client: clientID, Endpoint: endpoint}
	var asks []Ask
	var problems []error
	for _, r := range set.match(endpoint).rules {
		if !r.keyed.ofClient() {
			continue
		}
		switch {
		case r.remote != nil:
			asks = append(asks, r.ask(&req, r.Rate))
			if r.local != nil {
				r.local.Reset(r.keyed.hash(&req))
			}
		case r.keys != nil:
			r.keys.Reset(r.keyed.hash(&req))
		default:
			if custom, ok := r.Limiter.(interface{ Reset(key string) error }); ok {
				problems = append(problems, custom.Reset(r.keyed.text(&req)))
			}
		}
	}
	if len(asks) > 0 {
		problems = append(problems, l.resetStore(asks))
	}
	l.waiters.WakeAll()
	return errors.Join(problems...)
}
