package ratelimit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/explained"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// An Explanation says what [RateLimiter.Check] would answer to a request now, and why: which rules
// apply, and what each of them knows. It prints as a table, and is an object in JSON.
type Explanation struct {
	Request Request // what was asked

	// Match says how the rules that enforce were found: "exact" or "prefix" by the endpoint,
	// "default" if only the default rule was left, "named" by [Request.Rules], or "none".
	Match string

	// Pattern is the [Rule.Endpoint] that matched, if Match is "exact" or "prefix".
	Pattern string

	// Recorded is true if the request was granted before, by its [Request.ID]: Check would give it
	// the same answer again, and charge nothing. See [WithRequestIDs].
	Recorded bool

	// Result is what Check would return.
	Result Result

	// Rules are the rules that apply, in the order in which they were given, the default rule last.
	Rules []RuleExplanation
}

// A RuleExplanation is one rule in an [Explanation].
type RuleExplanation struct {
	Name string // the rule's name

	// Match says why the rule applies: "exact", "prefix" or "default" for one of the best match,
	// "named" for one of [Request.Rules], "additional" for one that is [Rule.Additional]. A rule in
	// [ModeShadow] has the Match that it would have if it enforced.
	Match string

	Pattern string // [Rule.Endpoint], which may be empty

	KeyType KeyType // [Rule.Key]
	Key     string  // the key that the request takes from, as a [Store] or a custom [Limiter] gets it

	Algorithm Algorithm // [Rule.Algorithm]
	Mode      Mode      // [Rule.Mode]

	// Rate is the rate in force. It is [Unlimited] if the rule does not limit the request, and the
	// zero Rate for a rule with a custom Limiter. If a [FailurePolicy] divides the rate, it is the
	// whole one.
	Rate Rate

	// Source says where Rate comes from: "rule" for [Rule.Rate], "tier" for [Rule.Tiers],
	// "resolve" for [Rule.Resolve], or "limiter" for a custom Limiter, which has one of its own.
	Source string

	// State says what has answered for the rule: in this process, the key's "own" state; "unseen"
	// if the key is as if never used; or "shared" if the table is full, see [WithMaxKeys], and the
	// key shares what it owes with others. Otherwise it is "store"; "policy" for a [FailurePolicy];
	// "limiter" for a custom Limiter; "unlimited" for a rule that does not limit the request;
	// "replay" if the request is Recorded; or "unasked" if others wait, and so the rule was not asked.
	State string

	// Receipts is how many charges of the key in this process can still be given back.
	Receipts int

	// Result is what the rule would answer alone, as [RateLimiter.CheckAll] returns it.
	Result Result

	// MaxIn is the most units that the key is granted at Rate in a closed interval of length
	// Rate.Per, or -1 if that is not known; see [Algorithm.MaxIn].
	MaxIn int

	// Err is what went wrong in the rule, or nil: its [Store] or custom Limiter has failed, or
	// Resolve has returned a rate that it cannot use.
	Err error
}

// Explain returns what [RateLimiter.Check] would return for req now, and why. It takes nothing and
// changes nothing: the [Observer] does not see it, and [RuleStats] do not count it. It decides in the
// way of Check, by all rules at one instant, on copies of the states. If others wait for a key,
// Explain answers as if they had been served, as Check does.
//
// The errors are those of Check: with one that matches [ErrUnknownRule], [ErrInvalidCount] or the
// error of ctx, the Explanation is the zero one; with one that matches [ErrStore] it is complete.
// Explain calls [Rule.Resolve], and the Store; a Store that is down is not called more often because
// of it, nor less.
//
// A custom [Limiter] is asked for 0 units. Its answer is thus that for one unit, with nothing taken.
// So is that of a Store that does not know [Ask.Look] to a request with a cost of 1; with a higher
// cost, the error matches [ErrInvalidConfig].
func (l *RateLimiter) Explain(ctx context.Context, req Request) (Explanation, error) {
	d := newDecision(&req, true)
	defer d.free()
	d.trial = new(trial)
	d.order.Rehearsal = &d.trial.Rehearsal
	res, err := l.run(ctx, d)
	if err != nil && res == (Result{}) {
		return Explanation{}, err
	}
	e := Explanation{Request: req, Recorded: d.Replayed, Result: res, Match: "none"}
	rules := slices.Concat(d.rules, d.exempt)
	order := make([]int, len(rules))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(rules[a].index, rules[b].index) })
	for _, i := range order {
		r := d.explain(ctx, rules[i], i)
		if e.Match == "none" && r.Mode != ModeShadow && r.Match != "additional" {
			if e.Match = r.Match; r.Match != "named" {
				e.Pattern = r.Pattern
			}
		}
		e.Rules = append(e.Rules, r)
	}
	return e, err
}

