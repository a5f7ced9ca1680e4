package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A remoteRule is what a rule whose state is in a store has in this process.
type remoteRule struct {
	name   string // of the rule in the store
	policy FailurePolicy
	local  states // the share of this process, for FailLocal; else nil
}

// newRemoteRule returns the part in this process of the rule r.
func (l *RateLimiter) newRemoteRule(r *activeRule, policy FailurePolicy) (*remoteRule, error) {
	remote := &remoteRule{policy: policy}
	if remote.name = l.settings.name + ":" + r.Name; l.settings.single {
		remote.name = r.Name
	}
	if remote.policy.kind != failLocally {
		return remote, nil
	}
	var err error
	remote.local, err = builtins[r.Algorithm].states(&l.time, policy.shares(r.rates()), l.settings.maxKeys)
	return remote, err
}

// forget makes a key as good as new in this process.
func (r *remoteRule) forget(h keytable.Hash) {
	if r.local != nil {
		r.local.reset(h)
	}
}

// key returns the key that req takes from, for a limiter outside this package. Two
// requests have the same one only if they share a budget.
func (r *activeRule) key(req *Request) string {
	switch r.keyed {
	case byUser:
		return req.Client
	case byEndpoint:
		return req.Endpoint
	case byUserEndpoint:
		return strconv.Itoa(len(req.Client)) + ":" + req.Client + req.Endpoint
	case byIP:
		return req.IP
	}
	return ""
}

// ask returns what the rule asks a store for, at rate, but for the number of units.
func (r *activeRule) ask(req *Request, rate Rate) Ask {
	ask := Ask{Rule: r.remote.name, Key: r.key(req), Algorithm: r.Algorithm, Rate: rate, Shadow: !r.enforces()}
	if r.keyed == byUser || r.keyed == byUserEndpoint {
		ask.Client = req.Client
	}
	return ask
}

// resolve finds the rate that a asks for. If that is invalid, it is the rule's own,
// and a says why.
func (l *RateLimiter) resolve(a *ask) {
	r, w := a.rule, &a.wish
	a.rate = r.Rate
	if !w.resolved {
		if rate, ok := r.Tiers[w.tier]; ok {
			a.rate = rate
		}
		return
	}
	if a.err = checkResolved(r, w.rate, supportsOf(l.settings.store)); a.err != nil {
		w.resolved = false
		return
	}
	a.rate = w.rate
}

// checkResolved returns why rate can not be one of the rates of r, or nil.
func checkResolved(r *activeRule, rate Rate, supports func(Algorithm, Rate) error) error {
	algorithm := builtins[r.Algorithm]
	if err := algorithm.validate(rate); err != nil {
		return err
	}
	if algorithm.windowed && rate.Per != r.Rate.Per {
		return errOtherWindow(rate)
	}
	if supports != nil {
		if err := supports(r.Algorithm, rate); err != nil {
			return &ConfigError{"rate", rate, notSupported + err.Error()}
		}
	}
	return nil
}

// A denier is a store that knows of denials.
type denier interface{ Denied(a Ask) (Result, bool) }

// deniedAtOnce answers a request for n units from the group g, which is plain, by res if
// the store denies it without being asked, and reports whether it does.
func (l *RateLimiter) deniedAtOnce(g *ruleGroup, client, endpoint, ip string, n int, res *Result) (denied bool) {
	r := g.alone
	if l.denier == nil || r == nil {
		return false
	}
	ask := r.ask(&Request{Client: client, Endpoint: endpoint, IP: ip}, r.Rate)
	ask.N = n
	if *res, denied = l.denier.Denied(ask); denied {
		r.totals.denied.Add(1)
		res.Rule = r.Name
	}
	return denied
}

// storeError returns err as an error that matches ErrStore.
func storeError(err error) error {
	if errors.Is(err, ErrStore) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrStore, err)
}

// askStore makes the decision d by the store, or, where that does not answer, by
// each rule's failure policy.
func (l *RateLimiter) askStore(ctx context.Context, d *decision) error {
	leaky := false
	for i := range d.asks {
		l.resolve(&d.asks[i])
		leaky = leaky || d.asks[i].rule.Algorithm == AlgorithmLeakyBucket
	}
	parts := l.breakers.ofDecision(d)
	d.now = l.time.now()
	pass, err := l.breakers.admit(parts, d.now)
	if err == nil && leaky && d.take && d.within < math.MaxInt64 {
		// What a store has taken can not be given back: look first.
		if err = l.callStore(ctx, d, pass, false); err == nil && d.late {
			return nil
		}
		pass.probes = 0 // it has found out
	}
	if err == nil {
		err = l.callStore(ctx, d, pass, d.take)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		d.failed = storeError(err)
		l.fallBack(d)
	}
	if d.take && !d.late && (d.passes || !d.waits) {
		d.countOutside()
	}
	return nil
}

