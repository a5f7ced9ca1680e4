package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

// The years for which a timeline is made: between them, any two times are less than the longest
// Duration apart from a time in the middle.
const firstYear, lastYear = 1678, 2262

// usual reports whether t lies in the years from firstYear to lastYear.
func usual(t time.Time) bool {
	year := t.UTC().Year()
	return firstYear <= year && year <= lastYear
}

// An origin is the start of a timeline whose clock stood outside the usual years when the
// timeline was made. Such a clock is often one that was not set yet: the zero FakeClock stands
// in the year 1, and every reading of today is more than the longest Duration later. So the
// origin is taken anew, once, when the clock is first read inside the usual years.
type origin struct {
	pending atomic.Bool // until the start was taken anew
	start   atomic.Pointer[time.Time]

	mu      sync.Mutex // held while the start is taken anew
	restart func()     // forgets all states; set before the first decision
}

// OnRestart makes restart the function that is called if the origin of t is taken anew. Start
// then returns the new start already. restart must make every state of every key as if it had
// never been used, and the configurations again. It may lock what decisions lock.
//
// No decision begins before restart has returned. One that has begun before counts as made
// before the clock was set.
func (t *Timeline) OnRestart(restart func()) {
	if t.late != nil {
		t.late.restart = restart
	}
}

// Renew takes the origin anew if that is due. Every decision calls it before it locks anything.
func (t *Timeline) Renew() {
	if t.late != nil && t.late.pending.Load() {
		t.late.renew(t.clock.Now())
	}
}

// renew takes now as the origin if it is the first reading inside the usual years.
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
	if o.restart != nil {
		o.restart()
	}
	o.pending.Store(false)
}
