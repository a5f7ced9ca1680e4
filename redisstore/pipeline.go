package redisstore

import (
	"runtime"
	"slices"
	"time"
)

// A pipeline is calls that are made together.
type pipeline struct {
	calls     []*call
	deadline  time.Time // when nobody waits any more
	finished  bool      // who waits is being told
	abandoned bool
}

// startPipelines begins flights while there is something to take along. It must be called
// with s.mu held.
func (s *sender) startPipelines() {
	for p := s.nextPipeline(); p != nil; p = s.nextPipeline() {
		go s.runPipeline(p)
	}
}

// take returns a pipeline that may begin, or nil if there is none. It must be called with
// s.mu held.
func (s *sender) nextPipeline() *pipeline {
	for len(s.pipelines) < s.maxPipelines && s.abandoned < maxAbandoned && len(s.queue) > 0 {
		if p := s.fillPipeline(); len(p.calls) > 0 {
			s.pipelines = append(s.pipelines, p)
			return p
		}
	}
	return nil
}

// board returns a pipeline with the first calls of the queue that somebody waits for.
// It must be called with s.mu held.
func (s *sender) fillPipeline() *pipeline {
	p := new(pipeline)
	n := 0
	for ; n < len(s.queue) && len(p.calls) < s.maxCalls; n++ {
		c := s.queue[n]
		if !c.freeze() {
			s.end(c)
			continue
		}
		p.calls = append(p.calls, c)
		if c.deadline.After(p.deadline) {
			p.deadline = c.deadline
		}
	}
	s.queue = slices.Delete(s.queue, 0, n)
	return p
}

// fly makes the calls of f, tells who waits for them, and goes on with the calls that
// have come meanwhile.
func (s *sender) runPipeline(p *pipeline) {
	for p != nil {
		s.conn.send(s.client, p.calls)
		for _, c := range p.calls {
			s.conn.learnRoutes(c)
		}
		done, again := s.finish(p)
		for _, c := range again {
			s.conn.retry(c)
			time.AfterFunc(c.pause(), func() { s.requeue(c) })
		}
		for _, c := range done {
			s.conn.answer(c)
		}
		if len(done) > 1 || len(done) == 1 && len(done[0].waiters) > 1 {
			// Those who have been told may ask again, and go together.
			runtime.Gosched()
		}
		p = s.successor(p)
	}
}

// land returns the calls of f that have ended, and those to make again.
func (s *sender) finish(p *pipeline) (done, again []*call) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.abandoned {
		return nil, nil
	}
	p.finished = true
	for _, c := range p.calls {
		if c.retries(now) {
			again = append(again, c)
			continue
		}
		s.end(c)
		done = append(done, c)
	}
	return done, again
}

// next returns the pipeline that takes the place of f, if there is one.
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

// again makes a call another time, if somebody still waits for it.
func (s *sender) requeue(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, c)
	s.startPipelines()
}

// underWay returns how many flights have not ended.
func (s *sender) underWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pipelines) + s.abandoned
}
