package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
	"github.com/ratelimit-go/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A RateLimiter finds the rules for a request and decides by all of them at once. The request is granted if
// and only if each rule alone would grant it. Either all rules are charged or none is.
//
// To decide on a request:
//
//   - [RateLimiter.Allow] takes one unit for a client and an endpoint. Most callers want it.
//   - [RateLimiter.Check] takes a whole [Request], with a cost, an IP or a tier, and returns errors.
//   - [RateLimiter.CheckAll] does the same as Check and also returns the Result of each rule.
//   - [RateLimiter.Wait] waits until the request is granted.
//   - [RateLimiter.Reserve] is for work whose cost is known only afterwards.
//   - [RateLimiter.Peek] returns the answer but takes nothing; [RateLimiter.Explain] also gives the reasons for it.
//
// To change rules while the limiter is in use:
//
//   - [RateLimiter.UpdateRate] changes only the Rate of a rule.
//   - [RateLimiter.AddRule] adds a rule, and fails if its name is taken.
//   - [RateLimiter.SetRule] adds a rule or replaces the one with its name; [RateLimiter.SetConfig] reads it from a map.
//   - [RateLimiter.Replace] replaces all rules; [RateLimiter.Reload] reads them from maps.
//
// The rules whose [Rule.Endpoint] equals the endpoint of a request apply to the request. If there are none, the rules with the
// longest prefix of the endpoint apply. If there are none of these either, the default rule applies. Rules that are
// [Rule.Additional] or in [ModeShadow] always apply as well. A request to which no rule applies is granted, with
// Limit and Remaining -1. While rules change, a request is decided by the old rules or by the new ones, never by a mixture.
//
// [New] makes a RateLimiter from rules, and [NewFromConfig] from maps. A RateLimiter is safe for concurrent use by multiple
// goroutines. The zero RateLimiter grants everything.
type RateLimiter struct {
	set atomic.Pointer[ruleSet] // the rules that apply now; nil in the zero RateLimiter

	settings settings
	time     engine.Timeline
	remote   *storeCaller // calls the store; nil without a store
	records  *replay.Log  // recorded grants to requests with an ID; nil with a store or without WithRequestIDs
	waiters  waitline.Lines
	retries  waitline.Retries // callers of Wait for whom a store or a custom limiter decides

	overrides override.Board

	changing   sync.Mutex // held while the rules or the overrides change
	lastSerial uint64     // the serial number of the rule that was made last; guarded by the mutex above
}

// New returns a RateLimiter with these rules. defaultRule applies to requests that no other rule matches; if it is
// nil, these requests are granted. The error lists all mistakes in rules and options, and matches [ErrInvalidConfig].
func New(rules []Rule, defaultRule *Rule, opts ...Option) (*RateLimiter, error) {
	set, err := newSettings(opts)
	return newRateLimiter(rules, defaultRule, set, err)
}

// newRateLimiter does the work of New. set and err are the settings and the error that newSettings has returned.
func newRateLimiter(rules []Rule, defaultRule *Rule, set settings, err error) (*RateLimiter, error) {
	l := &RateLimiter{settings: set, time: newTimeline(set.clock)}
	l.time.OnRestart(l.restart)
	l.remote = newStoreCaller(&l.settings, &l.time)
	l.waiters.Init(&l.time, set.maxWaiters, &l.retries, l.rematch)
	if err == nil {
		err = errors.Join(set.named(), l.setRequestIDs(), l.initOverrides())
	}
	if err != nil {
		return nil, errors.Join(err, newRuleCheck(set.store).addAll(allGiven(rules, defaultRule)))
	}
	l.set.Store(newRuleSet(nil))
	if err := l.Replace(rules, defaultRule); err != nil {
		return nil, err
	}
	return l, nil
}

