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
		var rules []ratelimit.Rule
		for i := range ruleCount {
			rules = append(rules, ratelimit.Rule{Endpoint: endpoint(i), Key: key, Rate: l.bucket()})
		}
		limiter, err := ratelimit.New(rules, nil, append(opts, l.room())...)
		return ruled{limiter, endpoint(ruleCount / 2)}, err
	}
}

// newTwoRules makes a RateLimiter of fifty endpoints with two rules each: by user,
// and by endpoint.
func newTwoRules(l Limit) (Subject, error) {
	var rules []ratelimit.Rule
	for i := range ruleCount / 2 {
		rules = append(rules,
			ratelimit.Rule{Name: endpoint(i), Endpoint: endpoint(i), Rate: l.bucket()},
			ratelimit.Rule{Name: endpoint(i) + " all", Endpoint: endpoint(i), Key: ratelimit.KeyEndpoint, Rate: l.bucket()},
		)
	}
	limiter, err := ratelimit.New(rules, nil, l.room())
	return ruled{limiter, endpoint(ruleCount / 4)}, err
}

// newTiered makes a RateLimiter whose rules have plans: the longer way of a
// decision.
func newTiered(l Limit) (Subject, error) {
	var rules []ratelimit.Rule
	for i := range ruleCount {
		rules = append(rules, ratelimit.Rule{
			Endpoint: endpoint(i), Rate: l.bucket(), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(1000)},
		})
	}
	limiter, err := ratelimit.New(rules, nil, l.room())
	return ruled{limiter, endpoint(ruleCount / 2)}, err
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
