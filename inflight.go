package ratelimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// AlgorithmInFlight is the [Algorithm] of a rule that limits how many requests run at the same time: [Rate.Requests] of
// them, each for at most [Rate.Per], which is at most 24 hours. A request holds its units from the grant until its
// [Reservation] is done, settled or canceled, or for Per if that never happens, as after a crash.
//
// Bound: a key never holds more than Requests units, if no work lasts longer than Per. A key has at most 65,536 holds.
//
// Only [RateLimiter.Reserve] and [RateLimiter.ReserveWait] ask such a rule, because nobody could end what another call
// holds; [RuleStats.Unheld] counts the other requests. RetryAfter is a bound: the time until enough holds are over if
// nobody ends one before. All rates of the rule have the same Per. There is no limiter with this algorithm.
const AlgorithmInFlight Algorithm = "InFlight"

// A Reason says why a request was denied, beyond that its limit is reached.
type Reason = string

// ReasonBusy is the Reason of a denial by a rule with [AlgorithmInFlight]: other requests are running. RetryAfter is
// then only a bound. If another rule denies the request too, the Result is that of the other rule.
const ReasonBusy Reason = "busy"

// inFlight is the row of AlgorithmInFlight, as in algorithmList.
var inFlight = algorithm{
	name: AlgorithmInFlight, windowed: true,
	validate: Rate.inFlight,
	keys: func(t *engine.Timeline, r engine.Rates, maxKeys int) (engine.Keys, error) {
		return engine.NewInFlight(t, r, maxKeys, func(r engine.Rate) error { return Rate(r).inFlight() }, &refusals)
	},
	limiter: func(Rate, ...Option) (Limiter, error) {
		return nil, &ConfigError{"algorithm", `"InFlight"`, "must be that of a limiter: InFlight is for rules, see Reserve"}
	},
	maxGranted: func(Rate, uint64) uint64 { return 0 },
}

// inFlight returns everything that is wrong with r as the rate of a rule with AlgorithmInFlight, joined, or nil.
func (r Rate) inFlight() error {
	err := r.withoutBurst("rule with " + string(AlgorithmInFlight))
	if r.Per > 0 && !validTerm(r.Per) {
		err = errors.Join(err, &ConfigError{"per", r.Per, termRange})
	}
	return err
}

// holds reports whether the rule r limits how many requests run at the same time.
func (r *Rule) holds() bool { return r.Algorithm == AlgorithmInFlight }

// reason returns the Reason in the Result of the rule r, whose answer is p.
func (r *Rule) reason(p *engine.Part, by answerer) Reason {
	if r.holds() && !p.Granted() && by != byPolicy {
		return ReasonBusy
	}
	return ""
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
	for i := range r.parts {
		if p := &r.parts[i]; p.rule.holds() {
			if p.receipt = p.rule.local.Extend(p.hash, p.receipt, l.time.Now(), p.rule.Rate.Per); p.receipt == 0 && r.inStore == nil {
				return ErrSettled
			}
		}
	}
	if r.inStore == nil {
		return nil
	}
	asks, _ := r.inStore.present(l.set.Load(), func(was *activeRule, a *Ask) bool {
		a.N = a.Charged
		return was.holds()
	})
	if len(asks) == 0 {
		return nil
	}
	_, err := l.remote.settle(r.inStore.ctx, asks)
	return err
}

// ReserveWait waits until every rule for req has its units left, as [RateLimiter.Wait] does, and then takes them as
// [RateLimiter.Reserve] does. Callers are served in the order in which they came; each [Reservation] that ends what it
// has in flight wakes the next one.
//
// If a rule with [AlgorithmInFlight] makes the request wait, nobody knows for how long: such a wait is never refused
// because of the deadline of ctx, but ends with ctx. If the request is refused, the Reservation is that denial, and the
// error is that of Wait; with any other error, the Reservation is nil. If ctx ends during the Delay of a leaky bucket,
// all units are given back.
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

// reserves returns an error if l cannot reserve units for this term.
func (l *RateLimiter) reserves(term time.Duration) error {
	if !validTerm(term) {
		return &ConfigError{"term", term, termRange}
	}
	return settles(l.settings.store)
}

func (l *RateLimiter) newReservation(req *Request) *Reservation {
	return &Reservation{limiter: l, n: int64(max(req.Cost, 1)), costs: req.reserved()}
}

// take makes r the reservation of the decision d, whose answer is res.
func (r *Reservation) take(ctx context.Context, d *decision, res Result) {
	r.result = res
	r.addAll(ctx, d)
	each := d.appendEach(ctx, nil)
	r.each = &each
}

// checkHolds checks the rule r, which has no Limiter of its own, for what AlgorithmInFlight cannot do.
func (c *ruleCheck) checkHolds(r *checkedRule) {
	if !r.holds() {
		return
	}
	c.holding = append(c.holding, r)
	if r.Warmup != (Warmup{}) {
		c.reject(r, "warmup", r.Warmup, "must be left out: a rule that counts what is running has none")
	}
	if _, settles := c.store.(StoreSettler); c.store != nil && !settles {
		c.reject(r, "algorithm", `"InFlight"`, "must be another: the store has no Settle and Accepts, to end what is running")
	}
	if i := slices.IndexFunc(c.custom, r.meets); i >= 0 {
		reason := "must be another: " + c.custom[i].path + ", which may apply to the same request, has a limiter of its own"
		c.reject(r, "algorithm", `"InFlight"`, reason)
	}
}
