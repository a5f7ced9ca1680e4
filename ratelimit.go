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

// A RateLimiter finds the rules for a request and decides by all of them at once. The
// request is granted if and only if each rule alone would grant it. Either all rules are
// charged or none is.
//
// The rules for a request are those whose [Rule.Endpoint] equals its endpoint. If there
// are none, they are those with the longest prefix that its endpoint begins with, and if
// there are none of these either, the default rule. A request without rules is granted,
// with Limit and Remaining -1. While rules change, each decision is made by the old rules
// or by the new ones, never by some of each.
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
	waiters     waitline.Lines

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
	rules, defaultRule, invalid := decodeRules(configs, defaultConfig, &set)
	if invalid != nil {
		return nil, errors.Join(err, invalid)
	}
	return newRateLimiter(rules, defaultRule, set, err)
}

// newRateLimiter is New after the options have been applied to set. err says what is
// wrong with the options, or is nil.
func newRateLimiter(rules []Rule, defaultRule *Rule, set settings, err error) (*RateLimiter, error) {
	l := &RateLimiter{settings: set, time: newTimeline(set.clock)}
	l.setStore(set.store)
	if err == nil {
		err = set.named()
	}
	if err := errors.Join(err, checkRules(rules, defaultRule, &set)); err != nil {
		return nil, err
	}
	if err := l.replace(rules, defaultRule); err != nil {
		return nil, err
	}
	return l, nil
}

// Allow takes one unit from each rule for a request of clientID for endpoint, if every one
// of them has a unit left. A denial changes nothing. If the [Store] cannot be reached, the
// [FailurePolicy] answers, and [Result.Degraded] is set. For the error behind that, and for
// requests with a cost, an IP or a tier, see [RateLimiter.Check].
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
// the following two errors, the Result is an answer: the caller should act on
// [Result.Allowed] and log the error. With [ErrStore], the [FailurePolicy] has answered.
// With [ErrInvalidConfig], [Rule.Resolve] has returned an invalid rate, and the rule has
// decided by its own Rate.
//
// If one of the rules has a custom [Limiter], Check calls it last, after the other rules
// were charged. If it denies, or returns an error that does not match [ErrStore], the other
// rules get their units back; Check returns such an error with the zero Result. If two of
// the rules have a custom Limiter, Check takes nothing and returns the zero Result and an
// error that matches [ErrInvalidConfig].
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

// Peek returns what [RateLimiter.Check] would return for req with a cost of 1, but takes
// nothing: Remaining still counts the unit that Check would have taken. The [Observer] does
// not see it, and [RuleStats] do not count it.
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

// Reset forgets what clientID has used of the rules for endpoint: its keys are as if they
// had never been used. It wakes the callers of [RateLimiter.Wait], and each tries again. It
// resets only state that belongs to this client alone, which is that of rules whose Key is
// [KeyUser] or [KeyUserEndpoint]. An error of the [Store] matches [ErrStore]; an error of a
// custom [Limiter] is returned as it is. Keys of other rules are reset all the same.
func (l *RateLimiter) Reset(clientID, endpoint string) error {
	set := l.set.Load()
	if set == nil {
		return nil
	}
	req := Request{Client: clientID, Endpoint: endpoint}
	var asks []Ask
	var problems []error
	for _, r := range set.match(endpoint).rules {
		if !r.keyKind.ofClient() {
			continue
		}
		switch {
		case r.remote != nil:
			asks = append(asks, r.ask(&req, r.Rate))
			if r.local != nil {
				r.local.Reset(r.keyKind.hash(&req))
			}
		case r.keys != nil:
			r.keys.Reset(r.keyKind.hash(&req))
		default:
			if custom, ok := r.Limiter.(interface{ Reset(key string) error }); ok {
				problems = append(problems, custom.Reset(r.keyKind.text(&req)))
			}
		}
	}
	if len(asks) > 0 {
		problems = append(problems, l.resetStore(asks))
	}
	l.waiters.WakeAll()
	return errors.Join(problems...)
}
