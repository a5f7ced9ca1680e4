package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// Windows begin at multiples of their length since the Unix epoch, so everybody
// knows when they turn.

// UntilTurn returns how long it takes until the next window of w begins.
func (w Workload) UntilTurn() time.Duration {
	return w.Window - time.Duration(time.Now().UnixNano()%int64(w.Window))
}

// tries is how often Turn begins anew where the machine stood still for as long as
// a window.
const tries = 100

// Turn brings runs of one workload, whose windows turn, to the beginning of a window.
// Each has used the window before: all of it, where most asks are to be denied. So a
// sliding window counter has a previous count, and Turn makes sure that it does.
func Turn(runs ...*Run) error {
	w := runs[0].work
	for range tries {
		for _, r := range runs {
			Serial(r.subject, r.keys[0], settle)
			r.Spend()
		}
		wait(w.UntilTurn())
		turned := true
		for _, r := range runs {
			s, ok := r.subject.(interface{ weighs(key string) bool })
			turned = turned && (!ok || s.weighs(w.Names.Key(0)))
		}
		if turned {
			return nil
		}
	}
	return fmt.Errorf("bench: %v: no window had a count before it, %d times", w, tries)
}

// Spend takes what is left of the window at once, where most asks are to be denied.
// A log keeps its units one by one: to take them at once would make it shorter than
// it is in use, and the asks before have taken them all.
func (r *Run) Spend() {
	s, ok := r.subject.(interface {
		Peek(key string) ratelimit.Result
		Take(ctx context.Context, key string, n int) (ratelimit.Result, error)
	})
	if key := r.work.Names.Key(0); ok && r.work.Outcome == Denied {
		// An error would show: asks would be allowed.
		_, _ = s.Take(context.Background(), key, s.Peek(key).Remaining)
	}
}

// wait returns when d has passed. It keeps the core busy for the last of it, so that
// it is neither late nor asleep.
func wait(d time.Duration) {
	end := time.Now().Add(d)
	time.Sleep(d - 2*time.Millisecond)
	for time.Now().Before(end) {
	}
}
