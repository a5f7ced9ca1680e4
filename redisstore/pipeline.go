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
	deadline  time.Time // after which no caller waits for it
	finished  bool      // whether its calls have ended, and their callers are being answered
	abandoned bool
	written   atomic.Bool // whether it may have been sent; until then the client has no connection for it
}

// write records that p is about to be sent. It may be called more than once.
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

// startPipelines starts as many pipelines as may be under way and have calls to send. The
// caller must hold s.mu.
func (s *sender) startPipelines() {
	for p := s.nextPipeline(); p != nil; p = s.nextPipeline() {
		go s.runPipeline(p)
	}
}

// nextPipeline returns a pipeline that may start now, or nil if there is none. The caller
// must hold s.mu.
func (s *sender) nextPipeline() *pipeline {
	for len(s.pipelines) < s.maxPipelines && s.abandoned < maxAbandoned && len(s.queue) > 0 {
		if p := s.fillPipeline(); len(p.calls) > 0 {
			s.pipelines = append(s.pipelines, p)
			return p
		}
	}
	return nil
}

// fillPipeline takes calls from the front of the queue and returns a pipeline of them. It
// drops calls that no caller waits for. The caller must hold s.mu.
func (s *sender) fillPipeline() *pipeline {
	p := &pipeline{number: s.conn.lastPipeline.Add(1)}
	n := 0
	for ; n < len(s.queue) && len(p.calls) < s.maxCalls; n++ {
		c := s.queue[n]
		if !c.freeze() {
			s.end(c)
			continue
		}
		c.pipeline, c.in = p.number, p
		p.calls = append(p.calls, c)
		if c.deadline.After(p.deadline) {
			p.deadline = c.deadline
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	return p
}

// runPipeline makes the calls of p and answers their callers. Then it does the same with
// the calls that have come in the meantime.
func (s *sender) runPipeline(p *pipeline) {
	for p != nil {
		s.makeCalls(p)
		for _, c := range p.calls {
			s.conn.learnRoutes(c)
		}
		done, again, late := s.finish(p)
		for _, c := range late {
			s.conn.results(c) // what it has taken ahead is not lost
		}
		for _, c := range again {
			s.conn.retry(c)
			time.AfterFunc(c.pause(), func() { s.requeue(c) })
		}
		for _, c := range done {
			s.conn.answer(c)
		}
		if len(done) > 1 || len(done) == 1 && len(done[0].waiters) > 1 {
			// Let the callers that were just answered run first: those that ask again can
			// then go into the same pipeline.
			runtime.Gosched()
		}
		p = s.successor(p)
	}
}

// finish returns the calls of p that have ended, those that are to be repeated, and those that
// have ended when p had been abandoned.
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

// successor returns the pipeline that starts in the place of p, or nil if there is none.
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

// requeue puts a call that is to be repeated into the queue again.
func (s *sender) requeue(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.startPipelines()
}

// underWay returns how many pipelines have not ended.
func (s *sender) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pipelines) + s.abandoned
}
