package ratelimit

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/match"
)

// A Mode says whether a [Rule] denies requests or only watches them. The empty Mode is
// [ModeEnforce].
type Mode string

// The values of [Rule.Mode].
const (
	ModeEnforce Mode = "enforce" // denies the requests that exceed the rule's limit
	ModeShadow  Mode = "shadow"  // denies nothing; decides, and is charged, counted and observed
)

// A Rule says which requests are limited, and what the limit is.
//
// A rule with an Endpoint applies to the requests for that endpoint. A rule with only a Name
// applies to the requests that name it in [Request.Rules]. A Rule is data: a [RateLimiter]
// copies it, so later changes to it have no effect.
type Rule struct {
	// Name identifies the rule in results and statistics, and in calls that
	// change it. If it is empty, the Endpoint is the name; the default rule
	// is then called "default". No two rules have the same name.
	Name string

	// Endpoint is the [Request.Endpoint] that the rule applies to. If it ends
	// in "*", the rule applies to all endpoints that begin with the text
	// before the "*". Several rules may have the same Endpoint if they have
	// different names; all of them then apply. The default rule has none.
	Endpoint string

	// Additional makes the rule apply beside the rules that match best, to
	// every request whose endpoint its Endpoint covers, also to one that names
	// other rules in [Request.Rules]. A limit on all requests together is an
	// Additional rule with the Endpoint "*" and the Key [KeyGlobal].
	Additional bool

	// Key says what has a budget of its own: each client, each IP and so on.
	// Empty means [KeyUser]. [KeyOf] makes a key of several parts.
	Key KeyType

	// Algorithm is the name of the algorithm that decides. Empty means
	// [AlgorithmTokenBucket].
	Algorithm Algorithm

	// Rate is the limit of each key.
	Rate Rate

	// Tiers are other limits for some plans, by the name in [Request.Tier]. A request whose
	// tier is not among them has Rate. A client whose tier changes keeps what it has used.
	// If the algorithm counts in windows, all rates must have the Per of Rate.
	Tiers map[string]Rate

	// Resolve, if it is not nil, returns the limit for a request, or false if
	// Tiers and Rate decide as usual. It is called once for each decision,
	// before any lock is taken, and must be safe for concurrent use by
	// multiple goroutines. If it returns an invalid rate, Rate is the limit,
	// and the caller gets an error that matches [ErrInvalidConfig].
	Resolve func(Request) (Rate, bool)

	// Limiter, if it is not nil, decides in place of Algorithm and Rate. At
	// most one rule for a request may have one; see [RateLimiter.Check].
	Limiter Limiter

	// Mode says whether the rule denies requests. Empty means [ModeEnforce].
	Mode Mode

	// OnStoreError is the policy that answers for this rule while the [Store]
	// cannot be reached, or if its Limiter returns an error. The zero value
	// means that of [WithFailurePolicy]. A rule with a Limiter cannot have
	// [FailLocal], and has [FailOpen] if it inherits that.
	OnStoreError FailurePolicy

	custom *hooks.Made // set if a BuildFunc has made Limiter, and shared by the copies of the rule
}

// defaultName is the name of a default rule that has none.
const defaultName = "default"

// completed returns r with its defaults filled in and with its maps copied.
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
	r.Key = KeyOf(r.Key) // in the one spelling that it has in Decision.KeyType
	if r.Mode == "" {
		r.Mode = ModeEnforce
	}
	if r.Algorithm == "" && r.Limiter == nil {
		r.Algorithm = AlgorithmTokenBucket
	}
	r.Tiers = maps.Clone(r.Tiers)
	return r
}

// maxRules is the largest number of rules of a RateLimiter, without the default rule.
const maxRules = 10_000

// A ruleCheck collects everything that is wrong with a list of rules. Its errors name each
// rule by the path that was given to add.
type ruleCheck struct {
	problems []error
	names    map[string]string // paths of the rules so far, by name
	custom   []customRule      // the rules so far that have a Limiter
	set      *settings
	supports func(Algorithm, Rate) error // of the store, or nil
}

// A customRule is a rule with a Limiter: its path in errors, and to which endpoints it applies.
type customRule struct {
	path  string
	place match.Place
}

func newRuleCheck(set *settings) *ruleCheck {
	return &ruleCheck{names: make(map[string]string), set: set, supports: supportsOf(set.store)}
}

// errTooManyRules is the error for n rules, which is more than maxRules.
func errTooManyRules(n int) error { return &ConfigError{"rules", n, "must be at most 10000"} }

// newCheck returns a ruleCheck that asks Supports of the store as a hook.
func (c *change) newCheck() *ruleCheck {
	check := newRuleCheck(&c.l.settings)
	if supports := check.supports; supports != nil {
		type question struct {
			algorithm Algorithm
			rate      Rate
		}
		check.supports = func(a Algorithm, r Rate) error {
			return c.calls.Ask(question{a, r}, func() error { return supports(a, r) })
		}
	}
	return check
}

// pathOf returns the path of r, which is one of the rules, in errors.
func (c *change) pathOf(r *activeRule) string {
	if r.isDefault {
		return "defaultRule"
	}
	return "rules[" + strconv.Itoa(c.set.position(r)) + "]"
}

// all returns everything that is wrong with rules and the default rule, joined.
func (c *ruleCheck) all(rules []Rule, defaultRule *Rule) error {
	if len(rules) > maxRules {
		return errTooManyRules(len(rules))
	}
	for i, r := range rules {
		c.add(fmt.Sprintf("rules[%d]", i), r, false)
	}
	if defaultRule != nil {
		c.add("defaultRule", *defaultRule, true)
	}
	return errors.Join(c.problems...)
}

