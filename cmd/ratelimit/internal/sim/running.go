package sim

import (
	"container/heap"
	"context"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// The type running is a heap of the granted requests that have not ended yet. The request that ends next comes first.
// The type implements heap.Interface.
type running []runs

// The type runs is one granted request that has not ended yet.
type runs struct {
	end   time.Duration // when it ends, as time since the start
	order int           // if two requests end at the same time, the request with the smaller order ends first
	held  *ratelimit.Reservation
}

func (q running) Len() int      { return len(q) }
func (q running) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q running) Less(i, j int) bool {
	return q[i].end < q[j].end || q[i].end == q[j].end && q[i].order < q[j].order
}

// Push implements heap.Interface.
func (q *running) Push(x any) { *q = append(*q, x.(runs)) }

// Pop implements heap.Interface.
func (q *running) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = runs{}
	*q = (*q)[:last]
	return x
}

// The method end ends all requests whose end is not later than the parameter at, which is a time since the start. So a request
// that ends at the instant at which another request arrives no longer counts as running.
func (q *running) end(clock *ratelimit.FakeClock, start time.Time, at time.Duration) error {
	for len(*q) > 0 && (*q)[0].end <= at {
		r := heap.Pop(q).(runs)
		clock.Set(start.Add(r.end))
		if err := r.held.Done(); err != nil {
			return err
		}
	}
	return nil
}

// An asker sends requests to a limiter.
type asker struct {
	limiter *ratelimit.RateLimiter
	clock   *ratelimit.FakeClock
	options *Options
	holds   bool // true: a rule limits how many requests run at once, so each request is reserved and later ended
	running running
	granted int
	each    []ratelimit.Result
}

// ask sends a request to the limiter, at the given time since the start. It returns the answer to the request, and a
// slice with the answer of each rule. The next call may overwrite this slice.
func (a *asker) ask(ctx context.Context, req ratelimit.Request, at time.Duration) (ratelimit.Result, []ratelimit.Result, error) {
	start := a.options.Start
	if err := a.running.end(a.clock, start, at); err != nil {
		return ratelimit.Result{}, nil, err
	}
	a.clock.Set(start.Add(at))
	if !a.holds {
		res, each, err := a.limiter.CheckAll(ctx, req, a.each[:0])
		a.each = each
		return res, each, err
	}
	held, err := a.limiter.Reserve(ctx, req, time.Microsecond) // a microsecond to give units back is enough, because none are given back
	if err != nil {
		return ratelimit.Result{}, nil, err
	}
	res := held.Result()
	if res.Allowed {
		a.granted++
		heap.Push(&a.running, runs{at + res.Delay + a.options.Hold, a.granted, held})
	}
	return res, held.Results(), nil
}
