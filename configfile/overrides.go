package configfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// maxOverrides is the largest number of overrides in a document.
const maxOverrides = 1 << 16

// overrideFields lists the fields of an override, in the order in which they are read.
var overrideFields = []ruleconfig.Field{
	{Name: "client", Says: "The client that the override is for. An override has a client or an ip."},
	{Name: "ip", Says: `The address that the override is for, or a prefix such as "10.0.0.0/8".`},
	{Name: "effect", Says: `"block" denies all requests; "exempt" frees from the rules; "rate" replaces the limit by the field rate.`},
	{Name: "rules", Says: "The names of the rules that the override is for. Without it, these are all rules."},
	{Name: "until", Says: `When the override ends, such as "2026-12-01T00:00:00Z". Without it, it lasts as long as it is in the file.`},
	{Name: "rate", Says: `The limit of each key, for the effect "rate", such as "500/m".`},
	{Name: "note", Says: "A text for people: who has set the override, and why."},
}

// The reasons for refusing parts of an override.
const (
	overridesForm = "must be a list of overrides"
	overrideForm  = `must be an object such as {"ip": "10.0.0.0/8", "effect": "exempt"}`
	namesForm     = `must be a list of names of rules, such as ["per-client"]`
	untilForm     = `must be a time such as "2026-12-01T00:00:00Z"`
	effectForm    = `must be one of "block", "exempt", "rate"`
	rateForm      = `must be a rate such as "500/m"`
)

// effects are the effects that an override in a document may have.
var effects = []string{ratelimit.EffectBlock, ratelimit.EffectExempt, ratelimit.EffectRate}

// Overrides returns the overrides of the document, in their order.
func (f *File) Overrides() []ratelimit.Override { return slices.Clone(f.overrides) }

// takeOverrides reads the list of overrides v, and stores the overrides in f. It makes the checks that need neither the rules
// nor the present time, such as those of the types of the fields. The limiter makes all other checks later.
func (f *File) takeOverrides(r *confmap.Reader, v any) {
	list, ok := v.([]any)
	switch {
	case !ok:
		r.Reject("overrides", confmap.Describe(v), overridesForm)
	case len(list) > maxOverrides:
		r.Reject("overrides", fmt.Sprintf("a list of %d", len(list)), fmt.Sprintf("must have at most %d", maxOverrides))
		return
	}
	f.overrides = make([]ratelimit.Override, 0, len(list))
	for i, v := range list {
		path := "overrides[" + strconv.Itoa(i) + "]"
		n, ok := confmap.NodeOf(path, v)
		if !ok {
			r.Reject(path, confmap.Describe(v), overrideForm)
			continue
		}
		f.overrides = append(f.overrides, readOverride(r, n))
	}
}

// readOverride reads one override from n, an object of the document. It reports problems to r. A field with a problem stays
// zero.
func readOverride(r *confmap.Reader, n *confmap.Node) (o ratelimit.Override) {
	names := ruleconfig.NamesOf(overrideFields)
	n.Match(names)
	r.Unknown(n, names.Fields, func(string, any) (string, []string) { return "", nil })
	o.Client, o.IP, o.Note = anyText(r, n, "client"), anyText(r, n, "ip"), anyText(r, n, "note")
	if !n.Has("effect") && !n.Misspelt("effect") {
		r.Reject(n.Field("effect"), "missing", effectForm)
	}
	o.Effect, _ = confmap.Choice(r, n, "effect", effectForm, effects)
	if v, ok := n.Get("rules"); ok {
		o.Rules = readNames(r, n, v)
	}
	if v, ok := n.Get("until"); ok {
		text, _ := confmap.TextOf(v)
		var err error
		if o.Until, err = time.Parse(time.RFC3339, text); err != nil || o.Until.IsZero() {
			r.Reject(n.Field("until"), confmap.Describe(v), untilForm)
		}
	}
	switch {
	case n.Has("rate"):
		o.Rate = readRate(r, n)
	case o.Effect == ratelimit.EffectRate && !n.Misspelt("rate"):
		r.Reject(n.Field("rate"), "missing", rateForm)
	}
	return o
}

// anyText returns the string in the field with this name. It accepts any length, because the limiter checks the length later.
func anyText(r *confmap.Reader, n *confmap.Node, name string) string {
	v, given := n.Get(name)
	text, ok := confmap.TextOf(v)
	if given && !ok {
		r.Reject(n.Field(name), confmap.Describe(v), "must be a string")
	}
	return text
}

// readNames returns the names of rules in v, which is the value of the field "rules" of the override n. An empty list is an
// error. The author of the file may mean that the override is for no rules, but an override without rules is for all rules.
func readNames(r *confmap.Reader, n *confmap.Node, v any) (names []string) {
	list, ok := v.([]any)
	if !ok || len(list) == 0 {
		r.Reject(n.Field("rules"), confmap.Describe(v), namesForm)
	}
	for i, v := range list {
		name, ok := confmap.TextOf(v)
		if !ok || name == "" {
			r.Reject(n.Field("rules")+"["+strconv.Itoa(i)+"]", confmap.Describe(v), "must be the name of a rule")
		}
		names = append(names, name)
	}
	return names
}

// readRate returns the rate in the field "rate" of the object n, which must have that field.
func readRate(r *confmap.Reader, n *confmap.Node) (rate ratelimit.Rate) {
	v, _ := n.Get("rate")
	text, ok := confmap.TextOf(v)
	if !ok {
		r.Reject(n.Field("rate"), confmap.Describe(v), rateForm)
		return rate
	}
	rate, err := ratelimit.ParseRate(text)
	var invalid *ratelimit.ConfigError
	if errors.As(err, &invalid) {
		r.Reject(n.Field("rate"), confmap.Describe(v), invalid.Reason)
	}
	return rate
}

// unknownNames returns an error for each name in the overrides of f that is not the name of a given rule. The given rules are the
// new rules of the limiter. The last parameter has the present rules, so that an error can say that the file removes a rule.
func (f *File) unknownNames(rules []ratelimit.Rule, defaultRule *ratelimit.Rule, before map[string]ratelimit.Rule) error {
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	if defaultRule != nil {
		names = append(names, defaultRule.Name)
	}
	known := make(map[string]bool, len(names))
	for _, name := range names {
		known[name] = true
	}
	var problems []error
	for i, o := range f.overrides {
		for j, name := range o.Rules {
			if known[name] {
				continue
			}
			reason := "must be the name of a rule in this file"
			if near := confmap.Nearest(name, names); near != "" {
				reason = "no rule in this file has this name; did you mean " + confmap.Quote(near) + "?"
			}
			if _, removed := before[name]; removed {
				reason = "must be the name of a rule in this file: the file removes this rule, so the override has to go, too"
			}
			path := "overrides[" + strconv.Itoa(i) + "].rules[" + strconv.Itoa(j) + "]"
			problems = append(problems, &ratelimit.ConfigError{Field: path, Value: confmap.Quote(name), Reason: reason})
		}
	}
	return errors.Join(problems...)
}

// limited joins the given problems. Of a long list, it keeps the first ones and says how many others there are.
func limited(problems []error) error {
	if n := len(problems) - confmap.MaxProblems; n > 1 { // one error above the maximum stays: it may be a text such as "and 5 more"
		problems = append(slices.Clip(problems[:confmap.MaxProblems]), fault(fmt.Sprintf("and %d more", n)))
	}
	return errors.Join(problems...)
}
