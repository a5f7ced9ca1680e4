package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// termRange is the text in errors for a term that validTerm refuses.
const termRange = "must be from a microsecond to 24 hours"

// validTerm reports whether the units of a reservation can be given back, or be in flight, for this time.
func validTerm(d time.Duration) bool { return d >= time.Microsecond && d <= 24*time.Hour }

// A Reservation holds what [RateLimiter.Reserve] has charged for a request whose cost is known only afterwards.
// [Reservation.Settle] replaces the reserved units by those that were used.
//
// After that, each key is as if the used units had been charged when the reservation was made, with all other requests
// unchanged. So units that the key has regained meanwhile are not given back a second time. If more units were used
// than reserved, the excess is charged when the Reservation is settled, even past the limit: the key then has 0
// Remaining, and RetryAfter includes the excess.
//
// If a Reservation is never settled, its units stay charged like the units of any granted request. What it has in
// flight, by rules with [AlgorithmInFlight], ends when it is done, settled or canceled.
//
// A Reservation is safe for concurrent use by multiple goroutines. A nil or zero Reservation was denied.
type Reservation struct {
	limiter *RateLimiter
	result  Result
	n       int64     // reserved requests, if the field costs is nil
	costs   []Cost    // what the request costs in each of its units; nil if it has no Costs
	each    *[]Result // the Result of each rule in ModeEnforce; nil if one rule applies, with its Result in the field result

	mu      sync.Mutex     // held while a method changes the fields below
	settled bool           // whether the units are settled
	done    bool           // whether, besides, nothing is in flight any more
	parts   []localCharge  // charges in this process
	one     [1]localCharge // backing array of the slice parts, so that a single charge needs no allocation
	inStore *storedCharges // charges in the store; nil if there are none
}

// storedCharges are the charges of a reservation in the store.
type storedCharges struct {
	asks  []Ask
	rules []*activeRule
	ctx   context.Context // the context of Reserve, without its cancellation

	failed bool   // whether a call of SettleCosts has failed and may be repeated
	tried  []Cost // the used units that were passed to that call
}

// A localCharge describes what one rule has charged for a reservation in this process, not in a store.
type localCharge struct {
	rule    *activeRule // the rule whose keys were charged; it may have been replaced since
	hash    keytable.Hash
	receipt engine.Receipt
	n       int64 // how many units were charged
	tier    string
	rate    *engine.Rate // the rate that Rule.Resolve returned, or nil
}

// Reserve takes req.Cost units for req, as [RateLimiter.Check] does, and returns a Reservation of them.
// [Reservation.Result] says whether they were granted; if not, nothing was taken. When the work is done, call
// [Reservation.Settle] with the number of units that it has used, or [Reservation.Cancel], which may be deferred.
//
// Units can be given back within term, from a microsecond to 24 hours, by the clock of the limiter or of its [Store].
// After that, all reserved units stay charged. A key can have at most 1,024 open reservations, and a rule as many as
// [WithMaxKeys] says; beyond that, the units of the oldest ones stay charged.
//
// If there is no answer, the Reservation is nil. The error then matches [ErrInvalidCount], [ErrUnknownRule] or
// [ErrInvalidConfig] (if term is out of range, a rule has a custom [Limiter], or the Store cannot give units back),
// and nothing was taken. Or it is the error of ctx: if ctx ended while the Store was called, the text says that the
// units may be charged. If the error is [ErrStore], or [ErrInvalidConfig] because of [Rule.Resolve], the Reservation
// has an answer, as with Check. If a [FailurePolicy] has charged units in this process, Settle gives them back there.
func (l *RateLimiter) Reserve(ctx context.Context, req Request, term time.Duration) (*Reservation, error) {
	if err := l.reserves(term); err != nil {
		return nil, err
	}
	r := l.newReservation(&req)
	g := l.plainGroup(ctx, &req)
	if g != nil && g.only != nil && g.only.Unit == "" && r.costs == nil && req.ID == "" && l.remote == nil && l.settings.observer == nil &&
		r.takeOne(g.only, &req, term) {
		return r, nil
	}
	d := newDecision(&req, engine.ModeTake)
	defer d.free()
	d.term, d.order.Revocable = term, true
	res, err := l.run(ctx, d)
	switch {
	case err == nil || res != (Result{}):
		r.take(ctx, d, res)
		return r, err
	case d.receipt != 0: // the store was called, and ctx ended during the call
		return nil, fmt.Errorf("ratelimit: the units may be charged: %w", err)
	}
	return nil, err
}

