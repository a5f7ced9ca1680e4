package redisstore

import "github.com/ratelimit-go/ratelimit"

// A snapshot is what a reply of the server says of a key, so that what the key is
// sure to be denied can be answered without it. The zero snapshot knows nothing.
type snapshot struct {
	known byte  // 0, 'l' or 'd'
	at    int64 // the instant of the charges, in microseconds since the Unix epoch

	// level is the state after the charges, if known is 'l'.
	level level

	// If known is 'd', one unit is denied, and time stands still for the state
	// for behind microseconds more. The others count from then.
	behind, retry, reset int64
}

// snapshotOf returns what l says.
func snapshotOf(p *plan, l *level) snapshot {
	switch {
	case p.kind != 's':
		return snapshot{known: 'l', at: l.at, level: *l}
	case l.left(p) != 0: // if it is less, more than the oldest entry may have to leave
		return snapshot{at: l.at}
	}
	return snapshot{known: 'd', at: l.at, retry: l.wait(p, 1), reset: l.reset(p)}
}

// denied makes s what an answer says that denies one unit, unless it has no number for
// when that ends.
func (s *snapshot) recordDenial(a *answer) {
	if a.retry != ratelimit.Never && a.reset != ratelimit.Never {
		s.known, s.retry, s.reset = 'd', a.retry.Microseconds(), a.reset.Microseconds()
	}
}

// deny answers n units, n >= 1, by res if it is certain that they are denied early
// microseconds after the instant of s, and reports whether it is; p is the plan that s
// is by. What they are told to wait is as of late microseconds after it, which is no
// more: of two estimates of how long ago that was, each is taken where it is the careful
// one.
func (s *snapshot) deny(p *plan, n, early, late int64, res *ratelimit.Result) bool {
	switch {
	case s.known == 'l':
		l := s.level
		l.advance(p, l.at+early)
		left := l.left(p)
		if n <= left {
			return false
		}
		res.Limit, res.Remaining = int(p.limit), int(max(left, 0))
		l = s.level
		l.advance(p, l.at+late)
		res.RetryAfter, res.ResetAfter = ratelimit.Never, micros(l.reset(p))
		if n <= p.limit {
			res.RetryAfter = micros(l.wait(p, n))
		}
		return true
	case s.known == 'd' && n == 1 && max(early-s.behind, 0) < s.retry:
		passed := max(late-s.behind, 0)
		res.Limit, res.RetryAfter, res.ResetAfter = int(p.limit), micros(s.retry-passed), micros(s.reset-passed)
		return true
	}
	return false
}
