package redisstore

import (
	"math"
	"math/bits"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A level is the state of a key of one plan at an instant. It holds all that a decision
// depends on, so that this process can repeat the decision of a script that replied by the
// fast path. The level of a log is less complete: it holds only what is needed for the asks
// that the script decided.
type level struct {
	at   int64 // microseconds since the Unix epoch
	used int64 // of a bucket: the parts of a token that it owes; else the count of the window
	prev int64 // of a sliding window counter: the count of the window before

	oldest, newest int64 // of a log: when the oldest and newest units were granted, if used > 0
}

// window reports whether p counts in windows, and returns how far l.at is into its window.
func (l *level) window(p *plan) (offset int64, ok bool) {
	if p.kind != 'f' && p.kind != 'c' {
		return 0, false
	}
	if offset = l.at % p.unit; offset < 0 {
		offset += p.unit
	}
	return offset, true
}

// advance moves l to a later instant.
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

// left returns how many units fit. It is negative if more than the limit is used.
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

// wait returns in how many microseconds n units will fit. They do not fit now, and are no
// more than the limit.
func (l *level) wait(p *plan, n int64) int64 {
	if p.burst > 0 {
		return ceil(l.used-(p.burst-n)*p.unit, p.gain)
	}
	offset, _ := l.window(p)
	switch p.kind {
	case 'f':
		return p.unit - offset
	case 's': // the script made sure that it is enough that the oldest entry leaves
		return p.unit - (l.at - l.oldest)
	}
	ends, fading, room := p.unit, l.prev, p.limit-l.used-n
	if room < 0 {
		ends, fading, room = 2*p.unit, l.used, p.limit-n
	}
	q, _ := muldiv(room, p.unit, fading)
	return ends - q - offset
}

// reset returns in how many microseconds l will be as good as new.
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

// take decides n units and returns the result. If they fit and charge is true, it charges
// them. With n == 0 it only looks.
func (l *level) take(p *plan, n int64, charge bool) ratelimit.Result {
	left, want := l.left(p), max(n, 1)
	res := ratelimit.Result{Limit: int(p.limit)}
	switch {
	case want > p.limit:
		res.RetryAfter = ratelimit.Never
	case want > left:
		res.RetryAfter = micros(l.wait(p, want))
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

// charge adds n units to what is used.
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

// muldiv returns a*b/c, rounded down, and the remainder. The quotient must be less than
// 2^63.
func muldiv(a, b, c int64) (q, rest int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quo, rem := bits.Div64(hi, lo, uint64(c))
	return int64(quo), int64(rem)
}

// ceil returns a/b, rounded up. Neither may be negative.
func ceil(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// micros returns us microseconds as a Duration. It returns Never if us is negative or too
// large for a Duration.
func micros(us int64) time.Duration {
	if us >= 0 && us <= math.MaxInt64/1000 {
		return time.Duration(us) * time.Microsecond
	}
	return ratelimit.Never
}
