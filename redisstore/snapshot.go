package redisstore

import "github.com/ratelimit-go/ratelimit"

// A snapshot is what a reply says of the state of a key. With it, this process can tell
// which further requests the server would certainly deny. The zero snapshot says nothing.
type snapshot struct {
	known byte  // 'l': level is known; 'd': only that one unit is denied; 0: nothing
	at    int64 // instant of the charges, in microseconds since the Unix epoch

	// level is the state after the charges, if known is 'l'.
	level level

	// If known is 'd', one unit is denied. retry and reset include the time for which the
	// state does not change, if it is ahead of the clock.
	retry, reset int64
}

// snapshotOf returns what l says.
func snapshotOf(p *plan, l *level) snapshot {
	switch {
	case p.kind != 's':
		return snapshot{known: 'l', at: l.at, level: *l}
	case l.left(p) != 0: // more entries than the oldest may have to leave before a larger request fits
		return snapshot{at: l.at}
	}
	return snapshot{known: 'd', at: l.at, retry: l.wait(p, 1), reset: l.reset(p)}
}

// recordDenial records a, which denies one unit, unless a says Never.
func (s *snapshot) recordDenial(a *answer) {
	if a.retry != ratelimit.Never && a.reset != ratelimit.Never {
		s.known, s.retry, s.reset = 'd', a.retry.Microseconds(), a.reset.Microseconds()
	}
}

// deny reports whether the server would certainly deny n units, n >= 1, and if so sets res
// to the result. The time since the instant of s is not known exactly: it lies between
// shortest and longest, in microseconds. Whether the units fit is judged by longest, and
// how long to wait by shortest, so that an error in the time never denies what fits. The
// plan of s is p.
func (s *snapshot) deny(p *plan, n, longest, shortest int64, res *ratelimit.Result) bool {
	switch {
	case s.known == 'l':
		l := s.level
		l.advance(p, l.at+longest)
		left := l.left(p)
		if n <= left {
			return false
		}
		res.Limit, res.Remaining = int(p.limit), int(max(left, 0))
		l = s.level
		l.advance(p, l.at+shortest)
		res.RetryAfter, res.ResetAfter = ratelimit.Never, micros(l.reset(p))
		if n <= p.limit {
			res.RetryAfter = micros(l.wait(p, n))
		}
		return true
	case s.known == 'd' && n == 1 && longest < s.retry:
		passed := shortest
		res.Limit, res.RetryAfter, res.ResetAfter = int(p.limit), micros(s.retry-passed), micros(s.reset-passed)
		return true
	}
	return false
}
