package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/match"
	"github.com/ratelimit-go/ratelimit/internal/override"
)

// AddRule adds the rule r after all rules of the limiter. If r is invalid, or if the limiter already has a rule with
// the same name, AddRule changes nothing and returns an error that matches [ErrInvalidConfig].
func (l *RateLimiter) AddRule(r Rule) error {
	return l.edit(func(c *change) error {
		return c.put(nil, given("rules["+strconv.Itoa(c.set.NumNamed())+"]", r, false))
	})
}

// SetRule puts the rule r in the place of the rule with the same name or, if there is none, adds r after all rules. As with
// [RateLimiter.Replace], the keys of the rule keep what they have used if Algorithm, Key and Unit stay the same. If the default
// rule has that name, r becomes the default rule. If r is invalid, SetRule changes nothing, and the error matches [ErrInvalidConfig].
func (l *RateLimiter) SetRule(r Rule) error {
	return l.edit(func(c *change) error { return c.setRule(given("rule", r, false)) })
}

// SetConfig reads a rule from config, as [DecodeRules] does, and sets it as [RateLimiter.SetRule] does. The rule keeps
// the Resolve and the Limiter that code gave to the old rule with the same name, see [RateLimiter.Reload].
func (l *RateLimiter) SetConfig(config map[string]any) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	r, err := newRedecoder(l).decodeOne("config", config, false)
	if err != nil {
		return err
	}
	return l.edit(func(c *change) error {
		c.built = []*hooks.Built{r.custom}
		r := given("config", r, false)
		if err := c.carryOver(r); err != nil {
			return err
		}
		return c.setRule(r)
	})
}

// RemoveRule removes the rule with this name and forgets what its keys have used in this process. The name "default"
// also stands for the default rule, unless another rule has that name. If there is no such rule, the error matches
// [ErrUnknownRule]. If [WithRequiredRules] names the rule, the rule stays, and the error matches [ErrInvalidConfig].
func (l *RateLimiter) RemoveRule(name string) error {
	return l.edit(func(c *change) error {
		old := c.set.Named(name)
		if old == nil && name == defaultName {
			old = c.set.Default()
		}
		if old == nil {
			return &unknownRule{name, c.set}
		}
		c.swap(old, nil)
		return nil
	})
}

// SetDefaultRule makes r the default rule, which applies to the endpoints that no other rule matches. If the old default
// rule has the same name, the keys keep what they have used, see [RateLimiter.Replace]. If r is invalid, SetDefaultRule
// changes nothing and returns an error that matches [ErrInvalidConfig].
func (l *RateLimiter) SetDefaultRule(r Rule) error {
	return l.edit(func(c *change) error { return c.put(c.set.Default(), given("defaultRule", r, true)) })
}

// UpdateRate changes [Rule.Rate] of the rule with this name to r. The change takes effect for all keys of the rule at
// one instant between call and return. Each key keeps what it has used, as [TokenBucket.SetRate] says. The rule's Tiers
// stay as they are. A custom [Limiter] gets r by its method SetRate(Rate) error; without that method, UpdateRate fails.
//
// If there is no such rule, the error matches [ErrUnknownRule]; if r is invalid for the rule, it matches
// [ErrInvalidConfig]. In both cases nothing changes.
func (l *RateLimiter) UpdateRate(rule string, r Rate) error {
	return l.edit(func(c *change) error {
		old := c.set.Named(rule)
		if old == nil {
			return &unknownRule{rule, c.set}
		}
		updated := old.Rule
		updated.Rate = r
		if old.Limiter != nil && r == (Rate{}) { // report the zero rate here: put would keep the old rate instead
			return errors.Join(atPath("rules["+strconv.Quote(rule)+"].rate", r.Validate())...)
		}
		if old.Limiter != nil && r == old.Rate {
			if err := c.tell(old, r); err != nil { // in case other code has set another rate in the Limiter
				return err
			}
		}
		return c.put(old, given("rules["+strconv.Quote(rule)+"]", updated, old.isDefault))
	})
}

// Replace replaces all rules and the default rule by the given ones. If anything is wrong with the given rules,
// Replace changes nothing and returns an error that lists everything that is wrong and matches [ErrInvalidConfig].
//
// If a new rule has the name, the Algorithm, the Key and the Unit of an old rule, its keys keep what they have used, and a new
// Rate takes effect as with [RateLimiter.UpdateRate]. This also holds for a rule with a custom [Limiter] if the old rule
// had the same Limiter. The keys of all other rules start as if they had never been used.
func (l *RateLimiter) Replace(rules []Rule, defaultRule *Rule) error {
	return l.edit(func(c *change) error { return c.replace(allGiven(rules, defaultRule)) })
}

