package ratelimit

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/counters"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/match"
	"github.com/ratelimit-go/ratelimit/internal/override"
	"github.com/ratelimit-go/ratelimit/internal/penalty"
)

// An activeRule is a rule in use: the Rule and the state that decides for it. A change of a rule makes a new
// activeRule, which takes over the keys and totals of the old one if the Name, Key, Algorithm and Unit are the same.
type activeRule struct {
	Rule         // with its defaults filled in
	match.Member // its place in the order of the rules

	isDefault bool
	unnamed   bool           // whether Results do not name the rule: its limiter is used without a RateLimiter
	exempts   bool           // whether one of the Tiers is Unlimited
	serial    uint64         // orders the locking of keys; a rule made later has a higher serial
	key       keyMaker       // makes the keys that Rule.Key describes
	keys      engine.Keys    // the rule's state in this process; nil if it has a Limiter or a store
	remote    *remoteRule    // nil without a store
	local     engine.Keys    // without a store, the same as the field keys; with a store, the keys by which FailLocal decides, or nil
	penal     *penalty.Table // the denials that the Penalty counts, and its blocks, in this process; nil without a Penalty
	totals    *counters.Totals
}

// resultName returns the value of Result.Rule.
func (r *activeRule) resultName() string {
	if r.unnamed {
		return ""
	}
	return r.Name
}

// enforces reports whether the rule r denies requests.
func (r *activeRule) enforces() bool { return r.Mode.Denies() }

// identity returns one hash of all of these: the request (its hash is id), its key in the rule r (its hash is h), its number
// of units n, and the rule r with its Mode.
func (r *activeRule) identity(id, h keytable.Hash, n int64) keytable.Hash {
	id.Lo += uint64(n) // the sum is not hashed here: it is hashed together with the key
	return id.With(uint64(len(modes))*r.serial+uint64(slices.Index(modes, string(r.Mode))), h)
}

// rates returns the rates of the rule r and of its tiers in the types of the package engine.
func (r *activeRule) rates() engine.Rates {
	windowed := algorithms[r.Algorithm].windowed
	rates := engine.Rates{
		Base: engine.Rate(r.Rate.data()), MayGrow: r.Resolve != nil, Windows: windowed, SamePer: windowed, Warmup: r.Warmup.engine(),
	}
	if len(r.Tiers) > 0 {
		rates.Tiers = make(map[string]engine.Rate, len(r.Tiers))
	}
	for tier, rate := range r.Tiers {
		if rate != unlimitedRate {
			rates.Tiers[tier] = engine.Rate(rate.data())
		}
	}
	return rates
}

// resolved returns the rate that Rule.Resolve returns for req. ok is false if Resolve gives no rate. exempt is true if
// r does not limit req. If earlier is not nil, resolved uses the rates in it and does not call Resolve again.
func (r *activeRule) resolved(req *Request, earlier map[string]Rate) (rate Rate, ok, exempt bool) {
	switch {
	case r.Resolve == nil:
	case earlier != nil:
		rate, ok = earlier[r.Name]
	default:
		rate, ok = r.Resolve(*req)
	}
	if ok {
		return rate, true, rate == unlimitedRate
	}
	return rate, false, r.exempts && r.Tiers[req.Tier] == unlimitedRate
}

// ruledBy returns the rate that an override sets for the rule r. ok is false if no override does; exempt means that r does not apply.
func ruledBy(u *override.Ruling, r *activeRule) (rate Rate, ok, exempt bool) {
	e := u.Rule(r.Name, r.takes)
	if e == nil || e.Effect == override.Rate {
		return rateOf(e.RateOf()), e != nil, false
	}
	return unlimitedRate, true, true
}

// takes reports whether the override e, which has a rate, can be applied to the rule r.
func (r *activeRule) takes(e *override.Entry) bool {
	return r.Limiter == nil && r.key.Has(e.Part()) && r.fits(rateOf(e.Rate)) == nil
}

