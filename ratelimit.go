package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/replay"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// A RateLimiter finds the rules for a request and decides by all of them at once. The
// request is granted if and only if each rule alone would grant it. Either all rules are
// charged or none is.
//
// The rules for a request are those whose [Rule.Endpoint] equals its endpoint. If there are none,
// they are those with the longest prefix that its endpoint begins with, and if there are none of
// these either, the default rule. Rules that are [Rule.Additional] or in [ModeShadow] are no such
// match: they apply beside it. A request without rules is granted, with Limit and Remaining -1.
// While rules change, each decision is made by the old rules or by the new ones.
//
// [New] makes a RateLimiter of rules, and [NewFromConfig] one of maps. A RateLimiter is
// safe for concurrent use by multiple goroutines. The zero RateLimiter grants everything.
type RateLimiter struct {
	set atomic.Pointer[ruleSet] // nil in the zero value

	settings    settings
	time        engine.Timeline
	denier      denier                       // the store, or nil if that has no Denied
	partitioned interface{ Part(a Ask) int } // the store, or nil if that has no Part
	breakers    *breaker.Set                 // nil without a store
	records     *replay.Log                  // of requests with an ID; nil with a store, and without WithRequestIDs
	once        oncer                        // the store that has them, or nil
	waiters     waitline.Lines
	asking      waitline.Asks // who waits for a store or a custom limiter

	changing   sync.Mutex // held while the rules change
	lastSerial uint64     // the highest serial of a rule so far; guarded by changing
}

// New returns a RateLimiter with these rules. defaultRule applies to the requests that no
// other rule matches; if it is nil, they are granted. The error lists everything that is
// wrong with the rules and the options, and matches [ErrInvalidConfig].
func New(rules []Rule, defaultRule *Rule, opts ...Option) (*RateLimiter, error) {
	set, err := newSettings(opts)
	return newRateLimiter(rules, defaultRule, set, err)
}

// NewFromConfig returns a RateLimiter whose rules are read from maps, such as those that
// encoding/json decodes a file to. [DecodeRules] says what the maps may have. There must
// be at least one map in configs, or defaultConfig must not be nil. The error lists
// everything that is wrong, and matches [ErrInvalidConfig].
func NewFromConfig(configs []map[string]any, defaultConfig map[string]any, opts ...Option) (*RateLimiter, error) {
	set, err := newSettings(opts)
	rules, defaultRule, invalid := newDecoder(set.factory, set.env()).decode(configs, defaultConfig, &set)
	if invalid != nil {
		return nil, errors.Join(err, invalid)
	}
	l, err := newRateLimiter(rules, defaultRule, set, err)
	if err != nil {
		closeMade(madeFor(rules, defaultRule)...)
	}
	return l, err
}

// newRateLimiter is New after the options have been applied to set. err says what is
// wrong with the options, or is nil.
func newRateLimiter(rules []Rule, defaultRule *Rule, set settings, err error) (*RateLimiter, error) {
	l := &RateLimiter{settings: set, time: newTimeline(set.clock)}
	l.time.OnRestart(l.restart)
	l.setStore(set.store)
	l.waiters.Init(&l.time, set.maxWaiters, &l.asking, l.matchAgain)
	if err == nil {
		err = errors.Join(set.named(), l.setRequestIDs())
	}
	if err != nil {
		return nil, errors.Join(err, checkRules(newRuleCheck(&set), rules, defaultRule))
	}
	l.set.Store(newRuleSet(nil))
	if err := l.Replace(rules, defaultRule); err != nil {
		return nil, err
	}
	return l, nil
}

// restart makes every key in this process as new, after the clock was set to a usual time.
func (l *RateLimiter) restart() {
	l.changing.Lock()
	defer l.changing.Unlock()
	if l.records != nil {
		l.records.Clear()
	}
	l.waiters.Restart(func() {
		for _, r := range l.set.Load().rules {
			if r.local != nil {
				r.local.Restart()
			}
		}
	})
	l.asking.Wake()
}

// Allow takes one unit from each rule for a request of clientID for endpoint, if every one
// of them has a unit left. A denial changes nothing. If the [Store] cannot be reached, the
// [FailurePolicy] answers, and [Result.Degraded] is set. For the error behind that, and for
// requests with a cost, an IP or a tier, see [RateLimiter.Check]. The request has no IP, so in
// a rule by [KeyIP] it shares one key with all others that have none.
func (l *RateLimiter) Allow(clientID, endpoint string) (res Result) {
	set := l.set.Load()
	if set == nil {
		return unlimited
	}
	req := Request{Client: clientID, Endpoint: endpoint}
	group := set.match(endpoint)
	if group.plain {
		if done, _ := l.takePlain(context.Background(), group, &req, &res); done {
			return
		}
	}
	res, _ = l.check(context.Background(), &req, true)
	return
}

