package bench

import (
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Limit is what a subject is configured with. Each field is read by the
// subjects that have such a thing.
type Limit struct {
	Rate    int             // units per Per: of a bucket its refill, of a window its limit
	Per     time.Duration   // what Rate counts in
	Burst   int             // units at once, of a bucket
	MaxKeys int             // the most keys that a limiter of this module may hold
	Clock   ratelimit.Clock // of a limiter of this module; nil is the machine's
}

// forever is longer than a run, and short enough for every subject's arithmetic.
const forever = 30 * 24 * time.Hour

// defaultRoom is how many keys a limiter of this module may hold unless it is
// told otherwise. A workload with more keys tells it.
const defaultRoom = 1 << 20

func room(w Workload) int { return max(w.Keys, defaultRoom) }

// plenty is a quota that lasts twenty seconds and more of asks for one key
// without a pause.
const plenty = 1 << 30

// An ask takes from 50 to 500 ns, by the subject and the machine, which is 2 to 20 million
// in a second. The rates below go by that.
const (
	// mixedPerMs is what one key may have in a millisecond where asks are mixed:
	// about one of twelve asks of a fast subject is allowed, and three of four of a
	// slow one. A bucket of mixedBurst drains in between.
	mixedPerMs = 1500
	mixedBurst = 100

	// deniedPerMs is what one key may have in a millisecond where windows turn and
	// most asks are denied: a million in a second. About one ask in twenty is
	// allowed.
	deniedPerMs = 1000

	// allowedPerMs is more than can be asked for in a millisecond: 5 ns each.
	allowedPerMs = 200_000

	// A log remembers each unit and may hold 65,536. logLimitDenied is a window's
	// limit where most asks are denied, of a window of any length.
	logLimitDenied = 10_000
	// Where all are allowed, the window is so short that no more can be asked for
	// in it.
	logLimitAllowed = 65_536
	longestLog      = time.Millisecond
)

// bucketLimit and windowLimit return what gives the asks of w, after the first of
// each key, the outcome of w. Unless w is even, the rates are such that Requests over
// Per in nanoseconds is no fraction with a 1 above it: a bucket then divides where it
// would only have copied. Most rates that people choose are even.
//
// Allowed: a quota of 2^30 that goes down by one with each ask. A bucket is
// then neither full nor empty and earns a part of a unit between two asks,
// which is its usual and longest way. A subject that denies all the same ends
// the run with an error.
//
// Denied: one unit for weeks.
//
// Mixed: 1,500,000 a second. A bucket of 100 is soon empty, and then has a unit
// every 667 ns.
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

// windowLimit is bucketLimit for a limiter that counts in windows. Unless w says
// that windows turn, they last for ever where all asks have one outcome; mixed ones
// last a millisecond.
//
// Of windows that turn, the one before has left a count, see [Turn]. In those with
// the outcome denied, a sliding window counter allows one ask in a microsecond, as
// the count before fades; a fixed window allows the first units of each window,
// and a batch in windows of a second begins after those.
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

// logLimit is windowLimit for a sliding window log, which remembers each unit
// and therefore cannot have a quota that outlasts the run. Where windows do not
// turn, 1000 in ten microseconds is more than can be asked for: allowed for ever.
// Under one hot key the log holds a hundred entries or more, and each ask drops an
// old one and adds a new one; under many keys it holds one or two.
//
// Of windows that turn, the log holds 10,000 entries where most asks are denied,
// and as many as there are asks in a millisecond, some 20,000, where all are
// allowed.
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

// bucket returns l for an algorithm with a burst.
func (l Limit) bucket() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per, Burst: l.Burst}
}

// window returns l for an algorithm without one.
func (l Limit) window() ratelimit.Rate {
	return ratelimit.Rate{Requests: l.Rate, Per: l.Per}
}

// options returns what a limiter of this module runs in.
func (l Limit) options(more ...ratelimit.Option) []ratelimit.Option {
	more = append(more, ratelimit.WithMaxKeys(l.MaxKeys))
	if l.Clock != nil {
		more = append(more, ratelimit.WithClock(l.Clock))
	}
	return more
}
