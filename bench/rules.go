package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit"
)

// ruleCount is how many rules a RateLimiter under test has.
const ruleCount = 100

// ruled asks a RateLimiter for one endpoint of many.
type ruled struct {
	*ratelimit.RateLimiter
	endpoint string
}

func (s ruled) Allow(key string) bool { return s.RateLimiter.Allow(key, s.endpoint).Allowed }

// endpoint returns the i-th endpoint of an API.
func endpoint(i int) string { return fmt.Sprintf("/api/v1/collection-%02d", i) }

// newRules returns what makes a RateLimiter of a hundred rules by key, with the
// options beside the bound on keys.
func newRules(key ratelimit.KeyType, opts ...ratelimit.Option) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		rules := everyEndpoint(ratelimit.Rule{Key: key, Rate: l.bucket()})
		limiter, err := ratelimit.New(rules, nil, l.options(opts...)...)
		return ruled{limiter, endpoint(ruleCount / 2)}, err
	}
}

// twoRules returns the rules of fifty endpoints, two for each: by user, and by
// endpoint.
func twoRules(l Limit) (rules []ratelimit.Rule) {
	for i := range ruleCount / 2 {
		rules = append(rules,
			ratelimit.Rule{Name: endpoint(i), Endpoint: endpoint(i), Rate: l.bucket()},
			ratelimit.Rule{Name: endpoint(i) + " all", Endpoint: endpoint(i), Key: ratelimit.KeyEndpoint, Rate: l.bucket()},
		)
	}
	return rules
}

func newTwoRules(l Limit) (Subject, error) {
	limiter, err := ratelimit.New(twoRules(l), nil, l.options()...)
	return ruled{limiter, endpoint(ruleCount / 4)}, err
}

// everywhere asks a RateLimiter for one of its endpoints after the other.
type everywhere struct {
	*ratelimit.RateLimiter
	endpoints []string
	next      int
}

func newEveryEndpoint(l Limit) (Subject, error) {
	s, err := newRules(ratelimit.KeyUser)(l)
	if err != nil {
		return nil, err
	}
	all := &everywhere{RateLimiter: s.(ruled).RateLimiter}
	for i := range ruleCount {
		all.endpoints = append(all.endpoints, endpoint(i))
	}
	return all, nil
}

func (s *everywhere) Allow(key string) bool {
	if s.next++; s.next == len(s.endpoints) {
		s.next = 0
	}
	return s.RateLimiter.Allow(key, s.endpoints[s.next]).Allowed
}

// checked asks a RateLimiter by Check, with all that a request says of itself. Its
// key is both the client and the IP.
type checked struct {
	*ratelimit.RateLimiter
	ctx     context.Context
	request ratelimit.Request
}

func (s *checked) Allow(key string) bool {
	request := s.request
	request.Client, request.IP = key, key
	res, err := s.Check(s.ctx, request)
	return res.Allowed && err == nil
}

// newChecker returns a checked that asks for the endpoint of the rule in the middle.
func newChecker(rules []ratelimit.Rule, tier string, opts []ratelimit.Option) (Subject, error) {
	limiter, err := ratelimit.New(rules, nil, opts...)
	request := ratelimit.Request{Endpoint: rules[len(rules)/2].Endpoint, Tier: tier}
	return &checked{limiter, context.Background(), request}, err
}

// everyEndpoint returns a rule for each endpoint.
func everyEndpoint(rule ratelimit.Rule) (rules []ratelimit.Rule) {
	for i := range ruleCount {
		rule.Endpoint = endpoint(i)
		rules = append(rules, rule)
	}
	return rules
}

// newChecked returns what makes a checked of a hundred rules by key.
func newChecked(key ratelimit.KeyType) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		return newChecker(everyEndpoint(ratelimit.Rule{Key: key, Rate: l.bucket()}), "", l.options())
	}
}

func newCheckedTwoRules(l Limit) (Subject, error) {
	return newChecker(twoRules(l), "", l.options())
}

// newTiered makes a checked whose rules have three plans each. The client's plan has
// the outcome of the workload; the others have a rate of their own.
func newTiered(l Limit) (Subject, error) {
	return newChecker(everyEndpoint(ratelimit.Rule{
		Rate: ratelimit.PerMinute(70),
		Tiers: map[string]ratelimit.Rate{
			"free":       ratelimit.PerMinute(70),
			"paid":       l.bucket(),
			"enterprise": ratelimit.PerSecond(300).WithBurst(1000),
		},
	}), "paid", l.options())
}

// newObserved makes a checked that tells an observer of every decision.
func newObserved(l Limit) (Subject, error) {
	rules := everyEndpoint(ratelimit.Rule{Rate: l.bucket()})
	return newChecker(rules, "", l.options(ratelimit.WithObserver(new(tally))))
}

// A tally is an observer that does little: it counts who is denied.
type tally struct{ denied int }

// Observe counts d.
func (t *tally) Observe(_ context.Context, d ratelimit.Decision) {
	if !d.Result.Allowed {
		t.denied++
	}
}

// newShadowed makes a checked of two rules for each endpoint, of which one enforces
// and one, by another key, only looks on.
func newShadowed(l Limit) (Subject, error) {
	rules := twoRules(l)
	for i := range rules {
		if rules[i].Key == ratelimit.KeyEndpoint {
			rules[i].Mode = ratelimit.ModeShadow
		}
	}
	return newChecker(rules, "", l.options())
}

// counted is a ruled whose statistics are read once in statsEvery decisions, which is
// a hundred times a second or so.
type counted struct {
	ruled
	asked int
}

const statsEvery = 100_000

func newCounted(l Limit) (Subject, error) {
	s, err := newRules(ratelimit.KeyUser)(l)
	if err != nil {
		return nil, err
	}
	return &counted{ruled: s.(ruled)}, nil
}

func (s *counted) Allow(key string) bool {
	if s.asked++; s.asked%statsEvery == 0 {
		s.Stats()
	}
	return s.ruled.Allow(key)
}

// dead is a store that nobody reaches.
type dead struct{}

var errDead = errors.New("bench: the store is dead")

// Take always fails.
func (dead) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) { return nil, errDead }

// Reset always fails.
func (dead) Reset(context.Context, []ratelimit.Ask) error { return errDead }
