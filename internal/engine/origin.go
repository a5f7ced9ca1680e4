package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// firstYear and lastYear are the first and the last year of the usual times of a clock. A Duration
// holds at most 292 years, and these years reach from 292 years before 1970 to 292 years after 1970.
const firstYear, lastYear = 1678, 2262

// usual reports whether the time t lies in the years from firstYear to lastYear.
func usual(t time.Time) bool {
	year := t.UTC().Year()
	return firstYear <= year && year <= lastYear
}

// An origin is the start of a timeline whose clock showed a time outside the usual years (1678 to 2262)
// when the timeline was made. Often such a clock had not been set yet. For example, the zero FakeClock
// shows the year 1, and the time from then until today is longer than a Duration can hold. So the
// origin is set again, once, to the first reading inside the usual years.
type origin struct {
	pending atomic.Bool // true until the clock shows a usual time; the start is then set to that time
	start   atomic.Pointer[time.Time]

	dials   *dials     // the same as Timeline.dials
	mu      sync.Mutex // held while the start is set again
	restart func()     // a function that forgets the states of all keys; set before the first decision
}

// OnRestart sets the function restart. The timeline calls restart when it sets its start again, see
// [NewTimeline]. At the time of this call, the method Start returns the new start already. The function
// must forget what every key has used, and compute the configurations again. It may take the locks that
// decisions take.
//
// No decision begins while restart runs. A decision that began earlier counts as made before the clock
// was set.
func (t *Timeline) OnRestart(restart func()) {
	if t.late != nil {
		t.late.restart = restart
	}
}

// Renew sets the start of the timeline again if no usual time (in the years 1678 to 2262) was read so
// far and the clock shows a usual time now. Every decision calls Renew before it takes any lock.
func (t *Timeline) Renew() {
	if t.late != nil && t.late.pending.Load() {
		t.late.renew(t.clock.Now())
	}
}

// renew sets the start to the time now, if now is the first usual time that was read.
func (o *origin) renew(now time.Time) {
	if !usual(now) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pending.Load() {
		return
	}
	o.start.Store(&now)
	o.dials.clear()
	if o.restart != nil {
		o.restart()
	}
	o.pending.Store(false)
}
