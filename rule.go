package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/costs"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/match"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// A Mode says whether a [Rule] denies requests or only watches them. The empty Mode is [ModeEnforce].
type Mode string

// Denies reports whether a rule in this mode denies requests.
func (m Mode) Denies() bool { return m != ModeShadow && m != ModeAdvise }

// The values of [Rule.Mode].
const (
	ModeEnforce Mode = "enforce" // denies the requests that exceed the rule's limit
	ModeShadow  Mode = "shadow"  // denies nothing, but decides, and is charged, counted and observed like any rule
	ModeAdvise  Mode = "advise"  // is like ModeShadow, but tells the caller by [Result.Advised] that it would deny
)

// A Rule says which requests are limited, and what the limit is.
//
// A rule with an Endpoint applies to the requests for that endpoint. A rule with only a Name applies to the requests
// that name it in [Request.Rules]. A Rule is data: a [RateLimiter] copies it, so later changes to it have no effect.
type Rule struct {
	// Name identifies the rule in results and statistics, and in calls that change it. If Name is empty, the name is the
	// Endpoint or, for the default rule, "default". No two rules have the same name.
	Name string

	// Endpoint is the [Request.Endpoint] that the rule applies to. If it ends in "*", the rule applies to all endpoints
	// that begin with the text before the "*". Several rules may have the same Endpoint if they have different names;
	// all of them then apply. The default rule has no Endpoint.
	Endpoint string

	// Additional makes the rule apply to every request whose endpoint matches Endpoint. It applies in addition to the
	// rules that match best, or in addition to the rules that the request names in [Request.Rules]. For one limit on
	// all requests together, use an Additional rule with the Endpoint "*" and the Key [KeyGlobal].
	Additional bool

	// Key says which requests share a budget: those of one client, one IP and so on. Empty means [KeyUser]. See also [KeyOf].
	Key KeyType

	// Algorithm is the name of the algorithm that decides. Empty means [AlgorithmTokenBucket].
	Algorithm Algorithm

	// Unit is what the rule counts: "" for requests, or a name such as "tokens" or "bytes", of at most 64 lower-case
	// letters, digits, "-", "_" and ".". A request says by [Request.Costs] how many units it costs; a rule with a Unit
	// does not apply to a request without this Unit. If the Unit of a rule is changed, its keys lose what they have used.
	Unit string

	// Rate is the limit of each key.
	Rate Rate

	// Tiers has the limits of clients with a plan, by the name of the plan in [Request.Tier]. If Tiers has no entry
	// for the tier of a request, Rate is the limit. If the tier of a client changes, the units that the client has
	// used still count. If the algorithm counts in windows, all rates must have the same Per and Window as Rate. Only the
	// day on which months begin may differ, see [Monthly]: if that day changes, the units of the old month count in the new one.
	Tiers map[string]Rate

	// Resolve, if it is not nil, returns the limit for a request; if it returns false, Tiers and Rate apply. Resolve is
	// called once for each decision, before any lock is taken, and must be safe for concurrent use by multiple
	// goroutines. If it returns an invalid rate, Rate is the limit; the caller's error matches [ErrInvalidConfig].
	Resolve func(Request) (Rate, bool)

	// Limiter, if it is not nil, decides in place of Algorithm and Rate. Of the rules for a request, at most one may have
	// a Limiter; see [RateLimiter.Check]. A Reason that it sets is not used: its denials have [ReasonLimit], or [ReasonPolicy] if
	// they are Degraded.
	Limiter Limiter

	// Mode says whether the rule denies requests. Empty means [ModeEnforce].
	Mode Mode

	// Warmup makes the limit of a new key lower at first. A rule with a Limiter cannot have a Warmup. A rate from Tiers
	// or Resolve with fewer Requests than Warmup.From is the full limit from the beginning. If a change of the rule only
	// changes the Warmup, each key continues its warm-up. If a change adds or removes the Warmup, all keys start as new.
	Warmup Warmup

	// Penalty blocks a key for some time after many denials. A rule with a Limiter or with [AlgorithmInFlight] cannot have
	// one. If a change of the rule keeps its keys, their counted denials and blocks are kept, and the new Penalty then applies.
	Penalty Penalty

	// OnStoreError is the policy that answers for this rule while the [Store] cannot be reached, or if its Limiter
	// returns an error. The zero value means the policy of [WithFailurePolicy]. [FailLocal] is not allowed for a rule
	// with a Limiter. If the policy of WithFailurePolicy is FailLocal, such a rule has [FailOpen] instead.
	OnStoreError FailurePolicy

	custom *hooks.Built // set if a BuildFunc has built the Limiter; shared by the copies of the rule
}

