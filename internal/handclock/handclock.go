// Package handclock provides a clock for tests, with alarms. The clock moves only when the test moves
// it.
package handclock

import (
	"sync"
	"time"
)

// A Clock stands still until Set or Advance moves it. The zero Clock stands at the zero time.Time. A
// Clock is safe for concurrent use by multiple goroutines.
type Clock struct {
	mu     sync.Mutex
	now    time.Time           // guarded by mu
	alarms map[*alarm]struct{} // alarms that have yet to ring; guarded by mu
}

// An alarm sends the time of the clock to its channel once the clock has reached the time in the field at.
type alarm struct {
	at time.Time
	c  chan time.Time // buffered, so that sending to it never blocks
}

// Now returns the time at which the clock stands.
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

// setLocked does the work of Set for a caller that holds c.mu.
func (c *Clock) setLocked(t time.Time) {
	c.now = t
	for a := range c.alarms {
		if !a.at.After(t) {
			a.c <- t
			delete(c.alarms, a)
		}
	}
}

// After returns a channel that receives the time of the clock once the clock has moved forward by d.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alarmLocked(c.now.Add(d)).c
}

// Alarm returns a channel that receives the time of the clock once the clock has reached the given time.
// Unlike with After, a move of the clock just before the call does not delay the alarm. The second result is a
// function that removes the alarm.
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

// alarmLocked adds an alarm for the given time. If the clock has already reached that time, the alarm
// rings at once. The caller holds c.mu.
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
