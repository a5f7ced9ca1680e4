package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/explained"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/mirror"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
	"github.com/ratelimit-go/ratelimit/internal/waitline"
)

// The values of [Override.Effect].
const (
	EffectBlock  = "block"  // deny all requests
	EffectExempt = "exempt" // the rules do not take part: they neither limit nor charge
	EffectRate   = "rate"   // [Override.Rate] is the limit, in place of [Rule.Rate], Tiers and Resolve
	EffectPardon = "pardon" // end, at once, the blocks that a [Penalty] has begun, and forget the strikes; only in a call of its own
)

// An Override is an exception from the rules for one client or for some addresses. [RateLimiter.Override] sets it.
//
// For each rule, the most specific Override decides: one for the Client before one for an address, a longer prefix before
// a shorter one, and one that names the rule before one for all rules. Of equally specific ones, a block comes before an exemption,
// and an exemption before a rate. If a block decides for one of the rules, the request is denied, and no rule is asked.
type Override struct {
	// Client or IP says whom the Override is for; the other one is empty. Client has at most 4096 bytes. IP is an address
	// such as "203.0.113.9", or a prefix such as "10.0.0.0/8". If [Request.IP] is a prefix itself, a block applies if
	// the two overlap; any other Override applies only if the prefix of the request lies inside IP.
	Client string `json:"client,omitempty"`
	IP     string `json:"ip,omitempty"` // see Client

	// Rules are the names of the rules that the Override is for. An empty list means all rules: a block then also denies
	// requests to which no rule applies.
	Rules []string `json:"rules,omitempty"`

	// Effect is one of the constants. The empty Effect lifts the Overrides of this Client or IP: all of them or, with
	// Rules, those that have the same Rules. Overrides from a file stay: remove them from the file.
	Effect string `json:"effect,omitempty"`

	// Rate is the limit of each key, for EffectRate. It applies only to rules whose keys belong to one client (for a Client) or to one
	// address (for an IP). For a rule that counts in windows, the Rate must have the Per of that rule. If a change of a rule makes the
	// Rate unfit for that rule, the Override has no effect on this rule.
	Rate Rate `json:"rate,omitzero"`

	// Until is when the Override ends; the zero Time means that it lasts until it is lifted. A request that waits at
	// that time, in a call of Wait, keeps its exemption or Rate until it is served.
	Until time.Time `json:"until,omitzero"`

	// Note is a text for people, of at most 256 bytes: who has set the Override, and why.
	Note string `json:"note,omitempty"`
}

// OverrideStats count the requests that an [Override] has affected since the limiter was made, and the Overrides in force.
type OverrideStats struct {
	Blocked  uint64 // requests that a block has denied
	Exempted uint64 // requests that an exemption has freed from at least one rule
	Rated    uint64 // requests for which at least one rule had the rate of an Override

	Blocks, Exemptions, Rates int // how many Overrides of each effect have not ended
}

// String returns o in words. The text may change.
func (o Override) String() string { return mirror.To[explained.Override](o).String() }

// initOverrides prepares l to have Overrides. With WithOverrides, the store keeps them; it is an error if the store cannot do so.
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
	l.overrides.Source = func(ctx context.Context, v override.Version) (override.Changes, error) {
		c, err := store.OverridesSince(ctx, set.name, OverrideVersion(v))
		return override.Changes{
			Version: override.Version(c.Version), Whole: c.Whole, Set: entriesOf(c.Set), Lifted: entriesOf(c.Lifted), Now: c.Now,
		}, err
	}
	return nil
}

