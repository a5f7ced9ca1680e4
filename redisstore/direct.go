package redisstore

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A lone call is one that its caller makes itself: for who asks while nobody else
// does, a goroutine for it would take longer than all the rest here.
type directCall struct {
	pipeline pipeline
	call     call
	shared   shared
	calls    [1]*call
	keys     [1]string
	costs    [1]int64
}

// startDirect returns the call for who asks for u and may make it itself, or nil if others
// are asking. The sender has one, as it is startDirect.
func (s *sender) startDirect(u *item) *directCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls.first != nil || len(s.pipelines) > 0 || s.abandoned > 0 {
		return nil
	}
	m, deadline := &s.direct, time.Now().Add(s.conn.set.timeout)
	*m = directCall{keys: [1]string{u.key.text}, costs: [1]int64{u.n}}
	m.shared = shared{keyQueue: new(keyQueue), item: *u, costs: m.costs[:]}
	m.call = call{keys: m.keys[:], shared: &m.shared, deadline: deadline, sent: true}
	m.calls[0] = &m.call
	m.pipeline = pipeline{calls: m.calls[:], deadline: deadline}
	s.calls.add(&m.call)
	m.shared.keyQueue.calls = append(m.shared.keyQueue.calls, &m.call)
	s.keyQueues[u.key.text] = m.shared.keyQueue
	s.pipelines = append(s.pipelines, &m.pipeline)
	s.arm(s.conn.set.timeout)
	return m
}

// makeDirect makes the call m, and tells others that they may go.
func (s *sender) makeDirect(m *directCall) (ratelimit.Result, error) {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	c := &m.call
	for {
		c.tries++
		s.conn.send(s.client, m.calls[:])
		if c.err == nil || !c.retries(time.Now()) {
			break
		}
		s.conn.retry(c)
		pause := time.NewTimer(c.pause())
		<-pause.C
	}
	s.conn.learnRoutes(c)
	results := s.conn.results(c)
	err := c.err
	s.finish(&m.pipeline)
	if next := s.successor(&m.pipeline); next != nil { // m may be another's call
		go s.runPipeline(next)
	}
	if err != nil {
		return ratelimit.Result{}, s.conn.countFailure(err)
	}
	return results[0], nil
}
