package bench

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Limit is the configuration of a subject (a limiter that is measured). Each subject uses only the
// fields that it needs.
type Limit struct {
	Rate    int             // number of units that a bucket earns, or that a window grants, in each Per
	Per     time.Duration   // the period in which Rate units are granted
	Burst   int             // the capacity of a bucket, in units
	MaxKeys int             // how many keys a limiter of this module may hold
	Clock   ratelimit.Clock // the clock of a limiter of this module; nil means the system clock
}

// The constant named "forever" is a period longer than any run. It is short enough that no subject's arithmetic
// overflows.
const forever = 30 * 24 * time.Hour

// defaultRoom is how many keys a limiter of this module may hold. If a workload has more keys than
// this, the limiter may hold all keys of the workload.
const defaultRoom = 1 << 20

func room(w Workload) int { return max(w.Keys, defaultRoom) }

// The constant named "plenty" is a number of units that one key cannot use up in twenty seconds, even if the
// calls for the key come without a pause.
const plenty = 1 << 30

// The rates below assume that a call takes 50 to 500 ns, depending on the subject and the machine.
// That makes 2 to 20 million calls a second.
const (
	// mixedPerMs is the number of units that one key gets in a millisecond, in workloads with the
	// outcome Mixed. A fast subject (50 ns a call) makes 20,000 calls in that time and allows about
	// one in thirteen. A slow subject (500 ns a call) makes 2,000 calls and allows three in four.
	// Both ask for more than they get, so a bucket that holds up to mixedBurst units becomes empty.
	mixedPerMs = 1500
	mixedBurst = 100

	// deniedPerMs is the number of units that one key gets in a millisecond, in workloads whose
	// windows end during the run and deny most calls. A subject that takes 50 ns a call allows about
	// one call in twenty.
	deniedPerMs = 1000

	// allowedPerMs is a number of units that one key cannot use up in a millisecond: for that, each call
	// would have to take 5 ns or less.
	allowedPerMs = 200_000

	// logLimitDenied is the limit of a sliding window log in workloads that deny most calls, for a
	// window of any length. The limit is low because a log stores an entry for each unit, and can hold
	// at most 65,536 entries.
	logLimitDenied = 10_000
	// logLimitAllowed is the limit of a sliding window log in workloads that allow all calls. A
	// window of the length longestLog has fewer calls than this limit.
	logLimitAllowed = 65_536
	longestLog      = time.Millisecond
)

// bucketLimit returns the limit of a bucket for the workload w. After the first call of each key,
// all calls have the outcome that w names. If w.Even is false, the time for one unit is not a whole
// number of nanoseconds, so a bucket has to divide for each answer. Most rates that people choose
// are even: 100/s is a unit every 10 ms.
//
// Allowed: a bucket of 2^30 units, of which each call takes one. During the run it is neither full
// nor empty, and earns a fraction of a unit between two calls. This is the most work that a bucket
// does. If a subject denies a call, the run ends with an error.
//
// Denied: a bucket of one unit, which the first call takes. The next unit comes after days.
//
// Mixed: 1,500,000 units a second. A bucket of 100 units is soon empty, and then gets a unit every
// 667 ns.
func bucketLimit(w Workload) Limit {
	switch {
	case w.Even && w.Outcome == Denied:
		return Limit{Rate: 10, Per: forever, Burst: 1, MaxKeys: room(w)}
	case w.Even && w.Outcome == Allowed:
		return Limit{Rate: 100, Per: time.Second, Burst: plenty, MaxKeys: room(w)}
	case w.Outcome == Denied:
		return Limit{Rate: 7, Per: forever, Burst: 1, MaxKeys: room(w)}
	case w.Outcome == Mixed:
		return Limit{Rate: 1000 * mixedPerMs, Per: time.Second, Burst: mixedBurst, MaxKeys: room(w)}
	}
	return Limit{Rate: 7, Per: 3 * time.Second, Burst: plenty, MaxKeys: room(w)}
}

// windowLimit returns the limit of a limiter that counts in windows, for the workload w. All calls have
// the outcome that w names, as with bucketLimit. If w.Window is 0, mixed workloads have windows of a
// millisecond, and all others have windows that are longer than the run.
//
// If w.Window is not 0, windows end during the run. Before the timing begins, the function Turn has
// used units in a window. Even with the outcome Denied, some of the timed calls are then allowed. A
// sliding window counter allows one call in a microsecond, because the count of the previous window
// loses weight. A fixed window allows the first calls of each window. In windows of a second, the
// timing begins after these calls.
func windowLimit(w Workload) Limit {
	perMs := 0
	switch {
	case w.Window > 0 && w.Outcome == Denied:
		perMs = deniedPerMs
	case w.Window > 0:
		perMs = allowedPerMs
	case w.Outcome == Mixed:
		return Limit{Rate: mixedPerMs, Per: time.Millisecond, MaxKeys: room(w)}
	case w.Outcome == Denied:
		return Limit{Rate: 1, Per: forever, MaxKeys: room(w)}
	default:
		return Limit{Rate: plenty, Per: forever, MaxKeys: room(w)}
	}
	return Limit{Rate: perMs * int(w.Window/time.Millisecond), Per: w.Window, MaxKeys: room(w)}
}

// logLimit returns the limit of a sliding window log for the workload w. A log stores each unit, so its
// limit cannot be so large that it suffices for all calls of a run. If w.Window is 0 and all calls are allowed,
// the limit is 1000 in ten microseconds, which is more than the calls that fit into that time. With one
// key, the log of the key holds about a hundred entries, and each call drops an old entry and adds a
// new one. With many keys, the log of each key holds one or two entries.
//
// If w.Window is not 0, windows end during the run. The log then holds 10,000 entries if most calls are
// denied. If all calls are allowed, it holds an entry for each call in a millisecond, about 20,000. For
// all other workloads, logLimit returns the same limit as windowLimit.
func logLimit(w Workload) Limit {
	switch {
	case w.Window > 0 && w.Outcome == Denied:
		return Limit{Rate: logLimitDenied, Per: w.Window, MaxKeys: room(w)}
	case w.Window > 0:
		return Limit{Rate: logLimitAllowed, Per: w.Window, MaxKeys: room(w)}
	case w.Outcome == Allowed:
		return Limit{Rate: 1000, Per: 10 * time.Microsecond, MaxKeys: room(w)}
	}
	return windowLimit(w)
}

// bucket returns the limit as a rate with a burst, for the algorithms that have a burst.
func (l Limit) bucket() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per, Burst: l.Burst}
}

// window returns the limit as a rate without a burst, for the algorithms that count in windows.
func (l Limit) window() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per}
}

// options returns the given options, followed by the options that set MaxKeys and Clock of this
// limit.
func (l Limit) options(more ...ratelimit.Option) []ratelimit.Option {
	more = append(more, ratelimit.WithMaxKeys(l.MaxKeys))
	if l.Clock != nil {
		more = append(more, ratelimit.WithClock(l.Clock))
	}
	return more
}
