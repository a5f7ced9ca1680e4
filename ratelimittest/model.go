package ratelimittest

import (
	"math/big"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A Model is a limiter for one key in its slow and obvious form. [TestLimiter]
// compares a limiter's answers with those of one Model per key.
//
// The models of this package keep what they have granted and when, and decide
// from that alone. An ask before the last granted one counts as made at the
// instant of that one. A Model need not be safe for concurrent use.
type Model interface {
	// Ask takes n units at the instant at, all or nothing. With n 0 it
	// looks: it answers as for one unit, takes nothing and leaves Remaining
	// unreduced. n is never negative.
	Ask(at time.Time, n int) ratelimit.Result

	// SetRate changes the rate at the instant at. What the key has used
	// stays used.
	SetRate(at time.Time, r ratelimit.Rate)

	// Reset makes the key as good as new.
	Reset()
}

// A keeper is a Model that can keep one key of a [ratelimit.Store].
type keeper interface {
	Model

	// peek answers as Ask does, and takes nothing. What would be granted has
	// Allowed true and leaves Remaining unreduced.
	peek(at time.Time, n int) ratelimit.Result

	// adopt changes the rate at the instant at, of which nobody was told
	// before: the time since the key's last change counts at the slower of
	// the old and the new rate. After that it is as SetRate.
	adopt(at time.Time, r ratelimit.Rate)

	// clone returns a copy that shares nothing.
	clone() keeper
}

// A grant is one admitted ask.
type grant struct {
	at *big.Int // nanoseconds since the start
	n  *big.Int // units
}

// A history is what one key has been granted.
type history struct {
	start  time.Time
	last   *big.Int // no ask counts as earlier; nil for a new key
	grants []grant  // in order of time
}

// instant returns the nanoseconds since the start at which an ask at the
// instant at counts.
func (h *history) instant(at time.Time) *big.Int {
	u := num(int64(at.Sub(h.start)))
	if h.last == nil {
		return u
	}
	return largest(u, h.last)
}

// Reset makes the key as good as new.
func (h *history) Reset() { h.last, h.grants = nil, nil }

// copied returns a history to which grants are added without adding them to h.
func (h history) copied() history {
	h.grants = slices.Clone(h.grants)
	return h
}

// carry replaces all grants by one of n units at the instant u.
func (h *history) carry(u, n *big.Int) {
	h.last, h.grants = u, nil
	if n.Sign() > 0 {
		h.grants = []grant{{u, n}}
	}
}

// A budget is what distinguishes one algorithm from another. Each method
// answers for the instant u as if nothing were granted after the history.
type budget interface {
	// limit returns the most units granted at once.
	limit() int

	// free returns the whole units that would be granted. It may be
	// negative after a change of the rate.
	free(u *big.Int) *big.Int

	// wait returns the nanoseconds until n units would be granted; there
	// are fewer free, and n is at most the limit.
	wait(u, n *big.Int) *big.Int

	// delay returns the nanoseconds to hold what is granted.
	delay(u *big.Int) *big.Int

	// renewal returns the nanoseconds until the key is as good as new.
	renewal(u *big.Int) *big.Int
}

// ask makes one decision: the same for every algorithm.
func ask(b budget, h *history, at time.Time, n int) ratelimit.Result {
	return decide(b, h, at, n, n > 0)
}

// decide makes one decision, and charges what it grants if told to.
func decide(b budget, h *history, at time.Time, n int, charge bool) ratelimit.Result {
	u := h.instant(at)
	want := max(n, 1)
	units := num(int64(want))
	res := ratelimit.Result{Limit: b.limit()}
	switch {
	case want > res.Limit:
		res.RetryAfter = ratelimit.Never
	case units.Cmp(b.free(u)) > 0:
		res.RetryAfter = duration(b.wait(u, units))
	default:
		res.Allowed = true
		res.Delay = duration(b.delay(u))
		if charge {
			h.last = u
			h.grants = append(h.grants, grant{u, units})
		}
	}
	res.Remaining = int(largest(num(0), b.free(u)).Int64())
	res.ResetAfter = duration(b.renewal(u))
	return res
}
