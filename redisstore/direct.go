package redisstore

import (
	"context"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A directCall is a call that is made by the goroutine of its caller. Where no other call
// is under way, starting a goroutine for the call would take longer than all other work in
// this process. The parts of the call are held here, so that they need no allocation.
type directCall struct {
	pipeline pipeline
	call     call
	shared   shared
	calls    [1]*call
	keys     [1]string
	costs    [1]int64
	active   bool // whether it is under way, and no other call for its key is
}

// startDirect returns a call for u that the calling goroutine may make itself, or nil if
// other calls are under way. The sender has only one directCall, which is enough: while it
// is in use, another call is under way.
func (s *sender) startDirect(u *item) *directCall {
	if s.waiting.Load() > 0 || !s.ready() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls.first != nil || len(s.pipelines) > 0 || s.abandoned > 0 {
		return nil
	}
	m, deadline := &s.direct, time.Now().Add(s.conn.set.timeout)
	number := s.conn.lastPipeline.Add(1)
	m.keys[0], m.costs[0], m.calls[0], m.active = u.key.text, u.n, &m.call, true
	m.shared = shared{item: *u, costs: m.costs[:]}
	m.call = call{keys: m.keys[:], shared: &m.shared, deadline: deadline, sent: true, pipeline: number, in: &m.pipeline}
	m.pipeline = pipeline{number: number, calls: m.calls[:], deadline: deadline}
	s.calls.add(&m.call)
	s.pipelines = append(s.pipelines, &m.pipeline)
	s.arm(s.conn.set.timeout)
	return m
}

// makeDirect makes the call m, returns its result, and starts the calls that came in the
// meantime.
func (s *sender) makeDirect(m *directCall) ([]ratelimit.Result, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	c := &m.call
	by := sending{s.conn.context(), s.lone, func() { m.pipeline.written.Store(true) }}
	for {
		c.tries++
		s.conn.send(by, m.calls[:])
		s.learn(c.err)
		if c.err == nil || !c.retries(time.Now()) {
			break
		}
		s.conn.retry(c)
		pause := time.NewTimer(c.pause())
		<-pause.C
		ctx, cancel := context.WithDeadline(context.Background(), c.deadline)
		defer cancel()
		by.ctx = ctx
	}
	s.conn.learnRoutes(c)
	results := s.conn.results(c)
	failed := outcome{err: c.err, call: c.pipeline, unsent: !m.pipeline.written.Load()}
	s.finish(&m.pipeline)
	if next := s.successor(&m.pipeline); next != nil { // from here on m may hold the call of another caller
		go s.runPipeline(next)
	}
	if failed.err != nil {
		return nil, s.conn.countFailure(failed)
	}
	return results, nil
}
