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

// A sender makes the calls to one server. It sends them in pipelines, of which only a few may be under way
// at the same time. A call that arrives while no further pipeline may start waits in the queue, and the
// next pipeline takes all calls in the queue. So a single call is sent at once, calls to a busy server are
// sent together, and no call waits for a timer.
//
// Callers that want units of the same key share calls: at most one call for a key is queued or under way.
// Callers that come meanwhile join the next call for the key, which decides for all of them.
type sender struct {
	conn   *conn
	client processor

	// pool and lone are two copies of the client of a single server. They are nil if the client of this sender is
	// of another kind. In a call through pool, each read and each write may take the whole timeout of the client,
	// even if the context of the call ends earlier. A call through lone ends by the deadline of its context.
	pool, lone *redis.Client

	maxPipelines int // how many pipelines may be under way at the same time
	maxCalls     int // how many calls one pipeline may contain

	waiting   atomic.Int64 // how many callers wait for a reply
	warm      atomic.Bool  // whether the server has answered the call that ended most recently
	quick     atomic.Bool  // whether the call that ended most recently took less than 1/quickShare of the timeout
	answers   atomic.Int64 // how many calls and pipelines the server has answered
	searching atomic.Bool  // whether the method findCause is running
	cause     atomic.Pointer[cause]

	mu        sync.Mutex
	calls     list                 // the calls that have not ended
	queue     []*call              // the calls that the next pipeline will take
	keyQueues map[string]*keyQueue // for the name of each key, the shared calls that have not ended
	pipelines []*pipeline          // the pipelines under way, except abandoned ones
	direct    []*call              // the direct calls that have not ended; no two have the same key
	abandoned int                  // how many pipelines are still running after their deadline; no caller waits for them
	alarm     *time.Timer
	armed     bool // whether the alarm is set
}

const (
	// maxWaiting is how many callers of one sender may wait at the same time.
	maxWaiting = 1 << 14

	// A server is quick if it answers a call within 1/quickShare of the timeout.
	quickShare = 10

	// maxAbandoned is the largest number of abandoned pipelines: pipelines that still run although their
	// callers have left. While there are so many, the sender starts no pipeline.
	maxAbandoned = 64

	// maxJoined is how many callers one call may decide for. A script that decides for more callers would
	// block the server for too long.
	maxJoined = 256
)

func newSender(c *conn, client processor, maxPipelines, maxCalls int) *sender {
	s := &sender{conn: c, client: client, maxPipelines: maxPipelines, maxCalls: maxCalls, keyQueues: make(map[string]*keyQueue)}
	if pool, ok := client.(*redis.Client); ok {
		s.pool, s.lone = pool, pool.WithTimeout(c.set.timeout)
		s.lone.Options().ContextTimeoutEnabled = true // this changes only the copy, not the client of the user
	}
	return s
}

// A keyQueue contains the calls for one key, in order. Several callers may share each of them. The first call is
// in the sender's queue, under way, or about to be repeated. The calls after it wait until it has ended.
type keyQueue struct{ calls []*call }

// The method do makes the call c, and waits for the reply of the server.
func (s *sender) do(ctx context.Context, c *call) (any, error) {
	w := newWaiter(0)
	o := s.wait(ctx, w, func() *call {
		s.calls.add(c)
		s.queue = append(s.queue, c)
		return c
	})
	return o.reply, o.err
}

// The method ask decides the given item (a request for units of one key). Its call may be shared with other
// callers that want units of the same key. It returns a slice with one result.
func (s *sender) ask(ctx context.Context, it *item) ([]ratelimit.Result, error) {
	if s.mayBlock(ctx) {
		if d := s.startDirect(it); d != nil {
			return s.makeDirect(ctx, d)
		}
	}
	o := s.wait(ctx, newWaiter(it.n), func() *call { return s.join(it) })
	return o.results, o.err
}

