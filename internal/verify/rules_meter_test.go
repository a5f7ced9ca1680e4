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
// when. At the first ask under the new rate, the time since the state was written counts at
// the slower of the two rates. A meter computes with rational numbers only.
type meter struct {
	made         time.Time
	leaky        bool
	rate, wished ratelimit.Rate
	last         *big.Rat // when it was written, in nanoseconds since the Unix epoch; nil if never
	owed         *big.Rat // units that the bucket lacks
	queued       *big.Rat // units that have not yet left a leaky bucket
}

// A tier is an account of a window whose limit may change without notice. A window does not
// drain, so it is enough to tell the model of each change.
type tier struct {
	ratelimittest.Model
	rate, wished ratelimit.Rate
}

// newTiered returns the account of a key whose rate may change unannounced.
func newTiered(made time.Time, r bookRule, rate ratelimit.Rate) account {
	a := named(r.Algorithm)
	if a.bucket {
		m := &meter{made: made, leaky: a.name == "LeakyBucket", rate: rate}
		m.Reset()
		return m
	}
	return &tier{a.model(made, rate), rate, rate}
}

func (m *tier) wish(r ratelimit.Rate) { m.wished = r }

func (m *tier) met(at time.Time) { m.SetRate(at, m.wished) }

// SetRate makes an announced change of the rate at the instant at.
func (m *tier) SetRate(at time.Time, r ratelimit.Rate) {
	m.Model.SetRate(at, r)
	m.rate = r
}

func (m *tier) Ask(at time.Time, n int) ratelimit.Result {
	if n > 0 {
		m.met(at)
	}
	m.Model.SetRate(at, m.wished)
	defer m.Model.SetRate(at, m.rate)
	return m.Model.Ask(at, n)
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

func (m *meter) Reset() { m.last, m.owed, m.queued = nil, rat(0), rat(0) }

func (m *meter) wish(r ratelimit.Rate) { m.wished = r }

func (m *meter) met(at time.Time) {
	if !m.cut() {
		*m = m.converted(m.instant(at), m.wished, true)
	}
}

// cut reports whether the wished rate has a smaller burst than a bucket was written under.
// It then applies only when the key is charged.
func (m *meter) cut() bool {
	return m.last != nil && less(burstOf(m.wished), burstOf(m.rate))
}

// SetRate makes an announced change of the rate at the instant at.
func (m *meter) SetRate(at time.Time, r ratelimit.Rate) { *m = m.converted(m.instant(at), r, false) }

// instant returns the instant at which an ask at the reading at counts.
func (m *meter) instant(at time.Time) *big.Rat {
	u := m.reading(at)
	if m.last != nil {
		return highest(u, m.last)
	}
	return u
}

// reading returns the reading at of the clock.
func (m *meter) reading(at time.Time) *big.Rat { return add(epoch(m.made), rat(at.Sub(m.made))) }

// drained returns what is left of level at u, if it drains at pace.
func (m *meter) drained(level, u, pace *big.Rat) *big.Rat {
	if m.last == nil {
		return rat(0)
	}
	return highest(rat(0), sub(level, mul(pace, sub(u, m.last))))
}

// converted returns m with the rate r since u. If unannounced is true, the rate may have
// changed at any instant between the one at which m was written and u.
func (m *meter) converted(u *big.Rat, r ratelimit.Rate, unannounced bool) meter {
	c := *m
	c.rate = r
	if m.last == nil || same(m.rate, r) {
		return c
	}
	pace := paceOf(m.rate)
	if unannounced {
		pace = lowest(pace, paceOf(r))
	}
	// A level is counted in parts of a unit, so small that a nanosecond earns a whole
	// number of them.
	parts := rat(0).SetInt(paceOf(r).Denom())
	c.owed = div(ceil(mul(m.drained(m.owed, u, pace), parts)), parts)
	c.queued = div(ceil(mul(m.drained(m.queued, u, pace), parts)), parts)
	c.last = u
	switch kept := add(c.owed, sub(burstOf(r), burstOf(m.rate))); {
	case m.leaky && c.owed.Sign()+c.queued.Sign() > 0:
		c.owed = lowest(burstOf(r), highest(kept, c.queued))
	case c.owed.Sign() > 0:
		c.owed = lowest(burstOf(r), highest(kept, rat(0)))
	}
	return c
}

// Ask takes n units at the rate that wish has set, or looks if n is 0.
func (m *meter) Ask(at time.Time, n int) ratelimit.Result {
	u := m.instant(at)
	s := m.converted(u, m.wished, true)
	pace, burst, want := paceOf(s.rate), burstOf(s.rate), rat(max(n, 1))
	owed, queued := s.drained(s.owed, u, pace), s.drained(s.queued, u, pace)
	wait := func(units *big.Rat) time.Duration { return time.Duration(ceil(div(units, pace)).Num().Int64()) }
	res := ratelimit.Result{Limit: int(burst.Num().Int64())}
	switch over := sub(add(owed, want), burst); {
	case less(burst, want):
		res.RetryAfter = ratelimit.Never
	case over.Sign() > 0:
		res.RetryAfter = wait(over)
	default:
		res.Allowed = true
		if s.leaky {
			res.Delay = wait(queued)
		}
		if n > 0 {
			owed, queued = add(owed, want), add(queued, want)
			s.last, s.owed, s.queued = u, owed, queued
		}
	}
	res.Remaining = int(floor(sub(burst, owed)).Num().Int64())
	switch charged := n > 0 && res.Allowed; {
	case m.cut() && !charged:
		// The bucket stays as it is, and drains at the slower rate until it is charged.
		pace = lowest(paceOf(m.rate), paceOf(m.wished))
		owed = highest(rat(0), add(m.drained(m.owed, u, pace), sub(burst, burstOf(m.rate))))
		if queued = m.drained(m.queued, u, pace); m.leaky {
			owed = highest(owed, queued)
		}
		if over := sub(add(owed, want), burst); over.Sign() > 0 && !less(burst, want) {
			res.RetryAfter = wait(over)
		}
	case n > 0:
		*m = s
	}
	res.ResetAfter = wait(owed)
	if s.leaky {
		res.ResetAfter = wait(highest(owed, queued))
	}
	return ahead(res, sub(u, m.reading(at)).Num().Int64())
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
			mine.wish(r.Rate)
			for range stepsEach / 2 {
				now = now.Add(time.Duration(rapid.IntRange(-9, 20).Draw(t, "on by")))
				if rapid.IntRange(0, 4).Draw(t, "change") == 4 {
					r.Rate = drawRate(t, r.Algorithm)
					model.SetRate(now, r.Rate)
					mine.SetRate(now, r.Rate)
					mine.wish(r.Rate)
				}
				n := rapid.IntRange(0, 5).Draw(t, "n")
				require.Equal(t, model.Ask(now, n), mine.Ask(now, n))
			}
		})
	})
}
