package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/breaker"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// A remoteRule holds the data that this process needs for a rule whose state is in a store.
type remoteRule struct {
	name   string // name of the rule in the store, as in Ask.Rule
	policy FailurePolicy
	local  engine.Keys // made by engine.NewFallback: decide while the store fails if the policy is FailLocal; nil for any other policy
}

// newRemoteRule returns the remoteRule of r, with new keys in this process if the policy is FailLocal.
func (c *storeCaller) newRemoteRule(r *activeRule, policy FailurePolicy) (remote *remoteRule, err error) {
	remote = &remoteRule{policy: policy}
	if remote.name = c.settings.name + ":" + r.Name; c.settings.single {
		remote.name = r.Name
	}
	if r.Unit != "" {
		remote.name += "\x00" + r.Unit // so that a rule whose Unit changes has new keys
	}
	switch {
	case policy.kind != failLocally:
	case r.holds(): // not NewFallback, which learns from the store: the store also counts what runs in other processes
		remote.local, err = inFlight.keys(c.time, r.rates().Share(policy.replicas), c.settings.maxKeys)
	default:
		remote.local, err = engine.NewFallback(c.time, r.rates().Share(policy.replicas), c.settings.maxKeys, algorithms[r.Algorithm].keys)
	}
	return remote, err
}

// activate prepares the new rule a, whose state is in a store. If carryOver is set, a replaces the rule old and takes
// over its counts or its keys in this process. If commit is not nil, it is called when the rules take effect.
func (c *storeCaller) activate(a, old *activeRule, carryOver bool) (commit func(now instant), err error) {
	policy := a.OnStoreError
	if carryOver && old.remote.policy == policy && old.remote.local != nil {
		a.remote, a.local = old.remote, old.local
		return a.remote.local.Change(a.rates().Share(policy.replicas))
	}
	remote, err := c.newRemoteRule(a, policy)
	if err != nil {
		return nil, err
	}
	a.remote, a.local = remote, remote.local
	if carryOver && old.local != nil {
		return func(instant) { a.totals.Keep(old.local.Counts()) }, nil
	}
	return nil, nil
}

// partOf returns which part of the store holds the state of the rule r for req: one bit of the result is set.
func (c *storeCaller) partOf(r *activeRule, req *Request, rate Rate) uint64 {
	if c.partitioned == nil {
		return 1
	}
	return breaker.Bit(c.partitioned.Part(r.ask(req, rate)))
}

// recordPart returns which part of the store records the grant of a request with an ID: a number with only that
// part's bit set. It returns 0 if d is not recorded, or if the part is not known.
func (c *storeCaller) recordPart(d *decision) uint64 {
	client := d.request.Client
	if d.request.ID == "" || !d.order.Mode.Takes() || client == "" || len(d.rules) == 0 {
		return 0
	}
	return c.partsOf([]Ask{{Rule: d.rules[0].remote.name, Key: client, Client: client, Algorithm: d.rules[0].Algorithm}})
}

// ask returns the Ask by which the store decides on req for the rule r at this rate. The caller sets its field N.
func (r *activeRule) ask(req *Request, rate Rate) Ask {
	ask := Ask{Rule: r.remote.name, Key: r.key.text(req), Algorithm: r.Algorithm, Rate: rate, Shadow: !r.enforces(), Warmup: r.Warmup,
		Penalty: r.Penalty}
	if r.key.OfClient() {
		ask.Client = req.Client
	}
	return ask
}

// A shortcut says whether a request can be answered without calling the store.
type shortcut uint8

const (
	noShortcut  shortcut = iota // the store must be called
	knownDenied                 // the store knows that it would deny the request
	callRefused                 // the circuit breakers refuse the call
)

// shortcut tries to answer req, which takes n units from r, its only rule, without calling the store. If it returns
// knownDenied, it has counted the denial and written it to res. If it returns callRefused, err says why the circuit
// breakers refused the call at the instant now.
func (c *storeCaller) shortcut(r *activeRule, req *Request, n int64, res *Result) (way shortcut, now instant, err error) {
	if c.breakers.Refusing() {
		now = c.time.Now()
		if err := c.breakers.Refusal(c.partOf(r, req, r.Rate), now); err != nil {
			return callRefused, now, err
		}
	}
	if c.denier == nil || len(r.Tiers) > 0 {
		return noShortcut, 0, nil
	}
	ask := r.ask(req, r.Rate)
	ask.N = int(n)
	known, denied := c.denier.Denied(ask)
	if !denied {
		return noShortcut, 0, nil
	}
	r.totals.Add(counters.Denied, 1)
	*res, res.Rule = known, r.resultName()
	return knownDenied, 0, nil
}