// whose returns the client and the address that the key of req in the rule r belongs to, so that a pardon can find the key.
func (r *activeRule) whose(req *Request) (w penalty.Whose) {
	if r.key.Has(keyspec.User) {
		w.Client = keytable.HashOf(req.Client)
	}
	if r.key.Has(keyspec.IP) {
		w.IP = override.PrefixOf(req.IP)
	}
	return w
}

// penalties gives the new rule r the table in which its Penalty counts denials. If r replaces a rule with such a table (the parameter
// old), it takes that table over; otherwise it gets a new one for maxKeys keys. commit, if not nil, is called when the rules take effect.
func (r *activeRule) penalties(old *activeRule, maxKeys int) (commit func(now instant)) {
	switch rule := penalty.Rule(r.Penalty); {
	case r.Penalty == Penalty{}:
	case old != nil && old.penal != nil:
		r.penal = old.penal
		return func(instant) { r.penal.SetRule(rule) }
	default:
		r.penal = penalty.New(rule, maxKeys)
	}
	return nil
}

// countTier counts a request whose tier is not among the Tiers of the rule r. It counts nothing if r has no Tiers, or if
// the parameter used is false, which means that the rule has not used its own Rate for the request.
func (r *activeRule) countTier(tier string, used bool) {
	if _, known := r.Tiers[tier]; !known && used && tier != "" && len(r.Tiers) > 0 {
		r.totals.Add(counters.UnknownTier, 1)
	}
}

// Place returns the endpoints that the rule r applies to.
func (r *activeRule) Place() match.Place { return r.place(r.isDefault) }

// RuleName returns the name of the rule r.
func (r *activeRule) RuleName() string { return r.Name }

// A ruleSet holds all rules of a RateLimiter at one time. It never changes: a change of the rules makes another one, so
// a decision that has loaded a ruleSet needs no lock.
type ruleSet struct {
	match.Rules[*activeRule, ruleGroup]
	custom int // how many rules have a Limiter

	listing       sync.Once // sets the two fields below, which RateLimiter.Rules returns
	listed        []Rule
	listedDefault *Rule
}

// maxPlain is the largest number of rules for an endpoint that the fast path, takePlain, can decide by.
const maxPlain = 4

// A ruleGroup holds the rules that apply to an endpoint.
type ruleGroup struct {
	// plain is true if the fast path, RateLimiter.takePlain, can decide. The group then has 1 to maxPlain rules with state in this
	// process, or a single rule in ModeEnforce with state in a store. No rule calls a function of the user, has a Penalty or has an
	// Unlimited tier.
	plain bool

	// counted is true if a rule has a Unit or counts what is running, so that it does not apply to every request.
	counted bool

	// only is set if plain is true and the group has exactly one rule, which is in ModeEnforce; otherwise nil.
	only *activeRule

	rules []*activeRule // sorted by inLockOrder
}

// newRuleSet returns the set of these rules, which are not in use yet. The default rule is the last one.
func newRuleSet(rules []*activeRule) *ruleSet {
	s := &ruleSet{Rules: match.NewRules(rules, newRuleGroup)}
	for _, r := range rules {
		s.custom += customs(r)
	}
	return s
}

// with returns a copy of s in which its second parameter, a new rule, replaces its first parameter, an old rule. If the old rule is
// nil, the new rule is added after all rules; if the new rule is nil, the old rule is removed. The copy has a new list of rules,
// but shares with s the other data that do not change. The new rule is not in use yet, and s must be the newest set.
func (s *ruleSet) with(from, to *activeRule) *ruleSet {
	return &ruleSet{Rules: s.With(from, to), custom: s.custom + customs(to) - customs(from)}
}

// customs returns 1 if the rule r has a Limiter, and 0 otherwise. r may be nil.
func customs(r *activeRule) int {
	if r == nil || r.Limiter == nil {
		return 0
	}
	return 1
}

// missing returns an error that names each of the required rules that s does not have, or nil.
func (s *ruleSet) missing(required []string) error {
	var problems []error
	for _, name := range required {
		if s.Named(name) == nil {
			problems = append(problems, &ConfigError{"rules[" + strconv.Quote(name) + "]", "missing", "must exist: WithRequiredRules names it"})
		}
	}
	return errors.Join(problems...)
}

