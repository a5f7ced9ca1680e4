package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// overrides are the Overrides of a limiter.
type overrides struct {
	override.Board
	limiter *RateLimiter   // nil for the zero RateLimiter
	shared  StoreOverrider // has the list that processes share; nil if the Overrides are those of this process
}

// shareOverrides prepares l to keep its Overrides in the store, if it has the option WithOverrides. It returns an error if
// the store cannot keep them.
func (l *RateLimiter) shareOverrides() error {
	if !l.settings.overrides || l.settings.single {
		return nil
	}
	var ok bool
	if l.overrides.shared, ok = l.settings.store.(StoreOverrider); !ok {
		reason := "must have the methods SetOverrides and OverridesSince: WithOverrides keeps overrides in it"
		return &ConfigError{"store", fmt.Sprintf("%T", l.settings.store), reason}
	}
	return nil
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
	if err := l.overrides.check(l.set.Load(), o, l.overrides.Now(l.overrides.wall())); err != nil {
		return err
	}
	ctx = orBackground(ctx)
	switch {
	case len(o) > 0 && o[0].Effect == EffectPardon:
		return l.overrides.pardon(ctx, o)
	case l.overrides.shared == nil || len(o) == 0:
		return l.overrides.change(override.Code, entriesOf(o), false, nil)
	}
	switch err := l.overrides.shared.SetOverrides(ctx, l.settings.name, o); {
	case errors.Is(err, ErrInvalidConfig): // the list would be too long
		return err
	case err != nil:
		return callError(ctx, err)
	}
	return l.overrides.readSet(ctx, o)
}

// ReloadOverrides sets the Overrides that a file has, which are those of this process. They take the place of those that the
// last call of ReloadOverrides or [RateLimiter.ReloadAll] has set; all others stay. An Override that has ended is left out.
// The other errors are those of [RateLimiter.Override].
func (l *RateLimiter) ReloadOverrides(o ...Override) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	if err := l.overrides.checkOfFile(l.set.Load(), o); err != nil {
		return err
	}
	return l.overrides.setOfFile(o)
}

