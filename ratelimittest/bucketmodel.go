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
	idle    *big.Int // whole tokens that the bucket lacks although no request took them
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
func (m *bucket) Ask(at time.Time, n int) ratelimit.Result {
	before := m.owed(m.instant(at))
	res := ask(m, &m.history, at, n)
	if res.Allowed && n > 0 && m.idle != nil {
		m.idle = least(m.idle, floorDiv(before, m.per))
	}
	return res
}

func (m *bucket) peek(at time.Time, n int) ratelimit.Result {
	return decide(m, &m.history, at, n, false)
}

func (m *bucket) clone() keeper {
	c := *m
	c.history = m.copied()
	return &c
}

// Reset makes the key as good as new.
func (m *bucket) Reset() {
	m.history.Reset()
	m.changed, m.idle = nil, nil
}

// SetRate changes the rate and keeps what the bucket holds, rounded down. A higher burst
// thus grants nothing. A lower burst leaves at most the new burst minus what was used. The
// queue of a leaky bucket keeps its length, so that a higher burst does not delay a request
// either.
//
// What was used is, for a leaky bucket, its queue. For a token bucket it is what the bucket
// lacks, minus what it lacks only because the burst was raised. That last part is counted
// in whole tokens, and is rounded down at each grant.
func (m *bucket) SetRate(at time.Time, r ratelimit.Rate) { m.change(at, r, false) }

// adopt drains the bucket at the slower of the two rates since the last grant or change,
// and then does what SetRate does.
func (m *bucket) adopt(at time.Time, r ratelimit.Rate) { m.change(at, r, true) }

// change sets the rate at the instant at. Until then the old rate was in force, or, if
// slower is true, whichever of the two is slower.
func (m *bucket) change(at time.Time, r ratelimit.Rate, slower bool) {
	old := *m
	m.setRate(r)
	same := m.requests.Cmp(old.requests) == 0 && m.per.Cmp(old.per) == 0 && m.burst == old.burst
	if m.last == nil || same {
		return
	}
	u := old.instant(at)
	if slower && mul(m.requests, old.per).Cmp(mul(old.requests, m.per)) < 0 {
		old.drainAs(m)
	}
	owed := ceilDiv(mul(old.owed(u), m.per), old.per)
	queued := ceilDiv(mul(old.queued(u), m.per), old.per)
	used := queued
	if !m.leaky {
		used = owed
		if m.idle != nil {
			used = largest(num(0), sub(owed, mul(m.idle, m.per)))
		}
	}
	available := sub(mul(num(int64(old.burst)), m.per), owed)
	available = largest(num(0), least(available, sub(m.full(), used)))
	m.changed = &carried{at: u, owed: sub(m.full(), available), queued: queued}
	m.idle = largest(num(0), floorDiv(sub(m.changed.owed, used), m.per))
	m.carry(u, num(0))
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
