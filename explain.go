package ratelimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/explained"
	"github.com/ratelimit-go/ratelimit/internal/mirror"
)

// An Explanation says what [RateLimiter.Check] would answer to a request now, and why: which rules apply, and what each
// of them answers. It prints as a table, and is an object in JSON.
type Explanation struct {
	Request Request // the request that was explained
	// Match says how the rules that enforce were found: "exact" or "prefix" by the endpoint, "default" if no other
	// rule matches the endpoint, "named" by [Request.Rules], or "none" if no rule was found.
	Match string

	Pattern string // the [Rule.Endpoint] that matched, if Match is "exact" or "prefix"

	// Recorded is true if the request repeats a granted one, recognized by its [Request.ID]. Check would then return
	// the answer of that grant and charge nothing. See [WithRequestIDs].
	Recorded bool

	Result Result // what Check would return

	// Override is the block that denies the request, or nil. If there is such a block, no rule is asked, and Rules is empty.
	Override *Override

	Rules []RuleExplanation // the rules that apply, in the order in which the limiter has them, the default rule last
}

// A RuleExplanation says how one rule of an [Explanation] answers the request, and why.
type RuleExplanation struct {
	Name string // the rule's name
	// Match says why the rule applies: "exact", "prefix" or "default" if it is among the best matches, "named" by [Request.Rules], or
	// "additional" because of [Rule.Additional]. A rule in [ModeShadow] has the Match that it would have if it enforced.
	Match string

	Pattern   string    // [Rule.Endpoint], which may be empty
	KeyType   KeyType   // [Rule.Key]
	Key       string    // the key that the request takes from, as a [Store] or a custom [Limiter] gets it
	Algorithm Algorithm // [Rule.Algorithm]
	Mode      Mode      // [Rule.Mode]

	// Rate is the rate in force. It is [Unlimited] if the rule does not limit the request, and the zero Rate for a
	// rule with a custom Limiter. With [FailLocal], it is the whole rate, not the share of this process.
	Rate Rate

	// RateFrom says where Rate comes from: "rule" for [Rule.Rate], "tier" for [Rule.Tiers], "resolve" for
	// [Rule.Resolve], "override" for an [Override], or "limiter" for a custom Limiter, which has its own rate.
	RateFrom RateFrom

	Unit string // [Rule.Unit]
	Cost int    // how many of these units the request takes; 0 if it has no Costs, because each rule then takes [Request.Cost]

	// AnsweredBy says what has answered for the rule:
	//   - "own", "unseen" or "shared" for a key in this process: the key has state of its own, or no state, or it shares a budget
	//     with other keys because the limiter is full, see [WithMaxKeys];
	//   - "store", "policy" for a [FailurePolicy], or "limiter" for a custom Limiter;
	//   - "unlimited" if the rule does not limit the request, and "replay" if [Explanation.Recorded] is true;
	//   - "unasked" if the rule was not asked, because other callers wait;
	//   - "uncounted" if the request does not have the rule's Unit;
	//   - "unheld" for a rule with [AlgorithmInFlight], because Check decides without such rules.
	AnsweredBy AnsweredBy

	// Override is the exemption or the rate that decides for this rule, or nil. If it has no effect, because its Rate does not
	// fit the rule any more, RateFrom is not "override".
	Override *Override

	Receipts int  // how many charges of the key can still be given back, in this process
	Held     Held // what the key has in flight in this process, by a rule with [AlgorithmInFlight]

	Result Result // what the rule would answer alone, as [RateLimiter.CheckAll] returns it

	// MaxIn is the most units that the key can be granted at Rate in a closed interval. The interval is as long as Rate.Per or,
	// for a calendar, as the current window. MaxIn is -1 if the number is not known. See [Algorithm.MaxIn].
	MaxIn int

	Err error // the error of the [Store] or the custom Limiter, or why the rule cannot use Resolve's rate, or nil
}

// A Held says what a key has in flight. It is zero if nothing is in flight, or if the rule has its keys in a [Store].
type Held struct {
	N      int           // how many units are in flight
	Oldest time.Duration // how long ago the oldest of them were granted or extended; inexact after a change of [Rate.Per]
}

// A RateFrom says where a rate comes from; [RuleExplanation.RateFrom] lists the values.
type RateFrom string

// An AnsweredBy says what has answered for a rule; [RuleExplanation.AnsweredBy] lists the values.
type AnsweredBy string

// Explain returns what [RateLimiter.Check] would return for req now, and why. It takes nothing and changes nothing: the
// [Observer] does not see it, and [RuleStats] do not count it. It decides as Check does, by all rules at one instant,
// on copies of the states. If callers wait for a key, Explain answers as if they had been served, as Check does.
//
// The errors are those of Check. With an error that matches [ErrUnknownRule] or [ErrInvalidCount], or with the error of
// ctx, the Explanation is zero. With an error that matches [ErrStore], it is complete. Explain calls [Rule.Resolve]
// and, unless its circuit breaker refuses, the [Store]. Its calls neither open nor close a breaker.
//
// A custom [Limiter] is asked for 0 units: it then takes nothing, and says what a request for one unit would get. A Store that
// does not accept [Ask.Look] is asked in the same way if the cost is 1. If the cost is higher, the error matches [ErrInvalidConfig].
func (l *RateLimiter) Explain(ctx context.Context, req Request) (Explanation, error) {
	d := newDecision(&req, engine.ModeDryRun)
	defer d.free()
	res, err := l.run(ctx, d)
	if err != nil && res == (Result{}) {
		return Explanation{}, err
	}
	e := Explanation{Request: req, Recorded: d.Replayed, Result: res, Match: "none", Override: overrideOf(d.ruled.Block)}
	rules := slices.Concat(d.rules, d.exempt, d.unasked)
	if e.Override != nil {
		rules = nil
	}
	order := make([]int, len(rules))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(rules[a].Index, rules[b].Index) })
	for _, i := range order {
		now := cmp.Or(d.Now, l.time.Now())
		r := explainRule(ctx, d, rules[i], i, l.time.Time(now))
		if keys := rules[i].keys; keys != nil {
			r.Held = Held(keys.Held(rules[i].key.hash(&req), now))
		}
		if e.Match == "none" && r.Mode.Denies() && r.Match != "additional" {
			if e.Match = r.Match; r.Match != "named" {
				e.Pattern = r.Pattern
			}
		}
		e.Rules = append(e.Rules, r)
	}
	return e, err
}

