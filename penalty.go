package ratelimit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// A Penalty makes a rule block a key for some time after many denials. The zero Penalty does not.
//
// A denial by the rule is a strike. If a key has After strikes within the time Within, it is blocked for the time For: all
// its requests are denied, with [ReasonPenalty]. While a key is blocked, denials are no strikes, so a client who goes on
// sending is not blocked for longer. Not every denial is a strike: only one by the key's own state, of a request that does
// not wait. A denial because others wait, or by a [FailurePolicy], and the repeated answer of a retry are none.
//
// [RateLimiter.Reset] ends the block of a key, and so does an [Override] with [EffectPardon].
type Penalty struct {
	After  int           // how many denials begin a block: at least 1; 0 only in the zero Penalty
	Within time.Duration // how long strikes count together, from the first one: from a microsecond to 366 days
	For    time.Duration // how long the first block lasts: from a microsecond to 366 days

	// If Most is not 0, a block that begins less than Most after the end of the last one lasts twice as long as that, but
	// no longer than Most. Most is at least For, and at most 366 days.
	Most time.Duration
}

// validate returns all that makes the Penalty p invalid, joined, or nil. Each error has a field of Penalty.
func (p Penalty) validate() error {
	if p == (Penalty{}) {
		return nil
	}
	var errs []error
	if p.After < 1 {
		errs = append(errs, &ConfigError{"after", p.After, "must be at least 1"})
	}
	if !validSpan(p.Within) {
		errs = append(errs, &ConfigError{"within", p.Within, spanRange})
	}
	if !validSpan(p.For) {
		errs = append(errs, &ConfigError{"for", p.For, spanRange})
	}
	switch {
	case p.Most == 0:
	case !validSpan(p.Most):
		errs = append(errs, &ConfigError{"most", p.Most, spanRange})
	case p.Most < p.For:
		errs = append(errs, &ConfigError{"most", p.Most, "must be at least " + p.For.String() + ", the length of the first block"})
	}
	return errors.Join(errs...)
}

// penalties gives the new rule a its table of strikes: that of the rule old, which a replaces, if carryOver is set. The result
// must be called when the rules take effect; it may be nil.
func (l *RateLimiter) penalties(a, old *activeRule, carryOver bool) (commit func(now instant)) {
	switch rule := penalty.Rule(a.Penalty); {
	case a.Penalty == Penalty{}:
		return nil
	case carryOver && old.penal != nil:
		a.penal = old.penal
		return func(instant) { a.penal.SetRule(rule) }
	default:
		a.penal = penalty.New(rule, l.settings.maxKeys)
		return nil
	}
}

// whose returns whose the key of req in the rule r is, for pardons.
func (r *activeRule) whose(req *Request) (w penalty.Whose) {
	if r.key.Has(keyspec.User) {
		w.Client = keytable.HashOf(req.Client)
	}
	if r.key.Has(keyspec.IP) {
		w.IP, _ = override.AddrOf(req.IP)
	}
	return w
}

// penaltyRest returns how long a rule's Penalty still blocks the request of d, or 0.
func penaltyRest(d *decision, t *engine.Timeline) (rest time.Duration) {
	for i, r := range d.rules {
		if r.penal != nil && r.keys != nil && r.enforces() {
			rest = max(rest, r.penal.Rest(d.parts[i].Hash, t.Now()))
		}
	}
	return rest
}

// denyPenalized denies those of the parts of d whose keys in this process are blocked by a Penalty: they need no decision.
func denyPenalized(d *decision, parts []engine.Part, t *engine.Timeline) {
	for i := range parts {
		r, p, o := d.rules[i], &parts[i], &d.origins[i]
		if r.penal == nil || p.Keys == nil || p.Shadow {
			continue
		}
		now := t.Now()
		rest := r.penal.Rest(p.Hash, now)
		if rest == 0 {
			continue
		}
		alone := []engine.Part{*p} // what the rule would answer without the block
		engine.DecideAll(t, alone, &engine.Order{Mode: engine.ModeLook, Within: engine.AnyDelay}, now)
		p.Keys, p.Verdict = nil, alone[0].Verdict
		o.penalize(p, rest)
	}
}

// penalize makes p, the answer of a rule, a denial for the time rest.
func (o *origin) penalize(p *engine.Part, rest time.Duration) {
	o.penalized = true
	p.Left, p.RetryAfter, p.ResetAfter = 0, max(p.RetryAfter, rest), max(p.ResetAfter, rest)
}

// learnBlock notes a block that the store tells of in res, its answer for the rule with the index i, so that FailLocal obeys it,
// too.
func learnBlock(d *decision, i int, res *Result) {
	r, p := d.rules[i], &d.parts[i]
	d.origins[i].penalized = res.Reason == ReasonPenalty
	if r.penal == nil || !d.order.Mode.Charges() {
		return
	}
	switch known := r.penal.Rest(p.Hash, d.Now) > 0; {
	case d.origins[i].penalized:
		if r.penal.Block(p.Hash, r.whose(&d.request), d.Now.Add(res.RetryAfter), d.Now); !known {
			r.totals.add(numPenalized, 1)
		}
	case known:
		r.penal.Forget(p.Hash)
	}
}

// strike counts the denials of d as strikes, and makes those that begin a block last as long as the block.
func strike(d *decision) {
	if d.Passes || d.noStrike || d.order.Mode != engine.ModeTake || d.Replayed {
		return
	}
	for i, r := range d.rules {
		p, o := &d.parts[i], &d.origins[i]
		if r.penal == nil || p.Keys == nil || o.by != byMemory || p.Shadow || p.Granted() || p.N == 0 {
			continue
		}
		rest, begun := r.penal.Strike(p.Hash, r.whose(&d.request), d.Now)
		if begun {
			r.totals.add(numPenalized, 1)
		}
		if rest > 0 {
			o.penalize(p, rest)
		}
	}
}

// pardon ends the running blocks of those whom the overrides in all name, all of which have EffectPardon. With a store, it
// can find only the keys that are of the client alone, or of the address alone.
func (l *RateLimiter) pardon(ctx context.Context, all []Override) error {
	if len(all) == 0 {
		return nil
	}
	var asks []Ask
	for i := range all {
		o := &all[i]
		e := override.NewEntry(*o.out())
		for _, r := range l.set.Load().rules {
			if r.penal == nil || len(o.Rules) > 0 && !slices.Contains(o.Rules, r.Name) {
				continue
			}
			client := keytable.HashOf(o.Client)
			r.penal.Pardon(func(w *penalty.Whose) bool {
				return o.Client != "" && w.Client == client || o.IP != "" && w.IP.IsValid() && e.Contains(w.IP)
			})
			if r.remote != nil && (r.Key == KeyUser && o.Client != "" || r.Key == KeyIP && e.IsAddress()) {
				asks = append(asks, r.ask(&Request{Client: o.Client, IP: e.IP}, r.Rate))
			}
		}
	}
	l.overrides.Wake()
	if len(asks) == 0 {
		return nil
	}
	store, ok := l.settings.store.(StorePardoner)
	if !ok {
		return storeError(errors.New("it has no method Pardon"))
	}
	err := store.Pardon(orBackground(ctx), asks)
	l.retries.Wake()
	if err != nil {
		return l.remote.overrideError(orBackground(ctx), err)
	}
	return nil
}
