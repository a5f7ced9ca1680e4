package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/costs"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Reservation holds what [RateLimiter.Reserve] has charged for a request whose cost is known only afterwards.
// [Reservation.Settle] replaces the reserved units by those that were used.
//
// After Settle, each key is as if the used units had been charged when the reservation was made, with all other requests unchanged. So
// units that the key has regained meanwhile are not given back a second time. If more units were used than reserved, the excess is
// charged when the Reservation is settled, even past the limit: the key then has 0 Remaining, and RetryAfter includes the excess.
//
// If a Reservation is never settled, its units stay charged like the units of any granted request. For rules with [AlgorithmInFlight],
// the request runs until its Reservation is done, settled or canceled, or until [Rate.Per] after the grant or the last Extend.
//
// A Reservation is safe for concurrent use by multiple goroutines. A nil or zero Reservation counts as denied.
type Reservation struct {
	limiter   *RateLimiter
	result    Result
	breakdown *breakdown // nil if a single rule applies, its state is in this process, and the request has no Costs

	mu      sync.Mutex // held while a method changes the fields below, or the charges in the breakdown
	settled bool       // whether the units are settled
	done    bool       // whether the units are settled and nothing is in flight any more
	one     [1]charge  // the only charge if breakdown is nil; otherwise memory for the first of breakdown.charges
}

// A breakdown lists what a reservation costs by unit, and its answers and charges by rule.
type breakdown struct {
	costs   []Cost   // what the request costs in each of its units; nil if it has no Costs
	each    []Result // the Result of each rule in ModeEnforce or ModeAdvise
	charges []charge
	asks    []Ask // for each charge, the ask that settles it in the store, with N still 0; nil if no charge is there

	ctx    context.Context // the context of Reserve, without its cancellation
	failed bool            // whether a call of SettleCosts has failed, and may be repeated
	tried  []Cost          // the used units that were passed to the failed call
}

