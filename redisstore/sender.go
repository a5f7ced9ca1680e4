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

// A sender makes the calls to one server. It sends them in pipelines, of which a few may be
// under way at the same time. A call that comes while all of these are under way waits in
// the queue; the next pipeline takes all that wait. So a call that comes alone is sent at
// once, calls are sent together when the server is busy, and no call waits for a timer.
//
// Decisions of one key share calls: at most one such call of a key is in the queue or under
// way. Callers who ask for the key in the meantime join the next call, which decides for
// all of them.
type sender struct {
	conn   *conn
	client processor

	// pool and lone are the client, if it is one of a single server, and otherwise nil. Each
	// operation of pool obeys the timeout. Of lone, all operations of a call together obey the
	// deadline of its context.
	pool, lone *redis.Client

	maxPipelines int // pipelines under way at the same time
	maxCalls     int // calls in one pipeline

	waiting   atomic.Int64 // number of callers that wait
	warm      atomic.Bool  // whether the server has answered the last call
	searching atomic.Bool  // whether findCause is under way
	cause     atomic.Pointer[cause]

	mu        sync.Mutex
	calls     list // those that have not ended
	queue     []*call
	keyQueues map[string]*keyQueue // by key, of keys that have shared calls
	pipelines []*pipeline
	direct    directCall
	abandoned int // pipelines given up that have not ended: a client may ignore a deadline
	alarm     *time.Timer
	armed     bool // whether the alarm is set, because a caller waits
}

const (
	// maxWaiting is how many callers may wait in one sender.
	maxWaiting = 1 << 14

	// maxAbandoned is how many abandoned pipelines may be under way. With more of them, the
	// sender starts no new one.
	maxAbandoned = 64

	// maxJoined is how many callers one call decides for. A script for more callers would
	// block the server for too long.
	maxJoined = 256
)

func newSender(c *conn, client processor, maxPipelines, maxCalls int) *sender {
	s := &sender{conn: c, client: client, maxPipelines: maxPipelines, maxCalls: maxCalls, keyQueues: make(map[string]*keyQueue)}
	if pool, ok := client.(*redis.Client); ok {
		s.pool, s.lone = pool, pool.WithTimeout(c.set.timeout)
		s.lone.Options().ContextTimeoutEnabled = true // of this copy only
	}
	return s
}

// A keyQueue holds the shared calls of one key, in order. The first of them is in the
// sender's queue, under way, or about to be repeated; the others wait for it.
type keyQueue struct{ calls []*call }

// do makes the call c and waits for its reply.
func (s *sender) do(ctx context.Context, c *call) (any, error) {
	w := newWaiter(0)
	o := s.wait(ctx, w, func() *call {
		s.calls.add(c)
		s.queue = append(s.queue, c)
		return c
	})
	return o.reply, o.err
}

// ask decides u, in one call with the other callers that ask for the same key. It returns one
// result.
func (s *sender) ask(ctx context.Context, u *item) ([]ratelimit.Result, error) {
	if ctx.Done() == nil && s.pool != nil {
		if m := s.startDirect(u); m != nil {
			return s.makeDirect(m)
		}
	}
	o := s.wait(ctx, newWaiter(u.n), func() *call { return s.join(u) })
	return o.results, o.err
}

// join returns the shared call that will decide u. The caller must hold s.mu.
func (s *sender) join(u *item) *call {
	t := s.keyQueues[u.key.text]
	if m := &s.direct; t == nil && m.active && m.keys[0] == u.key.text {
		t = &keyQueue{calls: []*call{&m.call}} // few such calls ever get company
		m.shared.keyQueue, s.keyQueues[u.key.text] = t, t
	}
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

// end records that c has ended, and queues the next call of the same key. It is called once
// for each call. The caller must hold s.mu.
func (s *sender) end(c *call) {
	s.calls.remove(c)
	if c.shared == nil {
		return
	}
	t := c.shared.keyQueue
	if c == &s.direct.call {
		s.direct.active = false
	}
	if t == nil {
		return
	}
	t.calls = t.calls[1:]
	if len(t.calls) > 0 {
		s.queue = append(s.queue, t.calls[0])
	} else {
		delete(s.keyQueues, c.keys[0])
	}
}

// wait adds w to the call that choose returns, and waits until that call has ended for w.
// It calls choose with s.mu held.
func (s *sender) wait(ctx context.Context, w *waiter, choose func() *call) (o outcome) {
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > maxWaiting {
		return outcome{err: s.conn.countFailure(outcome{err: newError(ClassBusy, fmt.Errorf("%d callers wait for the server", maxWaiting))})}
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
		return outcome{err: &leftError{ctx.Err(), s.conn, w}}
	}
	if o.err == nil {
		w.free()
		return o
	}
	if ctx.Err() != nil {
		w.done <- struct{}{} // for Later
		return outcome{err: &leftError{ctx.Err(), s.conn, w}}
	}
	return outcome{err: s.conn.countFailure(o)}
}

// arm sets the alarm to go off after d, unless it is set already. The caller must hold
// s.mu.
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

// expire is what the alarm does. It answers the callers that have waited for the whole
// timeout, and tells it of those that have left before. It abandons pipelines that no caller
// waits for, so that others can start.
func (s *sender) expire() {
	for _, w := range s.expired() {
		w.tell()
	}
}

// expired does what expire does, except that it returns the callers to tell it of. If callers
// still wait, it sets the alarm for the next of their deadlines.
func (s *sender) expired() (late []*waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for c := s.calls.first; c != nil; c = c.behind {
		for _, w := range c.waiters {
			switch {
			case w.settled.Load():
			case !now.Before(w.deadline):
				w.gone = true
				w.settle(s.tooLate(c))
				late = append(late, w)
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
	return late
}

// tooLate returns the outcome for callers that have waited for c for the whole timeout. A call
// that was not sent has failed together with a pipeline that it waited for. The caller must hold
// s.mu.
func (s *sender) tooLate(c *call) outcome {
	if c.sent && c.in.written.Load() {
		return outcome{err: newError(ClassTimeout, fmt.Errorf("no answer within %v", s.conn.set.timeout)), call: c.pipeline}
	}
	before := s.conn.lastPipeline.Load()
	switch {
	case c.sent:
		before = c.pipeline
	case c.shared != nil && c.shared.keyQueue.calls[0].sent:
		before = c.shared.keyQueue.calls[0].pipeline
	case len(s.pipelines) > 0:
		before = s.pipelines[0].number
	}
	return outcome{err: s.unsent(!s.unwritten()), call: before}
}
