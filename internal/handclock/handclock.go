// Package handclock provides a clock for tests, with alarms. The clock moves only when the test moves
// it.
package handclock

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// A Clock stands still until Set or Advance moves it. The zero Clock stands at the zero time.Time. A
// Clock is safe for concurrent use by multiple goroutines.
type Clock struct {
	mu     sync.Mutex
	now    time.Time           // guarded by mu
	alarms map[*alarm]struct{} // alarms that have yet to ring; guarded by mu

	lines   map[Line]int // number of callers that wait in each Line; guarded by mu
	waiting int          // callers that wait, as Waits counts them, plus channels of After that have yet to receive; guarded by mu
	rung    int          // alarms made by Alarm that have rung, but whose callers have not yet stopped them; guarded by mu
	changed sync.Cond    // wakes BlockUntil when waiting or rung changes; its L is nil until the first call of BlockUntil; guarded by mu
}

// An alarm sends the time of the clock to the channel alarm.c, once the clock has reached the time alarm.at.
type alarm struct {
	at time.Time
	c  chan time.Time // buffered, so that sending to it never blocks

	after bool // whether After made the alarm; it is then counted in Clock.waiting until it rings
	rung  bool // whether the alarm has rung; guarded by Clock.mu
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
			delete(c.alarms, a)
			if a.after {
				c.waiting--
			}
			c.ringLocked(a)
		}
	}
}

// ringLocked rings the alarm a. The caller holds c.mu.
func (c *Clock) ringLocked(a *alarm) {
	a.c <- c.now
	if a.rung = true; !a.after {
		c.rung++
	}
	c.changed.Broadcast()
}

// After returns a channel that receives the time of the clock once the clock has moved forward by d.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{at: c.now.Add(d), c: make(chan time.Time, 1), after: true}
	if c.alarmLocked(a); !a.rung {
		c.waiting++
		c.changed.Broadcast()
	}
	return a.c
}

// Alarm returns a channel that receives the time of the clock once the clock has reached the given time.
// Unlike with After, a move of the clock just before the call does not delay the alarm. The second result is a
// function that removes the alarm.
func (c *Clock) Alarm(at time.Time) (rings <-chan time.Time, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &alarm{at: at, c: make(chan time.Time, 1)}
	c.alarmLocked(a)
	return a.c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.alarms, a)
		if a.rung {
			a.rung = false // so that a second call changes nothing
			c.rung--
			c.changed.Broadcast()
		}
	}
}

// A Line holds callers that wait one behind the other.
type Line = interface {
	// Settle serves the callers whose time to be served has come.
	Settle()
}

// Waits adds the parameter change to the number of waiting callers, which [Clock.BlockUntil] counts. The callers wait in the given
// Line. The Line is nil for callers that wait in no Line.
func (c *Clock) Waits(change int, in Line) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting += change
	c.changed.Broadcast()
	if in == nil {
		return
	}
	if c.lines == nil {
		c.lines = make(map[Line]int)
	}
	if c.lines[in] += change; c.lines[in] == 0 {
		delete(c.lines, in)
	}
}

// BlockUntil waits until at least n callers wait. Before it counts the callers, it serves those whose time to be served has come,
// even if their goroutines have not run since the clock moved. While an alarm has rung, but its caller has not yet stopped it,
// BlockUntil does not return.
func (c *Clock) BlockUntil(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.changed.L = &c.mu; ; c.changed.Wait() {
		lines := slices.Collect(maps.Keys(c.lines))
		c.mu.Unlock() // because Settle reads the clock
		for _, in := range lines {
			in.Settle()
		}
		if c.mu.Lock(); c.waiting >= n && c.rung == 0 {
			return
		}
	}
}

// alarmLocked adds the alarm a. If the clock has already reached the time of the alarm, the alarm rings at once. The
// caller holds c.mu.
func (c *Clock) alarmLocked(a *alarm) {
	if !a.at.After(c.now) {
		c.ringLocked(a)
		return
	}
	if c.alarms == nil {
		c.alarms = make(map[*alarm]struct{})
	}
	c.alarms[a] = struct{}{}
}

// Alarms returns how many alarms have yet to ring.
func (c *Clock) Alarms() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.alarms)
}