// takeOne takes the units from rule, the only rule for req. It returns false if callers wait for the key.
func (r *Reservation) takeOne(rule *activeRule, req *Request, term time.Duration) (done bool) {
	hash := rule.key.hash(req)
	v, delay, receipt, queued := rule.local.Hold(hash, req.Tier, r.n, term)
	if queued {
		return false
	}
	r.result.Delay, r.result.Rule = delay, rule.resultName
	fill(&r.result, &v)
	if v.Granted() {
		r.one[0] = localCharge{rule: rule, hash: hash, receipt: receipt, n: r.n, tier: req.Tier}
		r.parts = r.one[:]
	} else if rule.holds() {
		r.result.Reason = ReasonBusy
	}
	return true
}

// addAll adds the charges of the decision d, which has been made, to the reservation r.
func (r *Reservation) addAll(ctx context.Context, d *decision) {
	r.parts = r.one[:0]
	for i, rule := range d.rules {
		p, o := &d.parts[i], &d.origins[i]
		switch {
		case !d.Passes || d.Replayed || !p.Granted(): // a replay (the answer of an earlier grant) has charged nothing
		case o.by == byStore:
			ask := rule.ask(&d.request, o.rate)
			ask.Receipt, ask.Charged, ask.Shadow = d.receipt, int(p.N), false
			if r.inStore == nil {
				r.inStore = &storedCharges{ctx: context.WithoutCancel(orBackground(ctx))} // Settle may be called after the request has ended
			}
			in := r.inStore
			in.asks, in.rules = append(in.asks, ask), append(in.rules, rule)
			if rule.holds() && rule.local != nil { // FailLocal counts what this process has in flight, whoever granted it
				receipt := rule.local.Exceed(p.Hash, p.Want, d.Now, p.N)
				r.parts = append(r.parts, localCharge{rule: rule, hash: p.Hash, receipt: receipt, n: p.N})
			}
		case p.Keys != nil:
			r.add(rule, p, d.Now, d.term)
		}
	}
}

// add adds a charge in this process to the reservation r. The rule made the charge at the time now; p describes it.
func (r *Reservation) add(rule *activeRule, p *engine.Part, now instant, term time.Duration) {
	part := localCharge{rule: rule, hash: p.Hash, receipt: p.Receipt, n: p.N, tier: p.Want.Tier}
	if p.Want.Rate != nil {
		rate := *p.Want.Rate // a copy, because later decisions use p again
		part.rate = &rate
	}
	p.Keys.SetTerm(p.Receipt, now.Add(term), now)
	r.parts = append(r.parts, part)
}

// Result returns the answer to the request for which [RateLimiter.Reserve] was called, as [RateLimiter.Check] would.
func (r *Reservation) Result() Result {
	if r == nil {
		return Result{}
	}
	return r.result
}

// Results returns the Result of each rule in [ModeEnforce], as [RateLimiter.CheckAll] does.
func (r *Reservation) Results() []Result {
	switch {
	case r == nil || r.limiter == nil:
		return nil
	case r.each == nil:
		return []Result{r.result}
	}
	return slices.Clone(*r.each)
}

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
	switch {
	case len(r.costs) == 1:
		unit = r.costs[0].Unit
	case len(r.costs) > 1:
		return fmt.Errorf("%w: the request has %d units; call SettleCosts", ErrInvalidCount, len(r.costs))
	}
	return r.settle([]Cost{{unit, actual}}, false, true)
}