// Reload replaces all rules and the default rule by rules that it reads from maps, as [DecodeRules] does. Keys keep
// what they have used, as [RateLimiter.Replace] says. If anything is wrong with the maps, Reload changes nothing and
// returns an error that lists everything that is wrong and matches [ErrInvalidConfig].
//
// A new rule keeps the Resolve and the Limiter that code gave to the old rule with the same name. A Limiter that a
// [BuildFunc] has made is kept if the algorithm and the algoConfig have not changed; otherwise the BuildFunc makes
// another one. A Limiter that a BuildFunc has made and that no rule uses any more is closed if it is an [io.Closer].
func (l *RateLimiter) Reload(configs []map[string]any, defaultConfig map[string]any) error {
	return l.reload(configs, defaultConfig, nil, nil)
}

// ReloadIf does what [RateLimiter.Reload] does, but first calls the function accept with the new rules. If accept returns
// an error, nothing changes and ReloadIf returns the error. accept may call the limiter, and may be nil.
func (l *RateLimiter) ReloadIf(configs []map[string]any, defaultConfig map[string]any, accept func([]Rule, *Rule) error) error {
	return l.reload(configs, defaultConfig, accept, nil)
}

// ReloadAll does what ReloadIf does, and then what [RateLimiter.ReloadOverrides] does with the Overrides in o, which are for
// the new rules. If there is an error, neither the rules nor the Overrides change.
func (l *RateLimiter) ReloadAll(
	configs []map[string]any, defaultConfig map[string]any, o []Override, accept func([]Rule, *Rule) error,
) error {
	err := l.reload(configs, defaultConfig, accept, func(next *ruleSet) error { return checkOverrides(l, next, override.File, o) })
	if err != nil {
		return err
	}
	return setOverrides(&l.overrides, override.File, o)
}

// reload replaces the rules by those in the maps if the functions accept and check, which get the new rules, return nil.
// Each of the two may be nil.
func (l *RateLimiter) reload(
	configs []map[string]any, defaultConfig map[string]any, accept func([]Rule, *Rule) error, check func(next *ruleSet) error,
) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	rules, defaultRule, err := newRedecoder(l).decode(configs, defaultConfig)
	if err != nil {
		return err
	}
	return l.edit(func(c *change) error {
		c.built = nil
		var problems []error
		all := allGiven(rules, defaultRule)
		for _, r := range all {
			c.built = append(c.built, r.custom)
			problems = append(problems, c.carryOver(r))
		}
		if err := errors.Join(problems...); err != nil {
			return err
		}
		if err := c.replace(all); err != nil || c.calls.Missing() || accept == nil && check == nil {
			return err
		}
		return c.calls.Ask(&c.calls, func() (err error) {
			if accept != nil {
				err = accept(c.next.list())
			}
			if err == nil && check != nil {
				err = check(c.next)
			}
			return err
		})
	})
}

// newRedecoder returns a decoder that knows the current rules of l. l is not the zero RateLimiter.
func newRedecoder(l *RateLimiter) *decoder {
	d := newDecoder(&l.settings)
	d.current = l.set.Load()
	return d
}

// A change is one call of a method that changes the rules, such as AddRule. The change is planned and made
// under the lock RateLimiter.changing. User code runs without that lock (see package hooks), so the rules may change
// meanwhile: after each call of user code, the change is planned again.
type change struct {
	l     *RateLimiter
	calls hooks.Calls
	built []*hooks.Built // custom limiters from BuildFuncs; the method end closes those that no rule uses

	// The fields below are the plan, which says what to change. Each try starts a new plan.
	set, next *ruleSet                        // the rules before and after the change
	out, in   []*activeRule                   // the rules that the change removes, and the rules that it adds
	commits   []func(now instant)             // each changes the keys of one rule, and is called by the method commit; some are nil
	rates     hooks.Teller[*activeRule, Rate] // calls SetRate of custom limiters
}

// maxTries is how often edit plans a change before it gives up. Many tries are needed only if a custom SetRate changes rules.
const maxTries = 100

// edit makes one change of the rules, or returns an error. The function plan says what to change, and calls no user code.
func (l *RateLimiter) edit(plan func(c *change) error) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	l.time.Renew()
	c := &change{l: l}
	defer c.end()
	begin := func() error {
		c.rates.Begin()
		c.set, c.out, c.in, c.commits = l.set.Load(), nil, nil, nil
		return plan(c)
	}
	required := func() error { return c.next.missing(l.settings.required) }
	setRates := func() error { return c.rates.Ask(&c.calls, rateRefused) }
	if done, err := c.calls.Change(&l.changing, maxTries, begin, required, setRates, c.commit); done {
		return err
	}
	return &ConfigError{"rules", "changed " + strconv.Itoa(maxTries) + " times", "must not be changed by each SetRate that the change calls"}
}

