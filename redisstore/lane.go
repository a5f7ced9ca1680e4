package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

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
	bounded  bool // whether the client keeps to the deadline of a call
	most     int  // flights at a time
	together int  // calls in a flight

	waiting atomic.Int64 // callers

	mu     sync.Mutex
	calls  list // that have not ended
	queue  []*call
	turns  map[string]*turn // of the keys that have calls to join
	flying []*flight
	lone   lone
	stuck  int // flights given up that have not ended: a client may not keep to a deadline
	alarm  *time.Timer
	armed  bool // whether the alarm will go off, as somebody waits
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
	_, bounded := client.(*redis.Client)
	return &lane{conn: c, client: client, bounded: bounded, most: most, together: together, turns: make(map[string]*turn)}
}

// A turn is the calls of one key, in order. The first is in the queue, under way or
// about to be made again.
type turn struct{ calls []*call }

// A flight is calls that are made together.
type flight struct {
	calls    []*call
	deadline time.Time // when nobody waits any more
	landed   bool      // who waits is being told
	givenUp  bool
}

// do makes a call and waits for it.
func (l *lane) do(ctx context.Context, c *call) (any, error) {
	w := newWaiter(0)
	o := l.wait(ctx, w, func() *call {
		l.calls.add(c)
		l.queue = append(l.queue, c)
		return c
	})
	return o.reply, o.err
}

// ask asks for u, together with others who ask for the same.
func (l *lane) ask(ctx context.Context, u *unit) (ratelimit.Result, error) {
	if ctx.Done() == nil && l.bounded {
		if m := l.alone(u); m != nil {
			return l.makeAlone(m)
		}
	}
	o := l.wait(ctx, newWaiter(u.n), func() *call { return l.join(u) })
	return o.result, o.err
}

// join returns the call that decides about u. It must be called with l.mu held.
func (l *lane) join(u *unit) *call {
	t := l.turns[u.key.text]
	if t != nil {
		last := t.calls[len(t.calls)-1]
		if !last.sent && len(last.waiters) < maxJoined && last.joint.plan == u.plan {
			l.conn.stats.coalesced.Add(1)
			return last
		}
	}
	c, first := newJoined(u)
	if t == nil {
		t = first
		l.turns[u.key.text] = t
		l.queue = append(l.queue, c)
	}
	c.joint.turn = t
	t.calls = append(t.calls, c)
	l.calls.add(c)
	return c
}

// end notes that c has ended: the call of the same key that is behind it is the next.
// It must be called with l.mu held, once for each call.
func (l *lane) end(c *call) {
	l.calls.remove(c)
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
	l.mu.Lock()
	c := choose()
	w.deadline = time.Now().Add(l.conn.set.timeout)
	c.waiters, c.deadline = append(c.waiters, w), w.deadline
	l.arm(l.conn.set.timeout)
	l.launch()
	l.mu.Unlock()

	select {
	case <-w.done:
		o = w.outcome
	case <-ctx.Done():
		l.mu.Lock()
		w.gone = true
		l.mu.Unlock()
		return outcome{err: ctx.Err()}
	}
	if o.err == nil {
		return o
	}
	if ctx.Err() != nil {
		return outcome{err: ctx.Err()}
	}
	return outcome{err: l.conn.failure(o.err)}
}

// arm has the alarm go off after d, if it would not. It must be called with l.mu held.
func (l *lane) arm(d time.Duration) {
	switch {
	case l.armed:
	case l.alarm == nil:
		l.alarm = time.AfterFunc(d, l.expire)
	default:
		l.alarm.Reset(d)
	}
	l.armed = true
}

// expire tells those who have waited long enough, and gives up flights that nobody
// waits for: others take their place. The alarm then goes off for the next who waits.
func (l *lane) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for c := l.calls.first; c != nil; c = c.behind {
		for _, w := range c.waiters {
			switch {
			case w.gone:
			case !now.Before(w.deadline):
				w.gone = true
				w.settle(outcome{err: l.tooLate(c)})
			case next.IsZero() || w.deadline.Before(next):
				next = w.deadline
			}
		}
	}
	l.flying = slices.DeleteFunc(l.flying, func(f *flight) bool {
		if f.landed || now.Before(f.deadline) {
			return false
		}
		f.givenUp = true
		l.stuck++
		for _, c := range f.calls {
			l.end(c)
		}
		return true
	})
	l.launch()
	l.armed = false
	if !next.IsZero() {
		l.arm(next.Sub(now))
	}
}

// tooLate returns what those are told who have waited for c long enough.
func (l *lane) tooLate(c *call) error {
	if c.sent {
		return &Error{ClassTimeout, fmt.Errorf("no answer within %v", l.conn.set.timeout)}
	}
	return &Error{ClassBusy, fmt.Errorf("not sent within %v: the server is slow to answer others", l.conn.set.timeout)}
}

// launch begins flights while there is something to take along. It must be called
// with l.mu held.
func (l *lane) launch() {
	for f := l.take(); f != nil; f = l.take() {
		go l.fly(f)
	}
}

// take returns a flight that may begin, or nil if there is none. It must be called with
// l.mu held.
func (l *lane) take() *flight {
	for len(l.flying) < l.most && l.stuck < maxStuck && len(l.queue) > 0 {
		if f := l.board(); len(f.calls) > 0 {
			l.flying = append(l.flying, f)
			return f
		}
	}
	return nil
}

// board returns a flight with the first calls of the queue that somebody waits for.
// It must be called with l.mu held.
func (l *lane) board() *flight {
	f := new(flight)
	n := 0
	for ; n < len(l.queue) && len(f.calls) < l.together; n++ {
		c := l.queue[n]
		if !c.freeze() {
			l.end(c)
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

// fly makes the calls of f, tells who waits for them, and goes on with the calls that
// have come meanwhile.
func (l *lane) fly(f *flight) {
	for f != nil {
		l.conn.send(l.client, f.calls)
		for _, c := range f.calls {
			l.conn.heard(c)
		}
		done, again := l.land(f)
		for _, c := range again {
			l.conn.retry(c)
			time.AfterFunc(c.pause(), func() { l.again(c) })
		}
		for _, c := range done {
			l.conn.tell(c)
		}
		if len(done) > 1 || len(done) == 1 && len(done[0].waiters) > 1 {
			// Those who have been told may ask again, and go together.
			runtime.Gosched()
		}
		f = l.next(f)
	}
}

// land returns the calls of f that have ended, and those to make again.
func (l *lane) land(f *flight) (done, again []*call) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.givenUp {
		return nil, nil
	}
	f.landed = true
	for _, c := range f.calls {
		if c.retries(now) {
			again = append(again, c)
			continue
		}
		l.end(c)
		done = append(done, c)
	}
	return done, again
}

// next returns the flight that takes the place of f, if there is one.
func (l *lane) next(f *flight) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.givenUp {
		l.stuck--
		l.launch()
		return nil
	}
	l.flying = slices.DeleteFunc(l.flying, func(other *flight) bool { return other == f })
	next := l.take()
	l.launch()
	return next
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
