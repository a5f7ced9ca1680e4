package ratelimit

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// AddRule adds the rule r after the other rules. If r is invalid, or if there is a rule with
// its name already, AddRule changes nothing and returns an error that matches
// [ErrInvalidConfig].
func (l *RateLimiter) AddRule(r Rule) error {
	return l.edit(func(rules []Rule, defaultRule *Rule) ([]Rule, *Rule, error) {
		return append(rules, r), defaultRule, nil
	})
}

// RemoveRule removes the rule with this name and forgets what its keys have used in this
// process. The name "default" also stands for the default rule, unless another rule has that
// name. If there is no such rule, the error matches [ErrUnknownRule].
func (l *RateLimiter) RemoveRule(name string) error {
	return l.edit(func(rules []Rule, defaultRule *Rule) ([]Rule, *Rule, error) {
		if i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == name }); i >= 0 {
			return slices.Delete(rules, i, i+1), defaultRule, nil
		}
		if defaultRule == nil || name != defaultRule.Name && name != defaultName {
			return nil, nil, fmt.Errorf("%w %q", ErrUnknownRule, name)
		}
		return rules, nil, nil
	})
}

// SetDefaultRule makes r the default rule: it applies to the endpoints that no other rule
// matches. If the default rule before had the same name, its keys keep what they have used,
// as [RateLimiter.Replace] says. If r is invalid, SetDefaultRule changes nothing and returns
// an error that matches [ErrInvalidConfig].
func (l *RateLimiter) SetDefaultRule(r Rule) error {
	return l.edit(func(rules []Rule, _ *Rule) ([]Rule, *Rule, error) {
		return rules, &r, nil
	})
}

// UpdateRate changes [Rule.Rate] of the rule with this name to r. It takes effect for all of
// its keys at one instant between call and return. Each key keeps what it has used, as
// [TokenBucket.SetRate] says. The rule's Tiers stay as they are. A custom [Limiter] is not
// called and keeps its own rate.
//
// If there is no such rule, the error matches [ErrUnknownRule]; if r is invalid for the rule,
// it matches [ErrInvalidConfig]. In both cases nothing changes.
func (l *RateLimiter) UpdateRate(rule string, r Rate) error {
	return l.edit(func(rules []Rule, defaultRule *Rule) ([]Rule, *Rule, error) {
		for i := range rules {
			if rules[i].Name == rule {
				rules[i].Rate = r
				return rules, defaultRule, nil
			}
		}
		if defaultRule != nil && defaultRule.Name == rule {
			defaultRule.Rate = r
			return rules, defaultRule, nil
		}
		return nil, nil, fmt.Errorf("%w %q", ErrUnknownRule, rule)
	})
}

// Replace replaces all rules and the default rule by these. If anything is wrong with any of
// them, it changes nothing and returns an error that lists everything that is wrong and
// matches [ErrInvalidConfig].
//
// If there was a rule with the same name, Algorithm and Key before, its keys keep what they
// have used, and a new Rate takes effect as by [RateLimiter.UpdateRate]. The keys of all
// other rules start as new.
func (l *RateLimiter) Replace(rules []Rule, defaultRule *Rule) error {
	return l.edit(func([]Rule, *Rule) ([]Rule, *Rule, error) {
		return rules, defaultRule, nil
	})
}

// Reload replaces all rules and the default rule by those that it reads from maps, as
// [DecodeRules] does. Keys keep what they have used, as [RateLimiter.Replace] says. If
// anything is wrong with the maps, Reload changes nothing and returns an error that lists
// everything that is wrong and matches [ErrInvalidConfig].
//
// A rule keeps what code has given to the old rule with its name: its Resolve, and its
// Limiter. If a [Factory] has made the old Limiter, the rule keeps it only if its algorithm
// and algoConfig have not changed.
func (l *RateLimiter) Reload(configs []map[string]any, defaultConfig map[string]any) error {
	return l.edit(func(old []Rule, oldDefault *Rule) ([]Rule, *Rule, error) {
		rules, defaultRule, err := decodeRules(configs, defaultConfig, &l.settings)
		if err != nil {
			return nil, nil, err
		}
		known := make(map[string]*Rule, len(old)+1)
		for i := range old {
			known[old[i].Name] = &old[i]
		}
		if oldDefault != nil {
			known[oldDefault.Name] = oldDefault
		}
		for i := range rules {
			rules[i].keepCode(known[rules[i].completed(false).Name])
		}
		if defaultRule != nil {
			defaultRule.keepCode(known[defaultRule.completed(true).Name])
		}
		return rules, defaultRule, nil
	})
}

