package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxRules bounds how many rules a RateLimiter has, its default rule aside.
const maxRules = 10_000

// A ruleCheck collects all that is wrong with a list of rules. The errors that it
// collects name each rule by the path that it was given.
type ruleCheck struct {
	problems []error
	names    map[string]string // the path of the rule that has a name
	custom   map[string]string // the path of the rule with a Limiter, by endpoint
	set      *settings
	supports func(Algorithm, Rate) error
}

func newRuleCheck(set *settings) *ruleCheck {
	c := &ruleCheck{
		names:  make(map[string]string),
		custom: make(map[string]string),
		set:    set,
	}
	c.supports = supportsOf(set.store)
	return c
}

// checkRules returns all that is wrong with rules and the default rule, joined.
func checkRules(rules []Rule, defaultRule *Rule, set *settings) error {
	c := newRuleCheck(set)
	if len(rules) > maxRules {
		return &ConfigError{"rules", len(rules), "must be at most 10000"}
	}
	for i, r := range rules {
		c.add(fmt.Sprintf("rules[%d]", i), r, false)
	}
	if defaultRule != nil {
		c.add("defaultRule", *defaultRule, true)
	}
	return errors.Join(c.problems...)
}

// add checks r, which is found at path.
func (c *ruleCheck) add(path string, r Rule, isDefault bool) {
	bad := func(field string, value any, reason string) {
		c.problems = append(c.problems, &ConfigError{path + "." + field, value, reason})
	}
	named := r.Name != ""
	r = r.completed(isDefault)
	switch {
	case isDefault && r.Endpoint != "":
		bad("endpoint", strconv.Quote(r.Endpoint), "must be empty: the default rule is for the endpoints that no other matches")
	case !isDefault && r.Endpoint == "" && !named:
		bad("endpoint", `""`, "must be set, or a name to ask for the rule by")
	case strings.Contains(strings.TrimSuffix(r.Endpoint, "*"), "*"):
		bad("endpoint", strconv.Quote(r.Endpoint), `must have a "*" at the end only`)
	}
	if r.Key != KeyUser && !slices.Contains(keyTypes, r.Key) {
		bad("key", strconv.Quote(string(r.Key)), "must be one of "+list(keyTypes))
	}
	if r.Mode != ModeEnforce && r.Mode != ModeShadow {
		bad("mode", strconv.Quote(string(r.Mode)), "must be one of "+list(modes))
	}
	if err := r.OnStoreError.validate(path + ".onStoreError"); err != nil {
		c.problems = append(c.problems, err)
	}
	c.unique(path, r, named)
	if r.Limiter != nil {
		c.addLimiter(path, r)
		return
	}
	algorithm, ok := builtins[r.Algorithm]
	if !ok {
		bad("algorithm", strconv.Quote(string(r.Algorithm)), "must be one of "+list(slices.Sorted(maps.Keys(builtins)))+", or the rule have a limiter")
		return
	}
	c.rate(path+".rate", r, r.Rate)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		field := path + ".tiers[" + strconv.Quote(tier) + "]"
		c.rate(field, r, r.Tiers[tier])
		if algorithm.windowed && r.Tiers[tier].Per != r.Rate.Per {
			c.problems = append(c.problems, at(field, errOtherWindow(r.Tiers[tier]))...)
		}
	}
}

// unique checks that r can be told from the rules before it.
func (c *ruleCheck) unique(path string, r Rule, named bool) {
	if r.Name == "" {
		return // add has said what is missing
	}
	first, taken := c.names[r.Name]
	switch {
	case !taken:
		c.names[r.Name] = path
	case !named && r.Endpoint != "":
		c.problems = append(c.problems, &ConfigError{path + ".endpoint", strconv.Quote(r.Endpoint), "is that of " + first + ": rules that share an endpoint need names"})
	default:
		c.problems = append(c.problems, &ConfigError{path + ".name", strconv.Quote(r.Name), "is that of " + first + ": a name occurs once"})
	}
}

// addLimiter checks r, which has a custom Limiter.
func (c *ruleCheck) addLimiter(path string, r Rule) {
	bad := func(field string, value any, reason string) {
		c.problems = append(c.problems, &ConfigError{path + "." + field, value, reason})
	}
	if isNil(r.Limiter) {
		bad("limiter", r.Limiter, "must not be a nil pointer")
	}
	if len(r.Tiers) > 0 {
		bad("tiers", r.Tiers, "must be empty: a limiter of one's own has its own rates")
	}
	if r.Resolve != nil {
		bad("resolve", "set", "must be nil: a limiter of one's own has its own rates")
	}
	if c.set.store != nil {
		bad("limiter", fmt.Sprintf("%T", r.Limiter), "must be nil: the state is in a store")
	}
	if r.Endpoint == "" {
		return // what it meets is known when a request names it
	}
	if first, ok := c.custom[r.Endpoint]; ok {
		bad("limiter", fmt.Sprintf("%T", r.Limiter), "must be nil: "+first+", of the same endpoint, has one, and a decision asks one")
		return
	}
	c.custom[r.Endpoint] = path
}

// rate checks one rate of r.
func (c *ruleCheck) rate(path string, r Rule, rate Rate) {
	algorithm := builtins[r.Algorithm]
	if err := algorithm.validate(rate); err != nil {
		c.problems = append(c.problems, at(path, err)...)
		return
	}
	if c.supports != nil {
		if err := c.supports(r.Algorithm, rate); err != nil {
			c.problems = append(c.problems, &ConfigError{path, rate, notSupported + err.Error()})
		}
	}
}

// notSupported is what a store's own reason follows.
const notSupported = "is not supported by the store: "

// errOtherWindow says that rate can not be a rate of a rule of another window.
func errOtherWindow(rate Rate) error {
	return &ConfigError{"per", rate.Per, "must be that of the rule's rate: a window has one length"}
}

// supportsOf returns the method of s that says what it can not do, or nil.
func supportsOf(s Store) func(Algorithm, Rate) error {
	if s, ok := s.(interface {
		Supports(Algorithm, Rate) error
	}); ok {
		return s.Supports
	}
	return nil
}

// at returns the problems that are joined in err, their fields behind path.
func at(path string, err error) (problems []error) {
	switch e := any(err).(type) { // itself: what wraps a problem has more to say
	case nil:
	case *ConfigError:
		problems = append(problems, &ConfigError{path + "." + e.Field, e.Value, e.Reason})
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			problems = append(problems, at(path, part)...)
		}
	default:
		problems = append(problems, fmt.Errorf("%s: %w", path, err))
	}
	return problems
}

// keyTypes and modes are what a rule's Key and Mode may be.
var (
	keyTypes = []KeyType{KeyUser, KeyEndpoint, KeyUserEndpoint, KeyIP, KeyGlobal}
	modes    = []Mode{ModeEnforce, ModeShadow}
)

// list returns "a", "b" and so on.
func list[S ~string](names []S) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(string(name))
	}
	return strings.Join(quoted, ", ")
}