// defaultName is the name of a default rule that was given no name.
const defaultName = "default"

// A givenRule is a rule that the caller has given, with its defaults filled in.
type givenRule struct {
	Rule
	path      string // how errors name the rule, such as "rules[2]"
	named     bool   // whether the caller has set Name; if not, the Endpoint is used as the Name
	isDefault bool
}

// given returns a copy of the rule r with its defaults filled in and with maps of its own. path is how errors name it.
func given(path string, r Rule, isDefault bool) *givenRule {
	named := r.Name != ""
	if isDefault {
		r.Name = cmp.Or(r.Name, defaultName)
	}
	r.Name = cmp.Or(r.Name, r.Endpoint)
	r.Key = KeyOf(cmp.Or(r.Key, KeyUser)) // so that keys with the same parts have the same text, which Decision.KeyType shows
	r.Mode = cmp.Or(r.Mode, ModeEnforce)
	if r.Limiter == nil {
		r.Algorithm = cmp.Or(r.Algorithm, AlgorithmTokenBucket)
	}
	r.Tiers = maps.Clone(r.Tiers)
	return &givenRule{r, path, named, isDefault}
}

// allGiven calls the function given for each of the rules and then, if it is not nil, for the default rule. It returns all results.
func allGiven(rules []Rule, defaultRule *Rule) (all []*givenRule) {
	for i, r := range rules {
		all = append(all, given("rules["+strconv.Itoa(i)+"]", r, false))
	}
	if defaultRule != nil {
		all = append(all, given("defaultRule", *defaultRule, true))
	}
	return all
}

// maxRules is the largest number of rules of a RateLimiter, without the default rule.
const maxRules = 10_000

// errTooManyRules returns the error for n rules, where n is larger than maxRules.
func errTooManyRules(n int) error { return &ConfigError{"rules", n, "must be at most 10000"} }

// modes are the values that a rule's Mode may have.
var modes = []string{string(ModeEnforce), string(ModeShadow), string(ModeAdvise)}

// A ruleCheck checks a list of rules, one after the other, and collects all problems.
type ruleCheck struct {
	store     Store             // the limiter's store; nil if the state is in this process
	supports  func(a Ask) error // asks the store whether it can decide on an Ask; nil if the store has no method for that
	revocable bool              // true if a rule has a Limiter: the store must give charges back if the Limiter denies

	problems []error           // all problems found so far
	names    map[string]string // how errors name each rule so far, such as "rules[2]"; the key is the name of the rule
	custom   []*givenRule      // the rules so far that have a Limiter
	holding  []*givenRule      // the rules so far that have AlgorithmInFlight
}

func newRuleCheck(store Store) *ruleCheck {
	return &ruleCheck{store: store, supports: supportsOf(store), names: make(map[string]string)}
}

// addAll returns everything that is wrong with all rules of a limiter, joined.
func (c *ruleCheck) addAll(all []*givenRule) error {
	n := 0
	for _, r := range all {
		c.revocable = c.revocable || r.Limiter != nil
		if !r.isDefault {
			n++
		}
	}
	if n > maxRules {
		return errTooManyRules(n)
	}
	for _, r := range all {
		c.add(r)
	}
	return errors.Join(c.problems...)
}

// reject adds a problem to the list: this field of the rule r has this invalid value, for this reason.
func (c *ruleCheck) reject(r *givenRule, field string, value any, reason string) {
	c.problems = append(c.problems, &ConfigError{r.path + "." + field, value, reason})
}

// rejectIf calls reject if wrong is true.
func (c *ruleCheck) rejectIf(wrong bool, r *givenRule, field string, value any, reason string) {
	if wrong {
		c.reject(r, field, value, reason)
	}
}

// within adds each problem that is joined in err to the list, and puts path before the name of its field.
func (c *ruleCheck) within(path string, err error) {
	c.problems = append(c.problems, atPath(path, err)...)
}

// add checks the rule r.
func (c *ruleCheck) add(r *givenRule) {
	c.addPlace(r)
	if !slices.Contains(modes, string(r.Mode)) {
		c.reject(r, "mode", strconv.Quote(string(r.Mode)), "must be one of "+confmap.List(modes))
	}
	if !costs.ValidUnit(r.Unit) {
		c.reject(r, "unit", confmap.Describe(r.Unit), costs.UnitForm)
	}
	policy := r.OnStoreError.is.Problem()
	c.rejectIf(policy != "", r, "onStoreError", r.OnStoreError, policy)
	c.addName(r)
	_, known := algorithms[r.Algorithm]
	switch {
	case r.Limiter != nil:
		c.addLimiter(r)
	case !known:
		reason := "must be one of " + confmap.List(algorithmNames()) + ", or the rule have a limiter"
		c.reject(r, "algorithm", strconv.Quote(string(r.Algorithm)), reason)
	default:
		c.addRates(r)
	}
}