// SettleCosts replaces, for each unit in actual, the reserved units by those that were used, as Settle does. What was
// reserved of other units stays charged, and what is in flight goes on. SettleCosts acts only once, and all numbers are
// changed together.
//
// If actual has a unit twice, or one that the request does not have, or a number that Settle refuses, the error matches
// [ErrInvalidCount], and the reservation stays open. The other errors are those of Settle.
func (r *Reservation) SettleCosts(actual ...Cost) error {
	for i, c := range actual {
		if slices.ContainsFunc(actual[:i], func(other Cost) bool { return other.Unit == c.Unit }) {
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
	if r.costs != nil {
		none = slices.Clone(r.costs)
		for i := range none {
			none[i].N = 0
		}
	}
	if err := r.settle(none, true, true); !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// reserved returns a copy of the costs of req, with the unit "" if req costs requests too. Without Costs, it returns nil.
func (req *Request) reserved() (costs []Cost) {
	if len(req.Costs) == 0 {
		return nil
	}
	if n, asked := req.cost(""); asked {
		costs = append(costs, Cost{"", int(n)})
	}
	for _, c := range req.Costs {
		if c.Unit != "" {
			costs = append(costs, c)
		}
	}
	return costs
}

// settle does the work of SettleCosts. The units in actual are all different. If an earlier call has failed and the
// parameter again is set, settle uses the numbers of that call. If ends is set, settle also ends what is in flight.
func (r *Reservation) settle(actual []Cost, again, ends bool) error {
	for _, c := range actual {
		if err := checkCount(c.N); err != nil {
			return err
		}
		has := func(own Cost) bool { return own.Unit == c.Unit }
		if r != nil && (r.costs == nil && c.Unit != "" || r.costs != nil && !slices.ContainsFunc(r.costs, has)) {
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
	if in := r.inStore; in != nil && again && in.failed {
		actual = in.tried
	}
	units := !r.settled            // otherwise only what is in flight is left
	r.settled, r.done = true, ends // before the calls below, in case the store panics
	if r.limiter != nil {
		r.settleHere(actual, units, ends)
	}
	if r.inStore != nil {
		sent, more, err := r.settleInStore(actual, units, ends)
		if err != nil && (!sent || !more) {
			r.settled, r.done = !units, false
			r.inStore.failed, r.inStore.tried = true, slices.Clone(actual)
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

// used returns how many of n charged units were used, according to actual. Without a number for their unit, all were.
func used(actual []Cost, unit string, n int64) int64 {
	for _, c := range actual {
		if c.Unit == unit {
			return int64(c.N)
		}
	}
	return n
}

// settleHere settles the charges that r made in this process: the units, if units is set, and what is in flight, if ends
// is set.
func (r *Reservation) settleHere(actual []Cost, units, ends bool) {
	l := r.limiter
	if len(r.parts) == 0 {
		return
	}
	l.time.Renew()
	var now instant
	var keys []waitline.Key // the keys that are charged more than was reserved
	for i := range r.parts {
		p := &r.parts[i]
		stays, holds := used(actual, p.rule.Unit, p.n), p.rule.holds()
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
				p.rule.totals.add(numGivenBack, uint64(back))
			}
			l.waiters.Freed(waitline.Key{Keys: p.rule.local, Hash: p.hash})
		}
	}
	if len(keys) == 0 {
		return
	}
	actual = slices.Clone(actual) // only this copy is allocated, and not the slice of each call
	l.waiters.Adjust(func(now instant) {
		for i := range r.parts {
			p := &r.parts[i]
			if more := used(actual, p.rule.Unit, p.n) - p.n; more > 0 && !p.rule.holds() {
				p.rule.local.Exceed(p.hash, engine.Wanted{Tier: p.tier, Rate: p.rate}, now, more)
			}
		}
	}, keys...)
}

// settleInStore does what settleHere does, for the charges that r made in the store. sent is false if the store was not
// called. more is true if more units are charged than were reserved.
func (r *Reservation) settleInStore(actual []Cost, units, ends bool) (sent, more bool, err error) {
	l := r.limiter
	asks, rules := r.inStore.present(l.set.Load(), func(was *activeRule, a *Ask) bool {
		if was.holds() {
			return ends
		}
		a.N = int(used(actual, was.Unit, int64(a.Charged)))
		more = more || a.N > a.Charged
		return actual != nil && units
	})
	if len(asks) == 0 {
		return false, false, nil
	}
	sent, err = l.remote.settle(r.inStore.ctx, asks)
	for i, rule := range rules {
		if err != nil {
			rule.totals.add(numErrors, 1)
		} else if !rule.holds() {
			rule.totals.add(numGivenBack, uint64(max(asks[i].Charged-asks[i].N, 0)))
		}
	}
	if err == nil {
		l.retries.Wake()
	}
	return sent, more, err
}

// present returns the charges for which the function want returns true, with their present rules. It leaves out those
// of rules that were removed or whose keys are new. want may change its copy of an Ask, whose N is 0.
func (in *storedCharges) present(set *ruleSet, want func(was *activeRule, a *Ask) bool) (asks []Ask, rules []*activeRule) {
	for i, a := range in.asks {
		was := in.rules[i]
		if rule := set.named(was.Name); rule != nil && rule.remote != nil && rule.keepsKeys(&was.Rule) && want(was, &a) {
			asks, rules = append(asks, a), append(rules, rule)
		}
	}
	return asks, rules
}
