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
// The models of this package remember what they granted and when, and decide from that
// alone. If a request comes at an instant before the last granted request, it counts as made
// at the instant of that request, and RetryAfter and ResetAfter include the time until then.
// A Model need not be safe for concurrent use.
type Model interface {
	// Ask takes n units at the given time. If not all of them fit, Ask takes none. If n is 0, Ask
	// takes nothing: it answers as for one unit, except that Remaining is not lowered by the unit. n
	// is never negative.
	Ask(at time.Time, n int) ratelimit.Result

	// SetRate changes the rate at the given time. Units that the key has used stay used.
	SetRate(at time.Time, r ratelimit.Rate)

	// Reset forgets everything that was granted.
	Reset()
}

// A keeper is a Model of one key of a limiter. It can also be the model of one key in a
// [ratelimit.Store].
type keeper interface {
	Model

	// peek answers as Ask does, but takes nothing. If the units would be granted, the
	// result has Allowed true, and the units are not subtracted from its Remaining.
	peek(at time.Time, n int) ratelimit.Result

	// adopt changes the rate as a store does. A store learns of a new rate only from the first
	// request that has it, so the store does not know when the old rate ended. For the time since
	// the key's last change, the key therefore earns units at the slower of the old and the new rate.
	adopt(at time.Time, r ratelimit.Rate)

	// meet answers a request to a store. Each such request has its own rate, here r. meet answers as the
	// method peek does at the rate r. If n is above 0, meet also changes the key to the rate r, as the
	// method adopt does. There is one exception: a bucket without a warm-up makes some changes of its rate
	// only when units are charged, so meet does not make them. The method bucket.stays says which changes
	// these are.
	meet(at time.Time, r ratelimit.Rate, n int) ratelimit.Result

	// clone returns a copy that shares nothing with the original.
	clone() keeper

	// past returns the history of the key, which the answers are computed from.
	past() *history
}

// A grant is one request that was granted.
type grant struct {
	at   *big.Int // instant of the request, in nanoseconds since the start
	n    *big.Int // number of units
	cost *big.Int // what the grant cost in a bucket, in small equal parts of a token; nil if it cost n whole tokens
}

// A history lists what one key was granted.
type history struct {
	start time.Time

	// last is the instant of the last grant, or of a later change of the rate; nil for a new key. If
	// the clock has stepped back behind this instant, a request counts as made at this instant.
	last   *big.Int
	grants []grant // all grants, in order of time
}

// instant returns the instant at which a request made at the given time counts, in nanoseconds since
// the start. This is the given time, or the instant h.last if that is later. It is later only if the clock
// has stepped back.
func (h *history) instant(at time.Time) *big.Int {
	if h.last == nil {
		return h.since(at)
	}
	return largest(h.since(at), h.last)
}

// since converts the given time to nanoseconds since the start.
func (h *history) since(at time.Time) *big.Int { return num(int64(at.Sub(h.start))) }

func (h *history) past() *history { return h }

// Reset forgets all grants.
func (h *history) Reset() { h.last, h.grants = nil, nil }

// copied returns a copy of the history. Grants that are added to the copy are not added to the
// original.
func (h history) copied() history {
	h.grants = slices.Clone(h.grants)
	return h
}

// carry starts a new history at the instant u, for a change of the rate. It forgets all grants; one
// grant of n units takes their place if n is above 0.
func (h *history) carry(u, n *big.Int) {
	h.last, h.grants = u, nil
	if n.Sign() > 0 {
		h.grants = []grant{{at: u, n: n}}
	}
}

// meet does the work of the methods of the same name. It changes the model m to the rate r, and then answers
// a request for n units as the method peek does. If n is 0, the request only looks at the key, so meet changes
// only a copy of m.
func meet(m keeper, at time.Time, r ratelimit.Rate, n int) ratelimit.Result {
	if n == 0 {
		m = m.clone()
	}
	m.adopt(at, r)
	return m.peek(at, n)
}

// A budget has the methods in which the algorithms differ. Most methods answer for an instant u, and
// assume that nothing is granted between the last grant and u.
type budget interface {
	// limit returns the most units that are granted at once.
	limit() int

	// free returns how many whole units could be granted. It may be negative after a change of the
	// rate.
	free(u *big.Int) *big.Int

	// wait returns the nanoseconds until n units would be granted. The caller has checked that
	// fewer than n are free, and that n is at most the limit.
	wait(u, n *big.Int) *big.Int

	// delay returns for how many nanoseconds the caller must hold a request that is granted.
	delay(u *big.Int) *big.Int

	// renewal returns the nanoseconds until the whole limit is free again.
	renewal(u *big.Int) *big.Int
}

// ask makes one decision on n units, and charges them if they are granted. The models of all algorithms
// use this function.
func ask(b budget, h *history, at time.Time, n int) ratelimit.Result {
	return decide(b, h, at, n, n > 0)
}

// decide makes one decision on n units. It charges the units only if they are granted and the
// parameter charge is true.
func decide(b budget, h *history, at time.Time, n int, charge bool) ratelimit.Result {
	u := h.instant(at)
	ahead := sub(u, h.since(at)) // time until a clock that has stepped back shows u again; included in all waits
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
	if !res.Allowed {
		res.Reason = ratelimit.ReasonLimit
	}
	return res
}
