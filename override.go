package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// The values of [Override.Effect].
const (
	EffectBlock  = "block"  // deny all requests
	EffectExempt = "exempt" // the rules do not take part: they neither limit nor charge
	EffectRate   = "rate"   // [Override.Rate] is the limit, in place of [Rule.Rate], Tiers and Resolve
	EffectPardon = "pardon" // once: end the blocks that a [Penalty] has begun, and forget the strikes
)

// An Override is an exception from the rules for one client or for some addresses. [RateLimiter.Override] sets it.
//
// For each rule, the most specific Override decides: one of the Client before those of addresses, a longer prefix before
// a shorter one, one that names the rule before one for all rules, and of equal ones, a block, then an exemption, then a
// rate. If a block decides for one of the rules, the request is denied, and no rule is asked.
type Override struct {
	// Client or IP says whom the Override is for; the other one is empty. Client has at most 4096 bytes. IP is an address
	// such as "203.0.113.9", or a prefix such as "10.0.0.0/8". If [Request.IP] is a prefix itself, a block applies if
	// the two overlap; any other Override applies only if the prefix of the request lies inside IP.
	Client string `json:"client,omitempty"`
	IP     string `json:"ip,omitempty"` // see Client

	// Rules are the names of the rules that it is for. None means all rules: a block then also denies requests to which
	// no rule applies.
	Rules []string `json:"rules,omitempty"`

	// Effect is one of the constants. The empty Effect lifts the Overrides of this Client or IP: all of them or, with
	// Rules, those that have the same Rules.
	Effect string `json:"effect,omitempty"`

	// Rate is the limit of each key, for EffectRate. It applies to those of the Rules whose keys belong to one client (for
	// a Client) or to one address (for an IP). With the Algorithm of a window, it has the Per of the rule. If a change of
	// a rule makes the Rate unfit for it, the Override has no effect on this rule.
	Rate Rate `json:"rate,omitzero"`

	// Until is when the Override ends; the zero Time means that it lasts until it is lifted.
	Until time.Time `json:"until,omitzero"`

	// Note is a text for people, of at most 256 bytes: who has set it, and why.
	Note string `json:"note,omitempty"`
}

// OverrideStats count the requests that an [Override] has changed, since the limiter was made, and the Overrides.
type OverrideStats struct {
	Blocked  uint64 // requests that a block has denied
	Exempted uint64 // requests that an exemption has freed from at least one rule
	Rated    uint64 // requests for which at least one rule had the rate of an Override

	Blocks, Exemptions, Rates int // Overrides of each effect that have not ended
}

// String returns o in words. The text may change.
func (o Override) String() string { return o.out().String() }

// out converts o, which may be nil, to the type of package override.
func (o *Override) out() *override.Override {
	if o == nil {
		return nil
	}
	return &override.Override{Client: o.Client, IP: o.IP, Rules: o.Rules, Effect: override.Effect(o.Effect), Rate: ratetext.Rate(o.Rate),
		Until: o.Until, Note: o.Note}
}

// overrideIn converts o, which may be nil, from the type of package override.
func overrideIn(o *override.Override) *Override {
	if o == nil {
		return nil
	}
	return &Override{o.Client, o.IP, o.Rules, string(o.Effect), Rate(o.Rate), o.Until, o.Note}
}

// overrideOf returns the Override of e, which may be nil.
func overrideOf(e *override.Entry) *Override {
	if e == nil {
		return nil
	}
	return overrideIn(&e.Override)
}

// entriesOf converts all to the form that package override keeps them in.
func entriesOf(all []Override) (entries []override.Entry) {
	for i := range all {
		entries = append(entries, override.NewEntry(*all[i].out()))
	}
	return entries
}

// overridesOf converts entries to Overrides.
func overridesOf(entries []override.Entry) (all []Override) {
	for i := range entries {
		all = append(all, *overrideOf(&entries[i]))
	}
	return all
}

// Override sets each Override in o, or lifts others if its Effect is empty: all of them, or none if there is an error. It
// takes the place of one with the same Client or IP, the same Effect and the same Rules in any order. Overrides stay when
// the rules change. Callers of Wait whom a change concerns are decided on anew, but keep their places.
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
	if err := l.checkOverrides(l.set.Load(), o, l.overrides.Now(l.wall())); err != nil {
		return err
	}
	isPardon := func(o Override) bool { return o.Effect == EffectPardon }
	changes, layer := slices.DeleteFunc(slices.Clone(o), isPardon), override.Code
	if l.settings.overrides && len(changes) > 0 {
		layer = override.Shared
		if err := l.settings.store.(StoreOverrider).SetOverrides(orBackground(ctx), l.settings.name, changes); err != nil {
			return l.remote.overrideError(ctx, err)
		}
	}
	if err := l.override(layer, entriesOf(changes), false, nil); err != nil {
		return err
	}
	return l.pardon(ctx, slices.DeleteFunc(slices.Clone(o), func(o Override) bool { return !isPardon(o) }))
}

