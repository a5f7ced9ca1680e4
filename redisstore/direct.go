package redisstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// maxDirect is how many callers may send their calls to one server themselves (make direct calls) at the same
// time. If there are more callers, their calls are sent together in pipelines, which is faster.
const maxDirect = 4

// A directCall is a call for one item (a request for units of one key) that the caller's own goroutine sends.
// While few calls are under way, this saves time: to wake another goroutine for the call would take longer than
// all other work in this process. A direct call does not wait in the queue of the sender, and maxPipelines does
// not count it. Its caller cannot leave before the call has ended, even if the caller's context ends.
//
// A directCall contains everything that the call needs and comes from a pool, so that a call
// allocates nothing.
type directCall struct {
	pipeline pipeline
	call     call
	shared   shared
	calls    [1]*call
	keys     [1]string
	costs    [1]int64
	words    [16]any
	wrote    func() // records that the call may have been sent
}

var directCalls = sync.Pool{New: func() any {
	d := new(directCall)
	d.calls[0], d.wrote = &d.call, func() { d.pipeline.written.Store(true) }
	return d
}}

// mayBlock reports whether a caller with this context may make a direct call. During a direct call, the caller
// does not notice that its context ends. If the context can end, mayBlock therefore returns true only if two
// conditions are met: the server answered the previous call quickly, and the context has no deadline that may
// pass before the direct call ends.
func (s *sender) mayBlock(ctx context.Context) bool {
	if s.pool == nil {
		return false
	}
	if s.quick.Load() {
		if deadline, ends := ctx.Deadline(); !ends || time.Until(deadline) > 2*s.conn.set.timeout {
			return true
		}
	}
	return ctx.Done() == nil // called last because Done may be slow: some contexts make the channel only then
}

// startDirect returns a direct call for the given item, which the calling goroutine must then make. It returns
// nil if the item must go through the queue instead, for one of these reasons: too many callers wait; other
// calls are queued; calls still run although their callers have left; a call for the same key has not ended;
// the client has no free connection. In the last case, a pipeline sets up a connection, and completes it even
// if the caller leaves.
func (s *sender) startDirect(it *item) *directCall {
	if s.waiting.Load() >= maxDirect {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := it.key.text
	if len(s.queue) > 0 || s.abandoned > 0 || s.keyQueues[key] != nil || s.directOf(key) != nil || !s.ready(len(s.pipelines)) {
		return nil
	}
	s.waiting.Add(1)
	d, number := directCalls.Get().(*directCall), s.conn.lastPipeline.Add(1)
	deadline := time.Now().Add(s.conn.set.timeout)
	d.keys[0], d.costs[0] = key, it.n
	d.shared = shared{item: *it, costs: d.costs[:]}
	d.call = call{
		keys: d.keys[:], shared: &d.shared, words: d.words[:], deadline: deadline, sent: true, pipeline: number, in: &d.pipeline,
	}
	d.pipeline = pipeline{number: number, calls: d.calls[:], deadline: deadline}
	s.calls.add(&d.call)
	s.direct = append(s.direct, &d.call)
	s.pipelines = append(s.pipelines, &d.pipeline)
	s.arm(s.conn.set.timeout)
	return d
}

// directOf returns the direct call under way for the key with this name, or nil if there is none. The
// caller must hold s.mu.
func (s *sender) directOf(key string) *call {
	for _, c := range s.direct {
		if c.keys[0] == key {
			return c
		}
	}
	return nil
}

// makeDirect makes the direct call d and returns its result. If the call fails, makeDirect repeats it, unless
// the method retries says that this cannot help, or the context of the caller (ctx) has ended.
func (s *sender) makeDirect(ctx context.Context, d *directCall) ([]ratelimit.Result, error) {
	defer s.waiting.Add(-1)
	c := &d.call
	by := sending{s.conn.context(), s.lone, d.wrote}
	for {
		c.tries++
		s.conn.send(by, d.calls[:])
		s.learn(c)
		if c.err == nil || ctx.Err() != nil || !c.retries(time.Now()) {
			break
		}
		s.conn.retry(c)
		pause := time.NewTimer(c.pause())
		<-pause.C
		again, cancel := context.WithDeadline(context.Background(), c.deadline)
		defer cancel()
		by.ctx = again
	}
	s.conn.learnRoutes(c)
	results := s.conn.results(c)
	failed := outcome{err: c.err, call: c.pipeline, unsent: !d.pipeline.written.Load()}
	s.endDirect(d)
	switch {
	case failed.err == nil:
		return results, nil
	case ctx.Err() != nil:
		w := newWaiter(0)
		w.answer(failed)
		return nil, &leftError{ctx.Err(), s.conn, w}
	}
	return nil, s.conn.countFailure(failed)
}

// endDirect ends the direct call d, and starts pipelines for the calls that have waited for d.
func (s *sender) endDirect(d *directCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &d.pipeline
	if p.abandoned {
		s.abandoned--
	} else {
		s.end(&d.call)
		s.pipelines = slices.DeleteFunc(s.pipelines, func(other *pipeline) bool { return other == p })
	}
	s.startPipelines()
	d.call, d.shared, d.keys, d.words = call{}, shared{}, [1]string{}, [16]any{}
	directCalls.Put(d)
}
