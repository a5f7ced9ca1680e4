package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/costs"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// Settle replaces the reserved units by actual, the number of units that were used. It needs no context and works
// even if the context of the request has ended. If units are given back, callers that wait for them are served.
//
// Settle acts only once, even if several goroutines call it; all other calls return [ErrSettled]. If actual is
// negative or above 2^50, the error matches [ErrInvalidCount], and the reservation stays open; so it does if the request
// has several units: call [Reservation.SettleCosts]. If the [Store] cannot be reached, the error matches [ErrStore], and
// the reservation stays open: call Settle again with the same number. But if actual is more than was reserved and the
// call of the Store has failed, the reservation counts as settled: a second call could charge the units twice.
//
// Settle changes nothing for a reservation that was denied or that a [FailurePolicy] has granted without a charge, nor
// in a rule that has been removed or whose Algorithm, Key or Unit has changed. After a Reset, and after the term, no
// units are given back, but units beyond the reserved number are charged.
func (r *Reservation) Settle(actual int) error {
	if r == nil {
		return cmp.Or(checkCount(actual), ErrSettled)
	}
	unit := ""
	switch all := r.costs(); {
	case len(all) == 1:
		unit = all[0].Unit
	case len(all) > 1:
		return fmt.Errorf("%w: the request has %d units; call SettleCosts", ErrInvalidCount, len(all))
	}
	return r.settle([]Cost{{unit, actual}}, false, true)
}

// SettleCosts replaces, for each unit in actual, the reserved units by those that were used, as Settle does. What was
// reserved of other units stays charged, and what is in flight goes on. It acts only once, on all units together.
//
// If actual has a unit twice, or one that the request does not have, or a number that Settle refuses, the error matches
// [ErrInvalidCount], and the reservation stays open. The other errors are those of Settle.
func (r *Reservation) SettleCosts(actual ...Cost) error {
	for i, c := range actual {
		if costs.Index(actual[:i], c.Unit) >= 0 {
			return fmt.Errorf("%w: the unit %q is given twice", ErrInvalidCount, c.Unit)
		}
	}
	return r.settle(actual, false, false)
}

