package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/handclock"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Clock tells a limiter the time. A limiter gets one by [WithClock]; without it, the
// limiter reads the machine's monotonic clock. For tests, there is [FakeClock].
//
// A limiter calls Now once for each decision, while it holds a lock. So Now must be safe for
// concurrent use by multiple goroutines and must not call the limiter.
//
// A Clock may also have the method After(time.Duration) <-chan time.Time, as [FakeClock] and
// the clocks of github.com/benbjohnson/clock have. Then the Wait methods wait until the
// Clock says that the time has passed; otherwise they wait in real time.
type Clock interface {
	// Now returns the time. The time may step back: for a key, it then stands
	// still until it has caught up, and [Result.RetryAfter] includes that wait.
	//
	// A clock may be set late: if it stands outside the years 1678 to 2262 when
	// the limiter is made, all keys are as new at the first reading inside.
	Now() time.Time
}

// A FakeClock is a [Clock] for tests. It moves only when the test calls [FakeClock.Advance]
// or [FakeClock.Set]; nothing sleeps. [WithClock] gives it to a limiter.
//
// A FakeClock is safe for concurrent use by multiple goroutines. The zero FakeClock stands
// at the zero [time.Time].
type FakeClock struct{ clock handclock.Clock }

// NewFakeClock returns a FakeClock that stands at start.
func NewFakeClock(start time.Time) *FakeClock {
	c := new(FakeClock)
	c.Set(start)
	return c
}

// Now returns the time that the clock stands at.
func (c *FakeClock) Now() time.Time { return c.clock.Now() }

// Advance moves the clock by d, backwards if d is negative. It ends the waits on this clock
// whose time has come.
func (c *FakeClock) Advance(d time.Duration) { c.clock.Advance(d) }

// Set moves the clock to t, which may be earlier than the time it stands at. It ends the
// waits on this clock whose time has come.
func (c *FakeClock) Set(t time.Time) { c.clock.Set(t) }

// After returns a channel that receives the clock's time once the clock has moved on by d.
// If d is zero or negative, the channel has received it already.
func (c *FakeClock) After(d time.Duration) <-chan time.Time { return c.clock.After(d) }

// An instant is a reading of a limiter's clock, in nanoseconds.
type instant = keytable.Instant

// newTimeline returns the timeline of c, or of the machine's clock if c is nil.
func newTimeline(c Clock) engine.Timeline {
	if fake, ok := c.(*FakeClock); ok {
		return engine.NewTimeline(fake, fake.clock.Alarm)
	}
	return engine.NewTimeline(c, nil)
}
