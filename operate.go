package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// initOverrides prepares l to have Overrides: in the store, if l has the option WithOverrides. It returns an error if the store
// cannot keep them.
func (l *RateLimiter) initOverrides() error {
	set := &l.settings
	l.overrides.Host = override.Host{
		Wall: func() time.Time { return wallOf(set.clock) },
		Now:  l.time.Now,
		Change: func(commit func(), touched *override.Set) {
			l.time.Renew()
			l.waiters.ChangeRules(func(instant) { commit() }, func(in *waitline.Waiter) bool {
				req := in.Owner.(*ruleWait).req
				met := touched.Find(req.Client, req.IP)
				return !met.None()
			})
			l.retries.Wake()
		},
	}
	if !set.overrides || set.single {
		return nil
	}
	store, ok := set.store.(StoreOverrider)
	if !ok {
		reason := "must have the methods SetOverrides and OverridesSince: WithOverrides keeps overrides in it"
		return &ConfigError{"store", fmt.Sprintf("%T", set.store), reason}
	}
	l.overrides.Source = sharedList{store, set.name}
	return nil
}

// A sharedList is the list of Overrides that the limiters with this name share in a store.
type sharedList struct {
	store StoreOverrider
	name  string
}

// Since returns what has changed in the list since the version v.
func (s sharedList) Since(ctx context.Context, v override.Version) (override.Changes, error) {
	c, err := s.store.OverridesSince(ctx, s.name, OverrideVersion(v))
	return override.Changes{
		Version: override.Version(c.Version), Whole: c.Whole, Set: entriesOf(c.Set), Lifted: entriesOf(c.Lifted), Now: c.Now,
	}, err
}

// Override sets each Override in o, or lifts others if its Effect is empty: all of them, or none if there is an error. It
// takes the place of one with the same Client or IP, the same Effect and the same Rules in any order. Overrides stay when
// the rules change. Callers of Wait whom a change concerns are decided on anew and keep their places, but one who is blocked
// loses it.
//
// Without [WithOverrides], the Overrides are those of this process, at most 65,536. With it, they are in the [Store], at most
// 10,000, and this process obeys at once. A block is also denied what was granted before to the same [Request.ID].
//
// If o has a mistake, the error lists all of them and matches [ErrInvalidConfig] or [ErrUnknownRule]. If the Store cannot be
// reached, it matches [ErrStore].
func (l *RateLimiter) Override(ctx context.Context, o ...Override) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	if err := checkOverrides(l.settings.store, l.set.Load(), o, l.overrides.Time()); err != nil || len(o) == 0 {
		return err
	}
	ctx = orBackground(ctx)
	if o[0].Effect == EffectPardon {
		return pardon(ctx, l, o)
	}
	list, ok := l.overrides.Source.(sharedList)
	if !ok {
		return setOverrides(&l.overrides, override.Code, o)
	}
	switch err := list.store.SetOverrides(ctx, list.name, o); {
	case errors.Is(err, ErrInvalidConfig): // the list would be too long
		return err
	case err != nil:
		return callError(ctx, err)
	}
	l.overrides.ReadAfter(ctx, entriesOf(o))
	return nil
}

// ReloadOverrides sets the Overrides that a file has, which are those of this process. They take the place of those that the
// last call of ReloadOverrides or [RateLimiter.ReloadAll] has set; all others stay. An Override that has ended is left out.
// The other errors are those of [RateLimiter.Override].
func (l *RateLimiter) ReloadOverrides(o ...Override) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	if err := checkFileOverrides(l.settings.store, l.set.Load(), o); err != nil {
		return err
	}
	return setOverrides(&l.overrides, override.File, o)
}

// Overrides returns all Overrides that have not ended, also those of other processes and of files, in the order of the
// clients and then the addresses. IPv4 addresses in IPv6 are written as IPv4. The error is that of the [Store].
func (l *RateLimiter) Overrides(ctx context.Context) ([]Override, error) {
	if ctx = orBackground(ctx); l.overrides.Source != nil {
		if err := l.overrides.Read(ctx); err != nil {
			return nil, callError(ctx, err)
		}
	}
	return overridesOf(l.overrides.All()), nil
}