// A trial is what a decision for Explain notes.
type trial struct {
	engine.Rehearsal
	byResolve []*activeRule // rules that do not limit the request because of Resolve
	byZero    bool          // whether the store is asked for 0 units, because it knows no Look
}

// String returns e as a table: the answer, then a line for each rule, then what went wrong in the
// rules. It is meant for people, and may change.
func (e Explanation) String() string {
	text := e.text()
	return text.String()
}

// MarshalJSON returns e in JSON. The names of the fields are those in Go, with a small first letter,
// and "error" for Err. Durations are texts such as "1m30s", or "never"; rates are those of
// [Rate.String]. Empty texts and lists, durations of 0, no Receipts and no Degraded are left out.
// Bytes that are not UTF-8, as a key may have, are replaced.
func (e Explanation) MarshalJSON() ([]byte, error) { return json.Marshal(e.text()) }

// UnmarshalJSON reads what MarshalJSON writes. Of an Err, only the text comes back. If data is not
// that, UnmarshalJSON returns an error and leaves e unchanged.
func (e *Explanation) UnmarshalJSON(data []byte) error {
	var in explained.Explanation
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("ratelimit: not an explanation: %w", err)
	}
	*e = Explanation{Request: Request(in.Request), Match: in.Match, Pattern: in.Pattern, Recorded: in.Recorded, Result: Result(in.Result)}
	for _, r := range in.Rules {
		e.Rules = append(e.Rules, RuleExplanation{
			r.Name, r.Match, r.Pattern, KeyType(r.KeyType), r.Key, Algorithm(r.Algorithm), Mode(r.Mode),
			Rate(r.Rate), r.Source, r.State, r.Receipts, Result(r.Result), r.MaxIn, r.Err,
		})
	}
	return nil
}

// text returns e as package explained writes it.
func (e *Explanation) text() explained.Explanation {
	out := explained.Explanation{Request: explained.Request(e.Request), Match: e.Match, Pattern: e.Pattern, Recorded: e.Recorded, Result: explained.Result(e.Result)}
	for _, r := range e.Rules {
		out.Rules = append(out.Rules, explained.Rule{
			Name: r.Name, Match: r.Match, Pattern: r.Pattern, KeyType: string(r.KeyType), Key: r.Key,
			Algorithm: string(r.Algorithm), Mode: string(r.Mode), Rate: ratetext.Rate(r.Rate), Source: r.Source, State: r.State,
			Receipts: r.Receipts, Result: explained.Result(r.Result), MaxIn: r.MaxIn, Err: r.Err,
		})
	}
	return out
}

// rehearses reports whether d is for Explain: it changes nothing.
func (d *decision) rehearses() bool { return d.trial != nil }