// Override sets the Overrides in o; an Override with an empty Effect lifts others. If there is an error, nothing changes. A new
// Override replaces the one with the same Client or IP, the same Effect and the same Rules in any order. Overrides stay when the
// rules change. If a change concerns a caller of Wait, the limiter decides on its request again. The caller keeps its place in
// the queue, unless a block now denies the request.
//
// Without [WithOverrides], only this process has these Overrides, at most 65,536. With that option, the [Store] has them, at
// most 10,000, and this process obeys them at once. A block also denies a retry, by [Request.ID], of a granted request.
//
// The error lists all mistakes in o, and matches [ErrInvalidConfig] or [ErrUnknownRule]. If the Store fails, the error matches [ErrStore].
func (l *RateLimiter) Override(ctx context.Context, o ...Override) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	if err := checkOverrides(l, l.set.Load(), override.Code, o); err != nil || len(o) == 0 {
		return err
	}
	ctx = orBackground(ctx)
	if o[0].Effect == EffectPardon {
		return pardon(ctx, l, o)
	}
	if l.overrides.Source == nil {
		return setOverrides(&l.overrides, override.Code, o)
	}
	switch err := l.settings.store.(StoreOverrider).SetOverrides(ctx, l.settings.name, o); {
	case errors.Is(err, ErrInvalidConfig): // the list would be too long
		return err
	case err != nil:
		return l.remote.Error(ctx, err)
	}
	l.overrides.ReadAfter(ctx, entriesOf(o))
	return nil
}

// ReloadOverrides sets Overrides that were read from a file, in this process only. They replace the Overrides that the last
// call of ReloadOverrides or [RateLimiter.ReloadAll] has set; all others stay. An Override that has ended is no error, but is
// left out. The errors are those of [RateLimiter.Override].
func (l *RateLimiter) ReloadOverrides(o ...Override) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	if err := checkOverrides(l, l.set.Load(), override.File, o); err != nil {
		return err
	}
	return setOverrides(&l.overrides, override.File, o)
}

// Overrides returns all Overrides that have not ended, including those that other processes or files have set, in the order of
// the clients and then the addresses. IPv4 addresses in IPv6 are written as IPv4. The error is that of the [Store].
func (l *RateLimiter) Overrides(ctx context.Context) ([]Override, error) {
	if ctx = orBackground(ctx); l.overrides.Source != nil {
		if err := l.overrides.Read(ctx); err != nil {
			return nil, l.remote.Error(ctx, err)
		}
	}
	return overridesOf(l.overrides.All()), nil
}

// OverrideStats returns how many requests Overrides have changed, and how many Overrides there are.
func (l *RateLimiter) OverrideStats() OverrideStats { return OverrideStats(l.overrides.Stats()) }

// wallOf returns the time of the clock c or, if c is nil, the machine's wall-clock time.
func wallOf(c Clock) time.Time {
	if c != nil {
		return c.Now()
	}
	return time.Now().Round(0)
}

// entriesOf converts Overrides to the form in which package override keeps them.
func entriesOf(all []Override) []override.Entry {
	return override.NewEntries(mirror.To[[]override.Override](all))
}

// overridesOf converts entries to Overrides.
func overridesOf(entries []override.Entry) []Override {
	return mirror.To[[]Override](override.Plain(entries))
}

// overrideOf returns the Override of e, or nil if e is nil.
func overrideOf(e *override.Entry) *Override { return mirror.To[*Override](e.Plain()) }

// setOverrides sets the valid Overrides o in b. If layer is override.File, they replace all that a file has set before.
func setOverrides(b *override.Board, layer override.Layer, o []Override) error {
	if n, ok := b.Apply(layer, entriesOf(o), layer == override.File); !ok {
		return &ConfigError{"overrides", n, "must be at most " + strconv.Itoa(override.MaxOwn)}
	}
	return nil
}

