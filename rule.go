package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Mode says what a rule's denials do. The empty Mode is [ModeEnforce].
type Mode string

// What a rule does.
const (
	ModeEnforce Mode = "enforce" // denies what does not fit
	ModeShadow  Mode = "shadow"  // decides, counts and is observed, and denies nothing
)

// A Rule says which requests are limited, by what, and to what.
//
// A rule with an Endpoint applies to the requests for it; one with a Name alone
// applies where [Request.Rules] names it. A Rule is data: once handed over it is
// copied, and changes to it have no effect.
type Rule struct {
	// Name identifies the rule in results, statistics and changes. Empty
	// means the Endpoint, and for the default rule "default". It occurs once.
	Name string

	// Endpoint is what [Request.Endpoint] must be, or, with a final "*", begin
	// with. Rules may share one if they have names; then all apply. The default
	// rule has none.
	Endpoint string

	// Key says whose budget a request takes from.
	Key KeyType

	// Algorithm is how the rule counts.
	Algorithm Algorithm

	// Rate is what it grants.
	Rate Rate

	// Tiers are the rates of plans, by [Request.Tier]; a tier that is not
	// among them has Rate. A client whose tier changes keeps what it has used.
	// The rates of a window algorithm must have Rate's Per.
	Tiers map[string]Rate

	// Resolve is the same in code: it gives a request a rate, or reports false
	// to keep that of Tiers and Rate. It is called before anything is locked,
	// once for each decision and by several goroutines at a time. An invalid
	// rate means Rate, with an error that matches [ErrInvalidConfig].
	Resolve func(Request) (Rate, bool)

	// Limiter decides in place of Algorithm and Rate. A decision may ask one
	// such Limiter, and does so last; see [RateLimiter.Check].
	Limiter Limiter

	// Mode says whether the rule denies.
	Mode Mode

	// OnStoreError answers for the rule while its store can not. The zero
	// value means the limiter's, see [WithFailurePolicy].
	OnStoreError FailurePolicy

	custom *customLimiter // what made Limiter, if that was a Factory
}

// A customLimiter is what a Factory made a Limiter of, so that a reload can tell
// whether it would make the same one.
type customLimiter struct {
	algoConfig map[string]any
	limiter    Limiter
}

// defaultName is the name of a default rule that has none.
const defaultName = "default"

// completed returns r with its defaults filled in and with maps of its own.
func (r Rule) completed(isDefault bool) Rule {
	switch {
	case r.Name != "":
	case isDefault:
		r.Name = defaultName
	default:
		r.Name = r.Endpoint
	}
	if r.Key == "" {
		r.Key = KeyUser
	}
	if r.Mode == "" {
		r.Mode = ModeEnforce
	}
	if r.Algorithm == "" && r.Limiter == nil {
		r.Algorithm = AlgorithmTokenBucket
	}
	r.Tiers = maps.Clone(r.Tiers)
	return r
}

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
	algorithm, ok := algorithms[r.Algorithm]
	if !ok {
		bad("algorithm", strconv.Quote(string(r.Algorithm)), "must be one of "+list(algorithmNames())+", or the rule have a limiter")
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
	algorithm := algorithms[r.Algorithm]
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

// modes are what a rule's Mode may be.
var modes = []Mode{ModeEnforce, ModeShadow}

// list returns "a", "b" and so on.
func list[S ~string](names []S) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(string(name))
	}
	return strings.Join(quoted, ", ")
}
