package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/match"
	"github.com/ratelimit-go/ratelimit/internal/rulecheck"
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

	// Warmup makes the limit of a new key lower at first. It is not for a rule with a Limiter.
	// If a tier, or the rate that Resolve returns, has fewer Requests than Warmup.From, its
	// keys have that limit from the beginning. A key keeps its age when Warmup is changed; but
	// to add or to remove one makes all keys new.
	Warmup Warmup

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

// A ruleCheck collects everything that is wrong with a list of rules.
type ruleCheck = rulecheck.Check[Rate]

func newRuleCheck(set *settings) *ruleCheck {
	caller := rulecheck.Caller[Rate]{
		Problem:    func(field string, value any, reason string) error { return &ConfigError{field, value, reason} },
		Within:     atPath,
		Validate:   Rate.Validate,
		Refused:    func(a string, r Rate) error { return algorithms[Algorithm(a)].validate(r) },
		OtherPer:   func(a string, r, tier Rate) error { return algorithms[Algorithm(a)].otherWindow(r, tier) },
		Unlimited:  unlimitedRate,
		Modes:      modes,
		Algorithms: algorithmNames(),
	}
	if _, settles := set.store.(settler); set.store != nil && !settles {
		caller.NoLimiter = "the store has no Settle and Accepts, to give back what is charged when the limiter denies"
	}
	if _, accepts := set.store.(accepter); set.store != nil && !accepts {
		caller.NoWarmup = "the store has no Accepts, to say that it knows warm-up"
	}
	if supports := supportsOf(set.store); supports != nil {
		caller.Supports = func(a string, r Rate, warmup any, back bool) error {
			ask := Ask{Algorithm: Algorithm(a), Rate: r}
			ask.Warmup, _ = warmup.(Warmup)
			if back {
				ask.Receipt, ask.Term = revocable.Receipt, revocable.Term
			}
			return supports(ask)
		}
	}
	return rulecheck.New(caller)
}

// newCheck returns a ruleCheck that asks Accepts and Supports of the store as a hook.
func (c *change) newCheck() *ruleCheck {
	check := newRuleCheck(&c.l.settings)
	if supports := check.Supports; supports != nil {
		check.Supports = func(a string, r Rate, warmup any, revocable bool) error {
			return c.calls.Ask([4]any{a, r, warmup, revocable}, func() error { return supports(a, r, warmup, revocable) })
		}
	}
	return check
}

// pathOf returns the path of r, which is one of the rules, in errors.
func (c *change) pathOf(r *activeRule) string {
	if r.isDefault {
		return "defaultRule"
	}
	return "rules[" + strconv.Itoa(c.set.rules.Position(r)) + "]"
}

// toCheck returns r, whose path in errors is path, as a ruleCheck reads it.
func (r Rule) toCheck(path string, isDefault bool) rulecheck.Rule[Rate] {
	named := r.Name != ""
	r = r.completed(isDefault)
	c := rulecheck.Rule[Rate]{
		Path:      path,
		Name:      r.Name,
		Named:     named,
		Place:     r.place(isDefault),
		Key:       string(r.Key),
		Mode:      string(r.Mode),
		Algorithm: string(r.Algorithm),
		Rate:      r.Rate,
		Tiers:     r.Tiers,
		Resolves:  r.Resolve != nil,
		Limiter:   r.Limiter,
		Misfit:    r.OnStoreError.validate("onStoreError"),
		Cold:      r.checkWarmup(),
	}
	if r.Warmup != (Warmup{}) {
		c.Warmup = r.Warmup
	}
	if r.OnStoreError.kind == failLocally {
		c.Share = r.OnStoreError
	}
	return c
}

// place returns to which endpoints r applies.
func (r *Rule) place(isDefault bool) match.Place {
	return match.Place{Endpoint: r.Endpoint, Default: isDefault, Additional: r.Additional, Shadow: r.Mode == ModeShadow}
}