// checkOverrides returns all mistakes in the given Overrides, which are to be set in l for the rules in set. The layer says whether
// they come from code or from a file.
func checkOverrides(l *RateLimiter, set *ruleSet, layer override.Layer, all []Override) error {
	in := mirror.To[[]override.Override](all)
	if field, value, reason := override.CheckList(in, layer); field != "" {
		return &ConfigError{field, value, reason}
	}
	var now time.Time // zero for a file, which may list Overrides that have ended: at the zero time, none has ended
	if layer != override.File {
		now = l.overrides.Time()
	}
	check := newRuleCheck(l.settings.store)
	for i := range in {
		x, path := &in[i], "overrides["+strconv.Itoa(i)+"]"
		if field, value, reason := x.Check(now); field != "" {
			check.problems = append(check.problems, &ConfigError{path + "." + field, value, reason})
			continue
		}
		rules, unknown := set.List, false
		if len(x.Rules) > 0 {
			rules = nil
		}
		for _, name := range x.Rules {
			if r := set.Named(name); r != nil {
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
		if r.Limiter != nil || !r.key.Has(o.Part()) {
			if len(o.Rules) > 0 {
				part := map[keyspec.Kind]string{keyspec.User: "client", keyspec.IP: "address"}[o.Part()]
				reason := "must have only rules whose keys belong to one " + part + ": others would get the rate, too"
				check.problems = append(check.problems, &ConfigError{path + ".rules", strconv.Quote(r.Name), reason})
			}
			continue
		}
		fits++
		check.addRate(&givenRule{r.Rule, path, true, r.isDefault}, path+".rate", rateOf(o.Rate))
		check.within(path+".rate", algorithms[r.Algorithm].otherWindow(r.Rate, rateOf(o.Rate)))
		check.within(path+".rate", r.Warmup.fits(rateOf(o.Rate)))
	}
	if fits == 0 && len(o.Rules) == 0 {
		reason := "has no rule: the keys of none belong to one client, or address"
		check.problems = append(check.problems, &ConfigError{path + ".rate", rateOf(o.Rate), reason})
	}
}

// denyBlocked denies d, because an override blocks the request, and returns the answer.
func (l *RateLimiter) denyBlocked(ctx context.Context, d *decision) (res Result) {
	rest := d.ruled.Rest()
	res = Result{RetryAfter: rest, ResetAfter: rest, Reason: ReasonOverride}
	clear(d.exempt)
	d.rules, d.exempt, d.Now = nil, d.exempt[:0], l.time.Now() // d.parts stays as it is, so that free clears it
	if !d.decided() {
		return res
	}
	l.overrides.Blocked.Add(1)
	if l.settings.observer != nil {
		hash := keytable.HashOfPair(d.request.Client, d.request.IP)
		vs := verdicts{ruled: true, whom: hash.Hi, now: d.Now, took: d.watch.Elapsed(&l.time)}
		l.tell(ctx, &d.request, nil, &vs, -1, &res, nil)
	}
	return res
}

// barredFor returns how long an Override or a Penalty still blocks the request of d, or 0.
func barredFor(d *decision, t *engine.Timeline) (rest time.Duration) {
	if d.ruled.Block != nil {
		return d.ruled.Rest()
	}
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

// pardon ends the running blocks of the clients and addresses that the given Overrides name; all have EffectPardon. In a
// store, pardon can end only the blocks of keys that are made of the client alone, or of the address alone.
func pardon(ctx context.Context, l *RateLimiter, all []Override) error {
	var asks []Ask
	var here []func() // pardon in this process
	set := l.set.Load()
	for i, whom := range entriesOf(all) {
		for _, r := range set.List {
			if r.penal == nil || !whom.IsFor(r.Name) {
				continue
			}
			here = append(here, func() { r.penal.Pardon(func(w *penalty.Whose) bool { return whom.Owns(w.Client, w.IP) }) })
			if r.remote == nil || (r.Key != KeyUser || whom.Client == "") && (r.Key != KeyIP || !whom.IsAddress()) {
				continue
			}
			asks = append(asks, r.ask(&Request{Client: whom.Client, IP: whom.IP}, r.Rate))
			if given := all[i].IP; given != whom.IP { // the key may have the address in the spelling of the Override
				asks = append(asks, r.ask(&Request{IP: given}, r.Rate))
			}
		}
	}
	if len(asks) > 0 {
		store, ok := l.settings.store.(StorePardoner)
		if !ok {
			return storeError(errors.New("it has no method Pardon"))
		}
		if err := store.Pardon(ctx, asks); err != nil {
			return l.remote.Error(ctx, err)
		}
	}
	for _, pardon := range here {
		pardon()
	}
	l.overrides.Wake()
	l.retries.Wake()
	return nil
}
