package ratelimittest

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A chooser picks at random the instant of the next request, and its number of units.
type chooser struct {
	*rand.Rand
	unit time.Duration // all instants are multiples of this duration
	span time.Duration // the largest distance of an instant from the start
	now  time.Duration // the instant of the last request, since the start
}

// newChooser returns the chooser for the list of calls with number i. The same seed and number always
// give the same random choices.
func newChooser(seed uint64, i int, unit, span time.Duration) chooser {
	return chooser{Rand: rand.New(rand.NewPCG(seed, uint64(i))), unit: unit, span: span}
}

// A state is what a chooser has learned of a key from the last answer.
type state struct {
	admitted time.Duration    // instant of the last granted request, since the start
	asked    time.Duration    // instant of the last request, since the start; but if an earlier grant has a later instant, that instant
	limit    int              // Limit of the last answer, but at least 1
	left     int              // Remaining of the last answer, but at least 0
	waits    [3]time.Duration // RetryAfter, ResetAfter and Delay of the last answer
}

func newState() *state { return &state{admitted: math.MinInt64, limit: 1} }

// note records the answer to a request that was made at the given time.
func (s *state) note(at time.Duration, res ratelimit.Result, admitted bool) {
	s.asked = max(at, s.admitted)
	if admitted {
		s.admitted = s.asked
	}
	s.limit, s.left = max(res.Limit, 1), max(res.Remaining, 0)
	s.waits = [3]time.Duration{res.RetryAfter, res.ResetAfter, res.Delay}
}

// start returns a random element of the slice starts, most often the first.
func (w *chooser) start(starts []time.Time) time.Time {
	if w.IntN(2) == 0 {
		return starts[w.IntN(len(starts))]
	}
	return starts[0]
}

// move picks and returns the instant of the next request at the rate r, for a key in the state s. A
// third of all requests have the instant of the request before.
func (w *chooser) move(r ratelimit.Rate, s *state) time.Duration {
	w.now = min(max(w.next(r, s), -w.span), w.span)
	w.now -= w.now % w.unit
	return w.now
}

// next picks the instant of the next request. The method move then limits this instant to the span and
// rounds it to a multiple of the unit.
func (w *chooser) next(r ratelimit.Rate, s *state) time.Duration {
	const year = 366 * 24 * time.Hour
	switch p := w.IntN(120); {
	case p < 40:
		return w.now
	case p < 55:
		return later(w.now, w.upTo(later(r.Per, r.Per)))
	case p < 70:
		return later(w.now, w.upTo(r.Per/time.Duration(r.Requests)))
	case p < 80:
		return later(w.now, w.upTo(3*w.unit))
	case p < 105:
		edge := later(s.asked, up(s.waits[w.IntN(3)], w.unit))
		return later(edge, time.Duration(w.IntN(3)-1)*w.unit)
	case p < 111:
		return later(w.now, -w.upTo(3*w.unit))
	case p < 117:
		return later(w.now, -w.upTo(later(r.Per, r.Per)))
	case p < 119:
		far := []time.Duration{time.Hour, year, 10 * year, 100 * year}[w.IntN(4)]
		return later(w.now, up(far, w.unit)*time.Duration(1-2*w.IntN(2)))
	}
	if w.IntN(4) == 0 {
		return []time.Duration{-w.span, w.span}[w.IntN(2)]
	}
	return 0
}

// upTo returns a random multiple of the unit that is at most the duration d. If d is shorter than
// one unit, the result is at most one unit.
func (w *chooser) upTo(d time.Duration) time.Duration {
	return time.Duration(w.Int64N(int64(max(d/w.unit, 1))+1)) * w.unit
}

// count picks how many units the next request asks for.
func (w *chooser) count(s *state) int {
	switch p := w.IntN(100); {
	case p < 45:
		return 1
	case p < 60:
		return 0
	case p < 72:
		return 1 + w.IntN(min(s.limit, 5))
	case p < 80:
		return s.left
	case p < 87:
		return min(s.left, s.limit-1) + 1
	case p < 90:
		return s.limit
	case p < 93:
		return 1 + w.IntN(s.limit)
	case p < 96:
		return s.limit/2 + 1
	case p < 99 && s.limit < math.MaxInt:
		return s.limit + 1
	}
	return math.MaxInt
}

// up rounds the duration d up to a multiple of unit.
func up(d, unit time.Duration) time.Duration {
	if rest := d % unit; rest > 0 {
		return later(d, unit-rest)
	}
	return d
}

// rounded returns the result with its Durations rounded up to a multiple of unit. The ReasonLimit of a denial becomes an
// empty Reason, because limiters and stores need not set it.
func rounded(res ratelimit.Result, unit time.Duration) ratelimit.Result {
	if !res.Allowed && res.Reason == ratelimit.ReasonLimit {
		res.Reason = ""
	}
	res.RetryAfter, res.ResetAfter, res.Delay = up(res.RetryAfter, unit), up(res.ResetAfter, unit), up(res.Delay, unit)
	return res
}