// OverrideStats returns how many requests Overrides have changed, and how many Overrides there are.
func (l *RateLimiter) OverrideStats() (s OverrideStats) {
	b := &l.overrides
	s.Blocked, s.Exempted, s.Rated = b.Blocked.Load(), b.Exempted.Load(), b.Rated.Load()
	s.Blocks, s.Exemptions, s.Rates = b.Live()
	return s
}

// wallOf returns the time of the clock c or, if it is nil, that of the machine's clock that people read.
func wallOf(c Clock) time.Time {
	if c != nil {
		return c.Now()
	}
	return time.Now().Round(0)
}

// setOverrides sets the Overrides o, which are valid, in a layer of b. If it is that of the file, they replace it.
func setOverrides(b *override.Board, layer override.Layer, o []Override) error {
	if n, ok := b.Apply(layer, entriesOf(o), layer == override.File); !ok {
		return &ConfigError{"overrides", n, "must be at most " + strconv.Itoa(override.MaxOwn)}
	}
	return nil
}

// checkFileOverrides returns everything that is wrong with the Overrides in all, which a file has, for the rules in set.
func checkFileOverrides(store Store, set *ruleSet, all []Override) error {
	if len(all) > override.MaxOwn {
		return &ConfigError{"overrides", len(all), "must be at most " + strconv.Itoa(override.MaxOwn)}
	}
	for i := range all {
		if effect := all[i].Effect; effect == "" || effect == EffectPardon {
			return &ConfigError{"overrides[" + strconv.Itoa(i) + "].effect", strconv.Quote(effect), `must be one of "block", "exempt", "rate"`}
		}
	}
	return checkOverrides(store, set, all, time.Time{}) // all are in the future of this time: those that have ended are left out
}

// checkOverrides returns everything that is wrong with these Overrides at the time now, for the rules in set.
func checkOverrides(store Store, set *ruleSet, all []Override, now time.Time) error {
	check := newRuleCheck(store)
	for i := range all {
		x, path := all[i].out(), "overrides["+strconv.Itoa(i)+"]"
		if (x.Effect == EffectPardon) != (all[0].Effect == EffectPardon) {
			reason := "must not be given together with a pardon, which is done at once"
			return &ConfigError{path + ".effect", strconv.Quote(x.Effect), reason}
		}
		if field, value, reason := x.Check(now); field != "" {
			check.problems = append(check.problems, &ConfigError{path + "." + field, value, reason})
			continue
		}
		rules, unknown := set.rules, false
		if len(x.Rules) > 0 {
			rules = nil
		}
		for _, name := range x.Rules {
			if r := set.named(name); r != nil {
				rules = append(rules, r)
			} else if unknown = true; x.Effect != override.Lift {
				check.within(path+".rules", &unknownRule{name, set})
			}
		}
		if x.Effect == override.Rate && !unknown {
			checkOverrideRate(check, path, x, rules)
		}
	}
	return errors.Join(check.problems...)
}

// checkOverrideRate checks the rate of o, which is for these rules. path is how errors name o.
func checkOverrideRate(check *ruleCheck, path string, o *override.Override, rules []*activeRule) {
	fits := 0
	for _, r := range rules {
		if r.Limiter != nil || !r.key.Has(partOf(o)) {
			if len(o.Rules) > 0 {
				part := map[keyspec.Kind]string{keyspec.User: "client", keyspec.IP: "address"}[partOf(o)]
				reason := "must have only rules whose keys belong to one " + part + ": others would get the rate, too"
				check.problems = append(check.problems, &ConfigError{path + ".rules", strconv.Quote(r.Name), reason})
			}
			continue
		}
		fits++
		check.addRate(&givenRule{r.Rule, path, true, r.isDefault}, path+".rate", Rate(o.Rate))
		check.within(path+".rate", algorithms[r.Algorithm].otherWindow(r.Rate, Rate(o.Rate)))
		check.within(path+".rate", r.Warmup.fits(Rate(o.Rate)))
	}
	if fits == 0 && len(o.Rules) == 0 {
		reason := "has no rule: the keys of none belong to one client, or address"
		check.problems = append(check.problems, &ConfigError{path + ".rate", Rate(o.Rate), reason})
	}
}

