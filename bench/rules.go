package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/ratelimit-go/ratelimit"
)

// ruleCount is the number of rules of each RateLimiter that is measured.
const ruleCount = 100

// The type named "ruled" calls Allow of a RateLimiter, always for the same endpoint.
type ruled struct {
	*ratelimit.RateLimiter
	endpoint string
}

func (s ruled) Allow(key string) bool { return s.RateLimiter.Allow(key, s.endpoint).Allowed }

// endpoint returns the path of endpoint number i.
func endpoint(i int) string { return fmt.Sprintf("/api/v1/collection-%02d", i) }

// newRules returns a function for the field Spec.New. That function makes a RateLimiter with the
// given options. It has a hundred rules, all of which have the given key type.
func newRules(key ratelimit.KeyType, opts ...ratelimit.Option) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		rules := everyEndpoint(ratelimit.Rule{Key: key, Rate: l.bucket()})
		limiter, err := ratelimit.New(rules, nil, l.options(opts...)...)
		return ruled{limiter, endpoint(ruleCount / 2)}, err
	}
}

// twoRules returns two rules for each of fifty endpoints. The first limits each user, and the
// second limits all users of the endpoint together.
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

// The type named "everywhere" calls Allow of a RateLimiter for a hundred endpoints in turn: each call is
// for the next endpoint.
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

// The type named "checked" calls Check of a RateLimiter with a Request. The client and the IP of the
// Request are both the key of the call.
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

// newChecker returns a subject of the type checked with the given rules and options. All its
// requests have the given tier and the endpoint of the middle rule.
func newChecker(rules []ratelimit.Rule, tier string, opts []ratelimit.Option) (Subject, error) {
	limiter, err := ratelimit.New(rules, nil, opts...)
	request := ratelimit.Request{Endpoint: rules[len(rules)/2].Endpoint, Tier: tier}
	return &checked{limiter, context.Background(), request}, err
}

// everyEndpoint returns a copy of the rule for each of the hundred endpoints.
func everyEndpoint(rule ratelimit.Rule) (rules []ratelimit.Rule) {
	for i := range ruleCount {
		rule.Endpoint = endpoint(i)
		rules = append(rules, rule)
	}
	return rules
}

// newChecked returns a function for the field Spec.New. That function makes a subject of the type
// checked. It has a hundred rules, all of which have the given key type.
func newChecked(key ratelimit.KeyType) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		return newChecker(everyEndpoint(ratelimit.Rule{Key: key, Rate: l.bucket()}), "", l.options())
	}
}

func newCheckedTwoRules(l Limit) (Subject, error) {
	return newChecker(twoRules(l), "", l.options())
}

// newTiered returns a subject of the type checked whose rules have three tiers each. All requests
// have the tier "paid", whose rate is the limit l. The two other tiers have other rates.
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

// newObserved returns a subject of the type checked with an observer.
func newObserved(l Limit) (Subject, error) {
	rules := everyEndpoint(ratelimit.Rule{Rate: l.bucket()})
	return newChecker(rules, "", l.options(ratelimit.WithObserver(new(tally))))
}

// A tally is a cheap observer, which counts denials.
type tally struct{ denied int }

// Observe counts the decision d if it is a denial.
func (t *tally) Observe(_ context.Context, d ratelimit.Decision) {
	if !d.Result.Allowed {
		t.denied++
	}
}

// newShadowed returns a subject of the type checked with two rules for each endpoint. The first
// rule enforces its limit. The second is a shadow rule, which counts and decides, but whose denials
// are not enforced.
func newShadowed(l Limit) (Subject, error) {
	rules := twoRules(l)
	for i := range rules {
		if rules[i].Key == ratelimit.KeyEndpoint {
			rules[i].Mode = ratelimit.ModeShadow
		}
	}
	return newChecker(rules, "", l.options())
}

// The type named "counted" calls Allow of a RateLimiter, always for the same endpoint. In every
// 100,000th call (see the constant statsEvery) it also reads the statistics. If a call takes 100 ns,
// it reads them a hundred times a second.
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

// The type named "dead" is a store that can never be reached.
type dead struct{}

var errDead = errors.New("bench: the store is dead")

// Take always fails.
func (dead) Take(context.Context, []ratelimit.Ask) ([]ratelimit.Result, error) { return nil, errDead }

// Reset always fails.
func (dead) Reset(context.Context, []ratelimit.Ask) error { return errDead }
