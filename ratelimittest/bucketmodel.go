package ratelimittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// TokenBucketModel returns the [Model] of one key of a [ratelimit.TokenBucket] that was
// made at start. The rate must be valid.
func TokenBucketModel(start time.Time, r ratelimit.Rate) Model {
	m := &bucket{history: history{start: start}}
	m.setRate(r)
	return m
}

// LeakyBucketModel returns the [Model] of one key of a [ratelimit.LeakyBucket] that was
// made at start. The rate must be valid.
func LeakyBucketModel(start time.Time, r ratelimit.Rate) Model {
	m := &bucket{history: history{start: start}, leaky: true}
	m.setRate(r)
	return m
}

// A bucket grants n units if afterwards, in every interval that ends now, no more has been
// granted than the burst and what was earned in the interval.
//
// Amounts are in units of 1/per of a token. A nanosecond earns requests of them.
type bucket struct {
	history
	leaky bool

	requests *big.Int // of the rate, with per in lowest terms
	per      *big.Int // in nanoseconds
	burst    int

	changed *carried // the state at the last change of the rate; nil if there was none
}

// carried is the state of a bucket at a change of its rate, in place of the grants before
// it.
type carried struct {
	at     *big.Int // the instant of the change
	owed   *big.Int // what the bucket lacked
	queued *big.Int // what had not yet left a leaky bucket
}

func (m *bucket) setRate(r ratelimit.Rate) {
	m.requests, m.per = num(int64(r.Requests)), num(int64(r.Per))
	gcd := new(big.Int).GCD(nil, nil, m.requests, m.per)
	m.requests, m.per = floorDiv(m.requests, gcd), floorDiv(m.per, gcd)
	m.burst = burst(r)
}

// Ask takes n units at the instant at.
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

// Reset makes the key as good as new.
func (m *bucket) Reset() {
	m.history.Reset()
	m.changed = nil
}

// SetRate changes the rate and keeps what the bucket holds, rounded down and at most the new
// burst. A higher burst thus grants nothing, except that a token bucket that is full by then
// stays full. The queue of a leaky bucket keeps its length, and takes its room of a lower burst.
func (m *bucket) SetRate(at time.Time, r ratelimit.Rate) { m.change(m.instant(at), r, false) }

// adopt drains the bucket at the slower of the two rates since the last grant or change,
// and then does what SetRate does.
func (m *bucket) adopt(at time.Time, r ratelimit.Rate) { m.change(m.instant(at), r, true) }

// meet answers as peek does, at the rate r that nobody has announced. Under a smaller burst, the
// bucket stays as it is. So until a later request finds enough and is charged, it drains at the
// slower rate.
func (m *bucket) meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	if m.leaky || burst(r) >= m.burst {
		return meet(m, at, r, n)
	}
	u := m.instant(at)
	ahead := sub(u, m.since(at)) // nothing changes until the clock has reached u
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

// until returns how many nanoseconds it takes from u until holds is true for the bucket that
// adopts the rate r at that instant. It is true once the bucket is full.
func (m *bucket) until(u *big.Int, r ratelimit.Rate, holds func(b *bucket, u *big.Int) bool) *big.Int {
	slow := m.copy()
	slow.slowDown(r)
	early, late := num(0), slow.renewal(u)
	for early.Cmp(late) < 0 {
		middle := floorDiv(add(early, late), num(2))
		b, at := m.copy(), add(u, middle)
		b.change(at, r, true)
		if holds(b, at) {
			late = middle
		} else {
			early = add(middle, num(1))
		}
	}
	return late
}

// slowDown makes m drain at the speed of r since the last grant or change, if that is slower.
func (m *bucket) slowDown(r ratelimit.Rate) {
	var to bucket
	to.setRate(r)
	if mul(to.requests, m.per).Cmp(mul(m.requests, to.per)) < 0 {
		m.drainAs(&to)
	}
}

// change sets the rate at the instant u, and returns false if that changes nothing. Until then
// the old rate was in force, or, if slower is true, whichever of the two is slower.
func (m *bucket) change(u *big.Int, r ratelimit.Rate, slower bool) bool {
	old := *m
	m.setRate(r)
	same := m.requests.Cmp(old.requests) == 0 && m.per.Cmp(old.per) == 0 && m.burst == old.burst
	if m.last == nil || same {
		return false
	}
	if slower {
		old.slowDown(r)
	}
	owed := ceilDiv(mul(old.owed(u), m.per), old.per)
	queued := ceilDiv(mul(old.queued(u), m.per), old.per)
	m.changed = &carried{at: u, owed: owed, queued: queued}
	if m.carry(u, num(0)); owed.Sign() == 0 && !m.leaky {
		return true // full
	}
	holds := sub(mul(num(int64(old.burst)), m.per), owed) // negative after units beyond the burst
	if m.leaky {
		holds = least(holds, largest(num(0), sub(m.full(), queued)))
	}
	m.changed.owed = sub(m.full(), least(holds, m.full()))
	return true
}

// drainAs makes m drain at the speed of b, in the units of b, since the last grant or
// change.
func (m *bucket) drainAs(b *bucket) {
	m.changed = &carried{
		at:     m.last,
		owed:   ceilDiv(mul(m.owed(m.last), b.per), m.per),
		queued: ceilDiv(mul(m.queued(m.last), b.per), m.per),
	}
	m.grants, m.requests, m.per = nil, b.requests, b.per
}

// full returns the burst in units of 1/per of a token.
func (m *bucket) full() *big.Int { return mul(num(int64(m.burst)), m.per) }

// owed returns what the bucket lacks.
func (m *bucket) owed(u *big.Int) *big.Int {
	if m.changed == nil {
		return m.debt(u, nil)
	}
	return m.debt(u, m.changed.owed)
}

// queued returns what has not yet left a leaky bucket.
func (m *bucket) queued(u *big.Int) *big.Int {
	if m.changed == nil {
		return m.debt(u, nil)
	}
	return m.debt(u, m.changed.queued)
}

// debt returns by how much the grants of an interval that ends at u exceed what it earned,
// for the interval where this is most. An interval that begins at a change of the rate
// includes left, the state at that change.
func (m *bucket) debt(u, left *big.Int) *big.Int {
	worst, granted := num(0), num(0)
	for _, g := range slices.Backward(m.grants) {
		granted = add(granted, mul(g.n, m.per))
		worst = largest(worst, sub(granted, m.earned(g.at, u)))
	}
	if left != nil {
		worst = largest(worst, sub(add(left, granted), m.earned(m.changed.at, u)))
	}
	return worst
}

// earned returns what the time from a to b earns.
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
