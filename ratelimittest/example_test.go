package ratelimittest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A cooldown is a limiter as a user of the kit may write one: after each unit a key has to
// wait.
type cooldown struct {
	clock ratelimit.Clock
	wait  time.Duration

	mu   sync.Mutex
	last map[string]time.Time
}

func newCooldown(r ratelimit.Rate, clock ratelimit.Clock) (ratelimit.Limiter, error) {
	if r.Requests != 1 || r.Burst > 1 {
		return nil, errors.New("a cooldown grants one unit at a time")
	}
	return &cooldown{clock: clock, wait: r.Per, last: make(map[string]time.Time)}, nil
}

// Allow takes one unit.
func (c *cooldown) Allow(key string) ratelimit.Result {
	res, _ := c.Take(context.Background(), key, 1)
	return res
}

// Take takes n units. It never grants more than one.
func (c *cooldown) Take(ctx context.Context, key string, n int) (ratelimit.Result, error) {
	if n < 0 {
		return ratelimit.Result{}, ratelimit.ErrInvalidCount
	}
	if err := ctx.Err(); err != nil {
		return ratelimit.Result{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	last, used := c.last[key]
	ahead := time.Duration(0) // how far the clock has stepped back behind last
	if used && now.Before(last) {
		ahead, now = last.Sub(now), last
	}
	res := ratelimit.Result{Allowed: true, Limit: 1, Remaining: 1}
	if left := c.wait - now.Sub(last); used && left > 0 {
		if left += ahead; left < 0 { // too far for a Duration
			left = ratelimit.Never
		}
		res = ratelimit.Result{Limit: 1, RetryAfter: left, ResetAfter: left}
	}
	if n > 1 {
		res.Allowed, res.RetryAfter = false, ratelimit.Never
	}
	if res.Allowed && n == 1 {
		c.last[key] = now
		res.Remaining, res.ResetAfter = 0, c.wait
	}
	return res, nil
}

func ExampleTestLimiter() {
	// This is a test function of the package that has newCooldown.
	TestCooldown := func(t *testing.T) {
		ratelimittest.TestLimiter(t, ratelimittest.Config{
			New: newCooldown,

			// Without Rates, the kit would use its own rates. New may refuse some of the
			// kit's, but must accept all of these.
			Rates: []ratelimit.Rate{{Requests: 1, Per: 10}, {Requests: 1, Per: time.Hour}},

			// At most one unit is granted in any interval of length Per.
			Bound: ratelimittest.SlidingWindowLogBound,

			// Without a Model, the kit would check only what holds for every limiter. A
			// sliding window log of one entry answers as a cooldown does.
			Model: ratelimittest.SlidingWindowLogModel,
		})
	}
	fmt.Printf("%T", TestCooldown)
	// Output: func(*testing.T)
}
