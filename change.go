package ratelimit

import (
	"errors"
	"slices"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/match"
)

// AddRule adds the rule r after the other rules. If r is invalid, or if there is a rule with
// its name already, AddRule changes nothing and returns an error that matches
// [ErrInvalidConfig].
func (l *RateLimiter) AddRule(r Rule) error {
	return l.edit(func(c *change) error {
		return c.put("rules["+strconv.Itoa(c.set.rules.Usual())+"]", nil, r, false)
	})
}

// SetRule adds the rule r after the other rules or, if there is a rule with its name, puts r
// in the place of that one, as [RateLimiter.Replace] does: its keys keep what they have used,
// if it has the same Algorithm and Key. A rule with the name of the default rule replaces the
// default rule. If r is invalid, SetRule changes nothing and returns an error that matches
// [ErrInvalidConfig].
func (l *RateLimiter) SetRule(r Rule) error {
	return l.edit(func(c *change) error { return c.setRule("rule", r) })
}

// SetConfig does what [RateLimiter.SetRule] does, for the rule that it reads from config as
// [DecodeRules] does. The rule keeps what code has given to the old rule with its name, as
// [RateLimiter.Reload] says.
func (l *RateLimiter) SetConfig(config map[string]any) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	d := l.newDecoder()
	r, err := d.decodeOne("config", config, &l.settings)
	if err != nil {
		return err
	}
	return l.edit(func(c *change) error {
		c.made = []*hooks.Made{r.custom}
		kept := r
		if err := c.keepCode(&kept, false); err != nil {
			return err
		}
		return c.setRule("config", kept)
	})
}

// RemoveRule removes the rule with this name and forgets what its keys have used in this
// process. The name "default" also stands for the default rule, unless another rule has that
// name. If there is no such rule, the error matches [ErrUnknownRule]. If [WithRequiredRules]
// names the rule, it stays, and the error matches [ErrInvalidConfig].
func (l *RateLimiter) RemoveRule(name string) error {
	return l.edit(func(c *change) error {
		old := c.set.named(name)
		if old == nil && name == defaultName {
			old = c.set.rules.Default()
		}
		if old == nil {
			return &unknownRule{name, c.set}
		}
		c.swap(old, nil)
		return nil
	})
}

// SetDefaultRule makes r the default rule: it applies to the endpoints that no other rule
// matches. If the default rule before had the same name, its keys keep what they have used,
// as [RateLimiter.Replace] says. If r is invalid, SetDefaultRule changes nothing and returns
// an error that matches [ErrInvalidConfig].
func (l *RateLimiter) SetDefaultRule(r Rule) error {
	return l.edit(func(c *change) error { return c.put("defaultRule", c.set.rules.Default(), r, true) })
}

// UpdateRate changes [Rule.Rate] of the rule with this name to r. It takes effect for all of
// its keys at one instant between call and return. Each key keeps what it has used, as
// [TokenBucket.SetRate] says. The rule's Tiers stay as they are. A custom [Limiter] is told r
// by its method SetRate(Rate) error; without that method, UpdateRate is an error.
//
// If there is no such rule, the error matches [ErrUnknownRule]; if r is invalid for the rule,
// it matches [ErrInvalidConfig]. In both cases nothing changes.
func (l *RateLimiter) UpdateRate(rule string, r Rate) error {
	return l.edit(func(c *change) error {
		old := c.set.named(rule)
		if old == nil {
			return &unknownRule{rule, c.set}
		}
		updated := old.Rule
		updated.Rate = r
		if old.Limiter != nil && r == (Rate{}) { // which would mean in a rule that it keeps its rate
			return errors.Join(atPath("rules["+strconv.Quote(rule)+"].rate", r.Validate())...)
		}
		if old.Limiter != nil && r == old.Rate {
			if err := c.tell(old, r); err != nil { // it may have got another rate by itself
				return err
			}
		}
		return c.put("rules["+strconv.Quote(rule)+"]", old, updated, old.isDefault)
	})
}

// Replace replaces all rules and the default rule by these. If anything is wrong with any of
// them, it changes nothing and returns an error that lists everything that is wrong and
// matches [ErrInvalidConfig].
//
// If there was a rule with the same name, Algorithm and Key before, its keys keep what they
// have used, and a new Rate takes effect as by [RateLimiter.UpdateRate]. That is so for a
// custom [Limiter] too, if the rule had the same one before. The keys of all other rules
// start as new.
func (l *RateLimiter) Replace(rules []Rule, defaultRule *Rule) error {
	return l.edit(func(c *change) error { return c.replace(rules, defaultRule) })
}

// Reload replaces all rules and the default rule by those that it reads from maps, as
// [DecodeRules] does. Keys keep what they have used, as [RateLimiter.Replace] says. If
// anything is wrong with the maps, Reload changes nothing and returns an error that lists
// everything that is wrong and matches [ErrInvalidConfig].
//
// A rule keeps what code has given to the old rule with its name: its Resolve, and its
// Limiter. If a [Factory] has made the old Limiter, the rule keeps it only if its algorithm
// and algoConfig have not changed; then no other one is made. A Limiter that a [BuildFunc]
// has made and that no rule uses any more is closed if it is an [io.Closer].
func (l *RateLimiter) Reload(configs []map[string]any, defaultConfig map[string]any) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	rules, defaultRule, err := l.newDecoder().decode(configs, defaultConfig, &l.settings)
	if err != nil {
		return err
	}
	return l.edit(func(c *change) (err error) {
		c.made = madeFor(rules, defaultRule)
		kept, keptDefault := slices.Clone(rules), defaultRule
		for i := range kept {
			err = errors.Join(err, c.keepCode(&kept[i], false))
		}
		if defaultRule != nil {
			copied := *defaultRule
			keptDefault = &copied
			err = errors.Join(err, c.keepCode(keptDefault, true))
		}
		if err != nil {
			return err
		}
		return c.replace(kept, keptDefault)
	})
}

