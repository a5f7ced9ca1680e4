package redisstore

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A lone call is one that its caller makes itself: for who asks while nobody else
// does, a goroutine for it would take longer than all the rest here.
type lone struct {
	flight flight
	call   call
	joint  joint
	calls  [1]*call
	keys   [1]string
	costs  [1]int64
}

// alone returns the call for who asks for u and may make it itself, or nil if others
// are asking. The lane has one, as it is alone.
func (l *lane) alone(u *unit) *lone {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls.first != nil || len(l.flying) > 0 || l.stuck > 0 {
		return nil
	}
	m, deadline := &l.lone, time.Now().Add(l.conn.set.timeout)
	*m = lone{keys: [1]string{u.key.text}, costs: [1]int64{u.n}}
	m.joint = joint{turn: new(turn), unit: *u, costs: m.costs[:]}
	m.call = call{keys: m.keys[:], joint: &m.joint, deadline: deadline, sent: true}
	m.calls[0] = &m.call
	m.flight = flight{calls: m.calls[:], deadline: deadline}
	l.calls.add(&m.call)
	m.joint.turn.calls = append(m.joint.turn.calls, &m.call)
	l.turns[u.key.text] = m.joint.turn
	l.flying = append(l.flying, &m.flight)
	l.arm(l.conn.set.timeout)
	return m
}

// makeAlone makes the call m, and tells others that they may go.
func (l *lane) makeAlone(m *lone) (ratelimit.Result, error) {
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	c := &m.call
	for {
		c.tries++
		l.conn.send(l.client, m.calls[:])
		if c.err == nil || !c.retries(time.Now()) {
			break
		}
		l.conn.retry(c)
		pause := time.NewTimer(c.pause())
		<-pause.C
	}
	l.conn.heard(c)
	results := l.conn.results(c)
	err := c.err
	l.land(&m.flight)
	if next := l.next(&m.flight); next != nil { // m may be another's call
		go l.fly(next)
	}
	if err != nil {
		return ratelimit.Result{}, l.conn.failure(err)
	}
	return results[0], nil
}
