package verify

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A meter is an account of a bucket whose rate may change without it being known since
// when. Until the first charge under the new rate, the time since the state was written counts
// at the slower of the two rates. A meter computes with rational numbers only.
type meter struct {
	made         time.Time
	leaky        bool
	plan, wished plan
	slowest      plan     // the slowest plan at which the bucket was charged since it was new
	written      *big.Rat // when it was written, in nanoseconds since the Unix epoch; nil if never
	owed         *big.Rat // units that the bucket lacks
	queued       *big.Rat // units that have not yet left a leaky bucket
}

// A tier is an account of a window whose limit may change without notice. A window does not
// drain, so it is enough to tell the model of each change.
type tier struct {
	ratelimittest.Model
	plan, wished plan
}

// A planned account knows by which plan it was last charged, and can be told that the rule has
// changed this plan.
type planned interface {
	last() plan
	become(at time.Time, p plan)
}

// newTiered returns the account of a key whose rate may change unannounced.
func newTiered(made time.Time, r bookRule, rate ratelimit.Rate) account {
	a := named(r.Algorithm)
	if a.bucket {
		m := &meter{made: made, leaky: a.name == "LeakyBucket", plan: plan{rate: rate}, slowest: plan{rate: rate}}
		m.Reset()
		return m
	}
	return &tier{a.model(made, rate), plan{rate: rate}, plan{rate: rate}}
}

func (m *tier) wish(p plan) { m.wished = p }

func (m *tier) last() plan { return m.plan }

// become makes an announced change of the plan at the instant at.
func (m *tier) become(at time.Time, p plan) {
	m.SetRate(at, p.rate)
	m.plan = p
}

// Ask takes n units at the wished plan, or looks if n is 0. Only a charge moves the window to this plan.
func (m *tier) Ask(at time.Time, n int) ratelimit.Result {
	m.SetRate(at, m.wished.rate)
	res := m.Model.Ask(at, n)
	if n > 0 && res.Allowed {
		m.plan = m.wished
	}
	m.SetRate(at, m.plan.rate)
	return res
}

func burstOf(r ratelimit.Rate) *big.Rat { return rat((&oracle{rate: r}).limit()) }
func paceOf(r ratelimit.Rate) *big.Rat  { return div(rat(r.Requests), rat(r.Per)) }

func lowest(a, b *big.Rat) *big.Rat {
	if less(a, b) {
		return a
	}
	return b
}

func highest(a, b *big.Rat) *big.Rat {
	if less(a, b) {
		return b
	}
	return a
}

// same reports whether a bucket cannot tell the rates a and b apart.
func same(a, b ratelimit.Rate) bool {
	return paceOf(a).Cmp(paceOf(b)) == 0 && burstOf(a).Cmp(burstOf(b)) == 0
}

func (m *meter) Reset() { m.written, m.owed, m.queued = nil, rat(0), rat(0) }

func (m *meter) wish(p plan) { m.wished = p }

func (m *meter) last() plan { return m.plan }

// become makes an announced change of the plan at the instant at.
func (m *meter) become(at time.Time, p plan) { *m = m.converted(m.instant(at), p, false) }

// SetRate does what become does, for an account that has only one plan.
func (m *meter) SetRate(at time.Time, r ratelimit.Rate) {
	m.slowest = plan{rate: r}
	m.become(at, plan{rate: r})
}

// unused reports whether the bucket is new at u: whether it would lack nothing if it had drained at the slowest rate
// at which it was charged since it was new.
func (m *meter) unused(u *big.Rat) bool {
	pace := paceOf(m.slowest.rate)
	return m.drained(m.owed, u, pace).Sign() == 0 && (!m.leaky || m.drained(m.queued, u, pace).Sign() == 0)
}

// instant returns the instant at which an ask at the reading at counts.
func (m *meter) instant(at time.Time) *big.Rat {
	u := m.reading(at)
	if m.written != nil {
		return highest(u, m.written)
	}
	return u
}

// reading returns the reading at of the clock.
func (m *meter) reading(at time.Time) *big.Rat { return add(epoch(m.made), rat(at.Sub(m.made))) }

// drained returns what is left of level at u, if it drains at pace.
func (m *meter) drained(level, u, pace *big.Rat) *big.Rat {
	if m.written == nil {
		return rat(0)
	}
	return highest(rat(0), sub(level, mul(pace, sub(u, m.written))))
}

