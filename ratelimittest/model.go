package ratelimittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Model is a limiter for one key, written to be obvious rather than fast. [TestLimiter]
// compares the answers of a limiter with those of one Model for each key.
//
// The models of this package remember what they have granted and when, and decide from that
// alone. A request at an instant before the last granted request counts as made at the
// instant of that request, and RetryAfter and ResetAfter include the time until then. A Model
// need not be safe for concurrent use.
type Model interface {
	// Ask takes n units at the instant at, or none if they do not all fit. If n is 0 it
	// only looks: it answers as for one unit, takes nothing, and leaves Remaining
	// unreduced. n is never negative.
	Ask(at time.Time, n int) ratelimit.Result

	// SetRate changes the rate at the instant at. Units that the key has used stay used.
	SetRate(at time.Time, r ratelimit.Rate)

	// Reset makes the key as good as new.
	Reset()
}

// A keeper is a Model that can also stand for one state of a [ratelimit.Store].
type keeper interface {
	Model

	// peek answers as Ask does, but takes nothing. If the units would be granted, the
	// result has Allowed true and an unreduced Remaining.
	peek(at time.Time, n int) ratelimit.Result

	// adopt changes the rate at the instant at, without knowing when in the past the rate
	// was really changed. The time since the key's last change therefore counts at the
	// slower of the old and the new rate. For the rest it is as SetRate.
	adopt(at time.Time, r ratelimit.Rate)

	// meet answers as peek does, at the rate r that nobody has announced. If n is above 0,
	// the state adopts r. Only a token bucket whose burst r would cut stays as it is: it
	// adopts r when it is charged.
	meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result

	// clone returns a copy that shares nothing with the original.
	clone() keeper

	// past returns the history that the answers follow from.
	past() *history
}

// A grant is one request that was granted.
type grant struct {
	at   *big.Int // in nanoseconds since the start
	n    *big.Int // in units
	cost *big.Int // to a young bucket, in units of 1/per of a token; nil if it is that of n tokens
}

// A history is what one key has been granted.
type history struct {
	start  time.Time
	last   *big.Int // earliest instant at which a request may count; nil for a new key
	grants []grant  // in order of time
}

// instant returns the instant at which a request made at at counts, in nanoseconds since
// the start.
func (h *history) instant(at time.Time) *big.Int {
	if h.last == nil {
		return h.since(at)
	}
	return largest(h.since(at), h.last)
}

// since returns at in nanoseconds since the start.
func (h *history) since(at time.Time) *big.Int { return num(int64(at.Sub(h.start))) }

func (h *history) past() *history { return h }

// Reset makes the key as good as new.
func (h *history) Reset() { h.last, h.grants = nil, nil }

// copied returns a copy of h. Grants that are added to the copy are not added to h.
func (h history) copied() history {
	h.grants = slices.Clone(h.grants)
	return h
}

// carry replaces all grants by one grant of n units at the instant u.
func (h *history) carry(u, n *big.Int) {
	h.last, h.grants = u, nil
	if n.Sign() > 0 {
		h.grants = []grant{{at: u, n: n}}
	}
}

// meet is the method meet of m, except for a token bucket whose burst r would cut.
func meet(m keeper, at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	if n == 0 {
		m = m.clone()
	}
	m.adopt(at, r)
	return m.peek(at, n)
}

// A budget is what distinguishes one algorithm from another. Each method answers for the
// instant u, under the assumption that nothing is granted after the history.
type budget interface {
	// limit returns the most units that are granted at once.
	limit() int

	// free returns the whole units that would be granted. It may be negative after a change
	// of the rate.
	free(u *big.Int) *big.Int

	// wait returns the nanoseconds until n units would be granted. Fewer are free now, and
	// n is at most the limit.
	wait(u, n *big.Int) *big.Int

	// delay returns the nanoseconds for which to hold a request that is granted.
	delay(u *big.Int) *big.Int

	// renewal returns the nanoseconds until the key is as good as new.
	renewal(u *big.Int) *big.Int
}

// ask makes one decision. It is the same for every algorithm.
func ask(b budget, h *history, at time.Time, n int) ratelimit.Result {
	return decide(b, h, at, n, n > 0)
}

// decide makes one decision, and if charge is true charges what it grants.
func decide(b budget, h *history, at time.Time, n int, charge bool) ratelimit.Result {
	u := h.instant(at)
	ahead := sub(u, h.since(at)) // nothing changes until the clock has reached u
	want := max(n, 1)
	units := num(int64(want))
	res := ratelimit.Result{Limit: b.limit()}
	switch {
	case want > res.Limit:
		res.RetryAfter = ratelimit.Never
	case units.Cmp(b.free(u)) > 0:
		res.RetryAfter = duration(add(ahead, b.wait(u, units)))
	default:
		res.Allowed = true
		res.Delay = duration(b.delay(u))
		if charge {
			h.last = u
			h.grants = append(h.grants, grant{at: u, n: units})
		}
	}
	res.Remaining = int(largest(num(0), b.free(u)).Int64())
	if renewal := b.renewal(u); renewal.Sign() > 0 {
		res.ResetAfter = duration(add(ahead, renewal))
	}
	return res
}
