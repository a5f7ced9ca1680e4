package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// WarmupModel returns the [Model] of one key of a rule whose limit grows as w says, see
// [ratelimit.Warmup], on a limiter that was made at start. The algorithm must be one of the
// five, and the rate and the Warmup valid. The model finds RetryAfter by trying every
// nanosecond, so Per and Over should be short.
func WarmupModel(a ratelimit.Algorithm, start time.Time, r ratelimit.Rate, w ratelimit.Warmup) Model {
	return newWarm(a, start, r, w, 1)
}

// newWarm returns a WarmupModel that tries only the multiples of step.
func newWarm(a ratelimit.Algorithm, start time.Time, r ratelimit.Rate, w ratelimit.Warmup, step time.Duration) *warm {
	return &warm{full: algorithmNamed(a).model(start, r).(budgeted), rate: r, warmup: w, step: num(int64(step))}
}

// budgeted is what every model of this package is.
type budgeted interface {
	keeper
	budget
}

// A warm is a key that is granted only a part of its limit while it is young. The limit grows
// with the time since the first grant.
type warm struct {
	full   budgeted // has the history, and decides at the full limit
	rate   ratelimit.Rate
	warmup ratelimit.Warmup
	step   *big.Int // the nanoseconds between two instants that RetryAfter may lead to

	first *big.Int // the instant of the first grant since the key was new; nil if there was none

	// queued returns what has not left a leaky bucket by u, if that does not follow from the
	// history; otherwise it is nil.
	queued func(u *big.Int) *big.Int
}

// Ask takes n units at the instant at.
func (m *warm) Ask(at time.Time, n int) ratelimit.Result { return m.decide(at, n, n > 0) }

func (m *warm) peek(at time.Time, n int) ratelimit.Result { return m.decide(at, n, false) }

// Reset makes the key as good as new.
func (m *warm) Reset() {
	m.full.Reset()
	m.first = nil
}

// SetRate changes the rate at the instant at. The key's age stays.
func (m *warm) SetRate(at time.Time, r ratelimit.Rate) {
	m.first = m.born(m.past().instant(at))
	m.full.SetRate(at, r)
	m.rate = r
}

func (m *warm) adopt(at time.Time, r ratelimit.Rate) {
	if r == m.rate {
		return
	}
	m.first = m.born(m.past().instant(at))
	m.full.adopt(at, r)
	m.rate = r
}

func (m *warm) meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result { return meet(m, at, r, n) }

func (m *warm) clone() keeper {
	c := *m
	c.full = m.full.clone().(budgeted)
	return &c
}

func (m *warm) past() *history { return m.full.past() }

// born returns the instant of the first grant, as it counts at u: nil if the key is new because
// it has been as good as new for so long.
func (m *warm) born(u *big.Int) *big.Int {
	if m.first == nil {
		return nil
	}
	before := sub(u, num(int64(m.warmup.Over)))
	if before.Cmp(m.past().last) < 0 || m.full.renewal(before).Sign() > 0 || m.queued != nil && m.queued(before).Sign() > 0 {
		return m.first
	}
	return nil
}

// limit returns the units of the limit that a key has at u that was born at the instant first.
func (m *warm) limit(first, u *big.Int) *big.Int {
	from, limit := num(int64(m.warmup.From)), num(int64(m.rate.Requests))
	if from.Cmp(limit) >= 0 {
		return limit
	}
	over, age := num(int64(m.warmup.Over)), num(0)
	if first != nil {
		age = least(sub(u, first), over)
	}
	return add(from, floorDiv(mul(sub(limit, from), age), over))
}

// weight returns what a unit costs a bucket whose key has so much of the limit, in units of 1/per
// of a token.
func (m *warm) weight(limit *big.Int) *big.Int {
	return ceilDiv(mul(m.full.(*bucket).per, num(int64(m.rate.Requests))), limit)
}

// free returns the units that would be granted at u to a key that was born at the instant first.
func (m *warm) free(first, u *big.Int) *big.Int {
	limit := m.limit(first, u)
	if b, ok := m.full.(*bucket); ok {
		return floorDiv(sub(b.full(), b.owed(u)), m.weight(limit))
	}
	return sub(m.full.free(u), sub(num(int64(m.rate.Requests)), limit))
}

// grow returns the nanoseconds until a key that was born at the instant first has the full limit.
func (m *warm) grow(first, u *big.Int) *big.Int {
	if first == nil {
		return num(0)
	}
	return largest(num(0), sub(add(first, num(int64(m.warmup.Over))), u))
}

// decide makes one decision, and if charge is true charges what it grants.
func (m *warm) decide(at time.Time, n int, charge bool) ratelimit.Result {
	h := m.past()
	u := h.instant(at)
	ahead := sub(u, h.since(at)) // nothing changes until the clock has reached u
	first, units := m.born(u), num(int64(max(n, 1)))
	res := ratelimit.Result{Limit: m.full.limit()}
	if units.Cmp(m.free(first, u)) > 0 {
		res.RetryAfter = m.retryAfter(first, u, ahead, units)
	} else {
		res.Allowed = true
		res.Delay = duration(m.full.delay(u))
		if charge {
			g := grant{at: u, n: units}
			if _, ok := m.full.(*bucket); ok {
				g.cost = mul(units, m.weight(m.limit(first, u)))
			}
			if first == nil {
				first = u
			}
			m.first, h.last, h.grants = first, u, append(h.grants, g)
		}
	}
	res.Remaining = int(largest(num(0), m.free(first, u)).Int64())
	if renewal := largest(m.full.renewal(u), m.grow(first, u)); renewal.Sign() > 0 {
		res.ResetAfter = duration(add(ahead, renewal))
	}
	return res
}

// retryAfter tries one instant after the other until units fit. Once the key is as good as new,
// except that it is older, nothing changes any more.
func (m *warm) retryAfter(first, u, ahead, units *big.Int) time.Duration {
	most := largest(m.full.renewal(u), m.grow(first, u))
	for wait := num(0); wait.Cmp(add(most, m.step)) < 0; wait = add(wait, m.step) {
		if units.Cmp(m.free(first, add(u, wait))) <= 0 {
			return duration(add(ahead, wait))
		}
	}
	return ratelimit.Never
}
