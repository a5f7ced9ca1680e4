package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// A remoteRule is what this process keeps for a rule whose state is in a store.
type remoteRule struct {
	name   string // Ask.Rule
	policy FailurePolicy
	local  engine.Keys // the share of this process, for FailLocal; otherwise nil
}

// setStore makes st the store of l. If st is nil, l has none.
func (l *RateLimiter) setStore(st Store) {
	if st == nil {
		return
	}
	parts := 1
	if partitioned, ok := st.(interface{ Part(a Ask) int }); ok {
		l.partitioned, parts = partitioned, breaker.MaxParts
	}
	l.denier, _ = st.(denier)
	l.breakers = breaker.New(parts, storeError)
}

// newRemoteRule returns the remoteRule of r, with new keys if the policy is FailLocal.
func (l *RateLimiter) newRemoteRule(r *activeRule, policy FailurePolicy) (*remoteRule, error) {
	remote := &remoteRule{policy: policy}
	if remote.name = l.settings.name + ":" + r.Name; l.settings.solo {
		remote.name = r.Name
	}
	if remote.policy.kind != failLocally {
		return remote, nil
	}
	var err error
	remote.local, err = algorithms[r.Algorithm].keys(&l.time, policy.shares(r.rates()), l.settings.maxKeys)
	return remote, err
}

// ask returns the Ask for the store on req by the rule r at rate. Its N is 0.
func (r *activeRule) ask(req *Request, rate Rate) Ask {
	ask := Ask{Rule: r.remote.name, Key: r.key.text(req), Algorithm: r.Algorithm, Rate: rate, Shadow: !r.enforces(), Warmup: r.Warmup}
	if r.key.OfClient() {
		ask.Client = req.Client
	}
	return ask
}

// partOf returns the part of the store that has the state of r for req at rate, as a bit.
func (l *RateLimiter) partOf(r *activeRule, req *Request, rate Rate) uint64 {
	if l.partitioned == nil {
		return 1
	}
	return breaker.Bit(l.partitioned.Part(r.ask(req, rate)))
}

// partsOf returns the parts of the store that have the states of asks, as bits.
func (l *RateLimiter) partsOf(asks []Ask) (parts uint64) {
	if l.partitioned == nil {
		return 1
	}
	for i := range asks {
		parts |= breaker.Bit(l.partitioned.Part(asks[i]))
	}
	return parts
}

// decideInStore decides d by the store or, if the store does not answer, by the failure
// policy of each rule, and then by the custom limiter.
func (l *RateLimiter) decideInStore(ctx context.Context, d *decision) error {
	parts, leaky, like := uint64(0), false, d.like()
	for i, r := range d.stored() {
		l.resolve(r, &d.parts[i], &d.origins[i], like)
		parts |= l.partOf(r, &d.request, d.origins[i].rate)
		leaky = leaky || r.Algorithm == AlgorithmLeakyBucket
		if d.term > 0 {
			if err := l.reservable(r, d.origins[i].rate, like); err != nil {
				return err
			}
		}
	}
	d.Now, d.Passes = l.time.Now(), true
	if len(d.stored()) == 0 {
		return l.askCustom(ctx, d)
	}
	if d.rehearses() {
		return l.rehearseInStore(ctx, d, parts)
	}
	pass, err := l.breakers.Admit(parts|l.recordPart(d), d.Now)
	if err == nil && leaky && d.order.Take && d.order.Within < engine.AnyDelay {
		// Not every store can give units back, so a first call looks at the Delay.
		if err = l.callStore(ctx, d, pass, false); err == nil && d.Late && !l.recorded(ctx, d) {
			return nil
		}
		pass = pass.Probed()
	}
	if err == nil {
		err = l.callStore(ctx, d, pass, d.order.Take)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		l.fallBack(d, err)
	}
	if err = l.askCustom(ctx, d); err == nil && d.order.Take && d.decided() && !d.Replayed {
		d.countRemote()
	}
	return err
}

// stored returns the rules of d that the store decides by: all but that of a custom limiter.
func (d *decision) stored() []*activeRule {
	if d.custom >= 0 {
		return d.rules[:d.custom]
	}
	return d.rules
}

// resolve sets o.rate to the rate at which the store decides by r, whose part is p. If
// Resolve has returned an invalid rate, that is the rule's own rate, and p.Err says why. The ask
// will have the Receipt and the Term of like.
func (l *RateLimiter) resolve(r *activeRule, p *engine.Part, o *origin, like Ask) {
	o.rate = r.Rate
	want := p.Want.Rate
	if p.Err != nil { // that Rate was invalid, which another look at d has found
		return
	}
	if want == nil {
		if rate, ok := r.Tiers[p.Want.Tier]; ok {
			o.rate = rate
		}
		return
	}
	if p.Err = l.checkResolved(r, Rate(*want), like); p.Err != nil {
		p.Want.Rate = nil
		return
	}
	o.rate = Rate(*want)
}

// checkResolved returns the error for a rate that Resolve has returned and that r cannot use for an
// ask like this, or nil.
func (l *RateLimiter) checkResolved(r *activeRule, rate Rate, like Ask) error {
	algorithm := algorithms[r.Algorithm]
	if err := algorithm.validate(rate); err != nil {
		return err
	}
	if err := r.Warmup.fits(rate); err != nil {
		return err
	}
	if err := algorithm.otherWindow(r.Rate, rate); err != nil {
		return err
	}
	like.Algorithm, like.Rate, like.Warmup = r.Algorithm, rate, r.Warmup
	return unsupported(supportsOf(l.settings.store), like)
}