// String returns e as a table for people, which may change: the answer, a line for each rule, and all errors.
func (e Explanation) String() string {
	text := mirror.To[explained.Explanation](e)
	return text.String()
}

// MarshalJSON returns e in JSON. Fields have their names in Go with a small first letter; Err is "error". Durations
// are texts such as "1m30s" or "never"; rates are written as by [Rate.String]. Empty texts and lists, durations of 0,
// a zero Rate, Cost, Receipts or Held, and a false Recorded or Degraded are omitted. Bytes that are not UTF-8 are replaced.
func (e Explanation) MarshalJSON() ([]byte, error) {
	return json.Marshal(mirror.To[explained.Explanation](e))
}

// UnmarshalJSON reads what MarshalJSON writes. An Err comes back as an error that has only the same text. If data is
// anything else, UnmarshalJSON returns an error and leaves e unchanged.
func (e *Explanation) UnmarshalJSON(data []byte) error {
	var in explained.Explanation
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("ratelimit: not an explanation: %w", err)
	}
	*e = mirror.To[Explanation](in)
	return nil
}

// explainRule explains the rule r at the time at. i is the index of r in d.rules, d.exempt and d.unasked joined.
func explainRule(ctx context.Context, d *decision, r *activeRule, i int, at time.Time) RuleExplanation {
	x := RuleExplanation{
		Name: r.Name, Match: r.Place().Kind(), Pattern: r.Endpoint, KeyType: r.Key, Key: r.key.text(&d.request),
		Algorithm: r.Algorithm, Mode: r.Mode, Unit: r.Unit, MaxIn: -1,
	}
	if slices.Contains(d.request.Rules, r.Name) {
		x.Match = "named"
	}
	if i >= len(d.rules) {
		x.Rate, x.RateFrom, x.AnsweredBy, x.Result = unlimitedRate, "tier", "unlimited", unlimited
		if slices.Contains(d.byResolve, r) {
			x.RateFrom = "resolve"
		}
		if x.Override = overrideOf(d.ruled.Of(r.Name)); x.Override != nil {
			x.RateFrom = "override"
		}
		if x.Result.Rule = r.Name; i >= len(d.rules)+len(d.exempt) {
			x.Rate, x.RateFrom, x.AnsweredBy = r.Rate, "rule", "uncounted"
			if _, asked := d.request.cost(r.Unit); asked {
				x.AnsweredBy = "unheld"
			}
		}
		return x
	}
	p, o := &d.parts[i], &d.origins[i]
	if len(d.request.Costs) > 0 {
		x.Cost = int(p.N)
	}
	if i == d.custom && o.by == 0 {
		d.lookAtCustom(ctx)
	}
	x.Result = resultOf(p, o)
	x.Result.Rule = r.Name
	var told Decision
	x.RateFrom = told.setRule(r, &d.request, &verdicts{parts: d.parts, origins: d.origins}, i)
	x.Rate, x.Override = told.Rate, overrideOf(d.ruled.About(r.Name))
	if x.RateFrom == "resolve" && d.ruled.Of(r.Name) != nil {
		x.RateFrom = "override"
	}
	if r.Limiter == nil {
		x.MaxIn = r.Algorithm.MaxIn(x.Rate, calendar.LengthAt(string(x.Rate.Window), x.Rate.Per, at))
	}
	x.AnsweredBy, x.Receipts = stateOf(d, i)
	if x.Err = errors.Join(d.problemsOf(i)...); o.by == byPolicy && i != d.custom {
		x.Err = errors.Join(d.failed, x.Err)
	}
	return x
}

// stateOf returns what has answered for the rule with the index i, and how many charges of its key can be given back.
func stateOf(d *decision, i int) (by AnsweredBy, receipts int) {
	p := &d.parts[i]
	switch by := d.origins[i].by; {
	case by == 0 || by == byMemory && p.Limit < 0:
		return "unasked", 0
	case by != byMemory:
		return AnsweredBy(sources[by]), 0
	}
	if i < len(d.order.Found) && !d.origins[i].bar.Blocks {
		return places[d.order.Found[i].Place], d.order.Found[i].Receipts
	}
	// d.order.Found is empty if callers wait, and has nothing about a key that is blocked
	place, receipts := d.rules[i].keys.Place(p.Hash, d.Now)
	return places[place], receipts
}

var places = [...]AnsweredBy{engine.Nowhere: "unseen", engine.Own: "own", engine.Shared: "shared"}
