package ratelimittest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A settler is a store with the methods Accepts and Settle. Settle gives back a charge or a part of
// it.
type settler interface {
	Accepts(a ratelimit.Ask) error
	Settle(ctx context.Context, asks []ratelimit.Ask) error
}

// A charge is one entry in an [account] of the modelStore that can still be settled: given back, or changed.
type charge struct {
	*Entry
	id    uint64    // the receipt of the charge
	until time.Time // the last instant at which units can be given back
}

// An account is the [Account] of one state, with a list of the charges that can still be settled.
type account struct {
	*Account
	open []charge
}

// The method account returns the account of the state that the given ask names.
func (s *modelStore) account(a ratelimit.Ask) *account {
	acc := s.accounts[idOf(a)]
	if acc == nil {
		acc = &account{Account: newAccount(func() keeper { return s.fresh(a) })}
		s.accounts[idOf(a)] = acc
	}
	return acc
}

// The method settle changes a charge at the given time. The receipt in the given ask names the charge,
// and the ask contains the new number of units. If the charge was settled before or its HoldFor is over,
// nothing is given back.
func (s *modelStore) settle(at time.Time, a ratelimit.Ask) {
	acc := s.account(a)
	if a.N > a.Charged {
		acc.Exceed(at, a.N-a.Charged)
	}
	for i, c := range slices.Backward(acc.open) {
		if c.id == a.Receipt {
			acc.open = slices.Delete(acc.open, i, i+1)
			if a.N < a.Charged && !at.After(c.until) {
				acc.Settle(at, c.Entry, a.N)
			}
			return
		}
	}
}

// An openCharge is a charge that a schedule may settle: give back, or change, by a call of Settle.
type openCharge struct {
	at  time.Duration
	ask ratelimit.Ask // the ask that made the charge, with its receipt
}

// term picks the HoldFor of a charge at the rate r: for how long the charge can be settled.
func (w *storeWriter) term(r ratelimit.Rate) time.Duration {
	const longest = 366 * 24 * time.Hour
	switch w.IntN(4) {
	case 0:
		return min(max(w.upTo(r.Per), time.Microsecond), longest).Truncate(w.Resolution)
	case 1:
		return up(time.Microsecond, w.Resolution)
	}
	return longest.Truncate(w.Resolution)
}

// settlement returns a call of Settle for charges that are open, that were settled before, or that were
// never made. It leaves out charges whose HoldFor was over before the clock stepped back, because a store
// may or may not have dropped them. ok is false if no charge is left.
func (w *storeWriter) settlement() (c storeCall, ok bool) {
	c.settle = true
	first := w.open[w.IntN(len(w.open))]
	for _, t := range w.targets {
		if idOf(t.ask) == idOf(first.ask) {
			c.at = w.move(first.ask.Rate, t.state)
		}
	}
	seen := make(map[stateID]bool)
	for _, i := range w.Perm(len(w.open))[:1+w.IntN(min(len(w.open), 3))] {
		o := w.open[i]
		a, until := o.ask, later(o.at, o.ask.HoldFor)
		if seen[idOf(a)] || c.at <= until && until < w.latest {
			continue
		}
		seen[idOf(a)] = true
		a.Charged, a.Shadow, a.HoldFor = a.N, false, 0
		switch w.IntN(5) {
		case 0:
			a.N = w.IntN(a.N + 1)
		case 1:
		case 2:
			if int64(burst(a.Rate)) < 1<<49 { // with a larger burst, charges beyond the limit may overflow
				a.N += 1 + w.IntN(min(2*min(burst(a.Rate), 1<<29), math.MaxInt32-a.N))
			}
		default:
			a.N = 0
		}
		c.asks = append(c.asks, a)
	}
	return c, len(c.asks) > 0
}
