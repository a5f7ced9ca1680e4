package ratelimit

import (
	"context"
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
// negative or above 2^50, or if the request has several units (then call [Reservation.SettleCosts]), the error matches
// [ErrInvalidCount], and the reservation stays open. If the [Store] cannot be reached, the error matches [ErrStore], and
// the reservation stays open: call Settle again with the same number. But if actual is more than was reserved and the
// call of the Store has failed, the reservation counts as settled: a second call could charge the units twice.
//
// Settle changes nothing for a reservation that was denied or that a [FailurePolicy] has granted without a charge, nor
// in a rule that has been removed or whose Algorithm, Key or Unit has changed. After a Reset, and after the term, no
// units are given back, but units beyond the reserved number are charged.
func (r *Reservation) Settle(actual int) error {
	unit := ""
	switch all := r.costs(); {
	case len(all) == 1:
		unit = all[0].Unit
	case len(all) > 1:
		return fmt.Errorf("%w: the request has %d units; call SettleCosts", ErrInvalidCount, len(all))
	}
	return r.settle([]Cost{{unit, actual}}, false, true)
}

// SettleCosts replaces the reserved units by those that were used, as Settle does, for each unit that is passed to it. The reserved
// numbers of other units stay charged, and what is in flight goes on. SettleCosts acts only once, on all units together.
//
// If a unit is passed twice, if the request does not have a passed unit, or if Settle would refuse a number, the error
// matches [ErrInvalidCount], and the reservation stays open. The other errors are those of Settle.
func (r *Reservation) SettleCosts(actual ...Cost) error {
	for i, c := range actual {
		if costs.Index(actual[:i], c.Unit) >= 0 {
			return fmt.Errorf("%w: the unit %q is given twice", ErrInvalidCount, c.Unit)
		}
	}
	return r.settle(actual, false, false)
}

// Done ends the reservation and what it has in flight: all units that were not settled stay charged, even if the term is
// not over. If there is nothing left to do, Done does nothing and returns nil, so it may be deferred. After a Settle
// that has failed, Done repeats that Settle with the same numbers. A later Settle returns [ErrSettled].
func (r *Reservation) Done() error {
	return r.end(nil)
}

// Cancel gives all reserved units back, as Settle(0) does. If the reservation is settled already, Cancel does nothing
// and returns nil, so a deferred Cancel gives the units back only if the work fails. After a Settle that has failed,
// Cancel calls Settle again with the same number, because those units were used.
func (r *Reservation) Cancel() error {
	none := []Cost{{}}
	if all := r.costs(); all != nil {
		none = slices.Clone(all)
		for i := range none {
			none[i].N = 0
		}
	}
	return r.end(none)
}

// end settles the units in actual and ends what is in flight. If there is nothing left to do, it returns nil.
func (r *Reservation) end(actual []Cost) error {
	if err := r.settle(actual, true, true); !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// Extend keeps what the Reservation has in flight for [Rate.Per] from now, for work that takes longer. If that time is
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
	var asks []Ask
	charges, stored := r.charges()
	for i := range charges {
		c := &charges[i]
		if !c.rule.holds() {
			continue
		}
		if c.receipt != 0 {
			c.receipt = c.rule.local.Extend(c.hash, c.receipt, l.time.Now(), c.rule.Rate.Per)
		}
		switch {
		case stored == nil && c.receipt == 0:
			return ErrSettled
		case stored != nil && c.present(l.set.Load()) != nil:
			asks = append(asks, stored[i])
			asks[len(asks)-1].N = stored[i].Charged
		}
	}
	if len(asks) == 0 {
		return nil
	}
	_, err := l.remote.Settle(r.breakdown.ctx, asks)
	return err
}

// settle does the work of SettleCosts. The units in actual are all different. If an earlier call has failed and the
// parameter again is set, settle uses the numbers of that call. If ends is true, settle also ends what is in flight.
func (r *Reservation) settle(actual []Cost, again, ends bool) error {
	for _, c := range actual {
		if err := checkCount(c.N); err != nil {
			return err
		}
		if all := r.costs(); r != nil && (all == nil && c.Unit != "" || all != nil && costs.Index(all, c.Unit) < 0) {
			return fmt.Errorf("%w: the request does not have the unit %q", ErrInvalidCount, c.Unit)
		}
	}
	if r == nil {
		return ErrSettled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.breakdown
	if r.done || r.settled && !ends {
		return ErrSettled
	}
	if b != nil && again && b.failed {
		actual = b.tried
	}
	units := !r.settled            // if false, only what is in flight must still be ended
	r.settled, r.done = true, ends // set first: if the store panics, a second call must not settle again
	if charges, stored := r.charges(); len(charges) > 0 {
		asks, rules, more := r.limiter.settleHere(charges, stored, actual, units, ends)
		if len(asks) > 0 {
			sent, err := r.limiter.remote.settleAll(b.ctx, asks, rules)
			if err != nil && (!sent || !more) {
				r.settled, r.done = !units, false
				b.failed, b.tried = true, slices.Clone(actual)
			}
			if err != nil {
				return err
			}
			r.limiter.retries.Wake()
		}
	}
	if !units {
		return ErrSettled
	}
	return nil
}

// settleHere settles what was charged in this process: the units if the parameter units is true, and what is in flight if
// the parameter ends is true. It returns the asks that settle the charges in the store and, for each ask, the rule that has the charged
// key now. more is true if one of the asks charges more units than were reserved.
func (l *RateLimiter) settleHere(
	charges []charge, stored []Ask, actual []Cost, units, ends bool,
) (asks []Ask, rules []*activeRule, more bool) {
	l.time.Renew()
	var now instant
	var keys []waitline.Key // the keys in this process that are charged more than was reserved
	for i := range charges {
		c := &charges[i]
		stays, holds := costs.Used(actual, c.rule.Unit, c.n), c.rule.holds()
		switch {
		case holds && ends:
			stays = 0
		case holds || !units:
			continue
		}
		if stored != nil {
			if rule := c.present(l.set.Load()); rule != nil && (holds || actual != nil) {
				asks, rules, more = append(asks, stored[i]), append(rules, rule), more || stays > c.n
				asks[len(asks)-1].N = int(stays)
			}
			if c.receipt == 0 {
				continue
			}
		}
		if stays > c.n {
			keys = append(keys, waitline.Key{Keys: c.rule.local, Hash: c.hash})
		}
		if stays < c.n && now == 0 { // units are given back; otherwise the time is not needed
			now = l.time.Now()
		}
		if back := c.rule.local.Settle(c.hash, c.receipt, stays, now); back > 0 {
			if !holds {
				c.rule.totals.Add(counters.GivenBack, uint64(back))
			}
			l.waiters.Freed(waitline.Key{Keys: c.rule.local, Hash: c.hash})
		}
	}
	if len(keys) > 0 {
		actual = slices.Clone(actual) // so that only this copy is allocated on the heap, not the slice of every call
		l.waiters.Adjust(func(now instant) {
			for i := range charges {
				c := &charges[i]
				if over := costs.Used(actual, c.rule.Unit, c.n) - c.n; over > 0 && !c.rule.holds() {
					c.rule.local.Exceed(c.hash, engine.Wanted{Tier: c.tier, Rate: c.rate}, now, over)
				}
			}
		}, keys...)
	}
	return asks, rules, more
}

// settleAll makes the store settle charges of these rules. sent is false if the store was not called.
func (c *storeCaller) settleAll(ctx context.Context, asks []Ask, rules []*activeRule) (sent bool, err error) {
	sent, err = c.Settle(ctx, asks)
	for i, rule := range rules {
		if err != nil {
			rule.totals.Add(counters.Errors, 1)
		} else if !rule.holds() {
			rule.totals.Add(counters.GivenBack, uint64(max(asks[i].Charged-asks[i].N, 0)))
		}
	}
	return sent, err
}

// present returns the rule that now has the name of the rule that has charged c. It returns nil if there is none, if that rule
// uses no store, or if it has not taken over the keys that were charged.
func (c *charge) present(set *ruleSet) *activeRule {
	if rule := set.Named(c.rule.Name); rule != nil && rule.remote != nil && rule.keepsKeys(&c.rule.Rule) {
		return rule
	}
	return nil
}