// Overrides returns all Overrides that have not ended, also those of other processes and of files, in the order of the
// clients and then the addresses. IPv4 addresses in IPv6 are written as IPv4. The error is that of the [Store].
func (l *RateLimiter) Overrides(ctx context.Context) ([]Override, error) {
	if l.overrides.shared != nil {
		if err := l.overrides.readNow(orBackground(ctx)); err != nil {
			return nil, err
		}
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	now := l.overrides.Now(l.overrides.wall())
	all := l.overrides.All(override.Code, override.Shared, override.File)
	return overridesOf(slices.DeleteFunc(all, func(e override.Entry) bool { return e.Ended(now) })), nil
}

// OverrideStats returns how many requests Overrides have changed, and how many Overrides there are.
func (l *RateLimiter) OverrideStats() OverrideStats {
	b, now := &l.overrides, l.overrides.Now(l.overrides.wall())
	set := b.Set()
	return OverrideStats{b.Blocked.Load(), b.Exempted.Load(), b.Rated.Load(),
		set.Live(override.Block, now), set.Live(override.Exempt, now), set.Live(override.Rate, now)}
}

// wall returns the time of the clock that people read, which goes on while the machine sleeps.
func (o *overrides) wall() time.Time {
	if o.limiter == nil {
		return wallOf(nil)
	}
	return wallOf(o.limiter.settings.clock)
}

// wallOf returns the time of the clock c or, if it is nil, that of the machine's clock that people read.
func wallOf(c Clock) time.Time {
	if c != nil {
		return c.Now()
	}
	return time.Now().Round(0)
}

// readSet reads the list in the store after o were set there. If that fails, it sets o in the copy of the list.
func (o *overrides) readSet(ctx context.Context, all []Override) error {
	if err := o.readNow(ctx); err == nil {
		return nil
	}
	o.limiter.changing.Lock()
	version := o.Version()
	o.limiter.changing.Unlock()
	_ = o.change(override.Shared, entriesOf(all), false, &[2]override.Version{version, override.Unknown}) // errStale: it was read meanwhile
	return nil
}

// change changes the overrides of this layer, as Board.Plan says, and decides anew on callers who wait. If the changes were
// read from the store, versions are the version since which they were made, and the new one. The result is errStale if the
// copy of the list already has changes which these do not have, or were not made since.
func (o *overrides) change(layer override.Layer, changes []override.Entry, whole bool, versions *[2]override.Version) error {
	l := o.limiter
	l.time.Renew()
	l.changing.Lock()
	defer l.changing.Unlock()
	if versions != nil && !o.SetVersion(versions[0], versions[1], whole) {
		return errStale
	}
	touched, n, commit := o.Plan(layer, changes, whole, o.Now(o.wall()))
	if layer != override.Shared && n > override.MaxOwn {
		return &ConfigError{"overrides", n, "must be at most " + strconv.Itoa(override.MaxOwn)}
	}
	l.waiters.ChangeRules(func(instant) { commit() }, func(in *waitline.Waiter) bool {
		req := in.Owner.(*ruleWait).req
		met := touched.Find(req.Client, req.IP)
		return !met.None()
	})
	l.retries.Wake()
	return nil
}

// checkOfFile returns everything that is wrong with the Overrides in all, which a file has, for the rules in set.
func (o *overrides) checkOfFile(set *ruleSet, all []Override) error {
	if len(all) > override.MaxOwn {
		return &ConfigError{"overrides", len(all), "must be at most " + strconv.Itoa(override.MaxOwn)}
	}
	for i := range all {
		if effect := all[i].Effect; effect == "" || effect == EffectPardon {
			return &ConfigError{"overrides[" + strconv.Itoa(i) + "].effect", strconv.Quote(effect), `must be one of "block", "exempt", "rate"`}
		}
	}
	return o.check(set, all, time.Time{}) // all are in the future of this time: those that have ended are left out
}

// setOfFile replaces the Overrides of a file by those in all, which checkOfFile has checked.
func (o *overrides) setOfFile(all []Override) error {
	now := o.Now(o.wall())
	live := slices.DeleteFunc(entriesOf(all), func(e override.Entry) bool { return e.Ended(now) })
	return o.change(override.File, live, true, nil)
}

// check returns everything that is wrong with these Overrides at the time now, for the rules in set.
func (o *overrides) check(set *ruleSet, all []Override, now time.Time) error {
	var problems []error
	for i := range all {
		if all[i].Effect != all[0].Effect && (all[i].Effect == EffectPardon || all[0].Effect == EffectPardon) {
			reason := "must not be given together with a pardon, which is done at once"
			return &ConfigError{"overrides[" + strconv.Itoa(i) + "].effect", strconv.Quote(all[i].Effect), reason}
		}
	}
	for i := range all {
		x, path := all[i].out(), "overrides["+strconv.Itoa(i)+"]"
		if field, value, reason := x.Check(now); field != "" {
			problems = append(problems, &ConfigError{path + "." + field, value, reason})
			continue
		}
		check := newRuleCheck(&o.limiter.settings)
		rules := set.rules
		if len(x.Rules) > 0 {
			rules = nil
		}
		for _, name := range x.Rules {
			if r := set.named(name); r != nil {
				rules = append(rules, r)
			} else if x.Effect != override.Lift {
				check.within(path+".rules", &unknownRule{name, set})
			}
		}
		if x.Effect == override.Rate && len(check.problems) == 0 {
			checkOverrideRate(check, path, x, rules)
		}
		problems = append(problems, check.problems...)
	}
	return errors.Join(problems...)
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
		check.addRate(&checkedRule{r.Rule, path, true, r.isDefault}, path+".rate", Rate(o.Rate))
		check.within(path+".rate", algorithms[r.Algorithm].otherWindow(r.Rate, Rate(o.Rate)))
		check.within(path+".rate", r.Warmup.fits(Rate(o.Rate)))
	}
	if fits == 0 && len(o.Rules) == 0 {
		reason := "has no rule: the keys of none belong to one client, or address"
		check.problems = append(check.problems, &ConfigError{path + ".rate", Rate(o.Rate), reason})
	}
}

// meet reports whether there may be an Override for req, so that the general path must decide. It allocates nothing.
func (o *overrides) meet(req *Request) bool {
	o.read()
	set := o.Set()
	if set == nil {
		return false
	}
	met := set.Find(req.Client, req.IP)
	return !met.None()
}

