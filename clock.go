package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/handclock"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Clock tells a limiter the time. [WithClock] gives it to a limiter; without one, the limiter reads the machine's monotonic clock.
// [FakeClock] is a Clock for tests. A limiter calls Now once for each decision, while it holds a lock. So Now must be safe for
// concurrent use by multiple goroutines, and must not call the limiter.
//
// A Clock may also have the method After(time.Duration) <-chan time.Time, as [FakeClock] and the clocks of
// github.com/benbjohnson/clock have. Only then do the Wait methods wait by this Clock, and not in real time.
type Clock interface {
	// Now returns the time. If the clock steps back, the time of each key stands still until the clock catches up, and
	// [Result.RetryAfter] includes that wait. When the limiter is made, a clock that is not set yet may return a time outside the years
	// 1678 to 2262. As soon as such a clock returns a time inside these years, the limiter forgets what all keys have used.
	Now() time.Time
}

// A FakeClock is a [Clock] for tests. It moves only when the test calls [FakeClock.Advance] or [FakeClock.Set]; nothing sleeps.
// [WithClock] gives it to a limiter. Each move wakes the callers that wait for a time that the clock has now reached. A FakeClock
// is safe for concurrent use by multiple goroutines. The zero FakeClock reads the zero [time.Time].
type FakeClock struct{ clock handclock.Clock }

// NewFakeClock returns a FakeClock that shows the time start.
func NewFakeClock(start time.Time) *FakeClock {
	c := new(FakeClock)
	c.Set(start)
	return c
}

// Now returns the time that the clock shows.
func (c *FakeClock) Now() time.Time { return c.clock.Now() }

// Advance moves the clock by the duration d, backwards if d is negative.
func (c *FakeClock) Advance(d time.Duration) { c.clock.Advance(d) }

// Set moves the clock to the time t, which may be earlier than the time that the clock shows.
func (c *FakeClock) Set(t time.Time) { c.clock.Set(t) }

// After returns a channel that receives the clock's time once the clock has moved forward by the duration d. If d is
// zero or negative, the channel receives the time at once.
func (c *FakeClock) After(d time.Duration) <-chan time.Time { return c.clock.After(d) }

// BlockUntil waits until at least n callers wait for the clock to move. It first serves the callers whose time the clock has
// reached. A caller of Wait or [RateLimiter.ReserveWait] counts while it waits in line or for a Delay, but not while it calls a
// [Store] or a custom [Limiter]. A channel of After counts as a caller until it receives the time.
func (c *FakeClock) BlockUntil(n int) { c.clock.BlockUntil(n) }

// An instant is a reading of a limiter's clock, in nanoseconds.
type instant = keytable.Instant

// newTimeline returns a Timeline that reads the clock c, or the machine's clock if c is nil.
func newTimeline(c Clock) engine.Timeline {
	if fake, ok := c.(*FakeClock); ok {
		return engine.NewTimeline(fake, &fake.clock)
	}
	return engine.NewTimeline(c, nil)
}
