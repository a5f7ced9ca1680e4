package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/storecall"
)

// A storeCaller decides by the store of a limiter and, while the store fails, by failure policies.
type storeCaller struct {
	*storecall.Caller[Ask, Result, Attempt]

	settings *settings        // the limiter's settings
	time     *engine.Timeline // the limiter's timeline, which the circuit breakers use too
	supports func(a Ask) error
	denier   StoreDenier // nil if the store has no method Denied, or if there is an observer, which must see each denial
	once     bool        // whether requests may have an ID: the option WithRequestIDs is set, and the store is a StoreReplayer
}

// newStoreCaller returns a storeCaller for the store of set, or nil if set has none.
func newStoreCaller(set *settings, t *engine.Timeline) *storeCaller {
	if set.store == nil {
		return nil
	}
	c := &storeCaller{settings: set, time: t, supports: supportsOf(set.store)}
	c.Caller = storecall.New[Ask, Result, Attempt](set.store, storecall.Terms[Ask]{
		Now: t.Now, Wrap: storeError, NotReset: ErrNotReset, Lasts: func(a *Ask) time.Duration {
			if a.Algorithm == AlgorithmInFlight && a.N <= 0 {
				return a.Rate.Per // a request has ended; if the store never learns of that, the key stays busy for this time
			}
			return 0
		},
	})
	if set.observer == nil {
		c.denier, _ = set.store.(StoreDenier)
	}
	return c
}

// attemptOf returns the Attempt by which the store finds an earlier grant of req. If look is false, the store also records a new grant.
func (c *storeCaller) attemptOf(req *Request, look bool) *Attempt {
	return &Attempt{Client: req.Client, ID: req.ID, TTL: c.settings.requestIDs, Look: look}
}

// A remoteRule holds the data that this process needs for a rule whose state is in a store.
type remoteRule struct {
	name   string // name of the rule in the store, as in Ask.Rule
	policy FailurePolicy
	local  engine.Keys // the counts that decide while the store fails, if the policy is FailLocal; nil for any other policy
}

// newRemoteRule returns the remoteRule of r. If the policy is FailLocal, it has new counts in this process, in the field local.
func (c *storeCaller) newRemoteRule(r *activeRule, policy FailurePolicy) (remote *remoteRule, err error) {
	remote = &remoteRule{policy: policy}
	if remote.name = c.settings.name + ":" + r.Name; c.settings.single {
		remote.name = r.Name
	}
	if r.Unit != "" {
		remote.name += "\x00" + r.Unit // so that a rule whose Unit changes has new keys
	}
	switch {
	case !policy.local():
	case r.holds(): // not by NewFallback: it would count requests of other processes, too
		remote.local, err = inFlight.keys(c.time, r.rates().Share(policy.is.Replicas), c.settings.maxKeys)
	default:
		remote.local, err = engine.NewFallback(c.time, r.rates().Share(policy.is.Replicas), c.settings.maxKeys, algorithms[r.Algorithm].keys)
	}
	return remote, err
}

// activate prepares the new rule, which is the parameter a; its state is in a store. If the parameter old is not nil, it is the rule that
// the new rule replaces. The new rule then takes over its counts or its keys in this process. If commit is not nil, it is called
// when the rules take effect.
func (c *storeCaller) activate(a, old *activeRule) (commit func(now instant), err error) {
	policy := a.OnStoreError
	if old != nil && old.remote.policy == policy && old.remote.local != nil {
		a.remote, a.local = old.remote, old.local
		return a.remote.local.Change(a.rates().Share(policy.is.Replicas))
	}
	remote, err := c.newRemoteRule(a, policy)
	if err != nil {
		return nil, err
	}
	a.remote, a.local = remote, remote.local
	if old != nil && old.local != nil {
		return func(instant) { a.totals.Keep(old.local.Counts()) }, nil
	}
	return nil, nil
}

// partOf returns which part of the store, such as a node, holds the state of the rule r for req: 1<<i for the part i.
func (c *storeCaller) partOf(r *activeRule, req *Request, rate Rate) uint64 {
	if !c.HasParts() {
		return 1 // PartsOf would also return 1, but it needs the text of the key
	}
	return c.PartsOf(r.ask(req, rate))
}

