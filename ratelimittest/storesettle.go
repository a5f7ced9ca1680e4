package ratelimittest

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A settler is a store whose charges can be given back.
type settler interface {
	Accepts(a ratelimit.Ask) error
	Settle(ctx context.Context, asks []ratelimit.Ask) error
}

// A charge is one that the model of a store has made for an ask, and that may be given back.
type charge struct {
	*Entry
	id    uint64    // its receipt
	until time.Time // the last instant at which it may be given back
}

// An account is the [Account] of a state, and those of its charges that may be given back.
type account struct {
	*Account
	open []charge
}

// account returns the account of the state of a.
func (s *modelStore) account(a ratelimit.Ask) *account {
	acc := s.accounts[idOf(a)]
	if acc == nil {
		acc = &account{Account: newAccount(func() keeper { return s.fresh(a) })}
		s.accounts[idOf(a)] = acc
	}
	return acc
}

// settle makes the charge that a names one of N units, at the instant at. If it is not open any
// more, nothing is given back.
func (s *modelStore) settle(at time.Time, a ratelimit.Ask) {
	acc := s.account(a)
	if a.N > a.Was {
		acc.Exceed(at, a.N-a.Was)
	}
	for i, c := range slices.Backward(acc.open) {
		if c.id == a.Receipt {
			acc.open = slices.Delete(acc.open, i, i+1)
			if a.N < a.Was && !at.After(c.until) {
				acc.Settle(at, c.Entry, a.N)
			}
			return
		}
	}
}

// An open charge is one that a schedule may still settle.
type openCharge struct {
	at  time.Duration
	ask ratelimit.Ask // with the receipt
}

// term makes up a Term for a charge at the rate r.
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

// settlement makes up a call of Settle, about charges that are open, that were settled before, or
// that were never made. It leaves out those whose Term was over before the clock has stepped
// back: a store may have dropped them, or not.
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
		a, until := o.ask, later(o.at, o.ask.Term)
		if seen[idOf(a)] || c.at <= until && until < w.latest {
			continue
		}
		seen[idOf(a)] = true
		a.Was, a.Shadow, a.Term = a.N, false, 0
		switch w.IntN(5) {
		case 0:
			a.N = w.IntN(a.N + 1)
		case 1:
		case 2:
			if int64(burst(a.Rate)) < 1<<49 { // above that, units beyond the limit may saturate
				a.N += 1 + w.IntN(min(2*min(burst(a.Rate), 1<<29), math.MaxInt32-a.N))
			}
		default:
			a.N = 0
		}
		c.asks = append(c.asks, a)
	}
	return c, len(c.asks) > 0
}