// commit makes c.next the rules of the limiter, and returns nil. No other function changes the rules. The caller holds
// RateLimiter.changing.
func (c *change) commit() error {
	l := c.l
	l.waiters.ChangeRules(func(now instant) {
		for _, commit := range c.commits {
			if commit != nil {
				commit(now)
			}
		}
		l.set.Store(c.next)
	}, l.meetsOthers)
	l.retries.Wake()
	c.rates.Commit()
	for _, r := range c.in {
		r.built().Use(1)
	}
	for _, r := range c.out {
		built := r.built()
		built.Use(-1)
		c.built = append(c.built, built)
	}
	return nil
}

// swap plans an exchange of rules: out is the old rule that is removed, and in is the new rule that takes its place. If
// out is nil, the new rule comes after all rules. If in is nil, the old rule is only removed.
func (c *change) swap(out, in *activeRule) {
	c.next = c.set.with(out, in)
	if out != nil {
		c.out = append(c.out, out)
	}
	if in != nil {
		c.in = append(c.in, in)
	}
}

// put plans that the new rule r takes the place of the current rule old, or comes after all rules if old is nil. It returns
// all mistakes in r. It compares r only with the rules that may be in conflict with r.
func (c *change) put(old *activeRule, r *givenRule) error {
	check, named := c.newCheck(), c.set.Named(r.Name)
	if named != nil && named != old {
		check.names[named.Name] = c.pathOf(named)
	}
	check.revocable = r.Limiter != nil || c.set.custom > 0
	if r.Limiter != nil {
		c.addOthers(check, r, old, named)
	}
	if old == nil && !r.isDefault && c.set.NumNamed() >= maxRules {
		return errTooManyRules(maxRules + 1)
	}
	if check.add(r); len(check.problems) > 0 {
		return errors.Join(check.problems...)
	}
	a, err := c.activate(r, named)
	c.swap(old, a)
	return err
}

// setRule plans that r takes the place of the rule with its name, or comes after all rules.
func (c *change) setRule(r *givenRule) error {
	old := c.set.Named(r.Name)
	r.isDefault = old != nil && old.isDefault
	return c.put(old, r)
}

// replace plans that the given rules take the place of all current rules.
func (c *change) replace(all []*givenRule) error {
	if err := c.newCheck().addAll(all); err != nil || c.calls.Missing() {
		return err
	}
	var problems []error
	for _, r := range all {
		a, err := c.activate(r, c.set.Named(r.Name))
		c.in, problems = append(c.in, a), append(problems, err)
	}
	c.out = c.set.List
	c.next = newRuleSet(c.in)
	return errors.Join(problems...)
}

// addOthers checks the current rules that may be in conflict with r, a new rule with a Limiter. old is the rule that r
// replaces, and named is the rule that has the name of r now; both may be nil. Once a rule has a Limiter, a store must be able
// to give back what other rules charge. So if r is the first rule with a Limiter, addOthers also checks the rates of all other rules.
func (c *change) addOthers(check *ruleCheck, r *givenRule, old, named *activeRule) {
	firstCustom, place := c.set.custom == 0 && c.l.remote != nil, r.place(r.isDefault)
	for _, other := range c.set.List {
		isCustom := other.Limiter != nil && match.Meet(place, other.Place())
		if other == old || !isCustom && (!firstCustom || other == named) {
			continue
		}
		checked := &givenRule{other.Rule, c.pathOf(other), true, other.isDefault}
		if isCustom {
			check.custom = append(check.custom, checked)
		} else {
			check.addRates(checked)
		}
	}
}

// newCheck returns a ruleCheck that calls the store's methods Accepts and Supports only while c holds no lock.
func (c *change) newCheck() *ruleCheck {
	check := newRuleCheck(c.l.settings.store)
	if supports := check.supports; supports != nil {
		check.supports = func(a Ask) error { return c.calls.Ask(a, func() error { return supports(a) }) }
	}
	return check
}

// pathOf returns the path by which errors name the rule r, which is one of the rules before the change.
func (c *change) pathOf(r *activeRule) string {
	if r.isDefault {
		return "defaultRule"
	}
	return "rules[" + strconv.Itoa(c.set.Position(r)) + "]"
}