// restart forgets what every key in this process has used. It is called when a clock that first showed a time outside
// the years 1678 to 2262 now shows a time within these years.
func (l *RateLimiter) restart() {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.records != nil {
		l.records.Clear()
	}
	l.waiters.Restart(func() {
		for _, r := range l.set.Load().List {
			if r.local != nil {
				r.local.Restart()
			}
			r.penal.Pardon(func(*penalty.Whose) bool { return true })
		}
	})
	l.retries.Wake()
}

// Allow takes one unit from each rule for a request of clientID for endpoint, if every one of these rules has a unit left. A
// denial changes nothing. If the [Store] cannot be reached, the [FailurePolicy] answers, and [Result.Degraded] is set;
// [RateLimiter.Check] also returns the error. In a rule by [KeyIP], all calls of Allow use the same key, because they have no IP.
func (l *RateLimiter) Allow(clientID, endpoint string) (res Result) {
	set := l.set.Load()
	if set == nil {
		return unlimited
	}
	req := Request{Client: clientID, Endpoint: endpoint}
	group := set.match(endpoint)
	if group.plain && !l.overrides.Meets(clientID, "") {
		if done, _ := l.takePlain(context.Background(), group, &req, &res); done {
			return
		}
	}
	res, _ = l.check(context.Background(), &req, engine.ModeTake)
	return
}

// Check takes req.Cost units from each rule for req, if each rule has that many units left. A denial changes nothing.
//
// The Result is that of the binding rule: for a denied request, the rule with the longest RetryAfter; for a granted
// one, the rule with the fewest units left. Remaining is the smallest of all rules, and Delay the largest. Rules in
// [ModeShadow] do not affect the Result, and rules in [ModeAdvise] only its field Advised.
//
// If the error matches [ErrUnknownRule] or [ErrInvalidCount], or is the error of ctx because ctx has ended, Check takes
// nothing and returns the zero Result. With the following two errors, the Result is an answer: act on [Result.Allowed] and
// log the error. [ErrStore] means that the [FailurePolicy] has answered, or that the [Store] has not given units back.
// [ErrInvalidConfig] means that [Rule.Resolve] has returned an invalid rate, and that the rule has decided by its own Rate.
//
// If one of the rules has a custom [Limiter], Check calls the Limiter last, after all other rules were charged. If the Limiter denies, the
// other rules get their units back. If the Limiter returns [ErrInvalidCount] or [ErrExceedsLimit], Check returns the same error with the
// zero Result. If it returns another error, the rule's [FailurePolicy] answers, and the error of Check matches [ErrStore]. But if the error
// of the Limiter matches ErrStore and its Result is Degraded, this Result is the answer. If two rules have a custom Limiter, Check
// takes nothing and returns the zero Result and an error that matches [ErrInvalidConfig].
func (l *RateLimiter) Check(ctx context.Context, req Request) (res Result, err error) {
	if g := l.plainGroup(ctx, &req); g != nil {
		if done, err := l.takePlain(ctx, g, &req, &res); done {
			return res, err
		}
	}
	return l.check(ctx, &req, engine.ModeTake)
}

// CheckAll decides as [RateLimiter.Check] does. It also appends the Result of each rule in [ModeEnforce] or [ModeAdvise]
// to the slice that is passed to it, and returns the extended slice. The Results are in the order of the rules, the
// default rule last, and [Result.Rule] names the rule. A rule that does not limit the request is included, with Limit
// and Remaining -1. If the passed slice has enough capacity, CheckAll allocates nothing.
//
// The Result of a rule is what the rule would have answered alone. If the request was denied, a rule that alone would
// grant it has Allowed set, and Remaining is not reduced, because nothing was taken. If another rule denies the request,
// CheckAll calls Take of a custom [Limiter] with 0 units, and the Limiter answers as for one unit. If Take fails, the
// rule's [FailurePolicy] answers, and [RuleStats] count the error. If requests with the same keys already wait for a [Store] or a
// custom Limiter, CheckAll calls neither of the two: all rules but the one that denies have Limit and Remaining -1.
//
// If Check would return the zero Result with an error, CheckAll appends nothing.
func (l *RateLimiter) CheckAll(ctx context.Context, req Request, each []Result) (res Result, all []Result, err error) {
	if g := l.plainGroup(ctx, &req); g != nil && g.only != nil && req.ID == "" && l.remote == nil {
		if done, err := l.takePlain(ctx, g, &req, &res); done {
			return res, append(each, res), err // there is only one rule, so res is the Result of that rule too
		}
	}
	d := newDecision(&req, engine.ModeTake)
	defer d.free()
	if res, err = l.run(ctx, d); err == nil || res != (Result{}) {
		each = d.appendEach(ctx, each)
	}
	return res, each, err
}