// recordPart returns which part of the store, such as a node, records the grant of a request with an ID: 1<<i for the part i.
// It returns 0 if d is not recorded, or if the part is not known.
func (c *storeCaller) recordPart(d *decision) uint64 {
	client := d.request.Client
	if d.request.ID == "" || !d.order.Mode.Takes() || client == "" || len(d.rules) == 0 {
		return 0
	}
	return c.PartsOf(Ask{Rule: d.rules[0].remote.name, Key: client, Client: client, Algorithm: d.rules[0].Algorithm})
}

// ask returns the Ask by which the store decides on req for the rule r at this rate. The caller sets its field N.
func (r *activeRule) ask(req *Request, rate Rate) (ask Ask) {
	ask.Rule, ask.Key, ask.Algorithm, ask.Shadow = r.remote.name, r.key.text(req), r.Algorithm, !r.enforces()
	ask.Rate, ask.Warmup, ask.Penalty = rate, r.Warmup, r.Penalty
	if r.key.OfClient() {
		ask.Client = req.Client
	}
	return ask
}

// refusal returns an error if the circuit breakers now refuse a call for req, to which only the rule r applies. The error is
// nil if they may permit the call. The result now is the time, or 0 if the clock was not read.
func (c *storeCaller) refusal(r *activeRule, req *Request) (now instant, err error) {
	if c.Breakers.Refusing() {
		now = c.time.Now()
		err = c.Breakers.Refusal(c.partOf(r, req, r.Rate), now)
	}
	return now, err
}

// knownDenied reports whether the store knows, without a call of its server, that n units for req are denied. The rule r is the only
// one that applies to req. If the result is true, knownDenied has counted the denial and written it to res.
func (c *storeCaller) knownDenied(r *activeRule, req *Request, n int64, res *Result) bool {
	if c.denier == nil || len(r.Tiers) > 0 {
		return false
	}
	ask := r.ask(req, r.Rate)
	ask.N = int(n)
	known, denied := c.denier.Denied(ask)
	if denied {
		r.totals.Add(counters.Denied, 1)
		*res, res.Rule, res.Reason = known, r.resultName(), cmp.Or(known.Reason, ReasonLimit)
	}
	return denied
}

// decide asks the store for the decision d. If the store fails, failure policies decide. decide calls no custom limiter.
func (c *storeCaller) decide(ctx context.Context, d *decision) error {
	parts := c.resolveAll(d)
	if d.term > 0 {
		if err := c.reservable(d); err != nil {
			return err
		}
	}
	if d.Now, d.Passes = c.time.Now(), true; len(d.stored()) == 0 {
		return nil
	}
	var err, refused error
	if d.order.Mode != engine.ModeDryRun {
		err = c.call(ctx, d, parts)
	} else if err, refused = c.look(ctx, d, parts); refused != nil {
		return refused
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		c.fallBack(d, err)
	}
	return nil
}

// resolveAll finds the rate at which the store decides by each rule of d. parts has one bit set for each part of the
// store that holds a state for d.
func (c *storeCaller) resolveAll(d *decision) (parts uint64) {
	receipt := d.receiptTemplate()
	for i, r := range d.stored() {
		c.resolve(r, &d.parts[i], &d.origins[i], receipt)
		parts |= c.partOf(r, &d.request, d.origins[i].rate)
	}
	return parts
}

// asksFor returns an Ask for each rule of d that the store decides, at the rate that resolveAll has found. No Receipt is set.
func asksFor(d *decision) []Ask {
	asks := make([]Ask, len(d.stored()))
	for i, r := range d.stored() {
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		asks[i].N = int(d.parts[i].N)
	}
	return asks
}

// call asks the store to make the decision d, if the circuit breakers of these parts of the store allow the call.
func (c *storeCaller) call(ctx context.Context, d *decision, parts uint64) error {
	pass, err := c.Breakers.Admit(parts|c.recordPart(d), d.Now)
	if err != nil {
		return err
	}
	leaky := slices.ContainsFunc(d.stored(), func(r *activeRule) bool { return r.Algorithm == AlgorithmLeakyBucket })
	if leaky && d.order.Mode.Takes() && d.order.Within < engine.AnyDelay {
		// Ask for 0 units first: if the Delay is too long, nothing must be charged, and not every store can give units back.
		if err = c.ask(ctx, d, pass, false); err != nil || d.Late && !c.granted(ctx, d) {
			return err
		}
		pass = pass.Probed()
	}
	return c.ask(ctx, d, pass, d.order.Mode.Takes())
}