// Done ends the reservation and what it has in flight: all units that were not settled stay charged, also if the term is
// not over. If there is nothing left to do, Done does nothing and returns nil, so it may be deferred. After a Settle
// that has failed, Done calls it again with the same numbers. A later Settle returns [ErrSettled].
func (r *Reservation) Done() error {
	if err := r.settle(nil, true, true); !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// Cancel gives all reserved units back, as Settle(0) does. If the reservation is settled already, Cancel does nothing
// and returns nil, so a deferred Cancel gives the units back only if the work fails. After a Settle that has failed,
// Cancel calls Settle again with the same number, because those units were used.
func (r *Reservation) Cancel() error {
	if r == nil {
		return nil
	}
	none := []Cost{{}}
	if all := r.costs(); all != nil {
		none = slices.Clone(all)
		for i := range none {
			none[i].N = 0
		}
	}
	if err := r.settle(none, true, true); !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// Extend makes what the Reservation has in flight last for [Rate.Per] from now, for work that takes longer. If it is
// over already, Extend returns [ErrSettled]: the work no longer counts, and should stop. If nothing is in flight because
// no rule with [AlgorithmInFlight] applies, Extend does nothing. An error of the [Store] matches [ErrStore].
func (r *Reservation) Extend() error {
	if r == nil || !r.result.Allowed {
		return ErrSettled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return ErrSettled
	}
	l := r.limiter
	l.time.Renew()
	parts, in := r.charges(), r.inStore()
	for i := range parts {
		if p := &parts[i]; p.rule.holds() {
			if p.receipt = p.rule.local.Extend(p.hash, p.receipt, l.time.Now(), p.rule.Rate.Per); p.receipt == 0 && in == nil {
				return ErrSettled
			}
		}
	}
	if in == nil {
		return nil
	}
	asks, _ := in.present(l.set.Load(), func(was *activeRule, a *Ask) bool {
		a.N = a.Charged
		return was.holds()
	})
	if len(asks) == 0 {
		return nil
	}
	_, err := l.remote.settle(in.ctx, asks)
	return err
}

// settle does the work of SettleCosts. The units in actual are all different. If an earlier call has failed and the
// parameter again is set, settle uses the numbers of that call. If ends is set, settle also ends what is in flight.
func (r *Reservation) settle(actual []Cost, again, ends bool) error {
	for _, c := range actual {
		if err := checkCount(c.N); err != nil {
			return err
		}
		if r == nil {
			continue
		}
		if all := r.costs(); all == nil && c.Unit != "" || all != nil && costs.Index(all, c.Unit) < 0 {
			return fmt.Errorf("%w: the request does not have the unit %q", ErrInvalidCount, c.Unit)
		}
	}
	if r == nil {
		return ErrSettled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done || r.settled && !ends {
		return ErrSettled
	}
	in := r.inStore()
	if in != nil && again && in.failed {
		actual = in.tried
	}
	units := !r.settled            // if false, only what is in flight must still be ended
	r.settled, r.done = true, ends // before the calls below, in case the store panics
	if r.limiter != nil {
		r.settleHere(actual, units, ends)
	}
	if in != nil {
		sent, more, err := r.limiter.settleInStore(in, actual, units, ends)
		if err != nil && (!sent || !more) {
			r.settled, r.done = !units, false
			in.failed, in.tried = true, slices.Clone(actual)
		}
		if err != nil {
			return err
		}
	}
	if !units {
		return ErrSettled
	}
	return nil
}

// settleHere settles what r has charged in this process: the units if units is set, what is in flight if ends is set.
func (r *Reservation) settleHere(actual []Cost, units, ends bool) {
	l, parts := r.limiter, r.charges()
	if len(parts) == 0 {
		return
	}
	l.time.Renew()
	var now instant
	var keys []waitline.Key // the keys that are charged more than was reserved
	for i := range parts {
		p := &parts[i]
		stays, holds := costs.Used(actual, p.rule.Unit, p.n), p.rule.holds()
		switch {
		case holds && ends:
			stays = 0
		case holds || !units:
			continue
		case stays > p.n:
			keys = append(keys, waitline.Key{Keys: p.rule.local, Hash: p.hash})
		}
		if stays < p.n && now == 0 { // units are given back; otherwise the time is not needed
			now = l.time.Now()
		}
		if back := p.rule.local.Settle(p.hash, p.receipt, stays, now); back > 0 {
			if !holds {
				p.rule.totals.Add(counters.GivenBack, uint64(back))
			}
			l.waiters.Freed(waitline.Key{Keys: p.rule.local, Hash: p.hash})
		}
	}
	if len(keys) == 0 {
		return
	}
	actual = slices.Clone(actual) // only this copy is allocated, and not the slice of each call
	l.waiters.Adjust(func(now instant) {
		for i := range parts {
			p := &parts[i]
			if more := costs.Used(actual, p.rule.Unit, p.n) - p.n; more > 0 && !p.rule.holds() {
				p.rule.local.Exceed(p.hash, engine.Wanted{Tier: p.tier, Rate: p.rate}, now, more)
			}
		}
	}, keys...)
}

// settleInStore does what settleHere does, for the charges in, which a reservation made in the store. sent is false if the store was not
// called. more is true if more units are charged than were reserved.
func (l *RateLimiter) settleInStore(in *storedCharges, actual []Cost, units, ends bool) (sent, more bool, err error) {
	asks, rules := in.present(l.set.Load(), func(was *activeRule, a *Ask) bool {
		if was.holds() {
			return ends
		}
		a.N = int(costs.Used(actual, was.Unit, int64(a.Charged)))
		more = more || a.N > a.Charged
		return actual != nil && units
	})
	if len(asks) == 0 {
		return false, false, nil
	}
	sent, err = l.remote.settle(in.ctx, asks)
	for i, rule := range rules {
		if err != nil {
			rule.totals.Add(counters.Errors, 1)
		} else if !rule.holds() {
			rule.totals.Add(counters.GivenBack, uint64(max(asks[i].Charged-asks[i].N, 0)))
		}
	}
	if err == nil {
		l.retries.Wake()
	}
	return sent, more, err
}

// present returns the charges for which the function want returns true, and their rules as they are now. It leaves out
// charges of rules that were removed or whose keys are new. want may change its copy of an Ask, whose N is 0.
func (in *storedCharges) present(set *ruleSet, want func(was *activeRule, a *Ask) bool) (asks []Ask, rules []*activeRule) {
	for i, a := range in.asks {
		was := in.rules[i]
		if rule := set.named(was.Name); rule != nil && rule.remote != nil && rule.keepsKeys(&was.Rule) && want(was, &a) {
			asks, rules = append(asks, a), append(rules, rule)
		}
	}
	return asks, rules
}
