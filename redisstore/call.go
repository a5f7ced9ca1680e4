package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A call is one command for the server: the running of a script, or DEL.
type call struct {
	script *script // nil for DEL
	keys   []string
	args   []any
	joint  *joint // of a call that callers can join

	waiters  []*waiter
	deadline time.Time // of the one who waits longest
	sent     bool      // nobody can join any more
	tries    int

	reply        any
	err          error
	began, ended time.Duration // of the last try, by the clock of the conn
	resets       int64         // that there had been when it began
}

// A joint is what callers who have joined want.
type joint struct {
	turn *turn
	unit
	costs []int64 // the units that each wants, once the call is sent

	ahead, reserve int64 // how many units to take besides, if so many are left then
}

// A waiter is a caller.
type waiter struct {
	cost int64
	gone bool // guarded by the mutex of the lane
	done chan outcome
}

// An outcome is how a call has ended, for one caller.
type outcome struct {
	reply  any
	result ratelimit.Result // of a call that was joined
	err    error
}

func newWaiter(cost int64) *waiter { return &waiter{cost: cost, done: make(chan outcome, 1)} }

// freeze says who c is made for, and reports whether that is anybody. It must be
// called with the mutex of the lane held.
func (c *call) freeze() bool {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool { return w.gone })
	if len(c.waiters) == 0 {
		return false
	}
	c.sent = true
	c.tries++
	if c.joint != nil {
		c.joint.costs = make([]int64, len(c.waiters))
		for i, w := range c.waiters {
			c.joint.costs[i] = w.cost
		}
	}
	return true
}

// pause returns how long to wait before c is made another time.
func (c *call) pause() time.Duration { return time.Millisecond << min(c.tries, 4) }

// retries reports whether c has not run, may succeed when it is made another time,
// and is still waited for by then.
func (c *call) retries(now time.Time) bool {
	return c.err != nil && classOf(c.err).transient() && now.Add(c.pause()).Before(c.deadline)
}

// command returns c as the client wants it: a script by its hash, or as a whole.
func (c *call) command(ctx context.Context, whole bool) once {
	all := make([]any, 0, 3+len(c.keys)+len(c.args))
	switch {
	case c.script == nil:
		all = append(all, "del")
	case whole:
		all = append(all, "eval", c.script.text, len(c.keys))
	default:
		all = append(all, "evalsha", c.script.hash, len(c.keys))
	}
	first := len(all)
	for _, k := range c.keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, c.args...)...)
	cmd.SetFirstKeyPos(int8(first))
	return once{cmd}
}