// ask calls the store once for all rules of d. If charge is false, it asks for 0 units.
func (c *storeCaller) ask(ctx context.Context, d *decision, pass breaker.Pass, charge bool) error {
	asks, receipt := asksFor(d), d.receiptTemplate()
	if charge && receipt.Receipt != 0 {
		d.receipt = max(rand.Uint64(), 1)
	}
	for i, r := range d.stored() {
		asks[i].NoStrike = r.penal != nil && (d.noStrike || d.order.Mode != engine.ModeTake)
		if !charge {
			asks[i].N = 0
		}
		if d.receipt != 0 {
			asks[i].Receipt, asks[i].HoldFor = d.receipt, receipt.HoldFor
		}
	}
	var once *Attempt
	if d.request.ID != "" && charge {
		once = c.attemptOf(&d.request, false)
	}
	results, replayed, err := c.Take(ctx, pass, once, asks)
	d.Replayed = replayed
	switch {
	case err == nil:
		c.setResults(d, results)
		d.Late = d.Late && !charge // after a charge, Late is false, because Late says that a long Delay has prevented the charge
	case ctx.Err() == nil:
		for _, r := range d.stored() {
			r.totals.Add(counters.Errors, 1)
		}
	}
	return err
}

// look asks the store for the answer to d, a dry run that charges nothing. It sets Ask.Look or, if the store does not
// accept this field, asks for 0 units. If the store does not accept Look and the cost is above 1, refused is an error.
// The circuit breakers of these parts may refuse the call, but do not learn how it ends.
func (c *storeCaller) look(ctx context.Context, d *decision, parts uint64) (err, refused error) {
	asks, reason := asksFor(d), errors.New("it has no method Accepts")
	if accepting, ok := c.settings.store.(StoreAccepter); ok {
		reason = nil
		for i := 0; i < len(asks) && reason == nil; i++ {
			asks[i].Look = true
			reason = accepting.Accepts(asks[i])
		}
	}
	byZero, receipt := reason != nil, d.receiptTemplate()
	if byZero && slices.ContainsFunc(d.parts, func(p engine.Part) bool { return p.N > 1 }) {
		text := "must accept an Ask with Look to explain a cost above 1: " + reason.Error()
		return nil, &ConfigError{"store", fmt.Sprintf("%T", c.settings.store), text}
	}
	for i := range asks {
		a := &asks[i]
		if a.Look = !byZero; byZero {
			a.N = 0
		} else { // the dry run sends the same fields as Check, so that the store accepts both calls or refuses both
			a.Receipt, a.HoldFor = receipt.Receipt, receipt.HoldFor
		}
	}
	results, _, err := c.Look(ctx, parts, d.Now, nil, asks)
	if err != nil {
		return err, nil
	}
	c.setResults(d, results)
	for i := range asks {
		if p := &d.parts[i]; byZero && d.Passes && p.Granted() && p.Limit >= 0 {
			p.Left = max(p.Left-1, 0)
		}
	}
	return nil, nil
}

// granted reports whether the store has already granted an earlier request with the same ID as the request of d.
func (c *storeCaller) granted(ctx context.Context, d *decision) bool {
	if d.request.ID == "" || !d.order.Mode.Takes() {
		return false
	}
	pass, err := c.Breakers.Admit(c.resolveAll(d)|c.recordPart(d), c.time.Now())
	if err != nil {
		return false
	}
	_, found, err := c.Take(ctx, pass, c.attemptOf(&d.request, true), asksFor(d))
	return err == nil && found
}

// resolve sets o.rate to the rate at which the store decides by the rule r. If Resolve has returned a rate that r
// cannot use, o.rate is r.Rate, and p.Err says why. The store will get an Ask with the Receipt and HoldFor of the parameter receipt.
func (c *storeCaller) resolve(r *activeRule, p *engine.Part, o *origin, receipt Ask) {
	o.rate = r.Rate
	switch want := p.Want.Rate; {
	case p.Err != nil: // an earlier call has found that r cannot use the rate from Resolve
	case want == nil:
		if rate, ok := r.Tiers[p.Want.Tier]; ok {
			o.rate = rate
		}
	default:
		if p.Err = c.checkResolved(r, rateOf(*want), receipt); p.Err == nil {
			o.rate = rateOf(*want)
		} else {
			p.Want.Rate = nil
		}
	}
}

