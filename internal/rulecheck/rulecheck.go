// Package rulecheck finds what is wrong with the rules of a limiter: with each of them, and with
// those that are in conflict.
package rulecheck

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/match"
)

// A Rule is a rule whose defaults are filled in. R is the type of rates.
type Rule[R comparable] struct {
	Path      string       // of the rule, in errors
	Name      string       // must be unique
	Named     bool         // whether Name was given; otherwise it is the endpoint
	Place     match.Place  // where the rule applies
	Key       string       // the key type
	Mode      string       // one of Caller.Modes
	Algorithm string       // one of Caller.Algorithms, unless there is a Limiter
	Rate      R            // may be zero beside a Limiter
	Tiers     map[string]R // further rates
	Resolves  bool         // whether code may choose the rate
	Limiter   any          // decides in place of an algorithm; nil if there is none
	Share     any          // the failure policy if it decides by a share of Rate; otherwise nil
	Warmup    any          // how the limit of a new key grows; nil if it does not
	Cold      error        // what is wrong with Warmup, if the rates are right, or nil
	Misfit    error        // what is wrong with the failure policy by itself, or nil
}

// A Caller is what a Check must know of its caller, whose rates are of type R.
type Caller[R comparable] struct {
	// Problem makes the error for one field.
	Problem func(field string, value any, reason string) error

	// Within returns the errors that are joined in err, with path put before their fields.
	Within func(path string, err error) []error

	// Validate returns what is wrong with a rate for every algorithm, or nil.
	Validate func(r R) error

	// Refused returns what is wrong with a rate for one algorithm, or nil.
	Refused func(algorithm string, r R) error

	// OtherPer returns the error for a tier that must have the same window as the rule and
	// does not, or nil.
	OtherPer func(algorithm string, r, tier R) error

	// Supports returns why the store cannot decide by a rate and a Rule.Warmup, and if
	// revocable is set give back what it charges, or nil. Supports is nil if every rate is
	// supported.
	Supports func(algorithm string, r R, warmup any, revocable bool) error

	Unlimited  R        // the rate that is no limit, which only a tier may have
	Modes      []string // the values of Rule.Mode
	Algorithms []string // the names of the algorithms
	NoLimiter  string   // why no rule may have a Limiter, or empty
	NoWarmup   string   // why no rule may have a Warmup, or empty
}

// A Check collects everything that is wrong with a list of rules.
type Check[R comparable] struct {
	Caller[R]

	Problems  []error // all so far
	Revocable bool    // whether a rule has a Limiter, so that what a store charges may come back

	names  map[string]string // paths of the rules so far, by name
	custom []custom          // the rules so far that have a Limiter
}

// A custom is a rule with a Limiter: its path in errors, and where it applies.
type custom struct {
	path  string
	place match.Place
}

// New returns a Check without rules.
func New[R comparable](caller Caller[R]) *Check[R] {
	return &Check[R]{Caller: caller, names: make(map[string]string)}
}

// Knows tells c of a rule with this name and path, which need not be checked.
func (c *Check[R]) Knows(name, path string) { c.names[name] = path }

// KnowsLimiter tells c of a rule with a Limiter that need not be checked.
func (c *Check[R]) KnowsLimiter(path string, place match.Place) {
	c.custom = append(c.custom, custom{path, place})
}

// reject adds the error for a field of r.
func (c *Check[R]) reject(r *Rule[R], field string, value any, reason string) {
	c.Problems = append(c.Problems, c.Problem(r.Path+"."+field, value, reason))
}

// Add checks rule.
func (c *Check[R]) Add(rule Rule[R]) {
	r := &rule
	c.place(r)
	if !slices.Contains(c.Modes, r.Mode) {
		c.reject(r, "mode", strconv.Quote(r.Mode), "must be one of "+confmap.List(c.Modes))
	}
	if r.Misfit != nil {
		c.Problems = append(c.Problems, c.Within(r.Path, r.Misfit)...)
	}
	c.unique(r)
	switch {
	case r.Limiter != nil:
		c.limiter(r)
	case !slices.Contains(c.Algorithms, r.Algorithm):
		c.reject(r, "algorithm", strconv.Quote(r.Algorithm), "must be one of "+confmap.List(c.Algorithms)+", or the rule have a limiter")
	default:
		c.Rates(rule)
	}
}

// Identify checks only which requests r is for, what it is called and what its keys are.
func (c *Check[R]) Identify(r Rule[R]) {
	c.place(&r)
	c.unique(&r)
}