// callStore calls Take of the store once for all rules of d. If take is false, the asks take
// nothing. It returns the error of the call.
func (l *RateLimiter) callStore(ctx context.Context, d *decision, pass breaker.Pass, take bool) error {
	asks := make([]Ask, len(d.stored()))
	like := d.like()
	if take && like.Receipt != 0 {
		d.receipt = max(rand.Uint64(), 1)
	}
	for i, r := range d.stored() {
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		if take {
			asks[i].N = int(d.order.N)
		}
		if d.receipt != 0 {
			asks[i].Receipt, asks[i].Term = d.receipt, like.Term
		}
	}
	results, err := l.takeFor(ctx, pass, d, take, asks)
	switch {
	case err == nil:
		d.setResults(results)
		d.Late = d.Late && !take // Late says that nothing was charged
	case ctx.Err() == nil:
		for _, r := range d.stored() {
			r.totals.errors.Add(1)
		}
	}
	return err
}

// takeFrom calls Take of the store, which pass allows.
func (l *RateLimiter) takeFrom(ctx context.Context, pass breaker.Pass, asks []Ask) (results []Result, err error) {
	err = l.guarded(ctx, pass, func() error {
		results, err = l.settings.store.Take(ctx, asks)
		return complete(results, asks, err)
	})
	return results, err
}

// complete returns err or, if that is nil, the error of a store that has not answered all asks.
func complete(results []Result, asks []Ask, err error) error {
	if err == nil && len(results) != len(asks) {
		err = fmt.Errorf("%d results for %d asks", len(results), len(asks))
	}
	return err
}

// resetStore calls Reset of the store, also if a breaker refuses calls: the state to be reset may
// be why they fail. Its error matches ErrStore.
// An error that says that a key cannot be reset is the store's answer, and no failure.
func (l *RateLimiter) resetStore(ctx context.Context, asks []Ask) (notReset error) {
	pass, _ := l.breakers.Admit(l.partsOf(asks), l.time.Now()) // if refused, it is about no part
	err := l.guarded(ctx, pass, func() error {
		err := l.settings.store.Reset(ctx, asks)
		if errors.Is(err, ErrNotReset) {
			notReset, err = err, nil
		}
		return err
	})
	switch {
	case err == nil:
		return notReset
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return storeError(err)
}

// guarded calls the store by call, which pass allows, and tells the breakers whether the
// call has succeeded. If the store panics, the call has failed, and the panic goes on.
func (l *RateLimiter) guarded(ctx context.Context, pass breaker.Pass, call func() error) error {
	returned := false
	defer func() {
		if !returned {
			l.breakers.Failed(pass, l.time.Now(), errPanicked, 0, 0)
		}
	}()
	err := call()
	if returned = true; err == nil {
		l.breakers.Succeeded(pass)
		return nil
	}
	var later interface{ Later(func(error)) }
	switch {
	case ctx.Err() == nil:
		l.ended(pass, err, false)
	case errors.As(err, &later):
		left := ctx.Err()
		later.Later(func(err error) { l.ended(pass, err, errors.Is(err, left)) })
	default:
		l.ended(pass, err, true)
	}
	return err
}

// ended tells the breakers that the call of pass has ended with err. If left is true, err is not
// nil because the caller has left, and does not say whether the store would have answered.
func (l *RateLimiter) ended(pass breaker.Pass, err error, left bool) {
	var answering interface{ Answered() bool }
	var shared interface{ Call() uint64 }
	switch {
	case err == nil || errors.As(err, &answering) && answering.Answered():
		l.breakers.Succeeded(pass)
	case left:
		l.breakers.Abandoned(pass)
	case errors.As(err, &shared):
		l.breakers.Failed(pass, l.time.Now(), err, breaker.Blamed(err), shared.Call())
	default:
		l.breakers.Failed(pass, l.time.Now(), err, breaker.Blamed(err), 0)
	}
}

// setResults copies the results of the store to the parts of d.
func (d *decision) setResults(results []Result) {
	d.Passes, d.Late = true, false
	for i, r := range d.stored() {
		p, res := &d.parts[i], results[i]
		if setResult(p, res); !d.Replayed && !d.rehearses() {
			r.remember(p)
		}
		d.origins[i].by = byStore
		if !p.Shadow {
			d.Passes = d.Passes && res.Allowed
			d.Late = d.Late || p.Delay > d.order.Within
		}
	}
	d.Late = d.Late && d.Passes
}

// setAnswer sets p to res, the result of the store for r.
func (r *activeRule) setAnswer(p *engine.Part, res Result) {
	setResult(p, res)
	r.remember(p)
}

// remember notes for FailLocal how many units the key of p has left in the store, so that the key
// starts with its share of them.
func (r *activeRule) remember(p *engine.Part) {
	remote := r.remote
	if remote.local == nil || p.Limit < 0 {
		return
	}
	want := p.Want
	if want.Rate != nil {
		share := r.shareOf(*want.Rate)
		want.Rate = &share
	}
	remote.local.Remember(p.Hash, want, p.Left/int64(remote.policy.replicas), p.ResetAfter)
}

// shareOf returns what the keys for FailLocal enforce of rate.
func (r *activeRule) shareOf(rate engine.Rate) engine.Rate {
	return r.remote.policy.shareOf(rate, algorithms[r.Algorithm].windowed, r.Warmup != (Warmup{}))
}
