package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// The shortest and the longest term of a reservation.
const (
	minTerm = time.Microsecond
	maxTerm = 24 * time.Hour
)

// A Reservation is what [RateLimiter.Reserve] has charged for a request whose cost is known only
// afterwards. [Reservation.Settle] replaces the reserved units by those that were used.
//
// Whatever happens in between, each key is then as if the units that were used had been charged
// when the reservation was made, and all other requests as they were. So nothing is given back of
// units that the key would have got back by itself meanwhile. Units beyond the reserved ones are
// charged when they are settled, also past the limit: the key then has 0 Remaining, and RetryAfter
// counts them.
//
// A Reservation that is never settled, because the program has crashed, needs no care: its units
// stay charged, and drain or leave their window as any others.
//
// A Reservation is safe for concurrent use by multiple goroutines. A nil or zero Reservation is
// one that was denied.
type Reservation struct {
	limiter *RateLimiter
	result  Result
	n       int64 // units that are reserved
	state   atomic.Uint32

	parts []reserved // charges in this process
	one   [1]reserved

	inStore *storedCharges // nil if there are none
}

// storedCharges are the charges of a reservation in the store.
type storedCharges struct {
	asks  []Ask
	rules []*activeRule
	ctx   context.Context // of Reserve

	failed bool // whether Settle has failed with tried units; both are guarded by Reservation.state
	tried  int
}

// The values of Reservation.state.
const (
	unsettled uint32 = iota
	settling
	settled
)

// A reserved is the charge of a reservation by one rule in this process.
type reserved struct {
	rule    *activeRule // whose local keys were charged, though no rule may have these any more
	hash    keytable.Hash
	receipt engine.Receipt
	tier    string
	rate    *engine.Rate // that Resolve has returned, or nil
}

// Reserve takes req.Cost units for req, as [RateLimiter.Check] does, and returns a Reservation of
// them. Its [Reservation.Result] says whether they were granted; if not, nothing was taken. When
// the work is done, call [Reservation.Settle] with the units that it has used, or
// [Reservation.Cancel], which may also be deferred.
//
// Units can be given back within term, from a microsecond to 24 hours, by the limiter's clock or
// that of its [Store]. After that, all units that were reserved stay charged. At most 1,024
// reservations of a key and [WithMaxKeys] of a rule are open; if there are more, the oldest ones
// keep their units.
//
// An error without an answer comes with a nil Reservation. It matches [ErrInvalidConfig] for
// another term, a rule with a custom [Limiter], or a Store that cannot give units back,
// [ErrInvalidCount] or [ErrUnknownRule]; nothing was taken then. Or it is the error of ctx: if
// that has ended while the Store was called, the text says that the units may be charged. With
// [ErrStore], and with [ErrInvalidConfig] because of [Rule.Resolve], there is a Reservation with
// an answer, as Check says; what a [FailurePolicy] has granted, Settle gives back to it.
func (l *RateLimiter) Reserve(ctx context.Context, req Request, term time.Duration) (*Reservation, error) {
	r, _, err := l.reserve(ctx, &req, term, nil, false)
	return r, err
}

// ReserveAll reserves as [RateLimiter.Reserve] does. It also appends to each the Result of each
// rule that enforces, and returns the extended slice, as [RateLimiter.CheckAll] does.
func (l *RateLimiter) ReserveAll(ctx context.Context, req Request, term time.Duration, each []Result) (*Reservation, []Result, error) {
	return l.reserve(ctx, &req, term, each, true)
}

// reserve is ReserveAll, or Reserve if all is not set.
func (l *RateLimiter) reserve(ctx context.Context, req *Request, term time.Duration, each []Result, all bool) (*Reservation, []Result, error) {
	if term < minTerm || term > maxTerm {
		return nil, each, &ConfigError{"term", term, "must be from a microsecond to 24 hours"}
	}
	if err := l.settles(); err != nil {
		return nil, each, err
	}
	if set := l.set.Load(); set != nil && len(req.Rules)|len(req.ID) == 0 && req.Cost >= 0 && (ctx == nil || ctx.Err() == nil) {
		if group := set.match(req.Endpoint); !all || group.only != nil {
			if r := l.reservePlain(group, req, term); r != nil {
				if all {
					each = append(each, r.result) // the rule's own, as there is no other
				}
				return r, each, nil
			}
		}
	}
	d := newDecision(req, true)
	defer d.free()
	d.term, d.order.Revocable = term, true
	res, err := l.run(ctx, d)
	switch {
	case err == nil || res != (Result{}):
		r := l.reservation(ctx, d, res)
		if all {
			each = d.appendEach(ctx, each)
		}
		return r, each, err
	case d.receipt != 0: // the store was called, and ctx has ended
		return nil, each, fmt.Errorf("ratelimit: the units may be charged: %w", err)
	}
	return nil, each, err
}

// like returns an Ask with the Receipt and the Term that asks to charge for d have. It is zero if
// the charges are final.
func (d *decision) like() Ask {
	if d.custom >= 0 {
		return revocable
	}
	if d.term > 0 {
		return Ask{Receipt: 1, Term: d.term}
	}
	return Ask{}
}

// reservation returns the Reservation of what d, which is decided, has charged. res is its answer.
func (l *RateLimiter) reservation(ctx context.Context, d *decision, res Result) *Reservation {
	r := &Reservation{limiter: l, result: res, n: d.order.N}
	r.parts = r.one[:0]
	var in *storedCharges
	for i, rule := range d.rules {
		p, o := &d.parts[i], &d.origins[i]
		switch {
		case !d.Passes || d.Replayed || !p.Granted(): // a replay has charged nothing
		case o.by == byStore:
			ask := rule.ask(&d.request, o.rate)
			ask.Receipt, ask.Was, ask.Shadow = d.receipt, int(d.order.N), false
			if in == nil {
				in = new(storedCharges)
			}
			in.asks, in.rules = append(in.asks, ask), append(in.rules, rule)
		case p.Keys != nil:
			r.keep(rule, p, d.Now, d.term)
		}
	}
	if in != nil {
		if ctx == nil {
			ctx = context.Background()
		}
		in.ctx = context.WithoutCancel(ctx) // settled also when the caller's request is over
		r.inStore = in
	}
	return r
}