// checkRules returns everything that is wrong with rules and the default rule, joined.
func checkRules(check *ruleCheck, rules []Rule, defaultRule *Rule) error {
	if len(rules) > maxRules {
		return errTooManyRules(len(rules))
	}
	check.Revocable = defaultRule != nil && defaultRule.Limiter != nil
	for _, r := range rules {
		check.Revocable = check.Revocable || r.Limiter != nil
	}
	for i, r := range rules {
		check.Add(r.toCheck("rules["+strconv.Itoa(i)+"]", false))
	}
	if defaultRule != nil {
		check.Add(defaultRule.toCheck("defaultRule", true))
	}
	return errors.Join(check.Problems...)
}

// errTooManyRules is the error for n rules, which is more than maxRules.
func errTooManyRules(n int) error { return &ConfigError{"rules", n, "must be at most 10000"} }

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
var modes = []string{string(ModeEnforce), string(ModeShadow)}

// supportsOf returns a function that returns why s cannot decide on asks like a, or nil. It returns
// nil if s has neither Accepts nor Supports.
func supportsOf(s Store) func(a Ask) error {
	accepting, accepts := s.(accepter)
	supporting, supports := s.(interface{ Supports(Algorithm, Rate) error })
	if !accepts && !supports {
		return nil
	}
	return func(a Ask) (err error) {
		if accepts {
			err = accepting.Accepts(a)
		}
		if err == nil && supports {
			err = supporting.Supports(a.Algorithm, a.Rate)
		}
		return err
	}
}

// unsupported returns the error for the rate of a if the store cannot decide on asks like a, or nil.
func unsupported(supports func(a Ask) error, a Ask) error {
	if supports == nil {
		return nil
	}
	if err := supports(a); err != nil {
		return &ConfigError{"rate", a.Rate, rulecheck.NotSupported + err.Error()}
	}
	return nil
}

// chooseLook decides how to ask the store for Explain, and returns the error if it cannot answer.
func (l *RateLimiter) chooseLook(d *decision) error {
	err := errors.New("it has no method Accepts")
	if accepting, ok := l.settings.store.(accepter); ok {
		err = nil
		for i, r := range d.stored() {
			ask := r.ask(&d.request, d.origins[i].rate)
			ask.N, ask.Look = int(d.order.N), true
			if err = accepting.Accepts(ask); err != nil {
				break
			}
		}
	}
	switch {
	case err == nil:
	case d.order.N == 1:
		d.trial.byZero = true
	default:
		return &ConfigError{"store", fmt.Sprintf("%T", l.settings.store), "must accept an Ask with Look to explain a cost above 1: " + err.Error()}
	}
	return nil
}

// settles returns the error for a store that cannot give units back, or nil.
func (l *RateLimiter) settles() error {
	st := l.settings.store
	if st == nil {
		return nil
	}
	missing := ""
	if _, ok := st.(interface {
		Settle(ctx context.Context, asks []Ask) error
	}); !ok {
		missing = "Settle(context.Context, []Ask) error"
	} else if _, ok := st.(settler); !ok {
		missing = "Accepts(Ask) error"
	}
	if missing == "" {
		return nil
	}
	return &ConfigError{"store", fmt.Sprintf("%T", st), "must have a method " + missing + ": units are to be reserved"}
}

// reservable returns the error for a rule whose charges at this rate the store cannot give back,
// or nil. The asks would have the Receipt and the Term of like.
func (l *RateLimiter) reservable(r *activeRule, rate Rate, like Ask) error {
	like.Algorithm, like.Rate = r.Algorithm, rate
	return errors.Join(atPath("rules["+strconv.Quote(r.Name)+"]", unsupported(l.settings.store.(settler).Accepts, like))...)
}

// errNotReserved is the error for a reservation that r, which has a custom limiter, is asked for.
func errNotReserved(r *activeRule) error {
	return &ConfigError{"rules[" + strconv.Quote(r.Name) + "].limiter", fmt.Sprintf("%T", r.Limiter), "must not be asked for a reservation: a custom limiter gives no units back"}
}