// identify checks only the name, the key and the endpoint of the rule r, and that no other rule has its name.
func (c *ruleCheck) identify(r *givenRule) {
	c.addPlace(r)
	c.addName(r)
}

// addPlace checks the fields of the rule r that say which requests it applies to, and its key.
func (c *ruleCheck) addPlace(r *givenRule) {
	endpoint, additional := r.place(r.isDefault).Check(r.named)
	if endpoint != "" {
		c.reject(r, "endpoint", strconv.Quote(r.Endpoint), endpoint)
	}
	c.rejectIf(additional != "", r, "additional", true, additional)
	if _, problem := keyspec.Parse(string(r.Key)); problem != "" {
		c.reject(r, "key", strconv.Quote(string(r.Key)), problem)
	}
}

// addName checks that no earlier rule has the name of the rule r.
func (c *ruleCheck) addName(r *givenRule) {
	first, taken := c.names[r.Name]
	switch {
	case r.Name == "": // neither the name nor the endpoint is set, which addPlace has reported
	case !taken:
		c.names[r.Name] = r.path
	case !r.named && r.Endpoint != "":
		c.reject(r, "endpoint", strconv.Quote(r.Endpoint), "is that of "+first+": rules that share an endpoint need names")
	default:
		c.reject(r, "name", strconv.Quote(r.Name), "is that of "+first+": a name occurs once")
	}
}

// addLimiter checks the rule r, which has a Limiter.
func (c *ruleCheck) addLimiter(r *givenRule) {
	if r.Rate != (Rate{}) {
		c.within(r.path+".rate", r.Rate.Validate())
	}
	if confmap.IsNil(r.Limiter) {
		kind := reflect.ValueOf(r.Limiter).Kind().String()
		c.reject(r, "limiter", nil, "must not be a nil "+strings.Replace(kind, "ptr", "pointer", 1))
	}
	const ownRates = ": a limiter of one's own has its own rates"
	c.rejectIf(len(r.Tiers) > 0, r, "tiers", r.Tiers, "must be empty"+ownRates)
	c.rejectIf(r.Warmup != (Warmup{}), r, "warmup", r.Warmup, "must be left out"+ownRates)
	c.rejectIf(r.Penalty != (Penalty{}), r, "penalty", r.Penalty, "must be left out: a limiter of one's own has none")
	c.rejectIf(r.Resolve != nil, r, "resolve", "set", "must be nil"+ownRates)
	c.rejectIf(r.OnStoreError.local(), r, "onStoreError", r.OnStoreError,
		"must be open or closed: a limiter of one's own has no share for this process")
	limiter := fmt.Sprintf("%T", r.Limiter)
	c.rejectIf(settles(c.store) != nil, r, "limiter", limiter,
		"must be nil: the store has no Settle and Accepts, to give back what is charged when the limiter denies")
	// Two rules with a Limiter but without an endpoint are accepted here; a request that names both is refused.
	if i := slices.IndexFunc(c.custom, r.meets); i >= 0 {
		other, which := c.custom[i], ", which may apply to the same request,"
		if r.Endpoint == other.Endpoint {
			which = ", of the same endpoint,"
		}
		c.reject(r, "limiter", limiter, "must be nil: "+other.path+which+" has a limiter too, and a decision asks one")
		return
	}
	if i := slices.IndexFunc(c.holding, r.meets); i >= 0 {
		c.reject(r, "limiter", limiter, "must be nil: "+c.holding[i].path+", which may apply to the same request, counts what is running")
	}
	c.custom = append(c.custom, r)
}

// meets reports whether both rules, the one in r and the one in other, may apply to the same request.
func (r *givenRule) meets(other *givenRule) bool {
	return match.Meet(r.place(r.isDefault), other.place(other.isDefault))
}