// The method join returns the call that will decide the given item (a request for units of one key). Other
// callers may share this call. The caller must hold s.mu.
func (s *sender) join(it *item) *call {
	key := it.key.text
	queue := s.keyQueues[key]
	if c := s.directOf(key); queue == nil && c != nil {
		queue = &keyQueue{calls: []*call{c}} // allocated only now, because few direct calls need a keyQueue
		c.shared.keyQueue, s.keyQueues[key] = queue, queue
	}
	if queue != nil {
		last := queue.calls[len(queue.calls)-1]
		if !last.sent && len(last.waiters) < maxJoined && last.shared.joins(it) {
			s.conn.stats.coalesced.Add(1)
			return last
		}
	}
	c, first := newSharedCall(it)
	if queue == nil {
		queue = first
		s.keyQueues[key] = queue
		s.queue = append(s.queue, c)
	}
	c.shared.keyQueue = queue
	queue.calls = append(queue.calls, c)
	s.calls.add(c)
	return c
}

// joins reports whether the caller of the given item, a request for units of the same key, can share the call s.
func (s *shared) joins(it *item) bool {
	return s.plan == it.plan && s.strikes == it.strikes && penaltyOf(s.ask) == penaltyOf(it.ask)
}

// The method end removes the call c, which has ended, and queues the next call for the same key. It must be
// called exactly once for each call. The caller must hold s.mu.
func (s *sender) end(c *call) {
	s.calls.remove(c)
	s.direct = slices.DeleteFunc(s.direct, func(other *call) bool { return other == c })
	if c.shared == nil || c.shared.keyQueue == nil {
		return
	}
	queue := c.shared.keyQueue
	queue.calls = queue.calls[1:]
	if len(queue.calls) > 0 {
		s.queue = append(s.queue, queue.calls[0])
	} else {
		delete(s.keyQueues, c.keys[0])
	}
}

// wait adds the waiter w to the call that the function choose returns, and waits for the outcome of this
// call. It holds s.mu while it calls the function choose.
func (s *sender) wait(ctx context.Context, w *waiter, choose func() *call) (o outcome) {
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > maxWaiting {
		full := newError(ClassBusy, fmt.Errorf("%d callers wait for the server", maxWaiting))
		return outcome{err: s.conn.countFailure(outcome{err: full, unsent: true})}
	}
	s.mu.Lock()
	c := choose()
	w.deadline, w.answers = time.Now().Add(s.conn.set.timeout), s.answers.Load()
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
		w.done <- struct{}{} // put the value back into the channel, because leftError.Later reads it again
		return outcome{err: &leftError{ctx.Err(), s.conn, w}}
	}
	return outcome{err: s.conn.countFailure(o)}
}

// arm sets the alarm to go off after the duration d, unless the alarm is already set. The caller must hold
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

// expire runs when the alarm goes off. The alarm is a timer for the earliest deadline of a caller. expire answers
// the callers that have waited for the whole timeout. If such a caller has left and given a function (the field
// later of its waiter), expire passes the error of the timeout to this function. expire also abandons the pipelines
// that no caller waits for. They no longer count as under way, so that new pipelines can start.
func (s *sender) expire() {
	for _, w := range s.expired() {
		w.tell()
	}
}

// expired does the part of the method expire that needs the mutex. It returns the waiters whose timeout has
// passed; expire must then call their method tell without the mutex. If other callers still wait, expired sets
// the alarm for the earliest of their deadlines.
func (s *sender) expired() (late []*waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, next := time.Now(), time.Time{}
	for c := s.calls.first; c != nil; c = c.behind {
		for _, w := range c.waiters {
			switch {
			case w.answered.Load():
			case !now.Before(w.deadline):
				w.gone = true
				w.answer(s.tooLate(c))
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

// tooLate returns the outcome for callers that have waited for the call c during the whole timeout. If c
// was not sent because it waited for an earlier pipeline, the outcome has the number of that pipeline, so
// that the failures of c and of the pipeline count as one. The caller must hold s.mu.
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