// A charge describes what one rule has charged for a reservation. If the charge is in the store and the rule has
// AlgorithmInFlight, the charge can have a receipt in this process, too.
type charge struct {
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
// The parameter term says for how long units can be given back: from a microsecond to 24 hours, by the clock of the
// limiter or of its [Store]. After that, all reserved units stay charged. A key can have at most 1,024 open
// reservations, and a rule as many as [WithMaxKeys] says; beyond that, the units of the oldest ones stay charged.
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
	if g != nil && g.only != nil && g.only.Unit == "" && r.breakdown == nil && req.ID == "" && l.remote == nil && l.settings.observer == nil &&
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

// ReserveWait waits until every rule for req has enough units left, as [RateLimiter.Wait] does, and then takes them as
// [RateLimiter.Reserve] does. Callers are served in their order. A [Reservation] that ends wakes the next caller.
//
// If the request waits because of a rule with [AlgorithmInFlight], the length of the wait cannot be known. ReserveWait then does
// not refuse the request because of the deadline of ctx, but waits until ctx ends. If ctx ends during the Delay of a leaky
// bucket, all units are given back. If the request is refused, the Reservation is not nil: its Result is the denial, and the
// error is the error that Wait would return. With any other error, the Reservation is nil.
func (l *RateLimiter) ReserveWait(ctx context.Context, req Request, term time.Duration) (*Reservation, error) {
	if err := l.reserves(term); err != nil {
		return nil, err
	}
	r := l.newReservation(&req)
	res, err := l.wait(ctx, &req, r, term)
	switch {
	case r.result.Allowed && err != nil && res == (Result{}):
		return nil, errors.Join(err, r.Cancel())
	case err != nil && res == (Result{}):
		return nil, err
	}
	r.result = res
	return r, err
}

// reserves returns an error if term is out of range, or if the store of l cannot give units back.
func (l *RateLimiter) reserves(term time.Duration) error {
	if !ruleconfig.ValidTerm(term) {
		return &ConfigError{"term", term, ruleconfig.TermRange}
	}
	return settles(l.settings.store)
}

func (l *RateLimiter) newReservation(req *Request) *Reservation {
	r := &Reservation{limiter: l}
	if len(req.Costs) > 0 {
		r.breakdown = &breakdown{costs: costs.Complete(req.Costs, req.Cost)}
	}
	return r
}

// takeOne takes the units from rule, the only rule for req. It returns false if callers wait for the key.
func (r *Reservation) takeOne(rule *activeRule, req *Request, term time.Duration) (done bool) {
	hash, n := rule.key.hash(req), int64(max(req.Cost, 1))
	v, delay, receipt, queued := rule.local.Hold(hash, req.Tier, n, term)
	if queued {
		return false
	}
	r.result.Delay, r.result.Rule = delay, rule.resultName()
	fill(&r.result, &v)
	if v.Granted() {
		r.one[0] = charge{rule, hash, receipt, n, req.Tier, nil}
	} else if rule.holds() {
		r.result.Reason = ReasonBusy
	}
	return true
}

// take makes r the reservation of the decision d, whose answer is res.
func (r *Reservation) take(ctx context.Context, d *decision, res Result) {
	r.result = res
	if r.breakdown == nil {
		r.breakdown = new(breakdown)
	}
	r.breakdown.charges = r.one[:0]
	if r.addAll(d); r.breakdown.asks != nil {
		r.breakdown.ctx = context.WithoutCancel(orBackground(ctx)) // Settle may be called after the request has ended
	}
	r.breakdown.each = d.appendEach(ctx, nil)
}

// addAll adds the charges of the decision d, which has been made, to the reservation r.
func (r *Reservation) addAll(d *decision) {
	for i, rule := range d.rules {
		p, o := &d.parts[i], &d.origins[i]
		c := charge{rule: rule, hash: p.Hash, n: p.N}
		switch {
		case !d.Passes || d.Replayed || !p.Granted(): // a replay (the answer of an earlier grant) has charged nothing
			continue
		case o.by == byStore:
			r.breakdown.asks = append(r.breakdown.asks, chargedAsk(d, i))
			if rule.holds() && rule.local != nil { // FailLocal counts all that runs in this process, also if the store granted it
				c.receipt = rule.local.Exceed(p.Hash, p.Want, d.Now, p.N)
			}
		case p.Keys == nil:
			continue
		default:
			c.receipt, c.tier = p.Receipt, p.Want.Tier
			if p.Want.Rate != nil {
				rate := *p.Want.Rate // a copy, because later decisions use p again
				c.rate = &rate
			}
			p.Keys.SetTerm(p.Receipt, d.Now.Add(d.term), d.Now)
		}
		r.breakdown.charges = append(r.breakdown.charges, c)
	}
}

// Result returns the answer to the request for which [RateLimiter.Reserve] was called, as [RateLimiter.Check] would.
func (r *Reservation) Result() Result {
	if r == nil {
		return Result{}
	}
	return r.result
}

// Results returns the Result of each rule in [ModeEnforce] or [ModeAdvise], as [RateLimiter.CheckAll] does.
func (r *Reservation) Results() []Result {
	switch {
	case r == nil || r.limiter == nil:
		return nil
	case r.breakdown == nil:
		return []Result{r.result}
	}
	return slices.Clone(r.breakdown.each)
}

// costs returns what the request costs in each of its units, or nil if it has no Costs.
func (r *Reservation) costs() []Cost {
	if r == nil || r.breakdown == nil {
		return nil
	}
	return r.breakdown.costs
}

// charges returns the charges of r and, if they are in the store, the asks by which the store settles them.
func (r *Reservation) charges() (charges []charge, asks []Ask) {
	switch {
	case r.breakdown != nil:
		return r.breakdown.charges, r.breakdown.asks
	case r.one[0].rule == nil:
		return nil, nil
	}
	return r.one[:], nil
}
