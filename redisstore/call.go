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

// A call is one command for the server: it runs a script, or deletes keys with DEL.
type call struct {
	script *script // the script to run; nil for DEL
	keys   []string
	args   []any
	edges  []edged // says which of the args must contain the edges of calendar windows: when these windows begin and end
	shared *shared // the key and the wanted units, if several callers may share this call; otherwise nil

	members []*call // if this call is a batch: the calls that it replaces

	waiters  []*waiter
	deadline time.Time // the latest deadline of the callers that wait for this call
	sent     bool      // whether the call was put into a pipeline; after that, no further caller can join the call
	pipeline uint64    // the number of the pipeline that contains the call, if sent
	in       *pipeline // the pipeline that contains the call, if sent
	dropped  bool      // whether a caller left after the arguments were made; the call must then charge nothing for this caller
	tries    int       // how many attempts to send the call have started

	cmd   noRetry // the command that was made last for this call
	words []any   // memory for the words of the command; may be nil

	before, behind *call // neighbours in the sender's list of calls

	reply        any
	err          error
	began, ended time.Duration // when the last attempt to send began and ended, as returned by conn.clock
	resets       int64         // the count denials.resets when the last attempt began; 0 without a denial cache
}

// shared describes a call that several callers of one key may share: the key, and how many units each
// caller wants.
type shared struct {
	keyQueue *keyQueue // the calls for the same key; nil for a direct call (see directCall) for which no other call waits
	item
	costs []int64 // how many units each caller wants; set when the call is sent

	ahead, reserve int64 // most units to take for later requests (ahead), and how many units must remain in the server (reserve)
	lease          leaseCall
}

// tail returns the arguments of the script that follow the costs: the arguments for taking units for later
// requests, or the arguments for a Penalty, or none.
func (s *shared) tail() []any {
	switch {
	case s.ahead > 0:
		return s.lease.args()
	case penalized(s.ask):
		return append(penaltyArgs(nil, s.ask.Penalty), flag(s.strikes))
	}
	return nil
}

// A waiter is a caller that waits for a call to end.
type waiter struct {
	cost     int64
	deadline time.Time
	answers  int64 // the value of sender.answers when the caller came: how many calls the server had answered
	gone     bool  // whether the caller has stopped waiting; guarded by the mutex of the sender

	answered atomic.Bool
	outcome  outcome // the result of the call; set before the channel done receives a value
	done     chan struct{}

	// later is the function to call with the outcome of the call, if the caller left before the call ended.
	// Otherwise it is nil.
	later atomic.Pointer[func(outcome)]
}

// answer gives the outcome o of the call to the waiter w, and wakes its caller, unless w already has an outcome.
func (w *waiter) answer(o outcome) {
	if w.answered.CompareAndSwap(false, true) {
		w.outcome = o
		w.done <- struct{}{}
	}
}

// tell calls the function w.later with the outcome, if both the function and the outcome are set.
// However often tell is called, it calls the function once. The caller of tell must hold no mutex.
func (w *waiter) tell() {
	if later := w.later.Load(); later != nil {
		select {
		case <-w.done:
			(*later)(w.outcome)
		default:
		}
	}
}

// An outcome is the result of a call for one of the callers that wait for it.
type outcome struct {
	reply   any
	results []ratelimit.Result // if the call was shared: the one result for this caller
	err     error

	// call is the number of a pipeline: the one that contained this caller's call. If the call was never put into
	// a pipeline, it is the number of the earlier pipeline that the call waited for.
	call   uint64
	unsent bool // whether the call was certainly not sent
}

// errNotMade is the error of a call that was not made because its callers had left.
var errNotMade = errors.New("not made: the callers have left")

// A leftError is returned to a caller whose context has ended while its call was under way. It wraps the
// error of the context.
type leftError struct {
	error
	conn *conn
	w    *waiter
}

// Unwrap returns the error of the caller's context.
func (e *leftError) Unwrap() error { return e.error }

// Later calls the function f when the call has ended. It passes the error of the call, or nil; see
// [ratelimit.Store]. If the call was never made, it passes the error of the caller's context.
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