// keep notes the charge of p, by a rule in this process, that was made at now.
func (r *Reservation) keep(rule *activeRule, p *engine.Part, now instant, term time.Duration) {
	part := reserved{rule: rule, hash: p.Hash, receipt: p.Receipt, tier: p.Want.Tier}
	if p.Want.Rate != nil {
		rate := *p.Want.Rate // p is used again
		part.rate = &rate
	}
	p.Keys.Keep(p.Receipt, now.Add(term), now)
	r.parts = append(r.parts, part)
}

// Result returns the answer to the request, as [RateLimiter.Check] would have given it.
func (r *Reservation) Result() Result {
	if r == nil {
		return Result{}
	}
	return r.result
}

// Settle replaces the reserved units by actual, the units that were used. It needs no context: it
// also works when that of the request has ended. Those who wait for units that come back are
// served.
//
// Settle acts once, also if several goroutines call it. All other calls return [ErrSettled]. If
// actual is negative or above 2^31-1, the error matches [ErrInvalidCount], and the reservation
// stays open. If the [Store] cannot be reached, the error matches [ErrStore]; the reservation then
// stays open, to be settled again with the same number, unless actual is more than was reserved:
// that is sent only once, so that no unit is charged twice.
//
// A reservation that was denied, or that a [FailurePolicy] has granted without charging anything,
// has nothing to settle. Nor has it in rules that have been removed since, or that have another
// Algorithm or Key. After a Reset, and after its term, nothing is given back; what was used beyond
// the reserved units is charged.
func (r *Reservation) Settle(actual int) error { return r.settle(actual, false) }

// settle is Settle, or Cancel if that is set.
func (r *Reservation) settle(actual int, cancel bool) error {
	switch {
	case actual < 0 || int64(actual) > math.MaxInt32:
		return fmt.Errorf("%w, nor above 2147483647", ErrInvalidCount)
	case r == nil || !r.state.CompareAndSwap(unsettled, settling):
		return ErrSettled
	}
	next := settled
	defer func() { r.state.Store(next) }()
	if r.limiter == nil {
		return nil
	}
	in := r.inStore
	if in == nil {
		r.settleHere(int64(actual))
		return nil
	}
	if cancel && in.failed {
		actual = in.tried
	}
	r.settleHere(int64(actual))
	sent, err := r.settleInStore(actual)
	if err != nil && (!sent || int64(actual) <= r.n) {
		next, in.failed, in.tried = unsettled, true, actual
	}
	return err
}

// Cancel gives all reserved units back, as Settle(0) does. If the reservation was settled already,
// it returns nil. So it may be deferred, for what ends before it is settled. After a Settle that has
// failed, Cancel repeats that, as the units were used.
func (r *Reservation) Cancel() error {
	if err := r.settle(0, true); !errors.Is(err, ErrSettled) {
		return err
	}
	return nil
}

// settleHere settles what was charged in this process.
func (r *Reservation) settleHere(actual int64) {
	l := r.limiter
	if len(r.parts) == 0 {
		return
	}
	l.time.Renew()
	now := l.time.Now()
	for i := range r.parts {
		p := &r.parts[i]
		if back := p.rule.local.Settle(p.hash, p.receipt, actual, now); back > 0 {
			p.rule.totals.givenBack.Add(uint64(back))
			l.waiters.FreedKey(p.rule.local, p.hash)
		}
	}
	if actual > r.n {
		l.waiters.Change(func(now instant) { r.exceed(now, actual-r.n) }, r.touches)
	}
}

// exceed charges n units more to what was charged in this process.
func (r *Reservation) exceed(now instant, n int64) {
	for i := range r.parts {
		p := &r.parts[i]
		p.rule.local.Exceed(p.hash, engine.Wanted{Tier: p.tier, Rate: p.rate}, now, n)
	}
}

// touches reports whether w waits for a key that r was charged to.
func (r *Reservation) touches(w *waitline.Waiter) bool {
	for i := range r.parts {
		if p := &r.parts[i]; w.Touches(p.rule.local, p.hash) {
			return true
		}
	}
	return false
}

// settleInStore settles what was charged in the store. sent is false if the store was not called.
func (r *Reservation) settleInStore(actual int) (sent bool, err error) {
	l, in := r.limiter, r.inStore
	var asks []Ask
	var rules []*activeRule
	for i, a := range in.asks {
		was := in.rules[i]
		if rule := l.set.Load().named(was.Name); rule != nil && rule.remote != nil && rule.Algorithm == was.Algorithm && rule.Key == was.Key {
			a.N = actual
			asks, rules = append(asks, a), append(rules, rule)
		}
	}
	if len(asks) == 0 {
		return false, nil
	}
	pass, err := l.breakers.Admit(l.partsOf(asks), l.time.Now())
	if sent = err == nil; sent {
		err = l.guarded(in.ctx, pass, func() error { return l.settings.store.(settler).Settle(in.ctx, asks) })
	}
	for _, rule := range rules {
		if err != nil {
			rule.totals.errors.Add(1)
		} else {
			rule.totals.givenBack.Add(uint64(max(r.n-int64(actual), 0)))
		}
	}
	if err != nil {
		return sent, storeError(err)
	}
	l.asking.Wake()
	return sent, nil
}
