// Package ruleconfig reads the configs of rules: maps that say to which requests a rule applies, by
// which algorithm it decides, and what the limit is.
//
// A [Reader] has a method for each field of a rule. It reports all problems of a config, with their
// paths; see package confmap. The caller says which algorithms there are and which rates an algorithm
// refuses, and makes the errors. [Marshal] writes a config.
package ruleconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// A Caller holds the functions and bounds that a Reader gets from its caller.
type Caller struct {
	// Problem makes the error for one wrong field, from its path, its value and the reason.
	Problem func(field, value, reason string) error

	// Field takes apart err if it is an error for one field: it returns the path, the value and the
	// reason. ok reports whether err is such an error.
	Field func(err error) (field string, value any, reason string, ok bool)

	// More makes an error which says that n problems are not listed.
	More func(n int) error

	// Algorithms are the algorithms of the library, which are not custom.
	Algorithms []Algorithm

	// Custom returns the algorithm that the user has registered under this name. Upper and lower case,
	// "_" and "-" in the name make no difference.
	Custom func(name string) (Algorithm, bool)

	// CustomNames returns the names of the algorithms that the user has registered.
	CustomNames func() []string

	// Refused returns the faults of the rate r for the algorithm a, which is not custom.
	Refused func(a Algorithm, r ratetext.Rate) []Fault

	MaxRules int // the largest number of rules, without the default rule
}

// A Fault is one problem with a rate, a warm-up or a penalty.
type Fault struct {
	Field  string // the field that is wrong, such as "burst" or "from"
	Value  any    // the value of the field
	Reason string // what a good value of the field is
}

// A Reader reads the configs of rules and collects their problems.
type Reader struct {
	*confmap.Reader
	caller Caller

	// Implied is the name of the algorithm for a config that names none. If Implied is empty,
	// such a config is refused.
	Implied string
}

// NewReader returns a Reader that uses the functions and bounds in c.
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

// flatFields are the fields that a rule's config may have if it has no algoConfig.
var flatFields = slices.Concat(ruleSchema.Fields, ruleRateFields)

// Rules calls the given function once for every rule in configs, in order, and last for the default rule, if
// there is one. In each call, n is the node of the rule's config.
func (r *Reader) Rules(configs []map[string]any, defaultConfig map[string]any, each func(n *confmap.Node, isDefault bool)) {
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
		each(n, false)
	}
	if n, ok := confmap.NodeOf("defaultConfig", defaultConfig); ok {
		each(n, true)
	}
}

// NameOf returns the name that errors use for a rule: the name in its config or, if there is none, the
// endpoint. It returns an empty text if the config has neither.
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

// Fields finds the fields of the rule with the config n, and reports unknown ones. It must be called before other
// methods read the rule. If the rule has no algoConfig and its algorithm is not custom, the fields of
// an algoConfig may stand in the rule itself.
func (r *Reader) Fields(n *confmap.Node) {
	n.Match(ruleSchema, rateSchema, algoWarmupSchema)
	algorithm, _ := n.Get("algorithm")
	name, _ := confmap.TextOf(algorithm)
	a, _ := r.find(name)
	if n.Has("algoConfig") || a.Custom {
		n.Drop(rateSchema)
		n.Drop(algoWarmupSchema)
		r.Unknown(n, ruleSchema.Fields, func(name string, value any) (string, []string) {
			for _, schema := range []*confmap.Schema{rateSchema, algoWarmupSchema} {
				if _, ok := schema.Field(name); ok {
					return "unknown field; it belongs in algoConfig", nil
				}
			}
			return policyHint(name, value), nil
		})
		return
	}
	dropLength(n)
	windows := windowHint(n)
	r.Unknown(n, flatFields, func(name string, value any) (string, []string) {
		if reason := policyHint(name, value); reason != "" {
			return reason, nil
		}
		return windows(name, value)
	})
}

// policyHint is called for a field that a rule should not have, such as a field that is given twice under two
// names. If the name is another name of the field "algorithm", such as "policy", and the value looks like a
// failure policy, policyHint returns a hint that suggests onStoreError. Otherwise it returns an empty text.
func policyHint(name string, value any) string {
	if field, _ := ruleSchema.Field(name); field != "algorithm" || policyIn(value) == "" {
		return ""
	}
	return "must not stand beside algorithm; did you mean onStoreError: " + confmap.Quote(policyIn(value)) + "?"
}

// Config returns the algoConfig of the rule with the config n. If the fields of an algoConfig stand in the rule
// itself, it returns n. If the algoConfig is missing or not a map, ok is false. Config reports that, unless the
// algoConfig or one of its fields was probably given under a misspelt name.
func (r *Reader) Config(n *confmap.Node) (config *confmap.Node, ok bool) {
	if _, flat := n.First(rateSchema.Fields); flat {
		return n, true
	}
	if !n.Has("algoConfig") && n.Misspelt(rateSchema.Fields...) {
		return nil, false
	}
	return r.Child(n, "algoConfig", algoConfigForm)
}

// StoreName reads the name under which a single limiter, which belongs to no rule, keeps its keys in a
// store. The limiter has the config n. The last parameter is a name that the program has chosen for the limiter,
// or empty. If the config has no name, StoreName returns an empty text; if the last parameter is empty too, it
// also reports the missing name.
func (r *Reader) StoreName(n *confmap.Node, a Algorithm, given string) string {
	if a.Custom {
		reason := "must be one of " + confmap.List(NamesIn(r.caller.Algorithms)) + ": the state is in a store"
		r.Reject(n.Field("algorithm"), confmap.Quote(a.Name), reason)
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

// Tiers reads the tiers (rates for some plans) of the rule with the config n. It calls the given function once for
// every tier, in the order of their names. A tier that has a problem gets the zero rate. The parameter base is the
// rate of the rule, or zero if that rate has a problem. If the algorithm is not known (its Name is empty), Tiers
// does nothing.
func (r *Reader) Tiers(n *confmap.Node, a Algorithm, base ratetext.Rate, each func(name string, rate ratetext.Rate)) {
	switch {
	case !n.Has("tiers") || a.Name == "":
		return
	case a.Custom:
		r.Reject(n.Field("tiers"), n.Describe("tiers"), "must be left out: "+a.Name+" has rates of its own")
		return
	}
	all, ok := r.Child(n, "tiers", tiersForm)
	if !ok || !r.StringKeys(all) {
		return
	}
	if all.Len() > MaxTiers {
		r.Reject(all.Path, fmt.Sprintf("a map of %d", all.Len()), fmt.Sprintf("must have at most %d", MaxTiers))
		return
	}
	for _, name := range all.Names() {
		value, _ := all.Get(name)
		each(strings.Clone(name), r.tier(all.Path+"["+confmap.Quote(name)+"]", name, value, a, base))
	}
}

// tier reads the rate of the tier with this name from the value that the config has for the tier. The first
// parameter is the path of the tier in errors.
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
