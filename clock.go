package ratelimit

import (
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Clock tells a limiter the time.
//
// Now is called once for each decision while a lock is held, so it must be
// safe for concurrent use and must not call the limiter back. A limiter without
// a Clock reads the machine's monotonic clock.
//
// A Clock may also have the method After(time.Duration) <-chan time.Time, as
// [FakeClock] and the clocks of github.com/benbjohnson/clock do; Wait then
// waits on it, else on real time.
type Clock interface {
	// Now returns the time. It may step back.
	Now() time.Time
}

// A FakeClock is a Clock that moves only when it is told to and never sleeps.
//
// It is safe for concurrent use by multiple goroutines. The zero FakeClock
// stands at the zero time.Time.
type FakeClock struct {
	mu     sync.Mutex
	now    time.Time
	alarms map[*alarm]struct{}
}

// An alarm is a channel that receives the time once the clock reaches at.
type alarm struct {
	at time.Time
	c  chan time.Time // buffered, so that ringing never blocks
}

// NewFakeClock returns a FakeClock that stands at start.
func NewFakeClock(start time.Time) *FakeClock { return &FakeClock{now: start} }

// Now returns the time that the clock stands at.
func (c *FakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d, backwards if d is negative, and ends the waits
// that are then due.
func (c *FakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(c.now.Add(d))
}

// Set moves the clock to t, which may lie in its past, and ends the waits that
// are then due.
func (c *FakeClock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(t)
}

// After returns a channel that receives the clock's time once it has moved on
// by d: at once if d is not positive.
func (c *FakeClock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.alarmLocked(c.now.Add(d)).c
}

// alarm is After for an instant instead of a distance, so that a move of the
// clock before the call is not lost. The second result forgets the alarm.
func (c *FakeClock) alarm(at time.Time) (rings <-chan time.Time, stop func()) {
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
func (c *FakeClock) alarmLocked(at time.Time) *alarm {
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

// setLocked must be called with c.mu held.
func (c *FakeClock) setLocked(t time.Time) {
	c.now = t
	for a := range c.alarms {
		if !a.at.After(t) {
			a.c <- t
			delete(c.alarms, a)
		}
	}
}

// An instant is a reading of a limiter's clock.
type instant = keytable.Instant

// newTimeline returns the timeline of c, or of the machine's clock if c is nil.
func newTimeline(c Clock) engine.Timeline {
	if fake, ok := c.(*FakeClock); ok {
		return engine.NewTimeline(fake, fake.alarm)
	}
	return engine.NewTimeline(c, nil)
}
