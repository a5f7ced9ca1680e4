package engine

import (
	"context"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Clock tells the time.
type Clock interface {
	// Now returns the time. It may step back.
	Now() time.Time
}

// An Alarm sets an alarm of a clock that is moved by hand: rings receives once the clock has
// reached at, and stop removes the alarm.
type Alarm func(at time.Time) (rings <-chan time.Time, stop func())

// A Timeline turns the readings of a limiter's clock into instants, and waits on that clock.
type Timeline struct {
	clock Clock     // nil for the machine's monotonic clock
	start time.Time // the reading of the clock when the timeline was made
	alarm Alarm     // nil for the clock's After or, if it has none, a timer of the machine
	late  *origin   // what counts in place of start; nil if the clock stood at a usual time
}

// NewTimeline returns the timeline of c, or of the machine's monotonic clock if c is nil. It
// reads the clock once. alarm may be nil. If the clock stands outside the years 1678 to 2262,
// the timeline begins anew at the first reading inside, see [Timeline.OnRestart].
func NewTimeline(c Clock, alarm Alarm) Timeline {
	if c == nil {
		return Timeline{start: time.Now()}
	}
	t := Timeline{clock: c, start: c.Now(), alarm: alarm}
	if !usual(t.start) {
		t.late = new(origin)
		t.late.start.Store(&t.start)
		t.late.pending.Store(true)
	}
	return t
}

// Start returns the time at which the timeline begins: the reading of the clock when it was
// made, or the first one inside the years 1678 to 2262.
func (t *Timeline) Start() time.Time {
	if t.late != nil {
		return *t.late.start.Load()
	}
	return t.start
}

// Now reads the clock. If the clock has a monotonic reading, the instant is made of that, so
// that a step of the wall clock has no effect. An instant is at most 292 years from the start:
// a reading beyond counts as that.
func (t *Timeline) Now() keytable.Instant {
	if t.clock == nil {
		return keytable.InstantAt(time.Since(t.start))
	}
	return keytable.InstantAt(t.clock.Now().Sub(t.Start()))
}

// Time returns the time at which the clock read now.
func (t *Timeline) Time(now keytable.Instant) time.Time { return t.Start().Add(now.Duration()) }

// nowLocked reads the clock while the caller holds l, so that decisions under l follow each
// other in time. If the clock panics, nowLocked unlocks l.
func (t *Timeline) nowLocked(l interface{ Unlock() }) keytable.Instant {
	panicked := true
	defer func() {
		if panicked {
			l.Unlock()
		}
	}()
	now := t.Now()
	panicked = false
	return now
}

// ring returns a channel that receives once d has passed since now, which is a reading of the
// clock, and a function that removes the alarm.
func (t *Timeline) ring(now keytable.Instant, d time.Duration) (rings <-chan time.Time, stop func()) {
	if t.alarm != nil {
		return t.alarm(t.Time(now).Add(d))
	}
	if c, ok := t.clock.(interface {
		After(d time.Duration) <-chan time.Time
	}); ok {
		return t.after(c.After, now, d), func() {}
	}
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// after sets an alarm by set, the After of a clock, which counts from the call and not from
// now. If the clock is moved by hand between now and the call, the alarm would ring too late or
// never. So after sets the alarm first and reads the clock afterwards; if the clock has moved,
// it sets the alarm again.
//
// A clock may also run by itself. after takes it to do so if the clock has moved at each of
// several readings, but no further than the machine's. The alarm is then late by the time that
// one reading takes, which is accepted. After 100 rounds, any alarm is accepted.
func (t *Timeline) after(set func(time.Duration) <-chan time.Time, now keytable.Instant, d time.Duration) <-chan time.Time {
	var rings <-chan time.Time
	for round, running := 0, 0; round < 100 && running < 3; round++ {
		began := time.Now()
		before := max(t.Now(), now)
		rings = set(d - time.Duration(min(before.Since(now), uint64(d))))
		switch moved := max(t.Now(), before).Since(before); {
		case moved == 0:
			return rings
		case moved <= uint64(time.Since(began)):
			running++
		default:
			running = 0
		}
	}
	return rings
}

// Sleep waits until d has passed since now, which is a reading of the clock, or until wake
// receives. It returns the error of ctx if ctx ends first.
func (t *Timeline) Sleep(ctx context.Context, now keytable.Instant, d time.Duration, wake <-chan struct{}) error {
	rings, stop := t.ring(now, d)
	defer stop()
	select {
	case <-rings:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Patience returns how long a caller with ctx may wait: the time to the deadline of ctx, or
// the longest Duration if it has none.
func (t *Timeline) Patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	left := time.Until(deadline)
	if left <= 0 && t.clock != nil {
		// ctx has not ended, so its deadline is not a time of the machine's clock.
		left = deadline.Sub(t.clock.Now())
	}
	return left
}

// Machine reports whether the clock is the machine's monotonic clock.
func (t *Timeline) Machine() bool { return t.clock == nil }
