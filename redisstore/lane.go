package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A lane makes the calls to one server. A few flights are under way at a time; calls
// that come meanwhile wait, and then go together, as one pipeline. So a lone call
// goes at once, calls go together when the server is what they wait for, and nothing
// waits for a timer.
//
// Of the calls that callers can join, one for each key is in the queue or under way.
// Who asks for that key meanwhile joins the next, which decides about all of them.
type lane struct {
	conn     *conn
	client   processor
	most     int // flights at a time
	together int // calls in a flight

	waiting atomic.Int64 // callers

	mu     sync.Mutex
	queue  []*call
	turns  map[string]*turn // of the keys that have calls to join
	flying []*flight
	stuck  int // flights given up that have not ended: a client may not keep to a deadline
}

const (
	// maxWaiting is how many callers a lane lets in.
	maxWaiting = 1 << 14

	// maxStuck is how many flights that nobody waits for may be under way.
	maxStuck = 64

	// maxJoined is how many callers one call decides about. A script for more
	// of them would hold up others who use the server.
	maxJoined = 256
)

func newLane(c *conn, client processor, most, together int) *lane {
	return &lane{conn: c, client: client, most: most, together: together, turns: make(map[string]*turn)}
}

// A turn is the calls of one key, in order. The first is in the queue, under way or
// about to be made again.
type turn struct{ calls []*call }

// A flight is calls that are made together.
type flight struct {
	calls    []*call
	deadline time.Time // when nobody waits any more
	givenUp  bool
}

// do makes a call and waits for it.
func (l *lane) do(ctx context.Context, c *call) (any, error) {
	w := newWaiter(0)
	o := l.wait(ctx, w, func() *call {
		l.queue = append(l.queue, c)
		return c
	})
	return o.reply, o.err
}

// ask asks for u, together with others who ask for the same.
func (l *lane) ask(ctx context.Context, u *unit) (ratelimit.Result, error) {
	o := l.wait(ctx, newWaiter(u.n), func() *call { return l.join(u) })
	return o.result, o.err
}

// join returns the call that decides about u. It must be called with l.mu held.
func (l *lane) join(u *unit) *call {
	t := l.turns[u.key.text]
	if t == nil {
		t = new(turn)
		l.turns[u.key.text] = t
	}
	if n := len(t.calls); n > 0 {
		last := t.calls[n-1]
		if !last.sent && len(last.waiters) < maxJoined && last.joint.plan == u.plan {
			l.conn.stats.coalesced.Add(1)
			return last
		}
	}
	c := &call{keys: []string{u.key.text}, joint: &joint{turn: t, unit: *u}}
	ask := *u.ask // the caller may be gone when it is read
	c.joint.ask = &ask
	t.calls = append(t.calls, c)
	if len(t.calls) == 1 {
		l.queue = append(l.queue, c)
	}
	return c
}

// advance has the call of the same key that is behind c be the next. It must be
// called with l.mu held, once for each call.
func (l *lane) advance(c *call) {
	if c.joint == nil {
		return
	}
	t := c.joint.turn
	t.calls = t.calls[1:]
	if len(t.calls) > 0 {
		l.queue = append(l.queue, t.calls[0])
	} else {
		delete(l.turns, c.keys[0])
	}
}

// wait has w wait for the call that choose returns, with l.mu held, and returns how
// that ends for w.
func (l *lane) wait(ctx context.Context, w *waiter, choose func() *call) (o outcome) {
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > maxWaiting {
		return outcome{err: l.conn.failure(&Error{ClassBusy, fmt.Errorf("%d callers wait for the server", maxWaiting)})}
	}
	timeout := l.conn.set.timeout
	l.mu.Lock()
	c := choose()
	c.waiters = append(c.waiters, w)
	c.deadline = time.Now().Add(timeout)
	l.launch()
	l.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case o = <-w.done:
	case <-ctx.Done():
		l.leave(c, w)
		o.err = ctx.Err()
	case <-timer.C:
		sent := l.leave(c, w)
		select {
		case o = <-w.done: // just in time
		default:
			o.err = &Error{ClassBusy, fmt.Errorf("not sent within %v: the server is slow to answer others", timeout)}
			if sent {
				o.err = &Error{ClassTimeout, fmt.Errorf("no answer within %v", timeout)}
			}
		}
	}
	if o.err == nil {
		return o
	}
	if ctx.Err() != nil {
		return outcome{err: ctx.Err()}
	}
	return outcome{err: l.conn.failure(o.err)}
}

// leave makes w wait no longer, and reports whether c was sent. Flights that nobody
// waits for are given up: others take their place.
func (l *lane) leave(c *call, w *waiter) (sent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.gone = true
	now := time.Now()
	l.flying = slices.DeleteFunc(l.flying, func(f *flight) bool {
		if now.Before(f.deadline) {
			return false
		}
		f.givenUp = true
		l.stuck++
		for _, c := range f.calls {
			l.advance(c)
		}
		return true
	})
	l.launch()
	return c.sent
}

// launch begins flights while there is something to take along. It must be called
// with l.mu held.
func (l *lane) launch() {
	for len(l.flying) < l.most && l.stuck < maxStuck && len(l.queue) > 0 {
		if f := l.board(); len(f.calls) > 0 {
			l.flying = append(l.flying, f)
			go l.fly(f)
		}
	}
}

// board returns a flight with the first calls of the queue that somebody waits for.
// It must be called with l.mu held.
func (l *lane) board() *flight {
	f := new(flight)
	n := 0
	for ; n < len(l.queue) && len(f.calls) < l.together; n++ {
		c := l.queue[n]
		if !c.freeze() {
			l.advance(c)
			continue
		}
		f.calls = append(f.calls, c)
		if c.deadline.After(f.deadline) {
			f.deadline = c.deadline
		}
	}
	l.queue = slices.Delete(l.queue, 0, n)
	return f
}

// fly makes the calls of f and tells who waits for them.
func (l *lane) fly(f *flight) {
	l.conn.send(l.client, f)
	var done, again []*call
	now := time.Now()
	l.mu.Lock()
	if f.givenUp {
		l.stuck--
	} else {
		l.flying = slices.DeleteFunc(l.flying, func(other *flight) bool { return other == f })
		for _, c := range f.calls {
			if c.retries(now) {
				again = append(again, c)
				continue
			}
			l.advance(c)
			done = append(done, c)
		}
	}
	l.launch()
	l.mu.Unlock()
	l.conn.heard(f)
	for _, c := range again {
		l.conn.stats.retries.Add(1)
		l.conn.doubt(classOf(c.err))
		time.AfterFunc(c.pause(), func() { l.again(c) })
	}
	for _, c := range done {
		l.conn.tell(c)
	}
}

// again makes a call another time, if somebody still waits for it.
func (l *lane) again(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, c)
	l.launch()
}

// underWay returns how many flights have not ended.
func (l *lane) underWay() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flying) + l.stuck
}
