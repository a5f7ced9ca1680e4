// Package ruleconfig reads the configs of rules: maps that say which requests a rule is for,
// by what algorithm it decides, and what the limit is.
//
// A [Reader] returns each rule as a [Rule], in which names are strings. It reports everything
// that is wrong with a config, with paths; see the package confmap. The caller says which
// custom algorithms there are, which rates an algorithm refuses, and makes the errors.
package ruleconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// A Rule is what a config says. A field that the config does not have, or that has a problem,
// is zero.
type Rule struct {
	Name         string                   // as in the config
	Endpoint     string                   // as in the config
	Key          string                   // as ParseKey returns it
	Mode         string                   // one of Caller.Modes
	Additional   bool                     // as in the config
	Algorithm    Algorithm                // zero if it is not known
	Rate         ratetext.Rate            // zero for a custom algorithm
	Tiers        map[string]ratetext.Rate // by name
	Warmup       Warmup                   // zero if there is none
	OnStoreError Policy                   // zero if there is none
	Custom       any                      // what Caller.Build has made, for a custom algorithm

	Whole      bool // whether the config has no problem
	Identified bool // whether the endpoint, the name and the key have no problem
}

// A Caller is what a Reader must know of its caller.
type Caller struct {
	// Problem makes the error for one field, see confmap.NewReader.
	Problem func(field, value, reason string) error

	// Field returns the parts of an error for one field, and reports whether err is one.
	Field func(err error) (field string, value any, reason string, ok bool)

	// More makes the error that says that there are n more problems.
	More func(n int) error

	// Custom returns the custom algorithm that has this name in some spelling.
	Custom func(name string) (Algorithm, bool)

	// CustomNames returns the names of the custom algorithms.
	CustomNames func() []string

	// Build makes the limiter of a custom algorithm. rule and config are the nodes of the
	// rule and of its algoConfig. Build reports problems itself.
	Build func(rule, config *confmap.Node, a Algorithm) any

	// Refused returns what is wrong with r for an algorithm that is not custom.
	Refused func(a Algorithm, r ratetext.Rate) []Fault

	Modes    []string // the values of the field mode
	MaxRules int      // the largest number of rules, without the default rule
}

// A Fault is one thing that is wrong with a rate.
type Fault struct {
	Field  string // "requests", "per" or "burst"
	Reason string // what a good value is
}

// A Reader reads the configs of rules and collects everything that is wrong.
type Reader struct {
	*confmap.Reader
	caller Caller

	// Implied is the algorithm of a rule whose config has none. If it is empty, such a config
	// is refused.
	Implied string
}

// NewReader returns a Reader for this caller.
func NewReader(c Caller) *Reader {
	return &Reader{Reader: confmap.NewReader(c.Problem, c.More), caller: c}
}

// MaxTiers is the largest number of tiers of a rule.
const MaxTiers = 10_000

// The reasons in the errors for fields of a rule's config.
const (
	RuleForm       = "must be a map that has algorithm and algoConfig"
	algoConfigForm = "must be a map that says what the limit is"
	tiersForm      = `must be a map of rates, such as {"paid": "600/m"}`
	tierForm       = `must be a rate such as "600/m", or a map as an algoConfig is`
)

// flatFields are the fields of a rule's config that has no algoConfig.
var flatFields = slices.Concat(ruleSchema.Fields, ruleRateFields)

// Rules reads a list of rules and the default rule. It calls each for every rule, in order,
// with the node of its config.
func (r *Reader) Rules(configs []map[string]any, defaultConfig map[string]any, each func(n *confmap.Node, rule Rule, isDefault bool)) {
	switch {
	case len(configs) > r.caller.MaxRules:
		r.Reject("configs", fmt.Sprintf("a list of %d", len(configs)), fmt.Sprintf("must have at most %d", r.caller.MaxRules))
		return
	case len(configs) == 0 && defaultConfig == nil:
		r.Reject("configs", "empty", "must have at least one config, or there be a default config")
		return
	}
	for i, config := range configs {
		path := "configs[" + strconv.Itoa(i) + "]"
		n, ok := confmap.NodeOf(path, config)
		if !ok {
			r.Reject(path, "nil", RuleForm)
			continue
		}
		each(n, r.Rule(n), false)
	}
	if n, ok := confmap.NodeOf("defaultConfig", defaultConfig); ok {
		each(n, r.Rule(n), true)
	}
}

// Rule reads the rule at n.
func (r *Reader) Rule(n *confmap.Node) (rule Rule) {
	before := r.Found()
	r.Fields(n)
	var endpointOK, nameOK, keyOK bool
	rule.Endpoint, endpointOK = r.Text(n, "endpoint")
	rule.Name, nameOK = r.Text(n, "name")
	rule.Key, keyOK = r.key(n)
	rule.Mode, _ = confmap.Choice(r.Reader, n, "mode", "must be one of "+confmap.List(r.caller.Modes), r.caller.Modes)
	rule.Additional = r.Bool(n, "additional")
	rule.Algorithm = r.Algorithm(n)
	config, ok := r.Config(n)
	switch {
	case rule.Algorithm.Custom:
		if ok {
			rule.Custom = r.caller.Build(n, config, rule.Algorithm)
		}
		if n.Has("tiers") {
			r.Reject(n.Field("tiers"), n.Describe("tiers"), "must be left out: "+rule.Algorithm.Name+" has rates of its own")
		}
	case rule.Algorithm.Name != "":
		if ok {
			rule.Rate = r.Rate(n, config, rule.Algorithm)
		}
		rule.Tiers = r.tiers(n, rule.Algorithm, rule.Rate)
	}
	rule.Warmup = r.warmup(n, config, rule.Algorithm)
	rule.OnStoreError = r.policy(n)
	rule.Whole = r.Found() == before
	rule.Identified = endpointOK && nameOK && keyOK && !n.Misspelt("endpoint", "name")
	return rule
}