// A change is one call of a method that changes the rules. It is planned while
// RateLimiter.changing is held, and all code of the user's runs while it is not: [hooks] says
// how. So other changes may come between; the plan is then made anew, on the rules that there
// are.
type change struct {
	l     *RateLimiter
	calls hooks.Calls

	made []*hooks.Made // what may be of no use to any rule when the change has ended

	// The plan, which begins anew with each try.
	set, next *ruleSet            // the rules before and after the change
	out, in   []*activeRule       // the rules that it removes, and those that it adds
	commits   []func(now instant) // bring keys to new rates
	rates     hooks.Teller[*activeRule, Rate]
}

// maxTries is how often a change is planned. Each further try means that another change has
// come between; so many can only be made by the SetRate that the change itself calls.
const maxTries = 100

// edit makes the change that plan plans. plan calls no code of the user's. If it returns an
// error, nothing has changed.
func (l *RateLimiter) edit(plan func(c *change) error) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	l.time.Renew()
	c := &change{l: l}
	defer c.settle()
	for range maxTries {
		if done, err := c.try(plan); done {
			return err
		}
		c.calls.Run()
	}
	return &ConfigError{"rules", "changed " + strconv.Itoa(maxTries) + " times", "must not be changed by each SetRate that the change calls"}
}

// try plans c once and makes it, unless code of the user's must be called first.
func (c *change) try(plan func(c *change) error) (done bool, err error) {
	l := c.l
	l.changing.Lock()
	defer l.changing.Unlock()
	c.calls.Begin()
	c.rates.Begin()
	c.set, c.out, c.in, c.commits = l.set.Load(), nil, nil, nil
	err = plan(c)
	if c.calls.Missing() {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	if err := l.settings.requires(c.next); err != nil {
		return true, err
	}
	if err := c.rates.Ask(&c.calls); err != nil || c.calls.Missing() {
		return !c.calls.Missing(), err
	}
	c.commit()
	return true, nil
}

// commit makes c.next the rules. It is the one place where the rules change. The caller holds
// l.changing.
func (c *change) commit() {
	l := c.l
	l.waiters.ChangeRules(func(now instant) {
		for _, commit := range c.commits {
			commit(now)
		}
		l.set.Store(c.next)
	}, l.meetsOthers)
	l.asking.Wake()
	c.rates.Keep()
	for _, r := range c.in {
		r.made().Use(1)
	}
	for _, r := range c.out {
		made := r.made()
		made.Use(-1)
		c.made = append(c.made, made)
	}
}

// swap plans to put the rule in, if it is not nil, in the place of the rule out or, if that is
// nil, after the others.
func (c *change) swap(out, in *activeRule) {
	c.next = c.set.with(out, in)
	if out != nil {
		c.out = append(c.out, out)
	}
	if in != nil {
		c.in = append(c.in, in)
	}
}

// put plans to put r, whose path in errors is path, in the place of the rule old or, if old is
// nil, after the others. It returns everything that is wrong with r. It does not look at the
// other rules, but for those that r may be in conflict with.
func (c *change) put(path string, old *activeRule, r Rule, isDefault bool) error {
	check, named := c.newCheck(), c.set.named(r.completed(isDefault).Name)
	if named != nil && named != old {
		check.Knows(named.Name, c.pathOf(named))
	}
	check.Revocable = r.Limiter != nil || c.set.custom > 0
	for i := 0; r.Limiter != nil && c.set.custom == 0 && c.l.settings.store != nil && i < len(c.set.rules); i++ {
		if other := c.set.rules[i]; other != old && other != named {
			check.Rates(other.toCheck(c.pathOf(other), other.isDefault)) // its charges must be revocable now
		}
	}
	if r.Limiter != nil && c.set.custom > 0 {
		place := r.place(isDefault)
		for _, other := range c.set.rules {
			if other != old && other.Limiter != nil && match.Meet(place, other.Place()) {
				check.KnowsLimiter(c.pathOf(other), other.Place())
			}
		}
	}
	if old == nil && !isDefault && c.set.rules.Usual() >= maxRules {
		return errTooManyRules(maxRules + 1)
	}
	if check.Add(r.toCheck(path, isDefault)); len(check.Problems) > 0 {
		return errors.Join(check.Problems...)
	}
	a, err := c.activate(r, isDefault, named)
	c.swap(old, a)
	return err
}

// setRule plans to put r in the place of the rule with its name or, if there is none, after the
// others. path is its path in errors.
func (c *change) setRule(path string, r Rule) error {
	old := c.set.named(r.completed(false).Name)
	return c.put(path, old, r, old != nil && old.isDefault)
}

// replace plans to replace all rules by these.
func (c *change) replace(rules []Rule, defaultRule *Rule) error {
	if err := checkRules(c.newCheck(), rules, defaultRule); err != nil || c.calls.Missing() {
		return err
	}
	c.out, c.in = c.set.rules, make([]*activeRule, 0, len(rules)+1)
	var problems []error
	add := func(r Rule, isDefault bool) {
		a, err := c.activate(r, isDefault, c.set.named(r.completed(isDefault).Name))
		c.in, problems = append(c.in, a), append(problems, err)
	}
	for _, r := range rules {
		add(r, false)
	}
	if defaultRule != nil {
		add(*defaultRule, true)
	}
	c.next = newRuleSet(c.in)
	return errors.Join(problems...)
}