// explain explains r, which is number i of the rules of d and then of those that do not limit it.
func (d *decision) explain(ctx context.Context, r *activeRule, i int) RuleExplanation {
	x := RuleExplanation{
		Name: r.Name, Match: d.matchOf(r), Pattern: r.Endpoint, KeyType: r.Key, Key: r.key.text(&d.request),
		Algorithm: r.Algorithm, Mode: r.Mode, MaxIn: -1,
	}
	if i >= len(d.rules) {
		x.Rate, x.Source, x.State, x.Result = unlimitedRate, "tier", "unlimited", unlimited
		if slices.Contains(d.trial.byResolve, r) {
			x.Source = "resolve"
		}
		x.Result.Rule = r.Name
		return x
	}
	p, o := &d.parts[i], &d.origins[i]
	if i == d.custom && o.by == 0 {
		d.lookAtCustom(ctx)
	}
	x.Result = shadowResult(r.Name, p, o.by == byPolicy)
	var told Decision
	told.setRule(r, &d.request, &verdicts{parts: d.parts, origins: d.origins}, i)
	_, tiered := r.Tiers[d.request.Tier]
	switch x.Rate = told.Rate; {
	case r.Limiter != nil:
		x.Source = "limiter"
	case p.Err != nil:
		x.Source = "rule"
	case p.Want.Rate != nil:
		x.Source = "resolve"
	case tiered:
		x.Source = "tier"
	default:
		x.Source = "rule"
	}
	if r.Limiter == nil {
		x.MaxIn = r.Algorithm.MaxIn(x.Rate, x.Rate.Per)
	}
	x.State, x.Receipts = d.stateOf(i)
	if x.Err = errors.Join(d.problemsOf(i)...); o.by == byPolicy && i != d.custom {
		x.Err = errors.Join(d.failed, x.Err)
	}
	return x
}

// matchOf returns why r applies to the request.
func (d *decision) matchOf(r *activeRule) string {
	switch {
	case slices.Contains(d.request.Rules, r.Name):
		return "named"
	case r.Additional:
		return "additional"
	case r.isDefault:
		return "default"
	case strings.HasSuffix(r.Endpoint, "*"):
		return "prefix"
	}
	return "exact"
}

// stateOf returns what has answered for the i-th rule, and how many receipts its key has.
func (d *decision) stateOf(i int) (state string, receipts int) {
	p := &d.parts[i]
	switch by := d.origins[i].by; {
	case by == 0 || by == byMemory && p.Limit < 0:
		return "unasked", 0
	case by != byMemory:
		return string(sources[by]), 0
	}
	if i < len(d.trial.Parts) {
		return places[d.trial.Parts[i].Place], d.trial.Parts[i].Receipts
	}
	place, receipts := p.Keys.Place(p.Hash, d.Now) // others wait for one of the keys
	return places[place], receipts
}

var places = [...]string{engine.Nowhere: "unseen", engine.Own: "own", engine.Shared: "shared"}

// rehearseInStore decides d as decideInStore does, but charges nothing. The breakers of parts, the
// parts of the store that have the states, do not learn of it.
func (l *RateLimiter) rehearseInStore(ctx context.Context, d *decision, parts uint64) error {
	if err := l.chooseLook(d); err != nil {
		return err
	}
	err := l.breakers.Refusal(parts, d.Now)
	if err == nil {
		err = l.lookInStore(ctx, d)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		l.fallBack(d, err)
	}
	return l.askCustom(ctx, d)
}

// lookInStore has the store answer d. It returns the error of the call.
func (l *RateLimiter) lookInStore(ctx context.Context, d *decision) error {
	asks := make([]Ask, len(d.stored()))
	for i, r := range d.stored() {
		asks[i] = r.ask(&d.request, d.origins[i].rate)
		if d.trial.byZero {
			continue
		}
		asks[i].N, asks[i].Look = int(d.order.N), true
		if d.custom >= 0 { // as Check, which may have to give units back
			asks[i].Receipt, asks[i].Term = revocable.Receipt, revocable.Term
		}
	}
	results, err := l.settings.store.Take(ctx, asks)
	switch {
	case err != nil:
		return err
	case len(results) != len(asks):
		return fmt.Errorf("%d results for %d asks", len(results), len(asks))
	}
	d.setResults(results)
	for i := range asks {
		if p := &d.parts[i]; d.trial.byZero && d.Passes && p.Granted() && p.Limit >= 0 {
			p.Left = max(p.Left-1, 0)
		}
	}
	return nil
}
