package redisstore

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/redis/go-redis/v9"
)

// A call is one command for the server: the running of a script, or DEL.
type call struct {
	script *script // nil for DEL
	keys   []string
	args   []any
	shared *shared // of a call that callers can join

	members []*call // that it is made in place of

	waiters  []*waiter
	deadline time.Time // of the one who waits longest
	sent     bool      // nobody can join any more
	tries    int

	before, behind *call // in the list of the sender

	reply        any
	err          error
	began, ended time.Duration // of the last try, by the clock of the conn
	resets       int64         // that there had been when it began
}

// A shared is what callers who have joined want.
type shared struct {
	keyQueue *keyQueue
	item
	costs []int64 // the units that each wants, once the call is sent

	ahead, reserve int64 // how many units to take besides, if so many are left then
}

// A waiter is a caller.
type waiter struct {
	cost     int64
	deadline time.Time
	gone     bool // guarded by the mutex of the sender

	settled atomic.Bool
	outcome outcome // once done says so
	done    chan struct{}
}

// settle tells w how its call has ended, unless it has been told.
func (w *waiter) settle(o outcome) {
	if w.settled.CompareAndSwap(false, true) {
		w.outcome = o
		w.done <- struct{}{}
	}
}

// An outcome is how a call has ended, for one caller.
type outcome struct {
	reply  any
	result ratelimit.Result // of a call that was joined
	err    error
}

func newWaiter(cost int64) *waiter { return &waiter{cost: cost, done: make(chan struct{}, 1)} }

// A list is calls that have not ended, in no order. The zero list is empty.
type list struct{ first *call }

func (l *list) add(c *call) {
	c.behind = l.first
	if l.first != nil {
		l.first.before = c
	}
	l.first = c
}

func (l *list) remove(c *call) {
	if c.before != nil {
		c.before.behind = c.behind
	} else {
		l.first = c.behind
	}
	if c.behind != nil {
		c.behind.before = c.before
	}
	c.before, c.behind = nil, nil
}

// newSharedCall returns the first call of a key: most have one caller, and no other behind
// them.
func newSharedCall(u *item) (*call, *keyQueue) {
	var made struct {
		call
		shared
		keyQueue
		ask     ratelimit.Ask
		key     [1]string
		waiters [1]*waiter
		calls   [1]*call
		costs   [1]int64
	}
	m := &made
	m.ask = *u.ask // the caller may be gone when it is read
	m.shared = shared{keyQueue: &m.keyQueue, item: *u, costs: m.costs[:0]}
	m.shared.ask = &m.ask
	m.key[0] = u.key.text
	m.call = call{keys: m.key[:], shared: &m.shared, waiters: m.waiters[:0]}
	m.keyQueue.calls = m.calls[:0]
	return &m.call, &m.keyQueue
}

// freeze says who c is made for, and reports whether that is anybody. It must be
// called with the mutex of the sender held.
func (c *call) freeze() bool {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool { return w.gone })
	if len(c.waiters) == 0 {
		return false
	}
	c.sent = true
	c.tries++
	if c.shared != nil {
		c.shared.costs = c.shared.costs[:0]
		for _, w := range c.waiters {
			c.shared.costs = append(c.shared.costs, w.cost)
		}
	}
	return true
}

// pause returns how long to wait before c is made another time.
func (c *call) pause() time.Duration { return time.Millisecond << min(c.tries, 4) }

// retries reports whether c has not run, may succeed when it is made another time,
// and is still waited for long enough by then.
func (c *call) retries(now time.Time) bool {
	return c.err != nil && classOf(c.err).transient() && now.Add(2*c.pause()).Before(c.deadline)
}

// command returns c as the client wants it: a script by its hash, or as a whole.
func (c *call) command(ctx context.Context, env string, whole bool) noRetry {
	if c.shared != nil {
		c.script = oneScripts[c.shared.kind]
	}
	all := make([]any, 0, 11+len(c.keys)+len(c.args))
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
	if j := c.shared; j != nil {
		all = oneArgs(all, env, &j.item, j.costs, j.ahead, j.reserve)
	}
	cmd := redis.NewCmd(ctx, append(all, c.args...)...)
	cmd.SetFirstKeyPos(int8(first))
	return noRetry{cmd}
}