// keepCode copies to r the functions and the Limiter of old, which is the rule that has had
// its name, or nil if there was none.
func (r *Rule) keepCode(old *Rule) {
	if old == nil {
		return
	}
	r.Resolve = old.Resolve
	made := old.custom != nil && old.custom.limiter == old.Limiter // by a Factory
	switch {
	case old.Limiter == nil:
	case !made:
		r.Limiter, r.custom = old.Limiter, nil
	case r.custom != nil && r.Algorithm == old.Algorithm && reflect.DeepEqual(r.custom.algoConfig, old.custom.algoConfig):
		r.Limiter, r.custom = old.Limiter, old.custom
	}
}

// edit replaces the rules by those that change returns. change gets copies of the rules.
func (l *RateLimiter) edit(change func(rules []Rule, defaultRule *Rule) ([]Rule, *Rule, error)) error {
	if l.set.Load() == nil {
		return errZeroLimiter
	}
	l.time.Renew()
	l.changing.Lock()
	defer l.changing.Unlock()
	rules, defaultRule := l.set.Load().copies()
	rules, defaultRule, err := change(rules, defaultRule)
	if err != nil {
		return err
	}
	if err := checkRules(rules, defaultRule, &l.settings); err != nil {
		return err
	}
	return l.replace(rules, defaultRule)
}

// copies returns copies of the rules of s, with their defaults filled in, and of its default
// rule.
func (s *ruleSet) copies() (rules []Rule, defaultRule *Rule) {
	for _, r := range s.rules {
		if r.isDefault {
			defaultRule = &r.Rule
			continue
		}
		rules = append(rules, r.Rule)
	}
	if defaultRule != nil {
		copied := *defaultRule
		defaultRule = &copied
	}
	return rules, defaultRule
}

// replace makes these the rules of l. They have been checked. The caller holds l.changing,
// unless l is new.
func (l *RateLimiter) replace(rules []Rule, defaultRule *Rule) error {
	set := l.set.Load()
	if set == nil {
		set = newRuleSet(nil)
	}
	active := make([]*activeRule, 0, len(rules)+1)
	var commits []func(now instant)
	var problems []error
	add := func(r Rule, isDefault bool) {
		r = r.completed(isDefault)
		a, commit, err := l.activate(r, isDefault, set.named(r.Name))
		if err != nil {
			problems = append(problems, atPath("rules["+strconv.Quote(r.Name)+"].rate", err)...)
		}
		if commit != nil {
			commits = append(commits, commit)
		}
		active = append(active, a)
	}
	for _, r := range rules {
		add(r, false)
	}
	if defaultRule != nil {
		add(*defaultRule, true)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	next := newRuleSet(active)
	l.waiters.Change(func(now instant) {
		for _, commit := range commits {
			commit(now)
		}
		l.set.Store(next)
	}, nil)
	l.asking.Wake()
	return nil
}

// activate returns the activeRule for r. If that takes over the keys of old, it may also
// return a function that brings those keys to the rates of r, to be called once all rules
// are ready.
func (l *RateLimiter) activate(r Rule, isDefault bool, old *activeRule) (*activeRule, func(now instant), error) {
	a := &activeRule{Rule: r, isDefault: isDefault, resultName: r.Name, key: newKeyMaker(r.Key)}
	if l.settings.solo {
		a.resultName = ""
	}
	keeps := old != nil && old.Key == r.Key && old.Algorithm == r.Algorithm && (old.Limiter == nil) == (r.Limiter == nil)
	if keeps {
		a.serial, a.totals = old.serial, old.totals
	} else {
		l.lastSerial++
		a.serial, a.totals = l.lastSerial, new(totals)
	}
	var err error
	switch {
	case r.Limiter != nil:
		return a, nil, nil
	case l.settings.store != nil:
		return l.activateRemote(a, old, keeps)
	case keeps:
		a.keys, a.local = old.keys, old.keys
		commit, err := a.keys.Change(a.rates())
		return a, commit, err
	}
	a.keys, err = algorithms[r.Algorithm].keys(&l.time, a.rates(), l.settings.maxKeys)
	a.local = a.keys
	return a, nil, err
}

// activateRemote is activate for a rule whose state is in a store. keeps says whether the
// rule is still the one that old was made for.
func (l *RateLimiter) activateRemote(a, old *activeRule, keeps bool) (*activeRule, func(now instant), error) {
	policy := a.OnStoreError.or(l.settings.policy)
	if keeps && old.remote.policy == policy && old.remote.local != nil {
		a.remote, a.local = old.remote, old.local
		commit, err := a.remote.local.Change(policy.shares(a.rates()))
		return a, commit, err
	}
	remote, err := l.newRemoteRule(a, policy)
	if err != nil {
		return a, nil, err
	}
	a.remote = remote
	if remote.local != nil {
		a.local = remote.local
	}
	if keeps && old.local != nil {
		return a, func(instant) { a.totals.addCounts(old.local.Counts()) }, nil
	}
	return a, nil, nil
}