// Peek returns what [RateLimiter.Check] would return if req had the cost 1 in each of its units. But Peek takes nothing,
// so Remaining is not reduced. Peek ignores req.ID. No [Observer] sees it, and [RuleStats] do not count it.
func (l *RateLimiter) Peek(ctx context.Context, req Request) (Result, error) {
	return l.check(ctx, &req, engine.ModeLook)
}

// check decides on req by the method run, which is the general path. It is used if takePlain, the fast path, cannot decide.
func (l *RateLimiter) check(ctx context.Context, req *Request, mode engine.Mode) (Result, error) {
	d := newDecision(req, mode)
	defer d.free()
	return l.run(ctx, d)
}

// Rules returns the rules in their order, and the default rule, or nil if there is none. Empty fields have their default values, and an
// OnStoreError that was zero is the policy that the rule inherits. All callers get the same slice: do not change it or its maps. When the
// rules change, the slice stays as it is. Rules makes a new slice only on the first call after a change; further calls allocate nothing.
func (l *RateLimiter) Rules() (rules []Rule, defaultRule *Rule) { return l.set.Load().list() }

// Stats returns the totals of each rule, in the order of the rules, the default rule last. Limiters always count, so
// calling Stats does not slow decisions down.
func (l *RateLimiter) Stats() []RuleStats {
	set := l.set.Load()
	if set == nil {
		return nil
	}
	stats := make([]RuleStats, len(set.List))
	for i, r := range set.List {
		stats[i] = r.stats()
	}
	return stats
}

// StoreStats returns the totals of the limiter's [Store], or the zero StoreStats if it has none.
func (l *RateLimiter) StoreStats() (s StoreStats) {
	if l.remote != nil {
		stats := l.remote.Breakers.Stats()
		s = StoreStats{Parts: stats.Asked, Open: stats.Open, Opened: stats.Opened, LastError: stats.Last}
		for _, f := range stats.Failures {
			s.Failures = append(s.Failures, StoreFailures(f))
		}
	}
	return s
}

