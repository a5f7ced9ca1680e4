package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// UntilTurn returns the time until the next window of w begins. Windows begin at multiples of
// their length since the Unix epoch.
func (w Workload) UntilTurn() time.Duration {
	return w.Window - time.Duration(time.Now().UnixNano()%int64(w.Window))
}

// tries is how often Turn tries to reach the beginning of a window. A try fails if the machine does
// not run the program for a whole window.
const tries = 100

// Turn prepares runs of one workload whose windows end during the run. It calls the subject of each
// run, and returns when the next window begins. So each subject has used units in the window that
// has just ended. If the workload denies most calls, the subject has used all units of that window.
// Turn checks this for a sliding window counter, and tries again if the machine was too slow.
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

// Spend takes all units that are left in the current window, so that the next calls are denied. If
// the workload does not deny most calls, Spend does nothing. In a sliding window log few units are
// left, because earlier calls have taken them one by one.
func (r *Run) Spend() {
	s, ok := r.subject.(interface {
		Peek(key string) ratelimit.Result
		Take(ctx context.Context, key string, n int) (ratelimit.Result, error)
	})
	if key := r.work.Names.Key(0); ok && r.work.Outcome == Denied {
		// The error needs no handling here. If there is one, units stay in the window, so too many calls
		// are allowed, and the report fails.
		_, _ = s.Take(context.Background(), key, s.Peek(key).Remaining)
	}
}

// wait returns when the duration d is over. It sleeps until two milliseconds before the end, and
// then reads the clock in a loop, because a longer sleep could end late.
func wait(d time.Duration) {
	end := time.Now().Add(d)
	time.Sleep(d - 2*time.Millisecond)
	for time.Now().Before(end) {
	}
}
