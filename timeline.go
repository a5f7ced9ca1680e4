package ratelimit

import (
	"context"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A timeline turns the readings of a limiter's clock into instants, and waits on
// that clock.
type timeline struct {
	clock Clock // nil: the machine's
	start time.Time
}

func newTimeline(c Clock) timeline {
	if c == nil {
		return timeline{nil, time.Now()}
	}
	return timeline{c, c.Now()}
}

// now reads the clock. Differences keep the monotonic reading where the clock
// has one, so that a step of the wall clock does not reach the limiter, and
// saturate 292 years from the start.
func (t *timeline) now() instant {
	if t.clock == nil {
		return keytable.InstantAt(time.Since(t.start))
	}
	return keytable.InstantAt(t.clock.Now().Sub(t.start))
}

// nowLocked reads the clock while l is held, so that time follows the order of
// the lock. A clock that panics leaves l unlocked.
func (t *timeline) nowLocked(l interface{ Unlock() }) instant {
	panicked := true
	defer func() {
		if panicked {
			l.Unlock()
		}
	}()
	now := t.now()
	panicked = false
	return now
}

// alarm returns a channel that receives once d has passed since now, a reading
// of the clock, and a function that gives the alarm up.
func (t *timeline) alarm(now instant, d time.Duration) (rings <-chan time.Time, stop func()) {
	switch c := t.clock.(type) {
	case *FakeClock:
		return c.alarm(t.start.Add(now.Duration()).Add(d))
	case interface {
		After(d time.Duration) <-chan time.Time
	}:
		return t.after(c.After, now, d), func() {}
	}
	timer := time.NewTimer(d)
	return timer.C, func() { timer.Stop() }
}

// after sets an alarm by a clock that counts from the call instead of from now. A
// clock that was moved by hand in between would ring too late, or never, so the
// alarm is set first, the clock read after, and the alarm set again if it has
// moved. A clock that at each of several readings has moved, but no further than
// the machine's, runs by itself: its alarm is late by what a reading takes. So does
// one that never stops moving.
func (t *timeline) after(set func(time.Duration) <-chan time.Time, now instant, d time.Duration) <-chan time.Time {
	var rings <-chan time.Time
	for round, running := 0, 0; round < 100 && running < 3; round++ {
		began := time.Now()
		before := max(t.now(), now)
		rings = set(d - time.Duration(min(before.Since(now), uint64(d))))
		switch moved := max(t.now(), before).Since(before); {
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

// sleep waits until d has passed since now, a reading of the clock, or something
// comes from wake. It returns ctx's error if that is over first.
func (t *timeline) sleep(ctx context.Context, now instant, d time.Duration, wake <-chan struct{}) error {
	rings, stop := t.alarm(now, d)
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

// patience returns how long ctx allows to wait.
func (t *timeline) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	left := time.Until(deadline)
	if left <= 0 && t.clock != nil {
		// It is not over, so its deadline is of another clock's time.
		left = deadline.Sub(t.clock.Now())
	}
	return left
}
