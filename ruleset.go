package ratelimit

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keyspec"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/match"
)

// An activeRule is a rule and what it decides by. A change of a rule makes a new
// activeRule, which shares the keys and totals of the old one if the rule still has the
// same name, key type and algorithm.
type activeRule struct {
	Rule // with its defaults filled in

	isDefault  bool
	exempts    bool        // whether one of Tiers is Unlimited
	resultName string      // Result.Rule: the rule's name, or empty for a limiter outside a RateLimiter
	index      int         // grows in the order in which the rules were given
	serial     uint64      // keys are locked in the order of serials: the one made first has the lowest
	key        keyMaker    // of Key
	keys       engine.Keys // the rule's state in this process; nil if it has a Limiter or a store
	remote     *remoteRule // nil without a store
	local      engine.Keys // keys, or with a store the keys for FailLocal; nil if there are neither
	totals     *totals
}

// totals are the counts of a rule that its keys do not keep.
type totals struct {
	allowed, denied, shadowed atomic.Uint64 // decisions of a store or of a custom Limiter
	degraded, errors          atomic.Uint64
	givenBack                 atomic.Uint64 // units
	replayed                  atomic.Uint64
}

// count counts a decision of a store or a custom limiter.
func (t *totals) count(shadow, allowed bool) {
	switch {
	case allowed:
		t.allowed.Add(1)
	case shadow:
		t.shadowed.Add(1)
	default:
		t.denied.Add(1)
	}
}

// addCounts adds the counts of keys for FailLocal that a change of the rule has replaced.
func (t *totals) addCounts(c keytable.Counts) {
	t.allowed.Add(c.Allowed)
	t.denied.Add(c.Denied)
	t.shadowed.Add(c.Shadowed)
	t.degraded.Add(c.Allowed + c.Denied + c.Shadowed)
}

// enforces reports whether the rule denies.
func (r *activeRule) enforces() bool { return r.Mode != ModeShadow }

// identity joins the key of r with the hash h to id.
func (r *activeRule) identity(id, h keytable.Hash) keytable.Hash {
	mode := uint64(0)
	if !r.enforces() {
		mode = 1
	}
	return id.With(2*r.serial+mode, h)
}

// rates returns the rates of r and of its tiers, as the engine has them.
func (r *activeRule) rates() engine.Rates {
	windowed := algorithms[r.Algorithm].windowed
	rates := engine.Rates{Base: engine.Rate(r.Rate), MayGrow: r.Resolve != nil, Windows: windowed, SamePer: windowed, Warmup: r.Warmup.engine()}
	if len(r.Tiers) > 0 {
		rates.Tiers = make(map[string]engine.Rate, len(r.Tiers))
	}
	for tier, rate := range r.Tiers {
		if rate != unlimitedRate {
			rates.Tiers[tier] = engine.Rate(rate)
		}
	}
	return rates
}

// resolved returns the rate that Resolve returns for req, and whether there is one. exempt is
// true if the rule does not limit req. kept are the rates that Resolve has returned for req before,
// by rule; it is called, once, if kept is nil.
func (r *activeRule) resolved(req *Request, kept map[string]Rate) (rate Rate, ok, exempt bool) {
	switch {
	case r.Resolve == nil:
	case kept != nil:
		rate, ok = kept[r.Name]
	default:
		rate, ok = r.Resolve(*req)
	}
	if ok {
		return rate, true, rate == unlimitedRate
	}
	return rate, false, r.exempts && r.Tiers[req.Tier] == unlimitedRate
}

// Place returns to which endpoints r applies.
func (r *activeRule) Place() match.Place { return r.place(r.isDefault) }

// Index returns a number that grows in the order in which the rules were given.
func (r *activeRule) Index() int { return r.index }

// A ruleSet is all the rules of a RateLimiter at one time. It never changes: a change of
// the rules makes another one, so a decision that has loaded a ruleSet needs no lock.
type ruleSet struct {
	groups match.Set[*activeRule, ruleGroup]
	byName match.Map[*activeRule]
	rules  match.List[*activeRule]
	custom int // how many have a Limiter

	listing       sync.Once // makes the two below, which RateLimiter.Rules returns
	listed        []Rule
	listedDefault *Rule
}

// maxPlain is the largest number of rules in a plain group.
const maxPlain = 4

// A ruleGroup is the rules that apply to an endpoint.
type ruleGroup struct {
	// plain is true if RateLimiter.takePlain can decide: by 1 to maxPlain rules with keys in
	// this process, or by one that enforces in a store. None of them has code of the user's.
	plain bool

	// only is the group's rule if the group is plain and has exactly one, which
	// enforces. It is nil otherwise.
	only *activeRule

	rules []*activeRule // in the order of inLockOrder
}

// newRuleSet returns the set of these rules, which are not in use yet. The default rule is the
// last one.
func newRuleSet(rules []*activeRule) *ruleSet {
	s := &ruleSet{rules: rules}
	byName := make(map[string]*activeRule, len(rules))
	for i, r := range rules {
		r.enter(i)
		byName[r.Name] = r
		if r.Limiter != nil {
			s.custom++
		}
	}
	s.byName = match.MapOf(byName)
	s.groups = match.New(rules, newRuleGroup)
	return s
}