// callStore makes the decision d by the store, or looks, and tells the breakers how that
// went.
func (l *RateLimiter) callStore(ctx context.Context, d *decision, pass passages, take bool) error {
	settled := false
	defer func() {
		if !settled { // the store panics
			l.breakers.failed(pass, l.time.now(), errPanicked)
		}
	}()
	asks := make([]Ask, len(d.asks))
	for i := range d.asks {
		a := &d.asks[i]
		asks[i] = a.rule.ask(&d.request, a.rate)
		if take {
			asks[i].N = int(d.n)
		}
	}
	results, err := l.settings.store.Take(ctx, asks)
	if err == nil && len(results) != len(asks) {
		err = fmt.Errorf("%d results for %d asks", len(results), len(asks))
	}
	settled = true
	switch {
	case err == nil:
		l.breakers.succeeded(pass)
		d.setResults(results)
		d.late = d.late && !take // what is taken is taken
	case ctx.Err() != nil:
		l.breakers.abandoned(pass)
	default:
		l.breakers.failed(pass, l.time.now(), err)
		for i := range d.asks {
			d.asks[i].rule.totals.errors.Add(1)
		}
	}
	return err
}

// resetStore has the store make the keys of asks as good as new.
func (l *RateLimiter) resetStore(asks []Ask) error {
	pass, err := l.breakers.admit(l.breakers.of(asks), l.time.now())
	if err != nil {
		return err
	}
	settled := false
	defer func() {
		if !settled { // the store panics
			l.breakers.failed(pass, l.time.now(), errPanicked)
		}
	}()
	err = l.settings.store.Reset(context.Background(), asks)
	settled = true
	if err != nil {
		l.breakers.failed(pass, l.time.now(), err)
		return storeError(err)
	}
	l.breakers.succeeded(pass)
	return nil
}

// errPanicked is what the breakers are told of a store that panicked.
var errPanicked = errors.New("it panicked")

// setResults makes results the answers to d, and notes for FailLocal what is left.
func (d *decision) setResults(results []Result) {
	d.passes, d.late = true, false
	for i := range d.asks {
		a, res := &d.asks[i], results[i]
		a.setResult(res, SourceStore)
		if a.rule.enforces() {
			d.passes = d.passes && res.Allowed
			d.late = d.late || a.delay > d.within
		}
		if r := a.rule.remote; r.local != nil && res.Limit >= 0 {
			share := a.share()
			r.local.remember(a.hash, &share, int64(res.Remaining/r.policy.replicas))
		}
	}
	d.late = d.late && d.passes
}

// fallBack makes the decision d by each rule's failure policy.
func (l *RateLimiter) fallBack(d *decision) {
	for i := range d.asks {
		a := &d.asks[i]
		a.source = SourcePolicy
		switch r := a.rule.remote; r.policy.kind {
		case failOpenly:
			a.verdict = verdict{limit: -1, left: -1}
		case failClosedly:
			a.verdict = verdict{limit: int64(a.rate.burst()), retryAfter: closedFor, resetAfter: closedFor}
		default:
			a.states, a.wish = r.local, a.share()
		}
	}
	d.decide(&l.time)
}

// share returns what a asks the share of this process for.
func (a *ask) share() wish {
	w := a.wish
	if w.resolved {
		w.rate = a.rule.remote.policy.share(w.rate, builtins[a.rule.Algorithm].windowed)
	}
	return w
}

// keep adds what the share of this process, which is no more, has counted.
func (t *totals) keep(c keytable.Counts) {
	t.allowed.Add(c.Allowed)
	t.denied.Add(c.Denied)
	t.shadowed.Add(c.Shadowed)
	t.degraded.Add(c.Allowed + c.Denied + c.Shadowed)
}

// countOutside counts the decision d for the rules whose states have not.
func (d *decision) countOutside() {
	for i := range d.asks {
		a := &d.asks[i]
		if a.states != nil {
			continue
		}
		denies := a.verdict.retryAfter != 0
		if !denies && !d.passes {
			continue // only others deny
		}
		a.rule.totals.count(a.rule, !denies)
		if d.failed != nil {
			a.rule.totals.degraded.Add(1)
		}
	}
}