// place checks which requests r is for, and what its keys are.
func (c *Check[R]) place(r *Rule[R]) {
	place, endpoint := &r.Place, strconv.Quote(r.Place.Endpoint)
	switch {
	case place.Default && place.Endpoint != "":
		c.reject(r, "endpoint", endpoint, "must be empty: the default rule is for the endpoints that no other matches")
	case !place.Default && place.Endpoint == "" && !r.Named:
		c.reject(r, "endpoint", endpoint, "must be set, or a name to ask for the rule by")
	case strings.Contains(strings.TrimSuffix(place.Endpoint, "*"), "*"):
		c.reject(r, "endpoint", endpoint, `must have a "*" at the end only`)
	}
	switch {
	case place.Additional && place.Default:
		c.reject(r, "additional", true, `must be false: the default rule is for what no other rule matches; for all endpoints, add a rule with the endpoint "*"`)
	case place.Additional && place.Endpoint == "":
		c.reject(r, "additional", true, "must be false, or the rule have an endpoint: it applies to what that covers")
	}
	if _, problem := keyspec.Parse(r.Key); problem != "" {
		c.reject(r, "key", strconv.Quote(r.Key), problem)
	}
}

// unique checks that no rule before r has its name.
func (c *Check[R]) unique(r *Rule[R]) {
	if r.Name == "" {
		return // place has reported that the endpoint is missing
	}
	first, taken := c.names[r.Name]
	switch {
	case !taken:
		c.names[r.Name] = r.Path
	case !r.Named && r.Place.Endpoint != "":
		c.reject(r, "endpoint", strconv.Quote(r.Place.Endpoint), "is that of "+first+": rules that share an endpoint need names")
	default:
		c.reject(r, "name", strconv.Quote(r.Name), "is that of "+first+": a name occurs once")
	}
}

// limiter checks r, which has a Limiter.
func (c *Check[R]) limiter(r *Rule[R]) {
	var none R
	if r.Rate != none {
		c.Problems = append(c.Problems, c.Within(r.Path+".rate", c.Validate(r.Rate))...)
	}
	if confmap.IsNil(r.Limiter) {
		kind := reflect.ValueOf(r.Limiter).Kind().String()
		c.reject(r, "limiter", nil, "must not be a nil "+strings.Replace(kind, "ptr", "pointer", 1))
	}
	if len(r.Tiers) > 0 {
		c.reject(r, "tiers", r.Tiers, "must be empty: a limiter of one's own has its own rates")
	}
	if r.Warmup != nil {
		c.reject(r, "warmup", r.Warmup, "must be left out: a limiter of one's own has its own rates")
	}
	if r.Resolves {
		c.reject(r, "resolve", "set", "must be nil: a limiter of one's own has its own rates")
	}
	if r.Share != nil {
		c.reject(r, "onStoreError", r.Share, "must be open or closed: a limiter of one's own has no share for this process")
	}
	if c.NoLimiter != "" {
		c.reject(r, "limiter", fmt.Sprintf("%T", r.Limiter), "must be nil: "+c.NoLimiter)
	}
	for _, other := range c.custom {
		if match.Meet(r.Place, other.place) { // never if requests name it: they may not name two
			which := ", which may apply to the same request,"
			if r.Place.Endpoint == other.place.Endpoint {
				which = ", of the same endpoint,"
			}
			c.reject(r, "limiter", fmt.Sprintf("%T", r.Limiter), "must be nil: "+other.path+which+" has a limiter too, and a decision asks one")
			return
		}
	}
	c.KnowsLimiter(r.Path, r.Place)
}

// Rates checks only the rates of r, which has no Limiter.
func (c *Check[R]) Rates(r Rule[R]) {
	if r.Cold != nil {
		c.Problems = append(c.Problems, c.Within(r.Path, r.Cold)...)
	}
	if r.Warmup != nil && c.NoWarmup != "" {
		c.reject(&r, "warmup", r.Warmup, "must be left out: "+c.NoWarmup)
	}
	c.rate(r.Path+".rate", &r, r.Rate)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		rate, path := r.Tiers[tier], r.Path+".tiers["+strconv.Quote(tier)+"]"
		if rate == c.Unlimited {
			continue
		}
		c.rate(path, &r, rate)
		if err := c.OtherPer(r.Algorithm, r.Rate, rate); err != nil {
			c.Problems = append(c.Problems, c.Within(path, err)...)
		}
	}
}

// rate checks one rate of a rule, whose path in errors is path.
func (c *Check[R]) rate(path string, r *Rule[R], rate R) {
	if rate == c.Unlimited {
		c.Problems = append(c.Problems, c.Problem(path, rate, "must be a limit: only a tier, or Resolve, makes a request unlimited"))
		return
	}
	if err := c.Refused(r.Algorithm, rate); err != nil {
		c.Problems = append(c.Problems, c.Within(path, err)...)
		return
	}
	if c.Supports == nil {
		return
	}
	if err := c.Supports(r.Algorithm, rate, r.Warmup, c.Revocable); err != nil {
		c.Problems = append(c.Problems, c.Problem(path, rate, NotSupported+err.Error()))
	}
}

// NotSupported is the beginning of the reason in the error for a rate that the store does not
// support. The store's own text follows it.
const NotSupported = "is not supported by the store: "