// Reset forgets what the sender of req has used: the keys of the sender are then as if they had never been used.
// Callers that wait for these keys are served as if they came now, in their order.
//
// Reset looks at the rules that apply to a request for req.Endpoint, or that req.Rules names. If req has
// no Endpoint and no Rules, Reset looks at all rules. For these rules, Reset resets
//
//   - the keys that are made of req.Client, req.IP or req.Attrs, alone or with req.Endpoint;
//   - the keys that the request shares with others, by [KeyEndpoint] and [KeyGlobal], only if req.Rules names the rule.
//
// Reset skips a rule whose Key has a part that req does not have: rules by IP if req has no IP, and rules by
// client and endpoint if it has no Endpoint. If a custom [Limiter] has a method Reset(key string) error, Reset calls
// this method; it skips any other custom Limiter. The Tier and the Cost of req have no effect.
//
// A key that was never used can be reset. The error matches [ErrNotReset] if there is no key to reset, or if a key that
// has no state of its own (see [WithMaxKeys]) is denied by the budget that such keys share. The error matches
// [ErrStore] if the [Store] has failed. An error of a custom Limiter is returned unchanged. Despite these errors, all
// other keys are reset. If req.Rules has an unknown name, nothing is reset and the error matches [ErrUnknownRule].
func (l *RateLimiter) Reset(ctx context.Context, req Request) error {
	ctx = orBackground(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	set := l.set.Load()
	if set == nil {
		return fmt.Errorf("%w: there are no rules", ErrNotReset)
	}
	rules := set.List
	if len(req.Rules) > 0 || req.Endpoint != "" {
		d := newDecision(&req, engine.ModeLook)
		defer d.free()
		if err := d.find(set); err != nil {
			return err
		}
		rules = d.rules
	}
	rules = slices.DeleteFunc(slices.Clone(rules), func(r *activeRule) bool { return !r.resets(&req) })
	if len(rules) == 0 {
		return fmt.Errorf("%w: no rule has a key that belongs to the request alone, or that it names and has all parts of", ErrNotReset)
	}
	return l.resetKeys(ctx, rules, &req)
}

// resets reports whether Reset, called with req, resets the key of req in the rule r. It returns true if req has all
// parts of the key, and either the key belongs to the sender alone or req.Rules names r.
func (r *activeRule) resets(req *Request) bool {
	whole, own := r.key.Given((*keyspec.Request)(req))
	return whole && (own || slices.Contains(req.Rules, r.Name))
}

// resetKeys resets the keys of req in rules, even while callers wait for them.
func (l *RateLimiter) resetKeys(ctx context.Context, rules []*activeRule, req *Request) error {
	var asks []Ask
	var problems []error
	var keys []waitline.Key
	var local []*activeRule // the rule of each element of the slice keys
	want := engine.Wanted{Tier: req.Tier}
	for _, r := range rules {
		r.penal.Forget(r.key.hash(req))
		switch {
		case r.remote != nil:
			asks = append(asks, r.ask(req, r.Rate))
			if r.local != nil {
				r.local.Reset(r.key.hash(req), want)
			}
		case r.keys != nil:
			keys, local = append(keys, waitline.Key{Keys: r.keys, Hash: r.key.hash(req)}), append(local, r)
		default:
			if custom, ok := r.Limiter.(interface{ Reset(key string) error }); ok {
				problems = append(problems, custom.Reset(r.key.text(req)))
			}
		}
	}
	if len(asks)+len(keys)+len(problems) == 0 {
		problems = append(problems, fmt.Errorf("%w: the limiter has no method Reset", ErrNotReset))
	}
	l.waiters.Adjust(func(instant) { // all keys are reset before waiting callers are served
		for i, r := range local {
			if !r.keys.Reset(keys[i].Hash, want) {
				problems = append(problems, fmt.Errorf("rule %q: %w", r.Name, errOverflown))
			}
		}
	}, keys...)
	if len(asks) > 0 {
		problems = append(problems, l.remote.Reset(ctx, asks))
	}
	l.overrides.Wake()
	l.retries.Wake()
	return errors.Join(problems...)
}

// The methods below are the fast path. It decides only by a plain group of rules; a plain group calls no code of the user. For all
// other groups, and while callers wait for the key, the method run decides, which is the general path.

// plainGroup returns the group of rules for req, or nil if the fast path, takePlain, cannot decide by these rules.
func (l *RateLimiter) plainGroup(ctx context.Context, req *Request) *ruleGroup {
	set := l.set.Load()
	if set == nil || len(req.Rules) > 0 || req.validate() != nil || ctx != nil && ctx.Err() != nil {
		return nil
	}
	if g := set.match(req.Endpoint); g.plain && !l.overrides.Meets(req.Client, req.IP) {
		return g
	}
	return nil
}

// takePlain decides on req by the plain group g and writes the answer to res. If done is false, the general path has
// to decide. If the circuit breakers refuse a call of the store, the counts that this process keeps for the policy
// FailLocal decide, and err says why the call was refused. takePlain allocates nothing.
func (l *RateLimiter) takePlain(ctx context.Context, g *ruleGroup, req *Request, res *Result) (done bool, err error) {
	if req.ID != "" {
		return l.replayPlain(g, req, res), nil
	}
	rules, n := g.rules, int64(max(req.Cost, 1))
	if g.counted || len(req.Costs) > 0 {
		var some [maxPlain]*activeRule
		if rules = req.asked(g.rules, &some); g.only != nil {
			n, _ = req.cost(g.only.Unit)
		}
		if len(rules) == 0 || g.only != nil && n == 0 {
			return false, nil
		}
	}
	var began instant
	if l.remote != nil {
		if l.retries.Len() > 0 {
			return false, nil
		}
		switch began, err = l.remote.refusal(g.only, req); {
		case err == nil:
			return l.remote.knownDenied(g.only, req, n, res), nil
		case g.only.local == nil:
			return false, nil
		}
	}
	ctx = orBackground(ctx)
	var watch engine.Stopwatch
	if l.settings.observer != nil {
		watch = l.time.StartWatch()
		began = watch.Began
	}
	switch r := g.only; {
	case r != nil:
		hash := r.key.hash(req)
		v, delay, now, queued := r.local.Decide(hash, req.Tier, n, began)
		if queued {
			return false, nil
		}
		if res.Delay = delay; req.Tier != "" {
			r.countTier(req.Tier, true)
		}
		r.answer(res, &v, err != nil)
		if l.settings.observer != nil {
			by := byMemory
			if err != nil {
				by = byPolicy
			}
			var parts [1]engine.Part
			parts[0].Hash, parts[0].N = hash, n
			vs := verdicts{by: by, parts: parts[:], now: now, took: watch.Elapsed(&l.time)}
			l.tell(ctx, req, g.rules, &vs, 0, res, err)
		}
		return true, err
	case len(rules) <= 2:
		// Two rules get a smaller array: zeroing the array for maxPlain rules takes a tenth of the decision's time.
		var parts [2]engine.Part
		return l.takeSeveral(ctx, g, req, parts[:len(rules)], res, rules, watch), nil
	default:
		var parts [maxPlain]engine.Part
		return l.takeSeveral(ctx, g, req, parts[:len(rules)], res, rules, watch), nil
	}
}

// answer writes the verdict v on a request to which only the rule r applies to res. degraded is true if a failure policy answers.
func (r *activeRule) answer(res *Result, v *engine.Verdict, degraded bool) {
	fill(res, v)
	if res.Rule, res.Degraded = r.resultName(), degraded; degraded && !res.Allowed {
		res.Reason = ReasonPolicy
	}
}

// takeSeveral does the work of takePlain for several rules, or for one shadow rule. rules are the rules of the group g
// that apply to req, and parts has one zero Part for each of them.
func (l *RateLimiter) takeSeveral(
	ctx context.Context, g *ruleGroup, req *Request, parts []engine.Part, res *Result, rules []*activeRule, watch engine.Stopwatch,
) (done bool) {
	n := int64(max(req.Cost, 1))
	for i, r := range rules {
		p := &parts[i]
		p.Keys, p.Hash, p.N = r.local, r.key.hash(req), n
		p.Want.Tier = req.Tier
		if !r.enforces() {
			p.Shadow, p.Advises = true, r.Mode == ModeAdvise
		}
		if len(req.Costs) > 0 {
			p.N, _ = req.cost(r.Unit)
		}
	}
	order := engine.Order{Within: engine.AnyDelay}
	outcome := engine.DecideAll(&l.time, parts, &order, watch.Began)
	if outcome.Queued {
		return false
	}
	if len(rules) < len(g.rules) {
		req.countUnasked(g.rules)
	}
	for i := 0; i < len(rules) && req.Tier != ""; i++ {
		rules[i].countTier(req.Tier, outcome.Passes || !parts[i].Granted())
	}
	binding := combine(rules, parts, outcome.Passes, req, res)
	if l.settings.observer != nil {
		vs := verdicts{by: byMemory, parts: parts, now: outcome.Now, took: watch.Elapsed(&l.time)}
		l.tell(ctx, req, rules, &vs, binding, res, nil)
	}
	return true
}
