package ratelimittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// TokenBucketModel returns the [Model] of one key of a [ratelimit.TokenBucket] that was
// made at the instant start. The rate must be valid.
func TokenBucketModel(start time.Time, r ratelimit.Rate) Model {
	m := &bucket{history: history{start: start}}
	m.setRate(r)
	return m
}

// LeakyBucketModel returns the [Model] of one key of a [ratelimit.LeakyBucket] that was
// made at the instant start. The rate must be valid.
func LeakyBucketModel(start time.Time, r ratelimit.Rate) Model {
	m := &bucket{history: history{start: start}, leaky: true}
	m.setRate(r)
	return m
}

// A bucket grants n units if afterwards, in every interval that ends now, the granted units are at
// most the burst plus the units that the bucket earned in the interval.
//
// All amounts are whole numbers of small equal parts of a token. The field per is the number of
// parts in a token, and the field requests is the number of parts that the bucket earns in a
// nanosecond.
type bucket struct {
	history
	leaky bool

	requests *big.Int // Requests of the rate, after Requests/Per was reduced to lowest terms
	per      *big.Int // Per of the rate in nanoseconds, after the same reduction; also the number of parts in a token
	burst    int

	changed *carried // the state at the last change of the rate; nil if there was none

	// slowest has the slowest rate at which the bucket was charged since it was new. It is nil if no such rate
	// was slower than the present rate. Only changes of the rate by the method adopt set it.
	slowest *bucket

	grace *big.Int // how long the bucket must have been full to count as new, in nanoseconds; nil means 0
}

// carried is the state of a bucket at a change of its rate. The model computes later answers from it,
// and no longer needs the grants before the change.
type carried struct {
	at     *big.Int // the instant of the change
	owed   *big.Int // how much the bucket lacked to be full, in parts of a token
	queued *big.Int // number of parts of a token that were still in the queue of a leaky bucket
}

func (m *bucket) setRate(r ratelimit.Rate) {
	m.requests, m.per = num(int64(r.Requests)), num(int64(r.Per))
	gcd := new(big.Int).GCD(nil, nil, m.requests, m.per)
	m.requests, m.per = floorDiv(m.requests, gcd), floorDiv(m.per, gcd)
	m.burst = burst(r)
}

// Ask takes n units at the given time. If not all of them fit, Ask takes none.
func (m *bucket) Ask(at time.Time, n int) ratelimit.Result { return ask(m, &m.history, at, n) }

func (m *bucket) peek(at time.Time, n int) ratelimit.Result {
	return decide(m, &m.history, at, n, false)
}

func (m *bucket) clone() keeper { return m.copy() }

func (m *bucket) copy() *bucket {
	c := *m
	c.history = m.copied()
	return &c
}

// Reset forgets all grants.
func (m *bucket) Reset() {
	m.history.Reset()
	m.changed, m.slowest = nil, nil
}

// SetRate changes the rate. The bucket keeps the units that it holds, rounded down, but at most the
// new burst. A higher burst adds no units, except that a full bucket stays full. The queue of a leaky
// bucket keeps its length.
func (m *bucket) SetRate(at time.Time, r ratelimit.Rate) { m.change(m.instant(at), r, false) }

// adopt does what SetRate does, with one difference: in the time since its last grant or change of
// the rate, the bucket earns units at the slower of the old and the new rate. But if the bucket is new
// at the given time, it is full at any rate.
func (m *bucket) adopt(at time.Time, r ratelimit.Rate) { m.change(m.instant(at), r, true) }