// enter prepares r to be the rule of a set that has this index.
func (r *activeRule) enter(index int) {
	if r.index = index; r.isDefault {
		r.index = math.MaxInt
	}
	for _, rate := range r.Tiers {
		r.exempts = r.exempts || rate == unlimitedRate
	}
}

// with returns the set that has the rule to in place of from. If from is nil, it adds to after
// the other rules; if to is nil, it removes from. It copies only what this changes, but for the
// list of the rules. to is not in use yet, and s must be the newest set.
func (s *ruleSet) with(from, to *activeRule) *ruleSet {
	next := &ruleSet{groups: s.groups.Replace(from, to), byName: s.byName, custom: s.custom}
	if from != nil {
		next.byName = next.byName.Without(from.Name)
		if from.Limiter != nil {
			next.custom--
		}
	}
	if to != nil {
		next.byName = next.byName.With(to.Name, to)
		if to.Limiter != nil {
			next.custom++
		}
	}
	var index int
	if next.rules, index = s.rules.With(from, to); to != nil {
		to.enter(index)
	}
	return next
}

// named returns the rule with this name, or nil.
func (s *ruleSet) named(name string) *activeRule {
	r, _ := s.byName.Get(name)
	return r
}

// match returns the rules for endpoint.
func (s *ruleSet) match(endpoint string) *ruleGroup {
	g := s.groups.Exact.Whole[endpoint] // Find does the same, but it is generic, and so slower
	if g == nil {
		return s.groups.FindElsewhere(endpoint)
	}
	if v := g.Value(); v != nil {
		return v
	}
	return s.groups.Find(endpoint)
}

// newRuleGroup returns the group of these rules.
func newRuleGroup(rules []*activeRule) ruleGroup {
	g := ruleGroup{rules: rules}
	inLockOrder(g.rules)
	g.plain = len(g.rules) > 0 && len(g.rules) <= maxPlain
	single := len(g.rules) == 1 && g.rules[0].enforces()
	for _, r := range g.rules {
		g.plain = g.plain && (r.keys != nil || single && r.remote != nil) && r.Resolve == nil && !r.exempts
	}
	if g.plain && single {
		g.only = g.rules[0]
	}
	return g
}

// inLockOrder sorts rules into the one order in which all decisions lock keys, so that no
// two decisions wait for each other. Rules with a Limiter lock nothing and come last.
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

// activate returns the activeRule for r. If that takes over the keys of old, the rule that has
// its name, then c will bring those keys to the rates of r.
func (c *change) activate(r Rule, isDefault bool, old *activeRule) (*activeRule, error) {
	l := c.l
	r = r.completed(isDefault)
	r.OnStoreError = r.policy(l.settings.policy)
	var untold error
	switch {
	case old == nil || r.Limiter == nil || !confmap.Same(old.Limiter, r.Limiter):
	case r.Rate == (Rate{}):
		r.Rate = old.Rate
	case r.Rate != old.Rate:
		untold = c.tell(old, r.Rate)
	}
	a := &activeRule{Rule: r, isDefault: isDefault, resultName: r.Name, key: keyMaker{keyspec.MakerOf(string(r.Key))}}
	if l.settings.solo {
		a.resultName = ""
	}
	keeps := old != nil && old.Key == r.Key && old.Algorithm == r.Algorithm && (old.Limiter == nil) == (r.Limiter == nil) &&
		(old.Warmup == Warmup{}) == (r.Warmup == Warmup{})
	if keeps {
		a.serial, a.totals = old.serial, old.totals
	} else {
		l.lastSerial++
		a.serial, a.totals = l.lastSerial, new(totals)
	}
	var commit func(now instant)
	var err error
	switch {
	case r.Limiter != nil:
	case l.settings.store != nil:
		commit, err = l.activateRemote(a, old, keeps)
	case keeps:
		a.keys, a.local = old.keys, old.keys
		commit, err = a.keys.Change(a.rates())
	default:
		a.keys, err = algorithms[r.Algorithm].keys(&l.time, a.rates(), l.settings.maxKeys)
		a.local = a.keys
	}
	if commit != nil {
		c.commits = append(c.commits, commit)
	}
	return a, errors.Join(append(atPath("rules["+strconv.Quote(r.Name)+"].rate", err), untold)...)
}

// activateRemote makes a, whose state is in a store, ready for use. keeps says whether the rule
// is still the one that old was made for. It may return a function to be called when the rules
// change.
func (l *RateLimiter) activateRemote(a, old *activeRule, keeps bool) (commit func(now instant), err error) {
	policy := a.OnStoreError
	if keeps && old.remote.policy == policy && old.remote.local != nil {
		a.remote, a.local = old.remote, old.local
		return a.remote.local.Change(policy.shares(a.rates()))
	}
	remote, err := l.newRemoteRule(a, policy)
	if err != nil {
		return nil, err
	}
	a.remote = remote
	if remote.local != nil {
		a.local = remote.local
	}
	if keeps && old.local != nil {
		return func(instant) { a.totals.addCounts(old.local.Counts()) }, nil
	}
	return nil, nil
}
