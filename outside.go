package ratelimit

import "context"

// An outside is a limiter of one rule that has a store or an observer. Its methods
// are those of the five limiters.
type outside struct {
	limiter *RateLimiter
	rule    string
}

// newOutside returns a limiter of algorithm a at the rate r, which is valid.
func newOutside(a Algorithm, r Rate, set settings) (*outside, error) {
	if set.store != nil && set.name == "" {
		return nil, &ConfigError{"name", `""`, "must be set by WithName: it tells the limiters in a store apart"}
	}
	if supports := supportsOf(set.store); supports != nil {
		if err := supports(a, r); err != nil {
			return nil, &ConfigError{"rate", r, notSupported + err.Error()}
		}
	}
	rule := Rule{Name: set.name, Algorithm: a, Rate: r}
	if rule.Name == "" {
		rule.Name = string(a)
	}
	set.single = true
	l, err := newRateLimiter(nil, &rule, set, nil)
	if err != nil {
		return nil, err
	}
	return &outside{l, rule.Name}, nil
}

func (o *outside) take(ctx context.Context, key string, n int) (Result, error) {
	req := Request{Client: key, Cost: n}
	if n == 0 {
		return o.limiter.Peek(ctx, req)
	}
	return o.limiter.Check(ctx, req)
}

func (o *outside) wait(ctx context.Context, key string, n int) (Result, error) {
	if n == 0 {
		return o.take(ctx, key, 0)
	}
	return o.limiter.Wait(ctx, Request{Client: key, Cost: n})
}

func (o *outside) reset(key string) error { return o.limiter.Reset(key, "") }

func (o *outside) setRate(r Rate) error { return o.limiter.UpdateRate(o.rule, r) }

func (o *outside) len() int { return o.limiter.Stats()[0].LiveKeys }
