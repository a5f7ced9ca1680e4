package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Stopwatch measures how long a decision takes, on the machine's clock.
type Stopwatch struct {
	Began keytable.Instant // when it was started, if the Timeline reads the machine's clock; otherwise 0
	start time.Time        // when it was started, if the Timeline reads another clock
}

// StartWatch returns a started Stopwatch. If t reads the machine's clock, the decision can use the field
// Began as its time, which saves a second reading of the clock.
func (t *Timeline) StartWatch() Stopwatch {
	if t.Machine() {
		return Stopwatch{Began: t.Now()}
	}
	return Stopwatch{start: time.Now()}
}

// Elapsed returns the time since the Stopwatch was started with the Timeline t.
func (w Stopwatch) Elapsed(t *Timeline) time.Duration {
	if t.Machine() {
		return time.Duration(t.Now().Since(w.Began))
	}
	return time.Since(w.start)
}