// decide asks the store for the decision d. If the store fails, failure policies decide. No custom limiter is called.
func (c *storeCaller) decide(ctx context.Context, d *decision) error {
	parts, leaky, err := c.resolveAll(d)
	if err != nil {
		return err
	}
	d.Now, d.Passes = c.time.Now(), true
	switch {
	case len(d.stored()) == 0:
		return nil
	case d.order.Mode != engine.ModeDryRun:
		err = c.call(ctx, d, parts, leaky)
	default:
		if err = c.chooseLook(d); err != nil {
			return err
		}
		if err = c.breakers.Refusal(parts, d.Now); err == nil { // the breakers do not learn how the call ends
			err = c.look(ctx, d)
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		c.fallBack(d, err)
	}
	return nil
}

// resolveAll finds the rate that each Ask of d will have. parts has one bit set for each part of the store that holds a
// state for d. leaky is true if one of the rules is a leaky bucket.
func (c *storeCaller) resolveAll(d *decision) (parts uint64, leaky bool, err error) {
	receipt := d.receiptTemplate()
	for i, r := range d.stored() {
		c.resolve(r, &d.parts[i], &d.origins[i], receipt)
		parts |= c.partOf(r, &d.request, d.origins[i].rate)
		leaky = leaky || r.Algorithm == AlgorithmLeakyBucket
		if d.term > 0 {
			if err := c.reservable(r, d.origins[i].rate, receipt); err != nil {
				return 0, false, err
			}
		}
	}
	return parts, leaky, nil
}

// call asks the store to make the decision d, if the circuit breakers of these parts of the store allow the call.
func (c *storeCaller) call(ctx context.Context, d *decision, parts uint64, leaky bool) error {
	pass, err := c.breakers.Admit(parts|c.recordPart(d), d.Now)
	if err != nil {
		return err
	}
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
	asks, receipt := make([]Ask, len(d.stored())), d.receiptTemplate()
	if charge && receipt.Receipt != 0 {
		d.receipt = max(rand.Uint64(), 1)
	}
	for i, r := range d.stored() {
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		asks[i].NoStrike = r.penal != nil && (d.noStrike || d.order.Mode != engine.ModeTake)
		if charge {
			asks[i].N = int(d.parts[i].N)
		}
		if d.receipt != 0 {
			asks[i].Receipt, asks[i].HoldFor = d.receipt, receipt.HoldFor
		}
	}
	results, replayed, err := c.take(ctx, pass, &d.request, charge, asks)
	d.Replayed = replayed
	switch {
	case err == nil:
		c.setResults(d, results)
		d.Late = d.Late && !charge // Late means that a long Delay has prevented the charge, so it is false after a charge
	case ctx.Err() == nil:
		for _, r := range d.stored() {
			r.totals.Add(counters.Errors, 1)
		}
	}
	return err
}

// chooseLook decides how to ask the store for a dry run, which charges nothing: with Ask.Look or, if the store does
// not accept Look, for 0 units. It returns an error if the store does not accept Look and the cost is above 1.
func (c *storeCaller) chooseLook(d *decision) error {
	err := errors.New("it has no method Accepts")
	if accepting, ok := c.store.(StoreAccepter); ok {
		err = nil
		for i, r := range d.stored() {
			ask := r.ask(&d.request, d.origins[i].rate)
			ask.N, ask.Look = int(d.parts[i].N), true
			if err = accepting.Accepts(ask); err != nil {
				break
			}
		}
	}
	if d.dry.byZero = err != nil; d.dry.byZero && slices.ContainsFunc(d.parts, func(p engine.Part) bool { return p.N > 1 }) {
		return &ConfigError{"store", fmt.Sprintf("%T", c.store), "must accept an Ask with Look to explain a cost above 1: " + err.Error()}
	}
	return nil
}

// look asks the store for the answer to d, a dry run, which charges nothing.
func (c *storeCaller) look(ctx context.Context, d *decision) error {
	asks := make([]Ask, len(d.stored()))
	for i, r := range d.stored() {
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		if d.dry.byZero {
			continue
		}
		asks[i].N, asks[i].Look = int(d.parts[i].N), true
		if d.custom >= 0 { // the dry run sends the same fields as Check, so that the store accepts either both or neither
			asks[i].Receipt, asks[i].HoldFor = revocableAsk.Receipt, revocableAsk.HoldFor
		}
	}
	results, err := c.store.Take(ctx, asks)
	if err = complete(results, asks, err); err != nil {
		return err
	}
	c.setResults(d, results)
	for i := range asks {
		if p := &d.parts[i]; d.dry.byZero && d.Passes && p.Granted() && p.Limit >= 0 {
			p.Left = max(p.Left-1, 0)
		}
	}
	return nil
}

// granted reports whether the store has already granted an earlier request with the same ID as the request of d.
func (c *storeCaller) granted(ctx context.Context, d *decision) bool {
	if d.request.ID == "" || !d.order.Mode.Takes() {
		return false
	}
	asks := c.asksFor(d)
	pass, err := c.breakers.Admit(c.partsOf(asks)|c.recordPart(d), c.time.Now())
	if err != nil {
		return false
	}
	_, found, err := c.takeOnce(ctx, pass, &d.request, asks, true)
	return err == nil && found
}

// asksFor returns an Ask for each rule of d, without a Receipt. It is used before d is decided.
func (c *storeCaller) asksFor(d *decision) []Ask {
	asks := make([]Ask, len(d.rules))
	for i, r := range d.rules {
		c.resolve(r, &d.parts[i], &d.origins[i], Ask{})
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		asks[i].N = int(d.parts[i].N)
	}
	return asks
}

// resolve sets o.rate to the rate at which the store decides by the rule r. If Resolve has returned a rate that r
// cannot use, o.rate is r.Rate, and p.Err says why. receipt has the Receipt and HoldFor that the later Ask will have.
func (c *storeCaller) resolve(r *activeRule, p *engine.Part, o *origin, receipt Ask) {
	o.rate = r.Rate
	want := p.Want.Rate
	if p.Err != nil { // an earlier call has found that r cannot use the rate from Resolve
		return
	}
	if want == nil {
		if rate, ok := r.Tiers[p.Want.Tier]; ok {
			o.rate = rate
		}
		return
	}
	if p.Err = c.checkResolved(r, Rate(*want), receipt); p.Err != nil {
		p.Want.Rate = nil
		return
	}
	o.rate = Rate(*want)
}

// checkResolved returns an error if the rule r cannot use this rate, which Resolve has returned, and otherwise nil.
// receipt has the Receipt and HoldFor that the Ask to the store will have.
func (c *storeCaller) checkResolved(r *activeRule, rate Rate, receipt Ask) error {
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
	receipt.Algorithm, receipt.Rate, receipt.Warmup = r.Algorithm, rate, r.Warmup
	return unsupported(c.supports, receipt)
}

// reservable returns an error if the store cannot give back charges of the rule r at this rate, and otherwise nil.
// receipt has the Receipt and HoldFor that the Ask to the store will have.
func (c *storeCaller) reservable(r *activeRule, rate Rate, receipt Ask) error {
	receipt.Algorithm, receipt.Rate = r.Algorithm, rate
	return errors.Join(atPath("rules["+strconv.Quote(r.Name)+"]", unsupported(c.store.(StoreSettler).Accepts, receipt))...)
}

// giveBack makes the store give back what it has charged for d, because the custom limiter did not grant the request.
// It works even if ctx has ended. If the store fails, the units stay charged, and d.failed is set to the error.
func (c *storeCaller) giveBack(ctx context.Context, d *decision) error {
	var asks []Ask
	for i, r := range d.stored() {
		if d.origins[i].by == byStore && d.parts[i].Granted() {
			ask := r.ask(&d.request, d.origins[i].rate)
			ask.Receipt, ask.Charged = d.receipt, int(d.parts[i].N)
			asks = append(asks, ask)
		}
	}
	if len(asks) == 0 {
		return nil
	}
	_, err := c.settle(context.WithoutCancel(ctx), asks)
	if err != nil {
		d.failed = err
	}
	for i, r := range d.stored() {
		switch p := &d.parts[i]; {
		case !p.Granted():
		case err != nil:
			r.totals.Add(counters.Errors, 1)
		default:
			p.Left = min(p.Left+p.N, p.Limit) // these are answers of the store: after answers of policies, asks is empty
		}
	}
	return err
}

// fallBack decides d by the failure policy of each rule, because the store failed with err.
func (c *storeCaller) fallBack(d *decision, err error) {
	d.failed = storeError(err)
	for i, r := range d.stored() {
		p, o := &d.parts[i], &d.origins[i]
		o.by, p.Delay = byPolicy, 0 // no Delay: it may be that of an earlier call for d, which did not fail
		switch remote := r.remote; remote.policy.kind {
		case failOpenly:
			p.Verdict = engine.Verdict{Limit: -1, Left: -1}
		case failClosedly:
			p.Verdict = engine.Verdict{Limit: int64(o.rate.burst()), RetryAfter: closedFor, ResetAfter: closedFor}
		default:
			p.Keys = remote.local
			if p.Want.Rate != nil {
				o.resolved = r.shareOf(*p.Want.Rate)
			}
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

// remember tells the keys for FailLocal how many units a key has left in the store, divided by the replicas.
func (r *activeRule) remember(p *engine.Part) {
	remote, want := r.remote, p.Want
	if remote.local == nil || p.Limit < 0 || r.holds() {
		return
	}
	if want.Rate != nil {
		share := r.shareOf(*want.Rate)
		want.Rate = &share
	}
	remote.local.Remember(p.Hash, want, p.Left/int64(remote.policy.replicas), p.ResetAfter)
}

// shareOf returns the share of this rate that FailLocal enforces in this process.
func (r *activeRule) shareOf(rate engine.Rate) engine.Rate {
	return rate.Share(r.remote.policy.replicas, algorithms[r.Algorithm].windowed, r.Warmup != (Warmup{}))
}