// denyBlocked denies d, because an override blocks the request, and returns the answer.
func (l *RateLimiter) denyBlocked(ctx context.Context, d *decision) (res Result, err error) {
	rest := d.ruled.Rest()
	res = Result{RetryAfter: rest, ResetAfter: rest, Reason: ReasonOverride}
	clear(d.exempt)
	d.rules, d.exempt, d.Now = nil, d.exempt[:0], l.time.Now() // d.parts stays as it is, so that free clears it
	if !d.decided() {
		return res, nil
	}
	l.overrides.Blocked.Add(1)
	if l.settings.observer != nil {
		hash := keytable.HashOfPair(d.request.Client, d.request.IP)
		l.tell(ctx, &d.request, nil, &verdicts{by: byOverride, hash: hash, now: d.Now}, -1, &res, nil, d.watch.Elapsed(&l.time))
	}
	return res, nil
}

// penalties gives the new rule a its table of strikes: that of the rule old, which a replaces, if carryOver is set. The result
// must be called when the rules take effect; it may be nil.
func (c *change) penalties(a, old *activeRule, carryOver bool) (commit func(now instant)) {
	switch rule := penalty.Rule(a.Penalty); {
	case a.Penalty == Penalty{}:
		return nil
	case carryOver && old.penal != nil:
		a.penal = old.penal
		return func(instant) { a.penal.SetRule(rule) }
	default:
		a.penal = penalty.New(rule, c.l.settings.maxKeys)
		return nil
	}
}

// penaltyRest returns how long a rule's Penalty still blocks the request of d, or 0.
func penaltyRest(d *decision, t *engine.Timeline) (rest time.Duration) {
	for i := range d.parts {
		rest = max(rest, d.origins[i].bar.Rest(t, &d.parts[i]))
	}
	return rest
}

// strike counts the denial of d as a strike for each of its rules that has a Penalty and denies.
func strike(d *decision) {
	if d.Passes || d.noStrike || d.order.Mode != engine.ModeTake || d.Replayed {
		return
	}
	for i, r := range d.rules {
		if o := &d.origins[i]; r.penal != nil && o.by == byMemory && o.bar.Strike(&d.parts[i], r.whose(&d.request), d.Now) {
			r.totals.Add(counters.Penalized, 1)
		}
	}
}

// pardon ends the running blocks of those whom the Overrides in all name, all of which have EffectPardon. With a store, it
// can find only the keys that are of the client alone, or of the address alone.
func pardon(ctx context.Context, l *RateLimiter, all []Override) error {
	var asks []Ask
	entries, rules := entriesOf(all), l.set.Load().rules
	each := func(do func(whom *override.Entry, given string, r *activeRule)) {
		for i := range entries {
			for _, r := range rules {
				if r.penal != nil && entries[i].IsFor(r.Name) {
					do(&entries[i], all[i].IP, r)
				}
			}
		}
	}
	each(func(whom *override.Entry, given string, r *activeRule) {
		if r.remote == nil || (r.Key != KeyUser || whom.Client == "") && (r.Key != KeyIP || !whom.IsAddress()) {
			return
		}
		asks = append(asks, r.ask(&Request{Client: whom.Client, IP: whom.IP}, r.Rate))
		if given != whom.IP { // the key may have the address as the operator writes it
			asks = append(asks, r.ask(&Request{IP: given}, r.Rate))
		}
	})
	if len(asks) > 0 {
		store, ok := l.settings.store.(StorePardoner)
		if !ok {
			return storeError(errors.New("it has no method Pardon"))
		}
		if err := store.Pardon(ctx, asks); err != nil {
			return callError(ctx, err)
		}
	}
	each(func(whom *override.Entry, _ string, r *activeRule) {
		r.penal.Pardon(func(w *penalty.Whose) bool { return whom.Owns(w.Client, w.IP) })
	})
	l.overrides.Wake()
	l.retries.Wake()
	return nil
}