// match returns the rules that apply to endpoint.
func (s *ruleSet) match(endpoint string) *ruleGroup {
	g := s.Exact.Whole[endpoint] // the method Find does the same, but is generic and so slower
	if g == nil {
		return s.FindElsewhere(endpoint)
	}
	if v := g.Value(); v != nil {
		return v
	}
	return s.Find(endpoint)
}

// list returns what RateLimiter.Rules returns for this set. s may be nil.
func (s *ruleSet) list() (rules []Rule, defaultRule *Rule) {
	if s == nil {
		return nil, nil
	}
	s.listing.Do(func() {
		for _, r := range s.List[:s.NumNamed()] {
			s.listed = append(s.listed, r.Rule)
		}
		if r := s.Default(); r != nil {
			s.listedDefault = &r.Rule
		}
		s.listed = slices.Clip(s.listed)
	})
	return s.listed, s.listedDefault
}

// newRuleGroup returns the group of these rules, and sorts them.
func newRuleGroup(rules []*activeRule) ruleGroup {
	g := ruleGroup{rules: rules}
	inLockOrder(g.rules)
	g.plain = len(g.rules) > 0 && len(g.rules) <= maxPlain
	single := len(g.rules) == 1 && g.rules[0].enforces()
	for _, r := range g.rules {
		g.counted = g.counted || r.Unit != "" || r.holds()
		g.plain = g.plain && (r.keys != nil || single && r.remote != nil) && r.Resolve == nil && !r.exempts && r.penal == nil
	}
	if g.plain && single {
		g.only = g.rules[0]
	}
	return g
}

// inLockOrder sorts rules into the order in which every decision locks their keys. Because all decisions use the same
// order, no two of them can wait for each other. Rules with a Limiter lock nothing and come last.
func inLockOrder(rules []*activeRule) {
	slices.SortFunc(rules, func(a, b *activeRule) int {
		if custom := a.Limiter != nil; custom != (b.Limiter != nil) {
			if custom {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.serial, b.serial)
	})
}

// asked returns the rules among the given ones that apply to req. It writes them to the caller's array, so it allocates nothing.
func (req *Request) asked(rules []*activeRule, some *[maxPlain]*activeRule) []*activeRule {
	n := 0
	for _, r := range rules {
		if _, asked := req.cost(r.Unit); asked && !r.holds() {
			some[n] = r
			n++
		}
	}
	return some[:n]
}

// countUnasked adds req to the statistics of each rule that does not apply because req lacks its Unit, or because the
// rule has AlgorithmInFlight and req is not a reservation. A rule without a Unit does not apply if req has a cost of 0:
// then req is in no statistics of this rule.
func (req *Request) countUnasked(rules []*activeRule) {
	for _, r := range rules {
		switch _, asked := req.cost(r.Unit); {
		case asked && r.holds():
			r.totals.Add(counters.Unheld, 1)
		case !asked && r.Unit != "":
			r.totals.Add(counters.NotAsked, 1)
		}
	}
}

// policy returns the failure policy of the rule r. If r has none, it inherits the policy p of the limiter. FailLocal
// cannot answer for a custom Limiter, so a rule with a Limiter inherits FailOpen in its place.
func (r *Rule) policy(p FailurePolicy) FailurePolicy {
	if p = cmp.Or(r.OnStoreError, p); p.local() && r.Limiter != nil {
		return FailOpen
	}
	return p
}

// An unknownRule is the error for a name that no rule of a ruleSet has.
type unknownRule struct {
	name string
	set  *ruleSet
}

// Error returns a text with the unknown name and with the rule name that is most similar to it.
func (e *unknownRule) Error() string {
	return ErrUnknownRule.Error() + " " + confmap.Quote(e.name) + confmap.DidYouMean(e.name, e.set.Names())
}

func (e *unknownRule) Unwrap() error { return ErrUnknownRule }
