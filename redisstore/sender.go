package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
)

// A sender makes the calls to one server. A few flights are under way at a time; calls
// that come meanwhile wait, and then go together, as one pipeline. So a lone call
// goes at once, calls go together when the server is what they wait for, and nothing
// waits for a timer.
//
// Of the calls that callers can join, one for each key is in the queue or under way.
// Who asks for that key meanwhile joins the next, which decides about all of them.
type sender struct {
	conn         *conn
	client       processor
	bounded      bool // whether the client keeps to the deadline of a call
	maxPipelines int  // flights at a time
	maxCalls     int  // calls in a pipeline

	waiting atomic.Int64 // callers

	mu        sync.Mutex
	calls     list // that have not ended
	queue     []*call
	keyQueues map[string]*keyQueue // of the keys that have calls to join
	pipelines []*pipeline
	direct    directCall
	abandoned int // flights given up that have not ended: a client may not keep to a deadline
	alarm     *time.Timer
	armed     bool // whether the alarm will go off, as somebody waits
}

const (
	// maxWaiting is how many callers a sender lets in.
	maxWaiting = 1 << 14

	// maxAbandoned is how many flights that nobody waits for may be under way.
	maxAbandoned = 64

	// maxJoined is how many callers one call decides about. A script for more
	// of them would hold up others who use the server.
	maxJoined = 256
)

func newSender(c *conn, client processor, maxPipelines, maxCalls int) *sender {
	_, bounded := client.(*redis.Client)
	return &sender{conn: c, client: client, bounded: bounded, maxPipelines: maxPipelines, maxCalls: maxCalls, keyQueues: make(map[string]*keyQueue)}
}

// A keyQueue is the calls of one key, in order. The first is in the queue, under way or
// about to be made again.
type keyQueue struct{ calls []*call }

// do makes a call and waits for it.
func (s *sender) do(ctx context.Context, c *call) (any, error) {
	w := newWaiter(0)
	o := s.wait(ctx, w, func() *call {
		s.calls.add(c)
		s.queue = append(s.queue, c)
		return c
	})
	return o.reply, o.err
}

// ask asks for u, together with others who ask for the same.
func (s *sender) ask(ctx context.Context, u *item) (ratelimit.Result, error) {
	if ctx.Done() == nil && s.bounded {
		if m := s.startDirect(u); m != nil {
			return s.makeDirect(m)
		}
	}
	o := s.wait(ctx, newWaiter(u.n), func() *call { return s.join(u) })
	return o.result, o.err
}

// join returns the call that decides about u. It must be called with s.mu held.
func (s *sender) join(u *item) *call {
	t := s.keyQueues[u.key.text]
	if t != nil {
		last := t.calls[len(t.calls)-1]
		if !last.sent && len(last.waiters) < maxJoined && last.shared.plan == u.plan {
			s.conn.stats.coalesced.Add(1)
			return last
		}
	}
	c, first := newSharedCall(u)
	if t == nil {
		t = first
		s.keyQueues[u.key.text] = t
		s.queue = append(s.queue, c)
	}
	c.shared.keyQueue = t
	t.calls = append(t.calls, c)
	s.calls.add(c)
	return c
}

// end notes that c has ended: the call of the same key that is behind it is the next.
// It must be called with s.mu held, once for each call.
func (s *sender) end(c *call) {
	s.calls.remove(c)
	if c.shared == nil {
		return
	}
	t := c.shared.keyQueue
	t.calls = t.calls[1:]
	if len(t.calls) > 0 {
		s.queue = append(s.queue, t.calls[0])
	} else {
		delete(s.keyQueues, c.keys[0])
	}
}

// wait has w wait for the call that choose returns, with s.mu held, and returns how
// that ends for w.
func (s *sender) wait(ctx context.Context, w *waiter, choose func() *call) (o outcome) {
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > maxWaiting {
		return outcome{err: s.conn.countFailure(&Error{ClassBusy, fmt.Errorf("%d callers wait for the server", maxWaiting)})}
	}
	s.mu.Lock()
	c := choose()
	w.deadline = time.Now().Add(s.conn.set.timeout)
	c.waiters, c.deadline = append(c.waiters, w), w.deadline
	s.arm(s.conn.set.timeout)
	s.startPipelines()
	s.mu.Unlock()

	select {
	case <-w.done:
		o = w.outcome
	case <-ctx.Done():
		s.mu.Lock()
		w.gone = true
		s.mu.Unlock()
		return outcome{err: ctx.Err()}
	}
	if o.err == nil {
		return o
	}
	if ctx.Err() != nil {
		return outcome{err: ctx.Err()}
	}
	return outcome{err: s.conn.countFailure(o.err)}
}

// arm has the alarm go off after d, if it would not. It must be called with s.mu held.
func (s *sender) arm(d time.Duration) {
	switch {
	case s.armed:
	case s.alarm == nil:
		s.alarm = time.AfterFunc(d, s.expire)
	default:
		s.alarm.Reset(d)
	}
	s.armed = true
}

// expire tells those who have waited long enough, and gives up flights that nobody
// waits for: others take their place. The alarm then goes off for the next who waits.
func (s *sender) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for c := s.calls.first; c != nil; c = c.behind {
		for _, w := range c.waiters {
			switch {
			case w.gone:
			case !now.Before(w.deadline):
				w.gone = true
				w.settle(outcome{err: s.tooLate(c)})
			case next.IsZero() || w.deadline.Before(next):
				next = w.deadline
			}
		}
	}
	s.pipelines = slices.DeleteFunc(s.pipelines, func(p *pipeline) bool {
		if p.finished || now.Before(p.deadline) {
			return false
		}
		p.abandoned = true
		s.abandoned++
		for _, c := range p.calls {
			s.end(c)
		}
		return true
	})
	s.startPipelines()
	s.armed = false
	if !next.IsZero() {
		s.arm(next.Sub(now))
	}
}

// tooLate returns what those are told who have waited for c long enough.
func (s *sender) tooLate(c *call) error {
	if c.sent {
		return &Error{ClassTimeout, fmt.Errorf("no answer within %v", s.conn.set.timeout)}
	}
	return &Error{ClassBusy, fmt.Errorf("not sent within %v: the server is slow to answer others", s.conn.set.timeout)}
}
