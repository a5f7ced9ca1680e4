package redisstore

import (
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// A pipeline is a group of calls that are sent together, and whose replies are read
// together.
type pipeline struct {
	number    uint64
	calls     []*call
	deadline  time.Time   // the latest deadline of the callers
	finished  bool        // whether all calls have a reply or an error; a finished pipeline is never abandoned
	abandoned bool        // whether the calls have not ended, but no caller waits for them any more
	written   atomic.Bool // whether the calls may have been sent; false while the client has no connection for them
}

// The method write must be called before the pipeline p is sent. It records that p may have been sent, and
// ensures that nothing is charged for callers that have left. It may be called several times for one pipeline.
func (s *sender) write(p *pipeline) {
	if p.written.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range p.calls {
		c.drop()
	}
	p.written.Store(true)
}

// startPipelines starts pipelines for the calls in the queue, but no more than may be under way at the same
// time. The caller must hold s.mu.
func (s *sender) startPipelines() {
	for p := s.nextPipeline(); p != nil; p = s.nextPipeline() {
		go s.runPipeline(p)
	}
}

// nextPipeline returns a pipeline that may start now, or nil if there is none. The caller
// must hold s.mu.
func (s *sender) nextPipeline() *pipeline {
	for len(s.pipelines)-len(s.direct) < s.maxPipelines && s.abandoned < maxAbandoned && len(s.queue) > 0 {
		if p := s.fillPipeline(); len(p.calls) > 0 {
			s.pipelines = append(s.pipelines, p)
			return p
		}
	}
	return nil
}

// fillPipeline returns a pipeline with calls from the front of the queue. It drops a call that no caller
// waits for. The caller must hold s.mu.
func (s *sender) fillPipeline() *pipeline {
	p := &pipeline{number: s.conn.lastPipeline.Add(1)}
	n := 0
	for ; n < len(s.queue) && len(p.calls) < s.maxCalls; n++ {
		c := s.queue[n]
		if !c.freeze() {
			s.end(c)
			continue
		}
		s.extend(c)
		c.pipeline, c.in = p.number, p
		p.calls = append(p.calls, c)
		if c.deadline.After(p.deadline) {
			p.deadline = c.deadline
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	return p
}

// extend is called when the call c is about to be sent. It begins the timeout of each caller again. So a caller
// that waited for an earlier call has the whole timeout for its own call, but waits for at most twice the
// timeout in all. A caller gets no more time if the server has answered nothing since that caller came, or if c
// is sent again. extend must be called with s.mu held.
func (s *sender) extend(c *call) {
	answers, timeout, now := s.answers.Load(), s.conn.set.timeout, time.Now()
	for _, w := range c.waiters {
		if w.answers == answers || c.tries > 1 {
			continue
		}
		longest := w.deadline.Add(timeout)
		if w.deadline = now.Add(timeout); w.deadline.After(longest) {
			w.deadline = longest
		}
		if w.deadline.After(c.deadline) {
			c.deadline = w.deadline
		}
	}
}

// runPipeline makes the calls of the pipeline p and answers their callers. Then it does the same with a new
// pipeline for the calls that have arrived meanwhile.
func (s *sender) runPipeline(p *pipeline) {
	for p != nil {
		s.makeCalls(p)
		for _, c := range p.calls {
			s.conn.learnRoutes(c)
		}
		done, again, late := s.finish(p)
		for _, c := range late {
			s.conn.results(c) // record the units that the call has taken for later requests
		}
		for _, c := range again {
			s.conn.retry(c)
			time.AfterFunc(c.pause(), func() { s.requeue(c) })
		}
		for _, c := range done {
			s.conn.answer(c)
		}
		if len(done) > 1 || len(done) == 1 && len(done[0].waiters) > 1 {
			// Let the callers that were just answered run first. If they make further requests, the next
			// pipeline takes the calls of all of them.
			runtime.Gosched()
		}
		p = s.successor(p)
	}
}

// finish ends the calls of the pipeline p. It returns the calls that are done, and the calls to send again.
// If p was abandoned, because no caller waits for it any more, its calls have already ended, and finish
// returns all of them in the result late.
func (s *sender) finish(p *pipeline) (done, again, late []*call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.abandoned {
		return nil, nil, p.calls
	}
	p.finished = true
	for _, c := range p.calls {
		if c.err != nil && c.retries(time.Now()) {
			again = append(again, c)
			continue
		}
		s.end(c)
		done = append(done, c)
	}
	return done, again, nil
}

// successor ends the pipeline p, and starts all further pipelines that may start now. It returns the
// pipeline that the goroutine of p must run next, or nil if there is none.
func (s *sender) successor(p *pipeline) *pipeline {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.abandoned {
		s.abandoned--
		s.startPipelines()
		return nil
	}
	s.pipelines = slices.DeleteFunc(s.pipelines, func(other *pipeline) bool { return other == p })
	next := s.nextPipeline()
	s.startPipelines()
	return next
}

// requeue puts the call c into the queue once more, so that c is repeated.
func (s *sender) requeue(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.startPipelines()
}

// underWay returns how many pipelines have started and have not ended.
func (s *sender) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pipelines) + s.abandoned
}