// converted returns m with the plan p since u. If unannounced is true, the plan may have
// changed at any instant between the one at which m was written and u.
func (m *meter) converted(u *big.Rat, p plan, unannounced bool) meter {
	c, r, old := *m, p.rate, m.plan.rate
	c.plan = p
	unused := m.unused(u)
	if unused || !less(paceOf(m.slowest.rate), paceOf(r)) {
		c.slowest = p
	}
	if m.written == nil || same(old, r) {
		return c
	}
	pace := paceOf(old)
	if unannounced && !unused {
		pace = lowest(pace, paceOf(r))
	}
	// A level is counted in parts of a unit, so small that a nanosecond earns a whole
	// number of them.
	parts := rat(0).SetInt(paceOf(r).Denom())
	c.owed = div(ceil(mul(m.drained(m.owed, u, pace), parts)), parts)
	c.queued = div(ceil(mul(m.drained(m.queued, u, pace), parts)), parts)
	c.written = u
	switch kept := add(c.owed, sub(burstOf(r), burstOf(old))); {
	case m.leaky && c.owed.Sign()+c.queued.Sign() > 0:
		c.owed = lowest(burstOf(r), highest(kept, c.queued))
	case c.owed.Sign() > 0:
		c.owed = lowest(burstOf(r), highest(kept, rat(0)))
	}
	return c
}

// at returns what the bucket lacks at u, and its queue, both in units, if it is charged at the wished rate at
// that instant. Only a charge moves the bucket to this rate: until then it drains at the slower of the two.
func (m *meter) at(u *big.Rat) (owed, queued *big.Rat) {
	c := m.converted(u, m.wished, true)
	pace := paceOf(m.wished.rate)
	return c.drained(c.owed, u, pace), c.drained(c.queued, u, pace)
}

// first returns how long after u the levels of the bucket are first such that holds returns true. They
// are then so until the bucket is charged, and so are those of a full bucket.
func (m *meter) first(u *big.Rat, holds func(owed, queued *big.Rat) bool) time.Duration {
	if holds(m.at(u)) {
		return 0
	}
	no, yes := int64(0), int64(1)
	for ; !holds(m.at(add(u, rat(yes)))); yes *= 2 {
		no = yes
	}
	for yes-no > 1 {
		if middle := no + (yes-no)/2; holds(m.at(add(u, rat(middle)))) {
			yes = middle
		} else {
			no = middle
		}
	}
	return time.Duration(yes)
}

// Ask takes n units at the rate that wish has set, or looks if n is 0. If it takes nothing, the bucket
// stays as it is.
func (m *meter) Ask(at time.Time, n int) ratelimit.Result {
	u, burst, want := m.instant(at), burstOf(m.wished.rate), rat(max(n, 1))
	owed, queued := m.at(u)
	fits := func(owed, _ *big.Rat) bool { return !less(burst, add(owed, want)) }
	res := ratelimit.Result{Limit: int(burst.Num().Int64())}
	switch {
	case less(burst, want):
		res.RetryAfter = ratelimit.Never
	case !fits(owed, queued):
		res.RetryAfter = m.first(u, fits)
	default:
		res.Allowed = true
		if m.leaky {
			res.Delay = time.Duration(ceil(div(queued, paceOf(m.wished.rate))).Num().Int64())
		}
		if n > 0 {
			*m = m.converted(u, m.wished, true)
			owed, queued = add(owed, want), add(queued, want)
			m.written, m.owed, m.queued = u, owed, queued
		}
	}
	res.Remaining = int(floor(sub(burst, owed)).Num().Int64())
	res.ResetAfter = m.first(u, func(owed, queued *big.Rat) bool { return owed.Sign() == 0 && (!m.leaky || queued.Sign() == 0) })
	return ahead(res, sub(u, m.reading(at)).Num().Int64()) // which sets the Reason of a denial
}

// TestPropertiesOfMeters plays the same schedules on meters and on the models of buckets.
// All changes are announced.
func TestPropertiesOfMeters(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		if !a.bucket {
			t.Skip("a window is compared with its model itself")
		}
		rapid.Check(t, func(t *rapid.T) {
			r := bookRule{Rule: ratelimit.Rule{Algorithm: ratelimit.Algorithm(a.name), Rate: drawRate(t, ratelimit.Algorithm(a.name))}}
			model, mine := a.model(starts[0], r.Rate), newTiered(starts[0], r, r.Rate)
			now := starts[0]
			mine.wish(plan{rate: r.Rate})
			for range stepsEach / 2 {
				now = now.Add(time.Duration(rapid.IntRange(-9, 20).Draw(t, "on by")))
				if rapid.IntRange(0, 4).Draw(t, "change") == 4 {
					r.Rate = drawRate(t, r.Algorithm)
					model.SetRate(now, r.Rate)
					mine.SetRate(now, r.Rate)
					mine.wish(plan{rate: r.Rate})
				}
				n := rapid.IntRange(0, 5).Draw(t, "n")
				require.Equal(t, model.Ask(now, n), mine.Ask(now, n))
			}
		})
	})
}