// NameOf returns the name by which errors call the rule of a config: its name or, if there is
// none, its endpoint. It returns an empty text if the config has neither.
func NameOf(config map[string]any) string {
	n, ok := confmap.NodeOf("", config)
	if !ok {
		return ""
	}
	n.Match(ruleSchema)
	for _, field := range []string{"name", "endpoint"} {
		v, _ := n.Get(field)
		if text, _ := confmap.TextOf(v); text != "" {
			return text
		}
	}
	return ""
}

// Fields finds the fields of the rule at n, and reports those that a rule's config does not
// have. It must be called before the other methods. The fields of an algoConfig may stand in
// the rule itself if it has no algoConfig and its algorithm is not custom.
func (r *Reader) Fields(n *confmap.Node) {
	n.Match(ruleSchema, rateSchema, youngSchema)
	algorithm, _ := n.Get("algorithm")
	name, _ := confmap.TextOf(algorithm)
	a, _ := r.find(name)
	if n.Has("algoConfig") || a.Custom {
		n.Drop(rateSchema)
		n.Drop(youngSchema)
		r.Unknown(n, ruleSchema.Fields, func(name string, value any) (string, []string) {
			for _, schema := range []*confmap.Schema{rateSchema, youngSchema} {
				if _, ok := schema.Field(name); ok {
					return "unknown field; it belongs in algoConfig", nil
				}
			}
			return policyHint(name, value), nil
		})
		return
	}
	windows := windowHint(n)
	r.Unknown(n, flatFields, func(name string, value any) (string, []string) {
		if reason := policyHint(name, value); reason != "" {
			return reason, nil
		}
		return windows(name, value)
	})
}

// policyHint returns the reason why a second name of the algorithm is refused if its value is
// a failure policy, and otherwise an empty text.
func policyHint(name string, value any) string {
	if field, _ := ruleSchema.Field(name); field != "algorithm" || policyIn(value) == "" {
		return ""
	}
	return "must not stand beside algorithm; did you mean onStoreError: " + confmap.Quote(policyIn(value)) + "?"
}

// Config returns the algoConfig of the rule at n, which is n itself if the fields of an
// algoConfig stand there. It reports one that is missing or no map, and then ok is false.
func (r *Reader) Config(n *confmap.Node) (config *confmap.Node, ok bool) {
	if _, flat := n.First(rateSchema.Fields); flat {
		return n, true
	}
	if !n.Has("algoConfig") && n.Misspelt(rateSchema.Fields...) {
		return nil, false
	}
	return r.Child(n, "algoConfig", algoConfigForm)
}

// StoreName reads the name of a limiter by itself, of which n is the config, for its keys in a
// store. It returns an empty text if the config has none, which is a problem unless the limiter
// was given another name.
func (r *Reader) StoreName(n *confmap.Node, a Algorithm, given string) string {
	if a.Custom {
		r.Reject(n.Field("algorithm"), confmap.Quote(a.Name), "must be one of "+confmap.List(builtinNames())+": the state is in a store")
	}
	name, ok := r.Text(n, "name")
	switch {
	case !ok:
		return ""
	case name == "" && given == "":
		r.Reject(n.Field("name"), "missing", "must be given: it is a part of every key in the store")
	case strings.Contains(name, ":"):
		r.Reject(n.Field("name"), confmap.Quote(name), `must not have a ":"`)
		return ""
	}
	return name
}

// tiers reads the tiers of the rule at n, in the order of their names. base is the rate of the
// rule, or zero if that has a problem.
func (r *Reader) tiers(n *confmap.Node, a Algorithm, base ratetext.Rate) map[string]ratetext.Rate {
	if !n.Has("tiers") {
		return nil
	}
	all, ok := r.Child(n, "tiers", tiersForm)
	if !ok || !r.StringKeys(all) {
		return nil
	}
	if all.Len() > MaxTiers {
		r.Reject(all.Path, fmt.Sprintf("a map of %d", all.Len()), fmt.Sprintf("must have at most %d", MaxTiers))
		return nil
	}
	if all.Len() == 0 {
		return nil
	}
	tiers := make(map[string]ratetext.Rate, all.Len())
	for _, name := range all.Names() {
		value, _ := all.Get(name)
		tiers[strings.Clone(name)] = r.tier(all.Path+"["+confmap.Quote(name)+"]", name, value, a, base)
	}
	return tiers
}

// tier reads the rate of the tier with this name and value. path is its path in errors.
func (r *Reader) tier(path, name string, value any, a Algorithm, base ratetext.Rate) ratetext.Rate {
	if len(name) > confmap.MaxText {
		r.Reject(path, confmap.Describe(value), fmt.Sprintf("must have a name of at most %d bytes", confmap.MaxText))
		return ratetext.Rate{}
	}
	config, ok := confmap.NodeOf(path, value)
	if !ok {
		if _, ok := confmap.TextOf(value); !ok {
			r.Reject(path, confmap.Describe(value), tierForm)
			return ratetext.Rate{}
		}
		config = confmap.Inline(path, "rate", value) // "600/m" is short for {"rate": "600/m"}
	}
	return r.rate(nil, config, a, base)
}
