package redisstore

import (
	"math"
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A level is the state of a key at one instant, at one rate. A script often replies with only this state, and
// this process then computes the results of the requests from the level. For a sliding window log, the level
// has only as much of the log as these results need.
type level struct {
	at   int64 // the instant of this state, in microseconds since the Unix epoch
	used int64 // for a bucket: the tokens in use, in parts of a token (plan.unit parts are one token); for a window: the units charged in it
	prev int64 // for a sliding window counter: the units charged in the previous window

	oldest, newest int64 // for a log with used > 0: when the oldest and the newest units were granted
}

// The method window returns how many microseconds have passed, at the time of the level, since the current
// window began. The result ok is false if the algorithm has no windows with fixed boundaries.
func (l *level) window(p *plan) (offset int64, ok bool) {
	if p.kind != 'f' && p.kind != 'c' {
		return 0, false
	}
	if offset = l.at % p.unit; offset < 0 {
		offset += p.unit
	}
	return offset, true
}

// The method advance changes the level to the state that the key has at a later time if nothing is charged
// until then. The argument at is this time.
func (l *level) advance(p *plan, at int64) {
	elapsed := at - l.at
	l.at = at
	if p.burst > 0 {
		hi, lo := bits.Mul64(uint64(elapsed), uint64(p.gain))
		if hi > 0 || lo >= uint64(l.used) {
			l.used = 0
		} else {
			l.used -= int64(lo)
		}
		return
	}
	switch offset, _ := l.window(p); {
	case elapsed <= offset:
	case elapsed-offset <= p.unit && p.kind == 'c':
		l.prev, l.used = l.used, 0
	default:
		l.prev, l.used = 0, 0
	}
}

// left returns how many more units can be granted. The number is negative if more units are used than the
// limit allows.
func (l *level) left(p *plan) int64 {
	switch p.kind {
	case 'f', 's':
		return p.limit - l.used
	case 'c':
		offset, _ := l.window(p)
		weight, rest := muldiv(l.prev, p.unit-offset, p.unit)
		if rest > 0 {
			weight++
		}
		return p.limit - weight - l.used
	}
	return (p.burst*p.unit - l.used) / p.unit
}

// wait returns after how many microseconds n units can be granted. It is called only if they cannot be granted
// now. n must be at most the limit.
func (l *level) wait(p *plan, n int64) int64 {
	if p.burst > 0 {
		return ceil(l.used-(p.burst-n)*p.unit, p.gain)
	}
	offset, _ := l.window(p)
	switch p.kind {
	case 'f':
		return p.unit - offset
	case 's':
		// For a log, wait is called only if the n units fit as soon as the oldest entry leaves the window.
		// So the wait ends then.
		return p.unit - (l.at - l.oldest)
	}
	ends, fading, room := p.unit, l.prev, p.limit-l.used-n
	if room < 0 {
		ends, fading, room = 2*p.unit, l.used, p.limit-n
	}
	q, _ := muldiv(room, p.unit, fading)
	return ends - q - offset
}

// reset returns after how many microseconds no unit will be in use any more.
func (l *level) reset(p *plan) int64 {
	offset, ok := l.window(p)
	switch {
	case p.kind == 's':
		if l.used == 0 {
			return 0
		}
		return p.unit - (l.at - l.newest)
	case !ok:
		return ceil(l.used, p.gain)
	case l.used > 0 && p.kind == 'c':
		return 2*p.unit - offset
	case l.used > 0 || l.prev > 0:
		return p.unit - offset
	}
	return 0
}

// The method take decides a request for n units and returns the result. If the units can be granted and the
// argument charge is true, it charges them. For n = 0 it returns the result that a request for one unit would
// get.
func (l *level) take(p *plan, n int64, charge bool) ratelimit.Result {
	left, want := l.left(p), max(n, 1)
	res := ratelimit.Result{Limit: int(p.limit)}
	switch {
	case want > p.limit:
		res.RetryAfter, res.Reason = ratelimit.Never, ratelimit.ReasonLimit
	case want > left:
		res.RetryAfter, res.Reason = micros(l.wait(p, want)), ratelimit.ReasonLimit
	default:
		res.Allowed = true
		if p.kind == 'l' {
			res.Delay = micros(l.reset(p))
		}
		if charge {
			l.charge(p, n)
			left -= n
		}
	}
	res.Remaining = int(max(left, 0))
	res.ResetAfter = micros(l.reset(p))
	return res
}

// charge adds n units to the units that are used.
func (l *level) charge(p *plan, n int64) {
	switch {
	case n == 0:
		return
	case p.burst > 0:
		n *= p.unit
	case l.used == 0:
		l.oldest = l.at
	}
	l.newest = l.at
	l.used += n
}

// muldiv returns the quotient a*b/c, rounded down, and the remainder. The quotient must be less than 2^63.
func muldiv(a, b, c int64) (q, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quo, rem := bits.Div64(hi, lo, uint64(c))
	return int64(quo), int64(rem)
}

// ceil returns the quotient a/b, rounded up. Neither a nor b may be negative.
func ceil(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// micros returns a number of microseconds as a Duration. It returns Never if the number is negative or too
// large.
func micros(us int64) time.Duration {
	if us >= 0 && us <= math.MaxInt64/1000 {
		return time.Duration(us) * time.Microsecond
	}
	return ratelimit.Never
}
