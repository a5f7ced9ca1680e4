package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
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
	shared *shared // if callers of one key share it; otherwise nil

	members []*call // of a call made by batched: those that it stands for

	waiters  []*waiter
	deadline time.Time // of the waiter whose deadline is last
	sent     bool      // no caller can join any more
	pipeline uint64    // the number of the pipeline that has c, if sent
	in       *pipeline // that pipeline
	dropped  bool      // whether waiters have left after the arguments were made
	tries    int

	before, behind *call // neighbours in the list of the sender

	reply        any
	err          error
	began, ended time.Duration // of the last try, by the clock of the conn
	resets       int64         // number of Resets there had been when it began
}

// shared is the part of a call that its callers have in common: a key, and what each of
// them wants of it.
type shared struct {
	keyQueue *keyQueue // nil for a direct call that no other call waits for
	item
	costs []int64 // the units that each waiter wants; set when the call is sent

	ahead, reserve int64 // units to take ahead, and how many must be left afterwards
	lease          leaseCall
}

// A waiter is a caller that waits for a call to end.
type waiter struct {
	cost     int64
	deadline time.Time
	gone     bool // guarded by the mutex of the sender

	settled atomic.Bool
	outcome outcome // set before done receives
	done    chan struct{}
	later   atomic.Pointer[func(outcome)] // told the outcome if the caller has left; nil until then
}

// settle gives w the outcome of its call, unless w has one already.
func (w *waiter) settle(o outcome) {
	if w.settled.CompareAndSwap(false, true) {
		w.outcome = o
		w.done <- struct{}{}
	}
}

// tell tells the outcome of w to its later, if both are there and that has not been done. No
// mutex may be held.
func (w *waiter) tell() {
	if later := w.later.Load(); later != nil {
		select {
		case <-w.done:
			(*later)(w.outcome)
		default:
		}
	}
}

// An outcome is how a call has ended for one of its callers.
type outcome struct {
	reply   any
	results []ratelimit.Result // the one of the caller, if the call was shared
	err     error

	call   uint64 // the number of the pipeline that the call was in, or that it waited for
	unsent bool   // whether the call was certainly not sent
}

// errNotMade is the error of a call that was not made because its callers had left.
var errNotMade = errors.New("not made: the callers have left")

// A leftError is the error of the context of a caller that has left its call.
type leftError struct {
	error
	conn *conn
	w    *waiter
}

// Unwrap returns the error of the context.
func (e *leftError) Unwrap() error { return e.error }

// Later calls f when the call has ended, with its error or nil; see [ratelimit.Store]. If the
// call was never made, the error is that of the context.
func (e *leftError) Later(f func(error)) {
	later := func(o outcome) {
		switch {
		case o.err == nil:
			f(nil)
		case errors.Is(o.err, errNotMade):
			f(e.error)
		default:
			f(e.conn.countFailure(o))
		}
	}
	e.w.later.Store(&later)
	e.w.tell()
}

var waiters = sync.Pool{New: func() any { return &waiter{done: make(chan struct{}, 1)} }}

func newWaiter(cost int64) *waiter {
	w := waiters.Get().(*waiter)
	w.cost = cost
	return w
}

// free puts w, whose call was answered, back into the pool. The answerer may still look for a
// later of w, which it does not have: if the next caller has one, either answerer may tell it.
func (w *waiter) free() {
	w.outcome = outcome{}
	w.settled.Store(false)
	waiters.Put(w)
}

// A list is a doubly linked list of calls, in no particular order. The zero list is empty.
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

// newSharedCall returns the first call for a key, and a keyQueue for it. Everything that a
// call with one caller needs is allocated at once.
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
	m.ask = *u.ask // the caller may have returned when ask is read
	m.shared = shared{keyQueue: &m.keyQueue, item: *u, costs: m.costs[:0]}
	m.shared.ask = &m.ask
	m.key[0] = u.key.text
	m.call = call{keys: m.key[:], shared: &m.shared, waiters: m.waiters[:0]}
	m.keyQueue.calls = m.calls[:0]
	return &m.call, &m.keyQueue
}

// freeze removes the waiters that have left, after which no caller can join c. It reports
// whether a waiter remains. The caller must hold the mutex of the sender.
func (c *call) freeze() bool {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool {
		if w.gone && !w.settled.Load() {
			w.settle(outcome{err: errNotMade})
			go w.tell() // not here, as the caller holds the mutex
		}
		return w.gone
	})
	if len(c.waiters) == 0 {
		return false
	}
	c.sent, c.dropped = true, false
	c.tries++
	if c.shared != nil {
		c.shared.costs = c.shared.costs[:0]
		for _, w := range c.waiters {
			c.shared.costs = append(c.shared.costs, w.cost)
		}
	}
	return true
}

// pause returns how long to wait before c is repeated.
func (c *call) pause() time.Duration { return time.Millisecond << min(c.tries, 4) }

// retries reports whether to repeat c: the server has not run it, a repetition may succeed,
// and a waiter will still be there for the answer.
func (c *call) retries(now time.Time) bool {
	return c.err != nil && classOf(c.err).transient() && now.Add(2*c.pause()).Before(c.deadline)
}

// command returns c as a command of the client. It names the script by its hash, or
// contains its text if whole is true.
// The client calls sending when it sends the command.
func (c *call) command(ctx context.Context, env string, whole bool, sending func()) noRetry {
	keys, tail := c.keys, c.args
	if j := c.shared; j != nil {
		c.script = oneScripts[j.kind]
		if j.ahead > 0 {
			c.script = aheadScripts[j.kind]
			keys, tail = append(keys[:1:1], aheadKey(keys[0])), j.lease.args()
		}
	}
	all := make([]any, 0, 13+len(keys)+len(tail))
	switch {
	case c.script == nil:
		all = append(all, "del")
	case whole:
		all = append(all, "eval", c.script.text, len(keys))
	default:
		all = append(all, "evalsha", c.script.hash, len(keys))
	}
	first := len(all)
	for _, k := range keys {
		all = append(all, k)
	}
	if j := c.shared; j != nil {
		all = oneArgs(all, env, &j.item, j.costs, j.ahead, j.reserve)
	}
	cmd := redis.NewCmd(ctx, append(all, tail...)...)
	cmd.SetFirstKeyPos(int8(first))
	return noRetry{cmd, c, sending}
}

// drop makes c ask for nothing for the waiters that have left. The caller must hold the mutex of
// the sender.
func (c *call) drop() {
	for i, w := range c.waiters {
		if w.gone {
			c.dropped = true
			if c.shared != nil {
				c.shared.costs[i] = 0 // it looks
			}
		}
	}
}

// without returns args, which are those of c, without what dropped waiters wanted.
func (c *call) without(args []any) []any {
	switch {
	case !c.dropped && !slices.ContainsFunc(c.members, func(m *call) bool { return m.dropped }):
		return args
	case c.shared != nil:
		args = slices.Clone(args)
		last := args[len(args)-len(c.shared.costs):]
		if c.shared.ahead > 0 {
			last = args[len(args)-len(c.shared.costs)-len(c.shared.lease.args()):]
		}
		for i, n := range c.shared.costs {
			last[i] = n
		}
	case len(c.members) > 0:
		args = slices.Clone(args)
		last := args[len(args)-len(c.members):]
		for i, m := range c.members {
			last[i] = m.shared.costs[0]
		}
	default: // the only caller has left, and the connection is of use to the next
		args = []any{"ping"}
	}
	return args
}
