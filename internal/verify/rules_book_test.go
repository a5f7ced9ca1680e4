package verify

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// An account is what one key of one rule has used, kept in a slow and obvious way.
type account interface {
	ratelimittest.Model

	// wish sets the plan of the asks from here on. The change is not announced.
	wish(p plan)
}

// A plain account has one rate, except for announced changes.
type plain struct{ ratelimittest.Model }

func (plain) wish(plan) {}

// A book is the reference of a RateLimiter: the rules in order, and an account for each key
// of each rule. It puts the answer of several rules together from what each of them says as
// the only rule.
type book struct {
	made     time.Time
	rules    []bookRule
	open     func(made time.Time, r bookRule, rate ratelimit.Rate) account
	accounts map[string]map[[3]string]account // by the names of the rules
	stats    map[string]*ratelimit.RuleStats
}

// A bookRule is a rule in which every default is written out.
type bookRule struct {
	ratelimit.Rule
	isDefault bool
}

func newBook(made time.Time, rules []bookRule) *book {
	b := &book{
		made: made, rules: rules, accounts: make(map[string]map[[3]string]account),
		stats: make(map[string]*ratelimit.RuleStats),
	}
	b.open = func(made time.Time, r bookRule, rate ratelimit.Rate) account {
		return plain{named(r.Algorithm).model(made, rate)}
	}
	for _, r := range rules {
		b.add(r.Name)
	}
	return b
}

// add makes room for the accounts of a rule.
func (b *book) add(name string) {
	b.accounts[name] = make(map[[3]string]account)
	b.stats[name] = &ratelimit.RuleStats{Rule: name}
}

// named returns the algorithm of this name.
func named(name ratelimit.Algorithm) algorithm {
	i := slices.IndexFunc(algorithms, func(a algorithm) bool { return a.name == string(name) })
	return algorithms[i]
}

// suits returns how well r matches endpoint: 0 if it does not match.
func (r bookRule) suits(endpoint string) int {
	text, isPrefix := strings.CutSuffix(r.Endpoint, "*")
	switch {
	case r.isDefault:
		return 1
	case r.Endpoint == "":
		return 0
	case isPrefix && strings.HasPrefix(endpoint, text):
		return 2 + len(text)
	case r.Endpoint == endpoint:
		return math.MaxInt
	}
	return 0
}

// those returns the rules for req, in order. It returns false if req names a rule that does
// not exist.
func (b *book) those(req ratelimit.Request) (those []bookRule, ok bool) {
	for _, name := range req.Rules {
		if b.accounts[name] == nil {
			return nil, false
		}
	}
	return applying(b.rules, req), true
}

// applying returns those of rules that apply to req, in order: it asks each rule by itself.
func applying(rules []bookRule, req ratelimit.Request) (those []bookRule) {
	best := 1
	for _, r := range rules {
		if r.Mode != ratelimit.ModeShadow && !r.Additional {
			best = max(best, r.suits(req.Endpoint))
		}
	}
	for _, r := range rules {
		suits := r.suits(req.Endpoint)
		if len(req.Rules) > 0 && slices.Contains(req.Rules, r.Name) ||
			len(req.Rules) == 0 && suits >= best ||
			r.Additional && suits > 0 {
			those = append(those, r)
		}
	}
	return those
}

// A plan is one of the rates of a rule. Two plans of a rule may have the same rate.
type plan struct {
	of   planOf
	tier string // the name of the tier, if the plan is that of a tier
	rate ratelimit.Rate
}

// A planOf says where a rule has the rate of a plan from.
type planOf int

const (
	ofRule    planOf = iota // Rule.Rate
	ofTier                  // Rule.Tiers
	ofResolve               // Rule.Resolve
)

// plan returns the plan by which r decides req.
func (r bookRule) plan(req ratelimit.Request) plan {
	if r.Resolve != nil {
		if rate, ok := r.Resolve(req); ok {
			return plan{of: ofResolve, rate: rate}
		}
	}
	if rate, ok := r.Tiers[req.Tier]; ok {
		return plan{ofTier, req.Tier, rate}
	}
	return plan{of: ofRule, rate: r.Rate}
}

