package ratelimit

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A Request is what a [RateLimiter] decides on.
type Request struct {
	// Client is who asks: a user, an API key. The empty Client is one shared
	// key.
	Client string

	// Endpoint is what it asks for. It picks the rules, and is the key of
	// some.
	Endpoint string

	// IP is where it asks from, for [KeyIP].
	IP string

	// Tier is the client's plan, for [Rule.Tiers].
	Tier string

	// Rules are the names of the rules to apply, in place of those that match
	// Endpoint. One that is listed twice applies once.
	Rules []string

	// Cost is how many units it takes; 0 means 1.
	Cost int
}

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
	time     timeline
	denier   denier    // the store, if it is one
	breakers *breakers // nil without a store
	waiters  waiters

	changing sync.Mutex // held while the rules change
	made     uint64     // rules made; guarded by changing
}

// unlimited is the answer where no limit applies.
var unlimited = Result{Allowed: true, Limit: -1, Remaining: -1}

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

func newRateLimiter(rules []Rule, defaultRule *Rule, set settings, err error) (*RateLimiter, error) {
	l := &RateLimiter{settings: set, time: newTimeline(set.clock)}
	if set.store != nil {
		l.breakers = newBreakers(set.store)
		l.denier, _ = set.store.(denier)
	}
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
	group := set.match(endpoint)
	if group.plain {
		if l.settings.store == nil || l.breakers.pause(&l.time, group, clientID, endpoint) {
			l.takeShort(group, clientID, endpoint, "", 1, &res)
			return
		}
		if l.deniedAtOnce(group, clientID, endpoint, "", 1, &res) {
			return
		}
	}
	d := newDecision(&Request{Client: clientID, Endpoint: endpoint}, true, math.MaxInt64)
	d.set, d.group = set, group
	res, _ = l.run(context.Background(), d)
	d.free()
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
		group, cost := set.match(req.Endpoint), max(req.Cost, 1)
		if ctx != nil {
			err = ctx.Err()
		}
		switch {
		case err != nil:
			return
		case !group.plain:
		case l.settings.store == nil:
			l.takeShort(group, req.Client, req.Endpoint, req.IP, int64(cost), &res)
			return
		case l.breakers.pause(&l.time, group, req.Client, req.Endpoint): // its error is for the longer way
		default:
			if l.deniedAtOnce(group, req.Client, req.Endpoint, req.IP, cost, &res) {
				return
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

func (l *RateLimiter) check(ctx context.Context, req *Request, take bool) (Result, error) {
	d := newDecision(req, take, math.MaxInt64)
	defer d.free()
	return l.run(ctx, d)
}

// run makes the decision d.
func (l *RateLimiter) run(ctx context.Context, d *decision) (Result, error) {
	if d.request.Cost < 0 {
		return Result{}, ErrInvalidCount
	}
	if ctx == nil {
		ctx = context.Background()
	} else if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if d.set == nil {
		if d.set = l.set.Load(); d.set == nil {
			return unlimited, nil
		}
		d.group = d.set.match(d.request.Endpoint)
	}
	var began time.Time
	observed := d.take && l.settings.observer != nil
	if observed {
		began = time.Now()
	}
	if err := d.prepare(); err != nil {
		return Result{}, err
	}
	if err := l.answer(ctx, d); err != nil {
		return Result{}, err
	}
	res, binding := d.result()
	if l.settings.single {
		res.Rule = "" // it has no rules
	}
	err := d.problems()
	if observed && !d.late && (d.passes || !d.waits) {
		l.observe(d, res, binding, err, time.Since(began))
	}
	return res, err
}

// answer has the rules of d asked.
func (l *RateLimiter) answer(ctx context.Context, d *decision) error {
	switch {
	case len(d.asks) == 0:
		d.passes = true
		return nil
	case l.settings.store != nil:
		return l.askStore(ctx, d)
	}
	d.decide(&l.time)
	return d.askCustom(ctx)
}

// observe tells the observer of d: of the answer, and of what each shadow rule would
// have answered.
func (l *RateLimiter) observe(d *decision, res Result, binding *ask, err error, took time.Duration) {
	told := Decision{Cost: int(d.n), Err: err, Took: took}
	if l.settings.observeRequests {
		told.Request = d.request
	}
	if binding != nil || len(d.asks) == 0 {
		answer := told
		answer.Result, answer.Source = res, SourceNone
		if binding != nil {
			answer.Rule, answer.KeyType, answer.Mode, answer.Source = binding.rule.Name, binding.rule.Key, binding.rule.Mode, binding.source
		}
		observe(l.settings.observer, answer)
	}
	for i := range d.asks {
		a := &d.asks[i]
		if a.rule.enforces() || a.source == "" {
			continue
		}
		shadow := told
		shadow.Rule, shadow.KeyType, shadow.Mode, shadow.Source = a.rule.Name, a.rule.Key, a.rule.Mode, a.source
		a.verdict.fill(&shadow.Result)
		shadow.Result.Delay, shadow.Result.Rule = a.delay, a.rule.Name
		shadow.Result.Degraded = a.source == SourcePolicy
		observe(l.settings.observer, shadow)
	}
}

// Reset makes clientID as good as new for endpoint, and asks who waits to try again.
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
		if r.keyed != byUser && r.keyed != byUserEndpoint {
			continue
		}
		switch {
		case r.remote != nil:
			asks = append(asks, r.ask(&req, r.Rate))
			r.remote.forget(r.hash(clientID, endpoint, ""))
		case r.states != nil:
			r.states.reset(r.hash(clientID, endpoint, ""))
		default:
			if custom, ok := r.Limiter.(interface{ Reset(key string) error }); ok {
				problems = append(problems, custom.Reset(r.key(&req)))
			}
		}
	}
	if len(asks) > 0 {
		problems = append(problems, l.resetStore(asks))
	}
	l.waiters.wakeAll()
	return errors.Join(problems...)
}
