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

// A HandClock is a clock for tests that is moved by hand.
type HandClock interface {
	// Alarm sets an alarm. The channel named rings receives a value once the clock has reached the given time.
	// The function named stop removes the alarm. It is called once, when the caller has done what was due.
	Alarm(at time.Time) (rings <-chan time.Time, stop func())

	// Waits changes the number of callers that wait, by 1 when a caller begins to wait and by -1 when its wait ends.
	// While callers wait, the clock may call in.Settle. Settle serves the callers that are due, even if their goroutines
	// have not woken up yet. The parameter in is nil for a caller that waits for nothing but the clock.
	Waits(change int, in interface{ Settle() })
}

// A Timeline converts the readings of a limiter's clock to instants, and waits on that clock.
type Timeline struct {
	clock Clock     // nil for the machine's monotonic clock
	start time.Time // the reading of the clock when the timeline was made
	hand  HandClock // sets alarms; if nil, the method After of the clock sets them, or a time.Timer if the clock has no such method
	late  *origin   // replaces the field start if the clock first showed a time outside the years 1678 to 2262; otherwise nil
	dials *dials    // finds the windows of calendars; nil in the zero Timeline
}

// NewTimeline returns the timeline of the clock c, or of the machine's monotonic clock if c is nil. It
// reads the clock once. The parameter hand is the same clock if it is moved by hand, otherwise nil. If
// the clock shows a time outside the years 1678 to 2262, the timeline starts again at the first reading
// inside these years, see [Timeline.OnRestart].
func NewTimeline(c Clock, hand HandClock) Timeline {
	if c == nil {
		return Timeline{start: time.Now(), dials: new(dials)}
	}
	t := Timeline{clock: c, start: c.Now(), hand: hand, dials: new(dials)}
	if !usual(t.start) {
		t.late = &origin{dials: t.dials}
		t.late.start.Store(&t.start)
		t.late.pending.Store(true)
	}
	return t
}

// Start returns the reading of the clock at which the timeline starts.
func (t *Timeline) Start() time.Time {
	if t.late != nil {
		return *t.late.start.Load()
	}
	return t.start
}

// Now reads the clock. If the reading includes a monotonic time, Now uses the monotonic time, so that a
// step of the wall clock has no effect. If the reading is more than 292 years away from the start, Now
// returns the instant 292 years away from the start.
func (t *Timeline) Now() keytable.Instant {
	if t.clock == nil {
		return keytable.InstantAt(time.Since(t.start))
	}
	return keytable.InstantAt(t.clock.Now().Sub(t.Start()))
}

// Time returns the time that the clock showed at the instant now.
func (t *Timeline) Time(now keytable.Instant) time.Time { return t.Start().Add(now.Duration()) }

// nowLocked reads the clock while the caller holds the lock l. Goroutines that decide under the same
// lock then read the clock in the order in which they decide. If the clock panics, nowLocked unlocks l.
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

// Ring sets an alarm that rings once the duration d has passed since the instant now. It returns two
// results: a channel that receives a value when the alarm rings, and a function that removes the alarm.
func (t *Timeline) Ring(now keytable.Instant, d time.Duration) (rings <-chan time.Time, stop func()) {
	if t.hand != nil {
		return t.hand.Alarm(t.Time(now).Add(d))
	}
	if c, ok := t.clock.(interface {
		After(d time.Duration) <-chan time.Time
	}); ok {
		return t.after(c.After, now, d), func() {}
	}
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// after sets an alarm that rings once the duration d has passed since the instant now. It sets the alarm with
// its parameter set, the method After of the clock, which counts from the moment when it is called. If
// the clock were moved by hand between the instant now and that moment, the alarm would ring too late or never. So
// Timeline.after reads the clock again once the alarm is set. If the clock has moved, it sets the alarm
// again.
//
// A clock that runs by itself has always moved, but no further than the machine's clock. If that is so for three
// alarms in a row, Timeline.after assumes that the clock runs by itself, and keeps the third alarm, which may ring late by the
// time between two readings. It keeps the 100th alarm in any case.
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

// Sleep waits until the duration d has passed since the instant now, or until the channel wake receives
// a value. It returns the error of ctx if ctx ends first.
func (t *Timeline) Sleep(ctx context.Context, now keytable.Instant, d time.Duration, wake <-chan struct{}) error {
	rings, stop := t.Ring(now, d)
	t.Waits(1, nil)
	defer func() {
		t.Waits(-1, nil)
		stop()
	}()
	select {
	case <-rings:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Waits tells a clock that is moved by hand that a caller begins to wait, if change is 1, or that its wait ends, if
// change is -1, see [HandClock]. It does nothing for other clocks.
func (t *Timeline) Waits(change int, in interface{ Settle() }) {
	if t.hand != nil {
		t.hand.Waits(change, in)
	}
}

// Hold waits until the given delay has passed since the given instant. It returns the error of ctx if ctx ends first.
func (t *Timeline) Hold(ctx context.Context, at keytable.Instant, delay time.Duration) error {
	if delay == 0 {
		return nil
	}
	now, end := t.Now(), at.Add(delay)
	if now >= end {
		return nil
	}
	return t.Sleep(ctx, now, now.Until(end), nil)
}

// Patience returns how long a caller with the context ctx can wait: the time left until the deadline of
// ctx, or the longest Duration if ctx has no deadline.
func (t *Timeline) Patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	return t.TimeTo(deadline)
}

// TimeTo returns the time left until the given deadline of a context that has not ended.
func (t *Timeline) TimeTo(deadline time.Time) time.Duration {
	left := time.Until(deadline)
	if left <= 0 && t.clock != nil {
		// By the machine's clock, the deadline has passed, but the context has not ended. So the deadline
		// was computed with the limiter's clock.
		left = deadline.Sub(t.clock.Now())
	}
	return left
}

// Machine reports whether the clock is the machine's monotonic clock.
func (t *Timeline) Machine() bool { return t.clock == nil }