// addRates checks the rates, the Warmup and the Penalty of the rule r, which has no Limiter.
func (c *ruleCheck) addRates(r *givenRule) {
	c.checkHolds(r)
	c.addWarmup(r)
	c.within(r.path+".penalty", r.Penalty.validate())
	if _, accepts := c.store.(StoreAccepter); c.store != nil && !accepts {
		warms := r.Warmup != (Warmup{})
		c.rejectIf(warms, r, "warmup", r.Warmup, "must be left out: the store has no Accepts, to say that it knows warm-up")
		c.rejectIf(!warms && r.Penalty != (Penalty{}), r, "penalty", r.Penalty,
			"must be left out: the store has no Accepts, to say that it knows penalties")
	}
	c.addRate(r, r.path+".rate", r.Rate)
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if rate, path := r.Tiers[tier], tierPath(r.path, tier); rate != unlimitedRate {
			c.addRate(r, path, rate)
			c.within(path, algorithms[r.Algorithm].otherWindow(r.Rate, rate))
		}
	}
}

// If the rule r has AlgorithmInFlight, checkHolds checks that it has no Warmup and no Penalty, that the store can give units
// back, and that no rule with a Limiter may apply to the same request.
func (c *ruleCheck) checkHolds(r *givenRule) {
	if !r.holds() {
		return
	}
	c.holding = append(c.holding, r)
	const none = "must be left out: a rule that counts what is running has none"
	c.rejectIf(r.Warmup != (Warmup{}), r, "warmup", r.Warmup, none)
	c.rejectIf(r.Penalty != (Penalty{}), r, "penalty", r.Penalty, none)
	c.rejectIf(settles(c.store) != nil, r, "algorithm", `"InFlight"`,
		"must be another: the store has no Settle and Accepts, to end what is running")
	if i := slices.IndexFunc(c.custom, r.meets); i >= 0 {
		reason := "must be another: " + c.custom[i].path + ", which may apply to the same request, has a limiter of its own"
		c.reject(r, "algorithm", `"InFlight"`, reason)
	}
}

// addRate checks one rate of the rule r. path is how errors name the rate.
func (c *ruleCheck) addRate(r *givenRule, path string, rate Rate) {
	if rate == unlimitedRate {
		c.problems = append(c.problems, &ConfigError{path, rate, "must be a limit: only a tier, or Resolve, makes a request unlimited"})
		return
	}
	if err := algorithms[r.Algorithm].validate(rate); err != nil {
		c.within(path, err)
		return
	}
	ask := Ask{Algorithm: r.Algorithm, Rate: rate, Warmup: r.Warmup, Penalty: r.Penalty}
	if c.revocable {
		ask.Receipt, ask.HoldFor = revocableAsk.Receipt, revocableAsk.HoldFor
	}
	if err := unsupported(path, c.supports, ask); err != nil {
		c.problems = append(c.problems, err)
	}
}

// addWarmup checks the Warmup of the rule r.
func (c *ruleCheck) addWarmup(r *givenRule) {
	w, validate := r.Warmup, algorithms[r.Algorithm].validate
	c.within(r.path+".warmup", w.validate())
	if w.From < 1 || validate(r.Rate) != nil { // these mistakes are reported by Warmup.validate and addRate
		return
	}
	c.within(r.path+".warmup", joinFaults(ruleconfig.Warmup(w).FaultsAt(r.Rate.data())))
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if rate := r.Tiers[tier]; rate != unlimitedRate && validate(rate) == nil {
			c.within(tierPath(r.path, tier), w.fits(rate))
		}
	}
}

// tierPath returns how errors name a tier of a rule. path is how errors name the rule, such as "rules[2]".
func tierPath(path, tier string) string { return path + ".tiers[" + strconv.Quote(tier) + "]" }

// place returns which requests the rule r applies to, in the form that the package match needs.
func (r *Rule) place(isDefault bool) match.Place {
	return match.Place{Endpoint: r.Endpoint, Default: isDefault, Additional: r.Additional, Shadow: !r.Mode.Denies()}
}

// fits returns an error if the rule r, which has no Limiter, cannot decide by this rate in place of its Rate.
func (r *Rule) fits(rate Rate) error {
	algorithm := algorithms[r.Algorithm]
	if err := algorithm.validate(rate); err != nil {
		return err
	}
	return cmp.Or(r.Warmup.fits(rate), algorithm.otherWindow(r.Rate, rate))
}

// keepsKeys reports whether r can take over the keys of another rule: both must have the same Key, Algorithm and Unit.
func (r *Rule) keepsKeys(other *Rule) bool {
	return r.Key == other.Key && r.Algorithm == other.Algorithm && r.Unit == other.Unit
}

// holds reports whether the rule r limits how many requests run at the same time.
func (r *Rule) holds() bool { return r.Algorithm == AlgorithmInFlight }
