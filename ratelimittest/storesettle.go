package ratelimittest

import (
	"context"
	"math/big"
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
	at    time.Time
	n     int
	id    uint64    // its receipt, or 0
	until time.Time // the last instant at which it may be given back
	final bool
}

// An account is the list of what was charged to a state. A settlement changes the number in
// the list, and the state is then what the list says, replayed from the start.
type account struct {
	charges []*charge
	line    line // of a leaky bucket
}

// A line is what has not yet left a leaky bucket. It does not follow from the list: after a
// settlement, requests that were told a Delay keep their places.
type line struct {
	at, level *big.Int
}

// charged notes that the units of a, which were granted at the instant at, are charged.
func (s *modelStore) charged(at time.Time, a ratelimit.Ask) {
	acc := s.accounts[idOf(a)]
	if acc == nil {
		acc = new(account)
		s.accounts[idOf(a)] = acc
	}
	c := &charge{at: at, n: a.N, id: a.Receipt, until: at.Add(a.Term), final: a.Receipt == 0}
	acc.charges = append(acc.charges, c)
	if b, ok := s.state(a).(*bucket); ok && b.leaky {
		u := b.last // Ask has moved it
		acc.line = line{u, add(acc.line.left(b, u), mul(num(int64(a.N)), b.per))}
	}
}

// left returns what of l has not left by u.
func (l line) left(b *bucket, u *big.Int) *big.Int {
	if l.at == nil {
		return num(0)
	}
	return largest(num(0), sub(l.level, b.earned(l.at, u)))
}

// settle makes the charge that a names one of N units, at the instant at, if it is still open.
func (s *modelStore) settle(at time.Time, a ratelimit.Ask) {
	acc := s.accounts[idOf(a)]
	if acc == nil {
		return // as new
	}
	last := true // whether no charge after it has units left
	for _, c := range slices.Backward(acc.charges) {
		if c.id != a.Receipt || c.final {
			last = last && c.n == 0
			continue
		}
		c.final = true
		if at.After(c.until) {
			return
		}
		back := c.n - a.N
		c.n = a.N
		s.replay(a, acc)
		if b, ok := s.state(a).(*bucket); ok && b.leaky && last {
			acc.line.level = largest(num(0), sub(acc.line.level, mul(num(int64(back)), b.per)))
		}
		return
	}
}

// replay makes the state of a anew from its account. A charge of no units moves the state's
// clock, as it did when it was made.
func (s *modelStore) replay(a ratelimit.Ask, acc *account) {
	m := algorithmNamed(a.Algorithm).model(s.start, a.Rate).(keeper)
	for _, c := range acc.charges {
		if h := m.past(); c.n == 0 {
			h.last = h.instant(c.at)
		} else if !m.Ask(c.at, c.n).Allowed {
			panic("what was granted fits without the units that were given back")
		}
	}
	s.states[idOf(a)] = m
}

// lined returns res, an answer at the instant at to an ask about a state, with the Delay and the
// ResetAfter of the line of a leaky bucket.
func (s *modelStore) lined(at time.Time, a ratelimit.Ask, res ratelimit.Result) ratelimit.Result {
	acc := s.accounts[idOf(a)]
	b, ok := s.state(a).(*bucket)
	if acc == nil || !ok || !b.leaky {
		return res
	}
	u := b.instant(at)
	waits := ceilDiv(acc.line.left(b, u), b.requests)
	if res.Allowed {
		res.Delay = duration(waits)
	}
	if waits.Sign() > 0 {
		res.ResetAfter = max(res.ResetAfter, duration(add(waits, sub(u, b.since(at)))))
	}
	return res
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
		switch w.IntN(4) {
		case 0:
			a.N = w.IntN(a.N + 1)
		case 1:
		default:
			a.N = 0
		}
		c.asks = append(c.asks, a)
	}
	return c, len(c.asks) > 0
}