// The method meet answers as the method peek does, at the rate r. If the burst of r is smaller than the
// burst of the bucket, or if r earns units more slowly, the bucket does not change to r yet. It changes when
// a later request is charged; until that time, it earns units at the slower of the two rates. A bucket that
// is full at its present rate does not change either, because it may not be full yet at the slowest rate at
// which it was charged.
func (m *bucket) meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	if !m.stays(at, r) {
		return meet(m, at, r, n)
	}
	u := m.instant(at)
	ahead := sub(u, m.since(at)) // how long it takes until the clock reaches the instant u
	adopted := m.copy()
	if !adopted.change(u, r, true) {
		return adopted.peek(at, n)
	}
	res := adopted.peek(at, n)
	if res.RetryAfter > 0 && n <= res.Limit {
		units := num(int64(max(n, 1)))
		res.RetryAfter = duration(add(ahead, m.until(u, r, func(b *bucket, u *big.Int) bool { return units.Cmp(b.free(u)) <= 0 })))
	}
	res.ResetAfter = 0
	if renewal := m.until(u, r, func(b *bucket, u *big.Int) bool { return b.renewal(u).Sign() == 0 }); renewal.Sign() > 0 {
		res.ResetAfter = duration(add(ahead, renewal))
	}
	return res
}

// stays reports whether a request at the rate r that is not charged leaves the bucket at its present rate. The
// comment of the method meet gives the reasons.
func (m *bucket) stays(at time.Time, r ratelimit.Rate) bool {
	full := m.last != nil && m.renewal(m.instant(at)).Sign() == 0
	return burst(r) < m.burst || m.slows(r) || full
}

// The method named "until" returns the nanoseconds from the instant u to the first instant at which the given
// function returns true. For each instant that it tries, it changes a copy of the bucket to the rate r at that
// instant, and passes this copy to the function. The function must return true for a full bucket.
func (m *bucket) until(u *big.Int, r ratelimit.Rate, test func(b *bucket, u *big.Int) bool) *big.Int {
	slow := m.copy()
	slow.slowDown(r)
	early, late := num(0), slow.renewal(u)
	for early.Cmp(late) < 0 {
		middle := floorDiv(add(early, late), num(2))
		b, at := m.copy(), add(u, middle)
		b.change(at, r, true)
		if test(b, at) {
			late = middle
		} else {
			early = add(middle, num(1))
		}
	}
	return late
}

// slows reports whether a bucket earns units more slowly at the rate r than at the present rate.
func (m *bucket) slows(r ratelimit.Rate) bool {
	var to bucket
	to.setRate(r)
	return to.slower(m)
}

// slower reports whether a bucket earns units more slowly at the rate of m than at the rate of b.
func (m *bucket) slower(b *bucket) bool {
	return mul(m.requests, b.per).Cmp(mul(b.requests, m.per)) < 0
}

// The method named "unused" reports whether the bucket is new at the instant u. A bucket becomes new again when it has been
// full for the duration m.grace. For this test, the bucket earns units at the slowest rate at which it was charged since it
// was new. It earns them from its last grant or change of the rate on.
func (m *bucket) unused(u *big.Int) bool {
	if m.last == nil {
		return true
	}
	if m.grace != nil {
		if u = sub(u, m.grace); u.Cmp(m.last) < 0 {
			return false
		}
	}
	slow := m.copy()
	if m.slowest != nil {
		slow.drainAs(m.slowest)
	}
	return slow.renewal(u).Sign() == 0
}

// slowDown makes the bucket earn units at the rate r, if r is slower than the present rate. The new
// speed counts from the bucket's last grant or change of the rate.
func (m *bucket) slowDown(r ratelimit.Rate) {
	if m.slows(r) {
		var to bucket
		to.setRate(r)
		m.drainAs(&to)
	}
}

