package suggest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Goal says how many requests and how many clients a limit may deny, at most.
type Goal struct {
	Requests, Clients func(n uint64) uint64 // return how many of n requests, or of n clients, may be denied
}

// Algorithms are the algorithms for which limits are suggested, in the order in which they are printed.
var Algorithms = ratelimit.Algorithms()

// A clock shows the time of the request that is being decided. It never steps back.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func (c *clock) set(ns int64) {
	if t := time.Unix(0, ns).UTC(); t.After(c.now) {
		c.now = t
	}
}

// A limiter has the methods that this package needs from a limiter of any of the five algorithms.
type limiter interface {
	Take(ctx context.Context, key string, n int) (ratelimit.Result, error)
	Allow(key string) ratelimit.Result
}

func newLimiter(a ratelimit.Algorithm, r ratelimit.Rate, opts ...ratelimit.Option) (limiter, error) {
	switch a {
	case ratelimit.AlgorithmTokenBucket:
		return ratelimit.NewTokenBucket(r, opts...)
	case ratelimit.AlgorithmLeakyBucket:
		return ratelimit.NewLeakyBucket(r, opts...)
	case ratelimit.AlgorithmFixedWindow:
		return ratelimit.NewFixedWindow(r, opts...)
	case ratelimit.AlgorithmSlidingWindowCounter:
		return ratelimit.NewSlidingWindowCounter(r, opts...)
	case ratelimit.AlgorithmSlidingWindowLog:
		return ratelimit.NewSlidingWindowLog(r, opts...)
	}
	return nil, fmt.Errorf("no algorithm %q", a)
}

// maxLogged is the largest limit that is tried for a sliding window log, because a log stores the time of each grant.
const maxLogged = 65_536

// Smallest returns a limit for the given algorithm. The limit is a number of requests in a period, whose length is
// the parameter per. This limit meets the goal, and a limit that is lower by one denies more than the goal allows. If
// no limit of this algorithm meets the goal, the result is 0.
func (g *Group) Smallest(ctx context.Context, a ratelimit.Algorithm, per time.Duration, goal Goal) (int, error) {
	maxLimit := int(min(max(g.maxUnits, 1), math.MaxInt32))
	if a == ratelimit.AlgorithmSlidingWindowLog {
		maxLimit = min(maxLimit, maxLogged)
	}
	low, high := 0, 1 // low is always a limit that does not meet the goal
	for {
		ok, err := g.meets(ctx, a, ratelimit.Rate{Requests: high, Per: per}, goal)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		if high == maxLimit {
			return 0, nil
		}
		low, high = high, min(2*high, maxLimit)
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		ok, err := g.meets(ctx, a, ratelimit.Rate{Requests: middle, Per: per}, goal)
		if err != nil {
			return 0, err
		}
		if ok {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}

// meets reports whether a limit with the given algorithm and rate meets the goal. It sends the requests of the group
// to a limiter with this limit, and compares the number of denials with what the goal allows.
func (g *Group) meets(ctx context.Context, a ratelimit.Algorithm, r ratelimit.Rate, goal Goal) (bool, error) {
	c := &clock{time.Unix(0, 0).UTC()}
	l, err := newLimiter(a, r, ratelimit.WithClock(c), ratelimit.WithMaxKeys(max(g.Clients, 1)))
	if err != nil {
		return false, err
	}
	denials, clients := goal.Requests(uint64(len(g.events))), goal.Clients(uint64(g.Clients))
	were := make([]bool, g.Clients) // whether each client was denied
	background := context.Background()
	for i := range g.events {
		e := &g.events[i]
		if i%(1<<16) == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		c.set(e.time)
		var res ratelimit.Result
		if e.cost == 1 {
			res = l.Allow(g.names[e.client])
		} else if res, err = l.Take(background, g.names[e.client], int(e.cost)); err != nil {
			return false, err
		}
		if res.Allowed {
			continue
		}
		if denials == 0 {
			return false, nil
		}
		if denials--; were[e.client] {
			continue
		}
		if clients == 0 {
			return false, nil
		}
		clients--
		were[e.client] = true
	}
	return true, nil
}