// ReloadOverrides sets the Overrides that a file has, which are those of this process. They take the place of those that the
// last call of ReloadOverrides or [RateLimiter.ReloadAll] has set; all others stay. An Override that has ended is left out.
// The other errors are those of [RateLimiter.Override].
func (l *RateLimiter) ReloadOverrides(o ...Override) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	if err := l.checkOfFile(l.set.Load(), o); err != nil {
		return err
	}
	return l.setOfFile(o)
}

// Overrides returns all Overrides that have not ended, also those of other processes and of files, in the order of the
// clients and then the addresses. IPv4 addresses in IPv6 are written as IPv4. The error is that of the [Store].
func (l *RateLimiter) Overrides(ctx context.Context) ([]Override, error) {
	if l.settings.overrides {
		if err := l.readOverrides(orBackground(ctx)); err != nil {
			return nil, err
		}
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	now := l.overrides.Now(l.wall())
	all := slices.DeleteFunc(l.overrides.All(override.Code, override.Shared, override.File), func(e override.Entry) bool { return e.Ended(now) })
	return overridesOf(all), nil
}

// OverrideStats returns how many requests Overrides have changed, and how many Overrides there are.
func (l *RateLimiter) OverrideStats() OverrideStats {
	b, now := &l.overrides, l.overrides.Now(l.wall())
	set := b.Set()
	return OverrideStats{b.Blocked.Load(), b.Exempted.Load(), b.Rated.Load(),
		set.Live(override.Block, now), set.Live(override.Exempt, now), set.Live(override.Rate, now)}
}

// wall returns the time of the clock that people read, which goes on while the machine sleeps.
func (l *RateLimiter) wall() time.Time { return wallOf(l.settings.clock) }

// wallOf returns the time of the clock c or, if it is nil, that of the machine's clock that people read.
func wallOf(c Clock) time.Time {
	if c != nil {
		return c.Now()
	}
	return time.Now().Round(0)
}

// override changes the overrides of this layer, as Board.Plan says, and decides anew on callers who wait. If the changes were
// read from the store, versions are the version since which they were made, and the new one. If another goroutine has made
// changes since, override does nothing, because the next read has all of them.
func (l *RateLimiter) override(layer override.Layer, changes []override.Entry, whole bool, versions *[2]override.Version) error {
	l.time.Renew()
	l.changing.Lock()
	defer l.changing.Unlock()
	if versions != nil {
		if l.overrides.Version() != versions[0] {
			return nil
		}
		l.overrides.SetVersion(versions[1])
	}
	touched, n, commit := l.overrides.Plan(layer, changes, whole, l.overrides.Now(l.wall()))
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

// checkOverrides returns everything that is wrong with these Overrides at the time now, for the rules in set.
func (l *RateLimiter) checkOverrides(set *ruleSet, all []Override, now time.Time) error {
	var problems []error
	for i := range all {
		o, path := all[i].out(), "overrides["+strconv.Itoa(i)+"]"
		if field, value, reason := o.Check(now); field != "" {
			problems = append(problems, &ConfigError{path + "." + field, value, reason})
			continue
		}
		check := newRuleCheck(&l.settings)
		rules := set.rules
		if len(o.Rules) > 0 {
			rules = nil
		}
		for _, name := range o.Rules {
			if r := set.named(name); r != nil {
				rules = append(rules, r)
			} else if o.Effect != override.Lift {
				check.within(path+".rules", &unknownRule{name, set})
			}
		}
		if o.Effect == override.Rate && len(check.problems) == 0 {
			checkOverrideRate(check, path, o, rules)
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
		check.problems = append(check.problems, &ConfigError{path + ".rate", Rate(o.Rate), "has no rule: the keys of none belong to one client, or address"})
	}
}

// partOf returns the part that a key must have so that it belongs to the one whom o is for.
func partOf(o *override.Override) keyspec.Kind {
	if o.IP != "" {
		return keyspec.IP
	}
	return keyspec.User
}

// takes reports whether the override e, which has a rate, can be applied to the rule r.
func (r *activeRule) takes(e *override.Entry) bool {
	rate := Rate(e.Rate)
	return r.Limiter == nil && r.key.Has(partOf(&e.Override)) && algorithms[r.Algorithm].validate(rate) == nil &&
		algorithms[r.Algorithm].otherWindow(r.Rate, rate) == nil && r.Warmup.fits(rate) == nil
}

// overridden reports whether there may be an Override for req, so that the general path must decide. It allocates nothing.
func (l *RateLimiter) overridden(req *Request) bool {
	if l.settings.overrides {
		l.readOverridesSometimes()
	}
	set := l.overrides.Set()
	if set == nil {
		return false
	}
	met := set.Find(req.Client, req.IP)
	return !met.None()
}

// readOverridesSometimes reads the list in the store, beside the caller, if it was last read more than a second ago.
func (l *RateLimiter) readOverridesSometimes() {
	if l.overrides.BeginRead(int64(l.time.Now())) {
		go func() {
			defer l.overrides.EndRead()
			_ = l.readOverrides(context.Background()) // if the store cannot be reached, the old copy decides on
		}()
	}
}

// readOverrides reads what has changed in the list of overrides in the store.
func (l *RateLimiter) readOverrides(ctx context.Context) error {
	l.changing.Lock()
	version := l.overrides.Version()
	l.changing.Unlock()
	c, err := l.settings.store.(StoreOverrider).OverridesSince(ctx, l.settings.name, OverrideVersion(version))
	if err != nil {
		return l.remote.overrideError(ctx, err)
	}
	l.overrides.SetClock(c.Now, l.wall())
	if c.Version == OverrideVersion(version) {
		return nil
	}
	changes := make([]override.Entry, 0, len(c.Lifted)+len(c.Set))
	for _, o := range c.Lifted {
		changes = append(changes, override.NewEntry(*o.out()).Lifting())
	}
	return l.override(override.Shared, append(changes, entriesOf(c.Set)...), c.Whole, &[2]override.Version{version, override.Version(c.Version)})
}

// overrideError returns err, an error of the store, as an error that matches ErrStore, ErrInvalidConfig or that of ctx.
func (c *storeCaller) overrideError(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrInvalidConfig) {
		return cmp.Or(ctx.Err(), err)
	}
	return storeError(err)
}

// overridesNow returns the overrides by which a decision is made that begins now.
func (l *RateLimiter) overridesNow() override.At { return l.overrides.At(l.wall) }

// ruledBy returns what an override says about the rule r, as activeRule.resolved does. ok is false if none decides.
func ruledBy(u *override.Ruling, r *activeRule) (rate Rate, ok, exempt bool) {
	e := u.Rule(r.Name, r.takes)
	if e == nil || e.Effect == override.Rate {
		return Rate(e.RateOf()), e != nil, false
	}
	return unlimitedRate, true, true
}

// denyBlocked denies d, because an override blocks the request, and returns the answer.
func (l *RateLimiter) denyBlocked(ctx context.Context, d *decision) (res Result, err error) {
	rest := d.ruled.Rest()
	res = Result{RetryAfter: rest, ResetAfter: rest, Reason: ReasonOverride}
	d.rules, d.parts, d.exempt, d.Now = nil, d.parts[:0], d.exempt[:0], l.time.Now()
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

// countOverridden counts d if an override exempts it from a rule, or gives a rule another rate.
func (l *RateLimiter) countOverridden(d *decision) {
	switch {
	case !d.decided():
		return
	case d.ruled.Freed > 0:
		l.overrides.Exempted.Add(1)
	}
	if d.ruled.Rated > 0 {
		l.overrides.Rated.Add(1)
	}
}

// waitBarred waits because the request of d is blocked for the time rest, by an override or a Penalty. Then, or when overrides
// change before, the error is ErrChanged, and the caller decides anew. If the caller cannot wait so long, it returns the
// denial of the function deny.
func (w *ruleWait) waitBarred(rest time.Duration, deny func() (Result, error)) (Result, error) {
	l := w.limiter
	changed := l.overrides.Changed()
	if l.overrides.Set() != w.overrides.Set {
		return Result{}, waitline.ErrChanged
	}
	err := waitError(Result{RetryAfter: rest}, rest, l.time.Patience(w.ctx))
	if n := l.overrides.Barred.Add(1); err == nil && n > int64(l.settings.maxWaiters) {
		err = ErrTooManyWaiters
	}
	defer l.overrides.Barred.Add(-1)
	if err != nil {
		res, problem := deny()
		return res, errors.Join(err, problem)
	}
	if err := l.time.Sleep(w.ctx, l.time.Now(), rest, changed); err != nil {
		return Result{}, err
	}
	return Result{}, waitline.ErrChanged
}