// change sets the rate r at the instant u. It returns false if the key was never charged or r is the
// present rate. For the time before u, the bucket earns units at the old rate. But if the parameter slower
// is true, and the bucket is not new at u, the bucket earns units at the slower of the two rates.
func (m *bucket) change(u *big.Int, r ratelimit.Rate, slower bool) bool {
	unused := m.unused(u)
	if unused || !slower {
		m.slowest = nil
	}
	old := *m
	m.setRate(r)
	same := m.requests.Cmp(old.requests) == 0 && m.per.Cmp(old.per) == 0 && m.burst == old.burst
	if m.last == nil || same {
		return false
	}
	if slower && !unused {
		if m.slowest == nil {
			m.slowest = &bucket{requests: old.requests, per: old.per}
		}
		if !m.slowest.slower(m) {
			m.slowest = nil
		}
		old.slowDown(r)
	}
	owed := ceilDiv(mul(old.owed(u), m.per), old.per)
	queued := ceilDiv(mul(old.queued(u), m.per), old.per)
	m.changed = &carried{at: u, owed: owed, queued: queued}
	if m.carry(u, num(0)); owed.Sign() == 0 && (queued.Sign() == 0 || !m.leaky) {
		return true // a full bucket stays full
	}
	holds := sub(mul(num(int64(old.burst)), m.per), owed) // negative if units were charged beyond the burst
	if m.leaky {
		holds = least(holds, largest(num(0), sub(m.full(), queued)))
	}
	m.changed.owed = sub(m.full(), least(holds, m.full()))
	return true
}

// drainAs makes m earn units as fast as the bucket b. This speed also applies to the past, from the last
// grant or change of the rate in m. All amounts are converted to the parts of a token that b uses.
func (m *bucket) drainAs(b *bucket) {
	m.changed = &carried{
		at:     m.last,
		owed:   ceilDiv(mul(m.owed(m.last), b.per), m.per),
		queued: ceilDiv(mul(m.queued(m.last), b.per), m.per),
	}
	m.grants, m.requests, m.per = nil, b.requests, b.per
}

// full returns the burst in parts of a token.
func (m *bucket) full() *big.Int { return mul(num(int64(m.burst)), m.per) }

// owed returns how many parts of a token are missing from a full bucket at the instant u.
func (m *bucket) owed(u *big.Int) *big.Int {
	if m.changed == nil {
		return m.debt(u, nil)
	}
	return m.debt(u, m.changed.owed)
}

// queued returns how much of what a leaky bucket granted is still in its queue at the instant u, in the unit of the method debt.
func (m *bucket) queued(u *big.Int) *big.Int {
	if m.changed == nil {
		return m.debt(u, nil)
	}
	return m.debt(u, m.changed.queued)
}

// debt looks at all intervals that end at the instant u. It returns the largest difference between what
// the bucket granted and what it earned in an interval, but at least 0. The second parameter is the debt at
// the last change of the rate, or nil if the rate has not changed. This debt counts as granted at that change.
func (m *bucket) debt(u, left *big.Int) *big.Int {
	worst, granted := num(0), num(0)
	for _, g := range slices.Backward(m.grants) {
		cost := g.cost
		if cost == nil {
			cost = mul(g.n, m.per)
		}
		granted = add(granted, cost)
		worst = largest(worst, sub(granted, m.earned(g.at, u)))
	}
	if left != nil {
		worst = largest(worst, sub(add(left, granted), m.earned(m.changed.at, u)))
	}
	return worst
}

// earned returns how many parts of a token the bucket earns between two instants.
func (m *bucket) earned(a, b *big.Int) *big.Int { return mul(m.requests, sub(b, a)) }

func (m *bucket) limit() int { return m.burst }

func (m *bucket) free(u *big.Int) *big.Int {
	return floorDiv(sub(m.full(), m.owed(u)), m.per)
}

func (m *bucket) wait(u, n *big.Int) *big.Int {
	available := sub(m.full(), m.owed(u))
	return ceilDiv(sub(mul(n, m.per), available), m.requests)
}

func (m *bucket) delay(u *big.Int) *big.Int {
	if !m.leaky {
		return num(0)
	}
	return ceilDiv(m.queued(u), m.requests)
}

func (m *bucket) renewal(u *big.Int) *big.Int {
	debt := m.owed(u)
	if m.leaky {
		debt = largest(debt, m.queued(u))
	}
	return ceilDiv(debt, m.requests)
}