// Check takes req.Cost units from each rule for req, if every one of them has that many
// left. A denial changes nothing.
//
// The Result is that of the binding rule. For a denied request, this is the rule with the
// longest RetryAfter; for a granted one, the rule with the fewest units left. Remaining is
// the smallest of all rules, and Delay the largest. Rules in [ModeShadow] have no part in
// the Result.
//
// Check takes nothing and returns the zero Result with an error that matches
// [ErrUnknownRule] or [ErrInvalidCount], and with the error of ctx if ctx has ended. With
// the following two errors, the Result is an answer: act on [Result.Allowed] and log the error.
// With [ErrStore], the [FailurePolicy] has answered, or the [Store] has not given units back.
// With [ErrInvalidConfig], [Rule.Resolve] has returned an invalid rate, and the rule has
// decided by its own Rate.
//
// If one of the rules has a custom [Limiter], Check calls it last, after the other rules
// were charged. If it denies, the other rules get their units back. Its [ErrInvalidCount] and
// [ErrExceedsLimit] are returned with the zero Result. Any other error matches [ErrStore], and
// the rule's [FailurePolicy] answers, unless the limiter itself has answered with a Result that
// is Degraded. If two of the rules have a custom Limiter, Check takes nothing and returns the
// zero Result and an error that matches [ErrInvalidConfig].
func (l *RateLimiter) Check(ctx context.Context, req Request) (res Result, err error) {
	if set := l.set.Load(); set != nil && len(req.Rules)|len(req.ID) == 0 && req.Cost >= 0 {
		if ctx != nil && ctx.Err() != nil {
			return res, ctx.Err()
		}
		if group := set.match(req.Endpoint); group.plain {
			if done, err := l.takePlain(ctx, group, &req, &res); done {
				return res, err
			}
		}
	}
	if req.ID != "" && l.replayPlain(ctx, &req, &res) {
		return res, nil
	}
	return l.check(ctx, &req, true)
}

// CheckAll decides as [RateLimiter.Check] does. It also appends to each the Result of each
// rule that enforces, and returns the extended slice. They are in the order in which the
// rules were given, the default rule last, and [Result.Rule] names the rule. A rule that does
// not limit the request is among them, with Limit and Remaining -1. If each has the capacity,
// CheckAll allocates nothing.
//
// The Result of a rule is what it would have answered alone. If the request was denied, a rule
// that alone would grant it has Allowed set, and Remaining is not reduced, because nothing was
// taken. A custom [Limiter] is not asked for units that another rule denies: CheckAll calls its
// Take with 0 units, so its Result is the answer that one unit would get. If that call fails,
// the rule's [FailurePolicy] answers, and [RuleStats] count the error. If others wait for a [Store]
// or a custom Limiter, it is not asked: all but the binding rule then have Limit and Remaining -1.
//
// If Check would return the zero Result with an error, CheckAll appends nothing.
func (l *RateLimiter) CheckAll(ctx context.Context, req Request, each []Result) (res Result, all []Result, err error) {
	if set := l.set.Load(); set != nil && l.settings.store == nil && len(req.Rules)|len(req.ID) == 0 && req.Cost >= 0 && (ctx == nil || ctx.Err() == nil) {
		if group := set.match(req.Endpoint); group.plain && group.only != nil {
			if done, err := l.takePlain(ctx, group, &req, &res); done {
				if err == nil || res != (Result{}) {
					each = append(each, res) // the rule's own, as there is no other
				}
				return res, each, err
			}
		}
	}
	return l.checkAll(ctx, &req, each)
}

// Peek returns what [RateLimiter.Check] would return for req with a cost of 1, but takes
// nothing: Remaining still counts the unit that Check would have taken. The [Observer] does
// not see it, and [RuleStats] do not count it. It ignores req.ID.
func (l *RateLimiter) Peek(ctx context.Context, req Request) (Result, error) {
	if req.Cost > 0 {
		req.Cost = 1
	}
	return l.check(ctx, &req, false)
}

// check decides on req, or only looks if take is false. It decides all requests that
// takePlain does not.
func (l *RateLimiter) check(ctx context.Context, req *Request, take bool) (Result, error) {
	d := newDecision(req, take)
	defer d.free()
	return l.run(ctx, d)
}

