package ratelimittest

import (
	"math/big"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// WarmupModel returns the [Model] of one key of a rule with the [ratelimit.Warmup] w, for a limiter
// that was made at the instant start. The algorithm must be one of the five, and the rate and the
// Warmup must be valid. The model finds RetryAfter by trying every nanosecond, so the Per of the rate
// and the Over of the Warmup should be short.
func WarmupModel(a ratelimit.Algorithm, start time.Time, r ratelimit.Rate, w ratelimit.Warmup) Model {
	return newWarm(a, start, r, w, 1)
}

// newWarm does what WarmupModel does, but the model finds RetryAfter faster. It does not try every
// nanosecond, but only the multiples of the parameter step.
func newWarm(a ratelimit.Algorithm, start time.Time, r ratelimit.Rate, w ratelimit.Warmup, step time.Duration) *warm {
	return &warm{full: algorithmNamed(a).model(start, r).(budgeted), rate: r, warmup: w, step: num(int64(step))}
}

// budgeted has the methods of every model of this package.
type budgeted interface {
	keeper
	budget
}

// The type warm is the model of a key that warms up: the limit of the key grows with the time since its
// first grant.
type warm struct {
	full   budgeted // the model of the same key with its full limit; holds the history of the key
	rate   ratelimit.Rate
	warmup ratelimit.Warmup
	step   *big.Int // the nanoseconds between two instants that the search for RetryAfter tries

	first *big.Int // the instant of the first grant since the key was new; nil for a new key

	// queued returns how much is in a leaky bucket at the instant u, in small equal parts of a token.
	// The field is nil if the amount can be computed from the history.
	queued func(u *big.Int) *big.Int
}

// Ask takes n units at the given time. If not all of them fit, Ask takes none.
func (m *warm) Ask(at time.Time, n int) ratelimit.Result { return m.decide(at, n, n > 0) }

func (m *warm) peek(at time.Time, n int) ratelimit.Result { return m.decide(at, n, false) }

// Reset forgets all grants and the age of the key.
func (m *warm) Reset() {
	m.full.Reset()
	m.first = nil
}

// SetRate changes the rate at the given time. The age of the key does not change.
func (m *warm) SetRate(at time.Time, r ratelimit.Rate) {
	m.first = m.born(m.past().instant(at))
	m.full.SetRate(at, r)
	m.rate = r
}

func (m *warm) adopt(at time.Time, r ratelimit.Rate) {
	if r == m.rate {
		return
	}
	if b, ok := m.full.(*bucket); ok {
		if b.grace = nil; m.first != nil {
			b.grace = num(int64(m.warmup.Over))
		}
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

// born returns the instant of the key's first grant, or nil if the key is new at the instant u. The
// age of a key is the time since its first grant. A key becomes new again when its whole limit has
// been free for as long as the field Over of the Warmup says.
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

// The method named "limit" returns the limit that a key has at the instant u. It grows evenly with the age of the
// key. The first parameter is the instant of the key's first grant, or nil for a new key.
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

// price returns a function that computes what n units cost in a bucket while its key has the given limit.
// The cost is in small equal parts of a token. As long as the limit is below the full one, a unit costs
// more than a token, so that a full bucket grants fewer units.
func (m *warm) price(limit *big.Int) func(n *big.Int) *big.Int {
	tokens := m.tokens()
	return func(n *big.Int) *big.Int { return ceilDiv(mul(n, tokens), limit) }
}

// tokens returns the full limit in small equal parts of a token. The full limit in tokens is the Requests of the rate.
func (m *warm) tokens() *big.Int { return mul(m.full.(*bucket).per, num(int64(m.rate.Requests))) }

// The method named "free" returns the units that could be granted to a key at the instant u. The first
// parameter is the instant of the key's first grant, or nil for a new key.
func (m *warm) free(first, u *big.Int) *big.Int {
	limit := m.limit(first, u)
	if b, ok := m.full.(*bucket); ok {
		return floorDiv(mul(sub(b.full(), b.owed(u)), limit), m.tokens())
	}
	return sub(m.full.free(u), sub(num(int64(m.rate.Requests)), limit))
}

// The method named "grow" returns the nanoseconds from the instant u until a key has the full limit, or 0 for a new
// key. The first parameter is the instant of the key's first grant, or nil for a new key.
func (m *warm) grow(first, u *big.Int) *big.Int {
	if first == nil {
		return num(0)
	}
	return largest(num(0), sub(add(first, num(int64(m.warmup.Over))), u))
}

// decide makes one decision on n units. It charges the units only if they are granted and the
// parameter charge is true.
func (m *warm) decide(at time.Time, n int, charge bool) ratelimit.Result {
	h := m.past()
	u := h.instant(at)
	ahead := sub(u, h.since(at)) // time until a clock that has stepped back shows u again; included in all waits
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
				g.cost = m.price(m.limit(first, u))(units)
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
	if !res.Allowed {
		res.Reason = ratelimit.ReasonLimit
	}
	return res
}

// retryAfter tries one instant after the other, and returns the time until the units fit. If the units do
// not fit even when the limit has its full size and is completely free, retryAfter returns Never.
func (m *warm) retryAfter(first, u, ahead, units *big.Int) time.Duration {
	most := largest(m.full.renewal(u), m.grow(first, u))
	for wait := num(0); wait.Cmp(add(most, m.step)) < 0; wait = add(wait, m.step) {
		if units.Cmp(m.free(first, add(u, wait))) <= 0 {
			return duration(add(ahead, wait))
		}
	}
	return ratelimit.Never
}
