// Package handclock is a clock for tests that is moved by hand, with alarms.
package handclock

import (
	"sync"
	"time"
)

// A Clock stands still until it is set. The zero Clock stands at the zero time.Time. It is safe
// for concurrent use by multiple goroutines.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[*alarm]struct{}
}

// An alarm is a channel that receives the time once the clock has reached at.
type alarm struct {
	at time.Time
	c  chan time.Time // buffered, so that sending to it never blocks
}

// Now returns the time that the clock stands at.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, and rings the alarms whose time has come.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(c.now.Add(d))
}

// Set moves the clock to t, and rings the alarms whose time has come.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(t)
}

// setLocked must be called with c.mu held.
func (c *Clock) setLocked(t time.Time) {
	c.now = t
	for a := range c.alarms {
		if !a.at.After(t) {
			a.c <- t
			delete(c.alarms, a)
		}
	}
}

// After returns a channel that receives the clock's time once the clock has moved on by d.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alarmLocked(c.now.Add(d)).c
}

// Alarm is After for a time instead of a duration: it does not matter whether the clock moves
// before the call. stop removes the alarm.
func (c *Clock) Alarm(at time.Time) (rings <-chan time.Time, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.alarmLocked(at)
	return a.c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, a)
	}
}

// alarmLocked must be called with c.mu held.
func (c *Clock) alarmLocked(at time.Time) *alarm {
	a := &alarm{at: at, c: make(chan time.Time, 1)}
	if !at.After(c.now) {
		a.c <- c.now
		return a
	}
	if c.alarms == nil {
		c.alarms = make(map[*alarm]struct{})
	}
	c.alarms[a] = struct{}{}
	return a
}

// Alarms returns how many alarms have yet to ring.
func (c *Clock) Alarms() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alarms)
}
