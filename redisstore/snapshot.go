package redisstore

import "github.com/ratelimit-go/ratelimit"

// A snapshot contains what the reply of a script shows about the state of a key. From the snapshot this process
// computes which further requests the server would certainly deny. The zero snapshot contains nothing.
type snapshot struct {
	known byte  // 'l': the field level is set; 'd': only a denial of one unit is known; 'b': block is set; 0: nothing is known
	at    int64 // the instant of the charges, in microseconds since the Unix epoch

	// level is the state after the charges, if the field known is 'l'.
	level level

	// retry and reset are the RetryAfter and the ResetAfter of a denied request in microseconds, if the field
	// known is 'd'. If the state is ahead of the server's clock, both include the time until the clock reaches
	// the state.
	retry, reset int64

	block block // what is known of the block of the key, if the field known is 'b'
}

// snapshotOf returns the snapshot of a key with the level l (its state) at the plan p (its rate).
func snapshotOf(p *plan, l *level) snapshot {
	switch {
	case p.kind != 's':
		return snapshot{known: 'l', at: l.at, level: *l}
	case l.left(p) != 0:
		// Units are left, so only a request for several units can be denied next. Such a request may have to
		// wait until several entries leave the log, but a level contains only the oldest entry. So this wait is
		// not known, and nothing is recorded.
		return snapshot{at: l.at}
	}
	return snapshot{known: 'd', at: l.at, retry: l.wait(p, 1), reset: l.reset(p)}
}

// recordDenial records in s that the given answer denies one unit, and the waits in this answer. It does
// nothing if one of these waits is Never.
func (s *snapshot) recordDenial(a *answer) {
	if a.retry != ratelimit.Never && a.reset != ratelimit.Never {
		s.known, s.retry, s.reset = 'd', a.retry.Microseconds(), a.reset.Microseconds()
	}
}

// deny reports whether the server would certainly deny a request for n units; n is at least 1. If so, it stores the
// denial in *res. The parameter p is the plan (the rate) of the snapshot. It is not known exactly how much time
// has passed since the instant of the snapshot, only that it is between shortest and longest, in microseconds. With
// the longest time, deny computes whether to deny, so that no request is denied that the server would grant. With
// the shortest time, it computes how long the caller must wait.
func (s *snapshot) deny(p *plan, n, longest, shortest int64, res *ratelimit.Result) bool {
	switch {
	case s.known == 'l':
		l := s.level
		l.advance(p, l.at+longest)
		left := l.left(p)
		if n <= left {
			return false
		}
		res.Limit, res.Remaining, res.Reason = int(p.limit), int(max(left, 0)), ratelimit.ReasonLimit
		l = s.level
		l.advance(p, l.at+shortest)
		res.RetryAfter, res.ResetAfter = ratelimit.Never, micros(l.reset(p))
		if n <= p.limit {
			res.RetryAfter = micros(l.wait(p, n))
		}
		return true
	case s.known == 'b':
		return s.block.deny(p, n, longest, shortest, res)
	case s.known == 'd' && n == 1 && longest < s.retry:
		res.Limit, res.Reason = int(p.limit), ratelimit.ReasonLimit
		res.RetryAfter, res.ResetAfter = micros(s.retry-shortest), micros(s.reset-shortest)
		return true
	}
	return false
}