// account returns the account of r that req is charged to.
func (b *book) account(r bookRule, req ratelimit.Request) account {
	key := map[ratelimit.KeyType][3]string{
		ratelimit.KeyUser:         {"user", req.Client},
		ratelimit.KeyEndpoint:     {"endpoint", req.Endpoint},
		ratelimit.KeyUserEndpoint: {"both", req.Client, req.Endpoint},
		ratelimit.KeyIP:           {"ip", req.IP},
		ratelimit.KeyGlobal:       {"all"},
	}[r.Key]
	p, all := r.plan(req), b.accounts[r.Name]
	if all[key] == nil {
		all[key] = b.open(b.made, r, p.rate)
	}
	all[key].wish(p)
	return all[key]
}

// ask answers req at the instant at, or only looks if take is false. It returns false if
// req names a rule that does not exist.
func (b *book) ask(at time.Time, req ratelimit.Request, take bool) (ratelimit.Result, bool) {
	those, ok := b.those(req)
	if !ok {
		return ratelimit.Result{}, false
	}
	n := max(req.Cost, 1)
	if !take {
		n = 1
	}
	answers, fits, passes := make([]ratelimit.Result, len(those)), make([]bool, len(those)), true
	for i, r := range those {
		answers[i] = b.account(r, req).Ask(at, 0)
		fits[i] = n <= answers[i].Remaining
		passes = passes && (fits[i] || r.Mode == ratelimit.ModeShadow)
	}
	for i, r := range those {
		if take {
			answers[i] = b.settle(at, r, req, answers[i], fits[i], passes)
		}
	}
	return together(those, answers, passes), true
}

// settle charges r for req if r has enough and the request passes, and returns the answer
// of r. look is the answer of r to a look.
func (b *book) settle(at time.Time, r bookRule, req ratelimit.Request, look ratelimit.Result, fits, passes bool) ratelimit.Result {
	account, stats := b.account(r, req), b.stats[r.Name]
	switch {
	case fits && !passes:
		return look
	case fits:
		stats.Allowed++
	case r.Mode == ratelimit.ModeShadow:
		stats.ShadowDenied++
	default:
		stats.Denied++
	}
	return account.Ask(at, max(req.Cost, 1))
}

// together returns the answer to a request from answers, which are those of rules in their
// order.
func together(rules []bookRule, answers []ratelimit.Result, passes bool) ratelimit.Result {
	res := ratelimit.Result{Allowed: true, Limit: -1, Remaining: -1}
	first := true
	var binding ratelimit.Result
	for i, r := range rules {
		if r.Mode == ratelimit.ModeShadow {
			continue
		}
		a := answers[i]
		a.Rule = r.Name
		switch {
		case first:
			res, binding, first = a, a, false
			continue
		case passes && a.Remaining < binding.Remaining, !passes && a.RetryAfter > binding.RetryAfter:
			binding = a
		}
		res.Remaining, res.Delay = min(res.Remaining, a.Remaining), max(res.Delay, a.Delay)
	}
	if first {
		return res
	}
	res.Allowed, res.Rule, res.Limit = passes, binding.Rule, binding.Limit
	res.RetryAfter, res.ResetAfter, res.Reason = binding.RetryAfter, binding.ResetAfter, binding.Reason
	if !passes {
		res.Delay = 0
	}
	return res
}

// reset makes client as good as new for endpoint or, if that is empty, by every rule whose key is
// the client alone. It returns false if no such rule has a key that is the client's own.
func (b *book) reset(client, endpoint string) (own bool) {
	req := ratelimit.Request{Client: client, Endpoint: endpoint}
	those, _ := b.those(req)
	if endpoint == "" {
		those = b.rules
	}
	for _, r := range those {
		if client != "" && (r.Key == ratelimit.KeyUser || r.Key == ratelimit.KeyUserEndpoint && endpoint != "") {
			b.account(r, req).Reset()
			own = true
		}
	}
	return own
}