// read reads the list in the store, beside the caller, if there is one that was last read more than a second ago.
func (o *overrides) read() {
	if o.shared == nil {
		return
	}
	if o.BeginRead(int64(o.limiter.time.Now())) {
		go func() {
			defer o.EndRead()
			_ = o.readNow(context.Background()) // if the store cannot be reached, the old copy decides on
		}()
	}
}

// errStale means that another goroutine has changed the copy of the list in the store meanwhile.
var errStale = errors.New("ratelimit: the overrides have changed meanwhile")

// readNow reads what has changed in the list in the store.
func (o *overrides) readNow(ctx context.Context) (err error) {
	const tries = 10
	for range tries {
		if err = o.readOnce(ctx); !errors.Is(err, errStale) {
			return err
		}
	}
	return storeError(err)
}

// readOnce does what readNow does, but may return errStale.
func (o *overrides) readOnce(ctx context.Context) error {
	l := o.limiter
	l.changing.Lock()
	version := o.Version()
	l.changing.Unlock()
	c, err := o.shared.OverridesSince(ctx, l.settings.name, OverrideVersion(version))
	if err != nil {
		return callError(ctx, err)
	}
	o.SetClock(c.Now, o.wall())
	if c.Version == OverrideVersion(version) {
		return nil
	}
	changes := make([]override.Entry, 0, len(c.Lifted)+len(c.Set))
	for i := range c.Lifted {
		changes = append(changes, override.NewEntry(*c.Lifted[i].out()).Lifting())
	}
	return o.change(override.Shared, append(changes, entriesOf(c.Set)...), c.Whole, &[2]override.Version{version, override.Version(c.Version)})
}

// now returns the overrides by which a decision is made that begins now, on a request whose context has this doubt.
func (o *overrides) now(doubt *override.Doubt) override.At { return o.At(doubt, o.wall) }

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

// count counts d if an override exempts it from a rule, or gives a rule another rate.
func (o *overrides) count(d *decision) {
	switch {
	case !d.decided():
		return
	case d.ruled.Freed > 0:
		o.Exempted.Add(1)
	}
	if d.ruled.Rated > 0 {
		o.Rated.Add(1)
	}
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
			r.totals.Add(counters.Penalized, 1)
		}
		if rest > 0 {
			o.penalize(p, rest)
		}
	}
}

// pardon ends the running blocks of those whom the overrides in all name, all of which have EffectPardon. With a store, it
// can find only the keys that are of the client alone, or of the address alone.
func (o *overrides) pardon(ctx context.Context, all []Override) error {
	if len(all) == 0 {
		return nil
	}
	l := o.limiter
	var asks []Ask
	var here []func() // the pardons in this process, which are done when the store has done its own
	for i := range all {
		whom := &all[i]
		e := override.NewEntry(*whom.out())
		client := keytable.HashOf(whom.Client)
		named := func(w *penalty.Whose) bool {
			return whom.Client != "" && w.Client == client || whom.IP != "" && w.IP.IsValid() && e.Covers(w.IP)
		}
		for _, r := range l.set.Load().rules {
			if r.penal == nil || len(whom.Rules) > 0 && !slices.Contains(whom.Rules, r.Name) {
				continue
			}
			here = append(here, func() { r.penal.Pardon(named) })
			if r.remote != nil && (r.Key == KeyUser && whom.Client != "" || r.Key == KeyIP && e.IsAddress()) {
				asks = append(asks, r.ask(&Request{Client: whom.Client, IP: e.IP}, r.Rate))
				if whom.IP != e.IP { // the key may have the address as the operator writes it
					asks = append(asks, r.ask(&Request{IP: whom.IP}, r.Rate))
				}
			}
		}
	}
	if len(asks) > 0 {
		store, ok := l.settings.store.(StorePardoner)
		if !ok {
			return storeError(errors.New("it has no method Pardon"))
		}
		if err := store.Pardon(ctx, asks); err != nil {
			return callError(ctx, err)
		}
	}
	for _, pardon := range here {
		pardon()
	}
	o.Wake()
	l.retries.Wake()
	return nil
}