// Rules returns the rules in their order, and the default rule, or nil if there is none. They
// are complete: what was left empty is filled in, and an OnStoreError that inherits is the
// policy that it inherits. The result is shared by all callers and must not be changed, nor
// must the maps in it. A change of the rules does not change it. After a change, the first
// call of Rules makes it anew; the others allocate nothing.
func (l *RateLimiter) Rules() (rules []Rule, defaultRule *Rule) {
	set := l.set.Load()
	if set == nil {
		return nil, nil
	}
	set.listing.Do(func() {
		for _, r := range set.rules {
			if r.isDefault {
				set.listedDefault = &r.Rule
			} else {
				set.listed = append(set.listed, r.Rule)
			}
		}
		set.listed = slices.Clip(set.listed)
	})
	return set.listed, set.listedDefault
}

// Reset forgets what the sender of req has used: those of its keys are as if they had never
// been used. The callers that wait for these are served as if they came now, in their order.
//
// Reset is about the rules that apply to a request for req.Endpoint, or to one that names
// req.Rules. If req has neither, it is about all rules. Of these, it resets
//   - the keys that are made of req.Client, req.IP or req.Attrs, alone or with req.Endpoint;
//   - the keys that the request shares with others, which are those of [KeyEndpoint] and
//     [KeyGlobal], only if req.Rules names the rule.
//
// It skips a rule whose Key has a part that req does not have: without an IP, those by IP, and
// without an Endpoint, those by client and endpoint. A custom [Limiter] is reset by its method
// Reset(key string) error, and skipped if it has none. Tier and Cost have no meaning here.
//
// A key that was never used can be reset. If there is no key at all that Reset could reset,
// or if one has no state of its own and is denied because of the budget that such keys share,
// the error matches [ErrNotReset]. It matches [ErrUnknownRule] if req.Rules has an unknown
// name, and then nothing is reset. An error of the [Store] matches [ErrStore]; an error of a
// custom Limiter is returned as it is. All other keys are reset all the same.
func (l *RateLimiter) Reset(ctx context.Context, req Request) error {
	if ctx == nil {
		ctx = context.Background()
	} else if err := ctx.Err(); err != nil {
		return err
	}
	set := l.set.Load()
	if set == nil {
		return fmt.Errorf("%w: there are no rules", ErrNotReset)
	}
	rules := set.rules
	if len(req.Rules) > 0 || req.Endpoint != "" {
		d := newDecision(&req, false)
		defer d.free()
		if err := d.find(set); err != nil {
			return err
		}
		rules = d.rules
	}
	var own []*activeRule
	for _, r := range rules {
		if r.resets(&req) {
			own = append(own, r)
		}
	}
	if len(own) == 0 {
		return fmt.Errorf("%w: no rule has a key that belongs to the request alone, or that it names and has all parts of", ErrNotReset)
	}
	return l.resetKeys(ctx, own, &req)
}

// resets reports whether a Reset of req, which meets r or asks for all rules, resets its key.
func (r *activeRule) resets(req *Request) bool {
	whole, own := r.key.Given((*keyspec.Request)(req))
	return whole && (own || slices.Contains(req.Rules, r.Name))
}

// resetKeys resets the keys of req in rules, also while callers wait for them.
func (l *RateLimiter) resetKeys(ctx context.Context, rules []*activeRule, req *Request) error {
	l.time.Renew()
	var asks []Ask
	var problems []error
	want := engine.Wanted{Tier: req.Tier}
	done := false // whether there was anything to reset
	for _, r := range rules {
		switch {
		case r.remote != nil:
			asks = append(asks, r.ask(req, r.Rate))
			if r.local != nil {
				r.local.Reset(r.key.hash(req), want)
			}
			done = true
		case r.keys != nil:
			h := r.key.hash(req)
			l.waiters.Change(func(instant) { done = r.keys.Reset(h, want) }, func(w *waitline.Waiter) bool { return w.Touches(r.keys, h) })
			if !done {
				problems = append(problems, fmt.Errorf("rule %q: %w", r.Name, errOverflown))
			}
			done = true
		default:
			if custom, ok := r.Limiter.(interface{ Reset(key string) error }); ok {
				problems = append(problems, custom.Reset(r.key.text(req)))
				done = true
			}
		}
	}
	if len(asks) > 0 {
		problems = append(problems, l.resetStore(ctx, asks))
	}
	if !done {
		problems = append(problems, fmt.Errorf("%w: the limiter has no method Reset", ErrNotReset))
	}
	l.asking.Wake()
	return errors.Join(problems...)
}