// free puts the waiter w back into the pool after its caller got the outcome. Another goroutine may still call
// w.tell for this caller while w already belongs to the next caller. This does no harm. If the next caller has
// no function in w.later, or its call has not ended, w.tell does nothing. Otherwise w.tell calls the function of
// the next caller with the outcome for the next caller, and this must happen in any case.
func (w *waiter) free() {
	w.outcome = outcome{}
	w.answered.Store(false)
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

// newSharedCall returns a new call for the key of the given item, and a keyQueue (the calls for one key) with
// room for that call. It makes one allocation for all memory that a call with one caller needs.
func newSharedCall(it *item) (*call, *keyQueue) {
	parts := new(struct {
		call
		shared
		keyQueue
		ask     ratelimit.Ask
		key     [1]string
		waiters [1]*waiter
		calls   [1]*call
		costs   [1]int64
	})
	parts.ask = *it.ask // a copy of the ask, because the caller may return before the call is sent
	parts.shared = shared{keyQueue: &parts.keyQueue, item: *it, costs: parts.costs[:0]}
	parts.shared.ask = &parts.ask
	parts.key[0] = it.key.text
	parts.call = call{keys: parts.key[:], shared: &parts.shared, waiters: parts.waiters[:0]}
	parts.keyQueue.calls = parts.calls[:0]
	return &parts.call, &parts.keyQueue
}

// freeze prepares the call for sending: it removes the callers that have left, and lets no further caller
// join. It returns false if no caller remains. The mutex of the sender must be held.
func (c *call) freeze() bool {
	c.waiters = slices.DeleteFunc(c.waiters, func(w *waiter) bool {
		if w.gone && !w.answered.Load() {
			w.answer(outcome{err: errNotMade})
			go w.tell() // in a goroutine, because tell must not run under the mutex
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

// pause returns how long to wait before the call is repeated.
func (c *call) pause() time.Duration { return time.Millisecond << min(c.tries, 4) }

// retries reports whether to repeat a failed call. It returns true under three conditions: the server has
// certainly not run the call, a repetition may succeed, and there is enough time for it before the deadline.
func (c *call) retries(now time.Time) bool {
	return c.err != nil && classOf(c.err).transient() && now.Add(2*c.pause()).Before(c.deadline)
}

// command returns the call as a command of the Redis client. The command contains the hash of the script
// or, if whole is true, the text of the script. The client calls the function in the last parameter when it
// sends the command. The result is valid until the next call of this method.
func (c *call) command(ctx context.Context, env string, whole bool, sending func()) *noRetry {
	keys, tail := c.keys, c.args
	if shared := c.shared; shared != nil {
		c.script, tail = oneScripts[shared.kind], shared.tail()
		switch {
		case shared.ahead > 0:
			c.script, keys = aheadScripts[shared.kind], append(keys[:1:1], aheadKey(keys[0]))
		case penalized(shared.ask):
			c.script, keys = penalOneScripts()[shared.kind], append(keys[:1:1], penaltyKey(keys[0]))
		}
	}
	all := c.words[:0]
	if n := 13 + len(keys) + len(tail); cap(all) < n {
		all = make([]any, 0, n)
	}
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
	if shared := c.shared; shared != nil {
		all = oneArgs(all, env, &shared.item, shared.costs, shared.ahead, shared.reserve)
	}
	c.cmd = noRetry{*redis.NewCmd(ctx, append(all, tail...)...), c, sending}
	c.cmd.SetFirstKeyPos(int8(first))
	return &c.cmd
}

// drop sets the field dropped if a caller has left, and makes the cost of that caller 0, so that the call
// charges nothing for the caller. The mutex of the sender must be held.
func (c *call) drop() {
	for i, w := range c.waiters {
		if w.gone {
			c.dropped = true
			if c.shared != nil {
				c.shared.costs[i] = 0 // with the cost 0, the script charges nothing
			}
		}
	}
}

// without returns the arguments of the call, changed so that the script charges nothing for callers that
// have left.
func (c *call) without(args []any) []any {
	switch {
	case !c.dropped && !slices.ContainsFunc(c.members, func(member *call) bool { return member.dropped }):
		return args
	case c.shared != nil:
		args = slices.Clone(args)
		last := args[len(args)-len(c.shared.costs)-len(c.shared.tail()):]
		for i, n := range c.shared.costs {
			last[i] = n
		}
	case len(c.members) > 0:
		args = slices.Clone(args)
		last := args[len(args)-len(c.members):]
		for i, member := range c.members {
			last[i] = member.shared.costs[0]
		}
	default: // the only caller has left: send a PING in place of the call, so that the connection stays usable
		args = []any{"ping"}
	}
	return args
}
