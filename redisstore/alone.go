package redisstore

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A lone call is one that nobody can join and that its caller makes itself: for who
// asks for a key while nobody else asks for any, a goroutine for it would take longer
// than all the rest here.
type lone struct {
	flight flight
	call   call
	joint  joint
	calls  [1]*call
	keys   [1]string
	costs  [1]int64
}

// alone returns a flight for who makes a call itself, or nil if others ask. The lane
// has one, as it is alone.
func (l *lane) alone() *lone {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flying) > 0 || len(l.queue) > 0 || l.stuck > 0 {
		return nil
	}
	m := &l.lone
	*m = lone{flight: flight{deadline: time.Now().Add(l.conn.set.timeout)}}
	l.flying = append(l.flying, &m.flight)
	return m
}

// fast asks for u by m, and tells others that they may go.
func (l *lane) fast(m *lone, u *unit) (ratelimit.Result, error) {
	m.keys[0], m.costs[0] = u.key.text, u.n
	m.joint = joint{unit: *u, costs: m.costs[:]}
	m.call = call{keys: m.keys[:], joint: &m.joint, deadline: m.flight.deadline}
	m.calls[0] = &m.call
	c := &m.call
	for {
		c.tries++
		l.conn.send(l.client, m.calls[:])
		if !c.retries(time.Now()) {
			break
		}
		l.conn.retry(c)
		pause := time.NewTimer(c.pause())
		<-pause.C
	}
	l.conn.heard(c)
	results := l.conn.results(c)
	err := c.err
	if next := l.next(&m.flight); next != nil { // m is no longer ours
		go l.fly(next)
	}
	if err != nil {
		return ratelimit.Result{}, l.conn.failure(err)
	}
	return results[0], nil
}