// checkResolved returns an error if the rule r cannot use this rate, which Resolve has returned, and otherwise nil.
// The store will get an Ask with the Receipt and HoldFor of the parameter receipt.
func (c *storeCaller) checkResolved(r *activeRule, rate Rate, receipt Ask) error {
	if err := r.fits(rate); err != nil {
		return err
	}
	receipt.Algorithm, receipt.Rate, receipt.Warmup = r.Algorithm, rate, r.Warmup
	return unsupported("rate", c.supports, receipt)
}

// reservable returns an error if the store cannot give back what a rule of d charges, and otherwise nil.
func (c *storeCaller) reservable(d *decision) error {
	receipt := d.receiptTemplate()
	for i, r := range d.stored() {
		receipt.Algorithm, receipt.Rate = r.Algorithm, d.origins[i].rate
		if err := unsupported("rate", c.settings.store.(StoreSettler).Accepts, receipt); err != nil {
			return errors.Join(atPath("rules["+strconv.Quote(r.Name)+"]", err)...)
		}
	}
	return nil
}

// chargedAsk returns the Ask by which the method Settle of the store gives back what the rule with the index i has charged.
func chargedAsk(d *decision, i int) Ask {
	ask := d.rules[i].ask(&d.request, d.origins[i].rate)
	ask.Receipt, ask.Charged, ask.Shadow = d.receipt, int(d.parts[i].N), false
	return ask
}

// giveBack makes the store give back what it has charged for d, because the custom limiter did not grant the request.
// It works even if ctx has ended. If the store fails, the units stay charged, and d.failed is set to the error.
func (c *storeCaller) giveBack(ctx context.Context, d *decision) error {
	var asks []Ask
	for i := range d.stored() {
		if d.origins[i].by == byStore && d.parts[i].Granted() {
			asks = append(asks, chargedAsk(d, i))
		}
	}
	if len(asks) == 0 {
		return nil
	}
	_, err := c.Settle(context.WithoutCancel(ctx), asks)
	if err != nil {
		d.failed = err
	}
	for i, r := range d.stored() {
		switch p := &d.parts[i]; {
		case !p.Granted():
		case err != nil:
			r.totals.Add(counters.Errors, 1)
		default:
			p.Left = min(p.Left+p.N, p.Limit) // the units that were given back are left again
		}
	}
	return err
}

// fallBack decides d by the failure policy of each rule, because the store failed with err.
func (c *storeCaller) fallBack(d *decision, err error) {
	d.failed = storeError(err)
	for i, r := range d.stored() {
		p, o := &d.parts[i], &d.origins[i]
		o.by, o.bar.Blocks, p.Delay = byPolicy, false, 0 // an earlier call for d, which did not fail, may have set the last two
		if p.Keys = r.remote.local; p.Keys == nil {
			p.Verdict = r.remote.policy.verdict(o.rate)
		} else if p.Want.Rate != nil {
			o.resolved = r.shareOf(*p.Want.Rate)
		}
	}
	d.decideHere(c.time)
}

// setResults copies each result of the store to the element of d.parts for the same rule.
func (c *storeCaller) setResults(d *decision, results []Result) {
	d.Passes, d.Late = true, false
	for i, r := range d.stored() {
		p, res := &d.parts[i], results[i]
		if setResult(p, res); !d.Replayed && d.order.Mode != engine.ModeDryRun {
			r.remember(p)
		}
		o := &d.origins[i]
		o.by, o.bar.Blocks = byStore, res.Reason == ReasonPenalty
		if r.penal != nil && d.order.Mode.Charges() && o.bar.Learn(p, r.whose(&d.request), d.Now) {
			r.totals.Add(counters.Penalized, 1)
		}
		if !p.Shadow {
			d.Passes = d.Passes && res.Allowed
			d.Late = d.Late || p.Delay > d.order.Within
		}
	}
	d.Late = d.Late && d.Passes
}

// remember stores, for the policy FailLocal, the share of this process in the units that the key of p has left in the store.
func (r *activeRule) remember(p *engine.Part) {
	remote, want := r.remote, p.Want
	if remote.local == nil || p.Limit < 0 || r.holds() {
		return
	}
	if want.Rate != nil {
		share := r.shareOf(*want.Rate)
		want.Rate = &share
	}
	remote.local.Remember(p.Hash, want, p.Left/int64(remote.policy.is.Replicas), p.ResetAfter)
}

// shareOf returns the share of this rate that FailLocal enforces in this process.
func (r *activeRule) shareOf(rate engine.Rate) engine.Rate {
	return rate.Share(r.remote.policy.is.Replicas, algorithms[r.Algorithm].windowed, r.Warmup != (Warmup{}))
}