// carryOver gives the rule r, which was read from a config, the Resolve and the Limiter of the current rule of the same
// name. If r needs a Limiter that is not built yet, carryOver plans the call of the BuildFunc.
func (c *change) carryOver(r *givenRule) error {
	if old := c.set.Named(r.Name); old != nil {
		r.Resolve = old.Resolve
		switch built := old.built(); {
		case old.Limiter == nil:
		case built == nil, r.custom != nil && old.keepsLimiter(r.Algorithm, r.custom.Config):
			r.Limiter, r.custom = old.Limiter, built
			return nil
		}
	}
	if r.custom == nil {
		return nil
	}
	if r.custom.Build != nil {
		if err := c.calls.Ask(r.custom, r.custom.Finish); err != nil {
			return err
		}
	}
	r.Limiter = r.custom.Value.(Limiter)
	return nil
}

// tell adds to the plan a call of SetRate(r) of the custom Limiter in old, or returns an error if the Limiter has no SetRate.
func (c *change) tell(old *activeRule, r Rate) error {
	if c.rates.Plan(old.Name, old, old.Limiter, old.Rate, r) {
		return nil
	}
	field := "rules[" + strconv.Quote(old.Name) + "].limiter"
	return &ConfigError{field, fmt.Sprintf("%T", old.Limiter), "must have a method SetRate(Rate) error: the rule gets another rate"}
}

// rateRefused returns the error for the rule with this name if SetRate of its custom Limiter has returned the error err, which may be nil.
func rateRefused(name string, err error) error {
	err = errors.Join(atPath("rules["+strconv.Quote(name)+"].rate", err)...)
	if err != nil && !errors.Is(err, ErrInvalidConfig) {
		err = fmt.Errorf("%w: %w", ErrInvalidConfig, err)
	}
	return err
}

// end cleans up after the change c, whether or not it was made. A Limiter that got a new rate gets the old rate back if
// its rule did not change. A Limiter that a BuildFunc has made is closed if no rule uses it.
func (c *change) end() {
	c.rates.Undo(func(old *activeRule) (rate Rate, other bool) {
		now := c.l.set.Load().Named(old.Name)
		if now == nil || now == old || !confmap.Same(now.Limiter, old.Limiter) {
			return Rate{}, false
		}
		return now.Rate, true // the rate that a later change has set
	})
	hooks.CloseUnused(func(limiter any) bool {
		return slices.ContainsFunc(c.l.set.Load().List, func(r *activeRule) bool { return confmap.Same(r.Limiter, limiter) })
	}, c.built...)
}

// activate returns the activeRule for the given rule. old is the current rule of the same name, or nil. If the new rule
// takes over the keys of the old rule, the method commit gives these keys the rates of the new rule.
func (c *change) activate(given *givenRule, old *activeRule) (*activeRule, error) {
	l, r := c.l, given.Rule
	r.OnStoreError = r.policy(l.settings.policy)
	var noSetRate error
	switch {
	case old == nil || r.Limiter == nil || !confmap.Same(old.Limiter, r.Limiter):
	case r.Rate == (Rate{}):
		r.Rate = old.Rate
	case r.Rate != old.Rate:
		noSetRate = c.tell(old, r.Rate)
	}
	a := &activeRule{Rule: r, isDefault: given.isDefault, unnamed: l.settings.single, key: keyMaker{keyspec.MakerOf(string(r.Key))},
		exempts: slices.Contains(slices.Collect(maps.Values(r.Tiers)), unlimitedRate)}
	carriesKeys := old != nil && r.keepsKeys(&old.Rule) && (old.Limiter == nil) == (r.Limiter == nil) &&
		(old.Warmup == Warmup{}) == (r.Warmup == Warmup{})
	if carriesKeys {
		a.serial, a.totals = old.serial, old.totals
	} else {
		old = nil
		l.lastSerial++
		a.serial, a.totals = l.lastSerial, new(counters.Totals)
	}
	var commit func(now instant)
	var err error
	switch {
	case r.Limiter != nil:
	case l.remote != nil:
		commit, err = l.remote.activate(a, old)
	case carriesKeys:
		a.keys, a.local = old.keys, old.keys
		commit, err = a.keys.Change(a.rates())
	default:
		a.keys, err = algorithms[r.Algorithm].keys(&l.time, a.rates(), l.settings.maxKeys)
		a.local = a.keys
	}
	c.commits = append(c.commits, commit, a.penalties(old, l.settings.maxKeys))
	return a, errors.Join(append(atPath("rules["+strconv.Quote(r.Name)+"].rate", err), noSetRate)...)
}
