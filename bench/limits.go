package bench

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Limit is the configuration of a subject. Each subject uses only the fields that it needs.
type Limit struct {
	Rate    int             // number of units granted in each Per: by the refill of a bucket, or in a window
	Per     time.Duration   // the period in which Rate units are granted
	Burst   int             // the capacity of a bucket, in units
	MaxKeys int             // the maximum number of keys of a limiter of this module
	Clock   ratelimit.Clock // the clock of a limiter of this module; nil means the machine's
}

// forever is a period longer than any run, and short enough that no subject's arithmetic overflows.
const forever = 30 * 24 * time.Hour

// defaultRoom is the maximum number of keys of a limiter of this module. The maximum is larger for
// a workload with more keys.
const defaultRoom = 1 << 20

func room(w Workload) int { return max(w.Keys, defaultRoom) }

// plenty is a number of units that one key cannot use up in twenty seconds, even if the calls for
// the key come without a pause.
const plenty = 1 << 30

// The rates below assume that a call takes 50 to 500 ns, depending on the subject and the machine.
// That makes 2 to 20 million calls a second.
const (
	// mixedPerMs is the number of units that one key gets in a millisecond, in workloads with the
	// outcome Mixed. About one in twelve calls is allowed for a fast subject, and three in four for
	// a slow subject. So a bucket that holds up to mixedBurst units becomes empty.
	mixedPerMs = 1500
	mixedBurst = 100

	// deniedPerMs is the number of units that one key gets in a millisecond, in workloads whose
	// windows end during the run and deny most calls. About one call in twenty is allowed.
	deniedPerMs = 1000

	// allowedPerMs is more than the number of calls that fit into a millisecond: one
	// every 5 ns.
	allowedPerMs = 200_000

	// logLimitDenied is the limit of a sliding window log in workloads that deny most calls, for a
	// window of any length. A log stores each unit, and holds at most 65,536 units.
	logLimitDenied = 10_000
	// logLimitAllowed is the limit of a sliding window log in workloads that allow all calls. In a
	// window of the length longestLog, fewer calls are made than this limit.
	logLimitAllowed = 65_536
	longestLog      = time.Millisecond
)

// bucketLimit returns the limit of a bucket for the workload w. After the first call of each key,
// all calls have the outcome that w names. Unless w.Even is true, the time for one unit is not a
// whole number of nanoseconds, so a bucket has to divide for each answer. Most rates that people
// choose are even.
//
// Allowed: a quota of 2^30 units, of which each call takes one. The bucket is then neither full nor
// empty, and earns a part of a unit between two calls. This is the most work that a bucket does. If
// a subject denies a call, the run ends with an error.
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

// windowLimit returns the limit of a limiter that counts in windows, for the workload w. All calls
// have the outcome that w names, as with bucketLimit. If w.Window is 0, windows are longer than the
// run, but mixed workloads have windows of a millisecond.
//
// If w.Window is not 0, windows end during the run, and units were used in the window before (see
// [Turn]). With the outcome Denied, a sliding window counter then allows one call in a microsecond,
// because the count of the window before loses weight. A fixed window allows the first calls of
// each window. In windows of a second, a batch begins after these calls.
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

// logLimit returns the limit of a sliding window log for the workload w. A log stores each unit, so
// its limit cannot be so large that it lasts for the whole run. If w.Window is 0 and all calls are
// allowed, the limit is 1000 in ten microseconds, which is more than the calls that fit into that
// time. With one key the log holds about a hundred entries, and each call drops an old entry and
// adds a new one. With many keys it holds one or two.
//
// If w.Window is not 0, windows end during the run. The log then holds 10,000 entries if most calls
// are denied. If all calls are allowed, it holds an entry for each call in a millisecond, about
// 20,000. For all other workloads, the limit is that of windowLimit.
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

// bucket returns the limit as a rate for an algorithm with a burst.
func (l Limit) bucket() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per, Burst: l.Burst}
}

// window returns the limit as a rate for an algorithm without a burst.
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