// add checks the rule r, whose path in the errors is path.
func (c *ruleCheck) add(path string, r Rule, isDefault bool) {
	reject := func(field string, value any, reason string) {
		c.problems = append(c.problems, &ConfigError{path + "." + field, value, reason})
	}
	named := r.Name != ""
	r = r.completed(isDefault)
	switch {
	case isDefault && r.Endpoint != "":
		reject("endpoint", strconv.Quote(r.Endpoint), "must be empty: the default rule is for the endpoints that no other matches")
	case !isDefault && r.Endpoint == "" && !named:
		reject("endpoint", `""`, "must be set, or a name to ask for the rule by")
	case strings.Contains(strings.TrimSuffix(r.Endpoint, "*"), "*"):
		reject("endpoint", strconv.Quote(r.Endpoint), `must have a "*" at the end only`)
	}
	switch {
	case r.Additional && isDefault:
		reject("additional", true, `must be false: the default rule is for what no other rule matches; for all endpoints, add a rule with the endpoint "*"`)
	case r.Additional && r.Endpoint == "":
		reject("additional", true, "must be false, or the rule have an endpoint: it applies to what that covers")
	}
	if problem := r.Key.problem(); problem != "" {
		reject("key", strconv.Quote(string(r.Key)), problem)
	}
	if r.Mode != ModeEnforce && r.Mode != ModeShadow {
		reject("mode", strconv.Quote(string(r.Mode)), "must be one of "+list(modes))
	}
	if err := r.OnStoreError.validate(path + ".onStoreError"); err != nil {
		c.problems = append(c.problems, err)
	}
	c.unique(path, r, named)
	if r.Limiter != nil {
		c.addLimiter(path, r, isDefault)
		return
	}
	algorithm, ok := algorithms[r.Algorithm]
	if !ok {
		reject("algorithm", strconv.Quote(string(r.Algorithm)), "must be one of "+list(algorithmNames())+", or the rule have a limiter")
		return
	}
	c.rate(path+".rate", r, r.Rate)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if r.Tiers[tier] == unlimitedRate {
			continue
		}
		field := path + ".tiers[" + strconv.Quote(tier) + "]"
		c.rate(field, r, r.Tiers[tier])
		if algorithm.windowed && r.Tiers[tier].Per != r.Rate.Per {
			c.problems = append(c.problems, atPath(field, errOtherWindow(r.Tiers[tier]))...)
		}
	}
}

// unique checks that no rule before r has its name.
func (c *ruleCheck) unique(path string, r Rule, named bool) {
	if r.Name == "" {
		return // add has reported that the endpoint is missing
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
func (c *ruleCheck) addLimiter(path string, r Rule, isDefault bool) {
	reject := func(field string, value any, reason string) {
		c.problems = append(c.problems, &ConfigError{path + "." + field, value, reason})
	}
	if r.Rate != (Rate{}) {
		c.problems = append(c.problems, atPath(path+".rate", r.Rate.Validate())...)
	}
	if isNil(r.Limiter) {
		kind := reflect.ValueOf(r.Limiter).Kind().String()
		reject("limiter", nil, "must not be a nil "+strings.Replace(kind, "ptr", "pointer", 1))
	}
	if len(r.Tiers) > 0 {
		reject("tiers", r.Tiers, "must be empty: a limiter of one's own has its own rates")
	}
	if r.Resolve != nil {
		reject("resolve", "set", "must be nil: a limiter of one's own has its own rates")
	}
	if r.OnStoreError.kind == failLocally {
		reject("onStoreError", r.OnStoreError, "must be open or closed: a limiter of one's own has no share for this process")
	}
	if c.set.store != nil {
		reject("limiter", fmt.Sprintf("%T", r.Limiter), "must be nil: the state is in a store")
	}
	place := (&activeRule{Rule: r, isDefault: isDefault}).Place() // none if requests name it: they may not name two
	for _, other := range c.custom {
		if match.Meet(place, other.place) {
			which := ", which may apply to the same request,"
			if place.Endpoint == other.place.Endpoint {
				which = ", of the same endpoint,"
			}
			reject("limiter", fmt.Sprintf("%T", r.Limiter), "must be nil: "+other.path+which+" has a limiter too, and a decision asks one")
			return
		}
	}
	c.custom = append(c.custom, customRule{path, place})
}

// rate checks one rate of r, whose path in the errors is path.
func (c *ruleCheck) rate(path string, r Rule, rate Rate) {
	algorithm := algorithms[r.Algorithm]
	if rate == unlimitedRate {
		c.problems = append(c.problems, &ConfigError{path, rate, "must be a limit: only a tier, or Resolve, makes a request unlimited"})
		return
	}
	if err := algorithm.validate(rate); err != nil {
		c.problems = append(c.problems, atPath(path, err)...)
		return
	}
	if c.supports != nil {
		if err := c.supports(r.Algorithm, rate); err != nil {
			c.problems = append(c.problems, &ConfigError{path, rate, notSupported + err.Error()})
		}
	}
}

// atPath returns the errors that are joined in err, with path put before their fields.
func atPath(path string, err error) (problems []error) {
	switch e := any(err).(type) { // not errors.As: an error that wraps a ConfigError says more
	case nil:
	case *ConfigError:
		problems = append(problems, &ConfigError{path + "." + e.Field, e.Value, e.Reason})
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			problems = append(problems, atPath(path, part)...)
		}
	default:
		problems = append(problems, fmt.Errorf("%s: %w", path, err))
	}
	return problems
}

// modes are the values that a rule's Mode may have.
var modes = []Mode{ModeEnforce, ModeShadow}

// list returns names in quotes, separated by commas.
func list[S ~string](names []S) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(string(name))
	}
	return strings.Join(quoted, ", ")
}
