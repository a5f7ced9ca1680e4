package ratelimit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// DecodeRules reads rules from maps, such as those that encoding/json or a YAML decoder makes
// of a file. It returns the rules of configs in their order, and the rule of defaultConfig,
// which is nil if defaultConfig is nil. There must be at least one rule.
//
// The map of a [Rule] has the fields algorithm and algoConfig, and may have endpoint, name,
// key, mode, additional, tiers, warmup and onStoreError. The fields of algoConfig may also stand
// beside algorithm, without an algoConfig. Names are read without regard to case, "_" and "-". Any
// other field is an error, and so is a field that is given twice.
//
// [NewFromConfig] makes a [RateLimiter] of the same maps in one step. DecodeRules is for a
// caller that adds code to the rules first, such as [Rule.Resolve], and then calls [New].
// Two options have an effect here: the maps may name the custom algorithms of [WithFactory],
// and the store of [WithStore] must support all rates.
//
// The error lists everything that is wrong, each problem with the path of its field, such as
// configs[3].algoConfig.capacity. Of more than 100 problems, the others are only counted. The
// error matches [ErrInvalidConfig]. DecodeRules neither keeps nor changes the maps.
func DecodeRules(configs []map[string]any, defaultConfig map[string]any, opts ...Option) ([]Rule, *Rule, error) {
	set, invalid := newSettings(opts)
	rules, defaultRule, err := newDecoder(set.factory, set.env()).decode(configs, defaultConfig, &set)
	if err := errors.Join(err, invalid); err != nil {
		closeMade(madeFor(rules, defaultRule)...)
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// decode reads the rules of configs and of defaultConfig.
func (d *decoder) decode(configs []map[string]any, defaultConfig map[string]any, set *settings) (rules []Rule, defaultRule *Rule, err error) {
	check := newRuleCheck(set)
	d.Rules(configs, defaultConfig, func(n *confmap.Node, read ruleconfig.Rule, isDefault bool) {
		r := d.checked(n, read, check, isDefault)
		if isDefault {
			defaultRule = &r
			return
		}
		rules = append(rules, r)
	})
	if err := d.Err(); err != nil {
		closeMade(madeFor(rules, defaultRule)...)
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// decodeOne reads the rule of one config, whose path is path.
func (d *decoder) decodeOne(path string, config map[string]any, set *settings) (Rule, error) {
	n, ok := confmap.NodeOf(path, config)
	if !ok {
		d.Reject(path, "nil", ruleconfig.RuleForm)
		return Rule{}, d.Err()
	}
	r := d.checked(n, d.Rule(n), newRuleCheck(set), false)
	err := d.Err()
	if err != nil {
		closeMade(r.custom)
	}
	return r, err
}

// A decoder reads rules and limiters from configs. Its Reader collects everything that is
// wrong.
type decoder struct {
	*ruleconfig.Reader
	factory *Factory // has the custom algorithms; may be nil
	env     Env      // for custom limiters

	// keeps returns the limiter that the rule with this name has and will keep, or nil if
	// one must be made. It may be nil.
	keeps func(name string, a Algorithm, algoConfig map[string]any) Limiter
}

// nameOf returns the name of the rule at n.
func nameOf(n *confmap.Node) string {
	var r Rule
	name, _ := n.Get("name")
	endpoint, _ := n.Get("endpoint")
	r.Name, _ = confmap.TextOf(name)
	r.Endpoint, _ = confmap.TextOf(endpoint)
	return r.completed(n.Path == "defaultConfig").Name
}

func newDecoder(factory *Factory, env Env) *decoder {
	d := &decoder{factory: factory, env: env}
	d.Reader = ruleconfig.NewReader(ruleconfig.Caller{
		Problem:     problem,
		Field:       fieldOf,
		More:        more,
		Custom:      factory.registry().Algorithm,
		CustomNames: factory.registry().Names,
		Build:       d.custom,
		Refused:     refusedRate,
		Modes:       modes,
		MaxRules:    maxRules,
	})
	return d
}

// refusedRate returns what is wrong with r for the algorithm a of this package.
func refusedRate(a ruleconfig.Algorithm, r ratetext.Rate) (faults []ruleconfig.Fault) {
	for _, err := range atPath("", algorithms[Algorithm(a.Name)].validate(Rate(r))) {
		if field, _, reason, ok := fieldOf(err); ok {
			faults = append(faults, ruleconfig.Fault{Field: strings.TrimPrefix(field, "."), Reason: reason})
		}
	}
	return faults
}

// problem makes the error for one field of a config.
func problem(field, value, reason string) error { return &ConfigError{field, value, reason} }

// fieldOf returns the parts of err, and reports whether it is a ConfigError.
func fieldOf(err error) (field string, value any, reason string, ok bool) {
	e, ok := any(err).(*ConfigError) // not errors.As: an error that wraps one says more
	if !ok || e == nil {
		return "", nil, "", false
	}
	return e.Field, e.Value, e.Reason, true
}

// moreProblems is the error that says how many problems are not listed.
type moreProblems int

func (m moreProblems) Error() string { return fmt.Sprintf("ratelimit: and %d more", int(m)) }

// Unwrap returns [ErrInvalidConfig].
func (m moreProblems) Unwrap() error { return ErrInvalidConfig }

// more makes a moreProblems.
func more(n int) error { return moreProblems(n) }

// ruleOf returns the Rule that read is.
func ruleOf(read ruleconfig.Rule) Rule {
	r := Rule{
		Name:         read.Name,
		Endpoint:     read.Endpoint,
		Key:          KeyType(read.Key),
		Algorithm:    Algorithm(read.Algorithm.Name),
		Rate:         Rate(read.Rate),
		Mode:         Mode(read.Mode),
		Additional:   read.Additional,
		Warmup:       Warmup(read.Warmup),
		OnStoreError: policyOf(read.OnStoreError),
	}
	if read.Tiers != nil {
		r.Tiers = make(map[string]Rate, len(read.Tiers))
		for tier, rate := range read.Tiers {
			r.Tiers[tier] = Rate(rate)
		}
	}
	if made, ok := read.Custom.(*hooks.Made); ok {
		r.custom, r.Limiter = made, made.Value.(Limiter)
	}
	return r
}

// checked returns the Rule that was read from the config at n. If its config has no
// problem, check checks it like a rule that is written in code. check has seen the rules
// before it.
//
// Of a rule with problems, only the name and the endpoint are checked: a full check would
// report the problems again. Without it, two rules with one name, of which the first has a
// bad rate, would be found to share the name only after somebody has corrected that rate.
func (d *decoder) checked(n *confmap.Node, read ruleconfig.Rule, check *ruleCheck, isDefault bool) Rule {
	r := ruleOf(read)
	switch {
	case read.Whole:
		check.Add(r.toCheck(n.Path, isDefault))
	case read.Identified:
		check.Identify(Rule{Name: r.Name, Endpoint: r.Endpoint, Key: r.Key}.toCheck(n.Path, isDefault))
	}
	d.ReportChecked(n, check.Problems)
	check.Problems = nil
	return r
}

// UnmarshalJSON sets r to the rule that data has as a config map, see [DecodeRules]. So a
// []Rule can be decoded from JSON. The algorithm may be left out, which means
// [AlgorithmTokenBucket], and must not be a custom one. Errors call a rule by its name or
// endpoint, and match [ErrInvalidConfig].
func (r *Rule) UnmarshalJSON(data []byte) error {
	return r.UnmarshalYAML(func(config any) error {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		return d.Decode(config)
	})
}

// UnmarshalYAML is UnmarshalJSON for the YAML decoders that call a method of this form.
func (r *Rule) UnmarshalYAML(unmarshal func(any) error) error {
	var config map[string]any
	if err := unmarshal(&config); err != nil {
		return err
	}
	path := "rule"
	if name := ruleconfig.NameOf(config); name != "" {
		path = "rules[" + confmap.Quote(name) + "]"
	}
	d := newDecoder(nil, Env{})
	d.Implied = string(AlgorithmTokenBucket)
	n, ok := confmap.NodeOf(path, config)
	if !ok {
		d.Reject(path, "nil", ruleconfig.RuleForm)
		return d.Err()
	}
	read := d.Rule(n)
	rule := d.checked(n, read, newRuleCheck(&settings{}), read.Name == "" && read.Endpoint == "")
	if err := d.Err(); err != nil {
		return err
	}
	*r = rule
	return nil
}

// MarshalJSON returns r as a config map that UnmarshalJSON reads. The rule of a custom
// algorithm that a [Factory] has read is written as it was given, for [DecodeRules]. A rule
// with code, such as a Resolve, is an error that matches [ErrInvalidConfig].
func (r Rule) MarshalJSON() ([]byte, error) {
	made := r.made()
	if r.Resolve != nil || r.Limiter != nil && made == nil {
		return nil, &ConfigError{"rules[" + confmap.Quote(cmp.Or(r.Name, r.Endpoint)) + "]", "a rule with code", "must have no Resolve and no Limiter to be written as JSON"}
	}
	config := struct {
		Endpoint     string          `json:"endpoint,omitempty"`
		Name         string          `json:"name,omitempty"`
		Key          KeyType         `json:"key,omitempty"`
		Mode         Mode            `json:"mode,omitempty"`
		Additional   bool            `json:"additional,omitempty"`
		Algorithm    Algorithm       `json:"algorithm"`
		AlgoConfig   any             `json:"algoConfig"`
		Tiers        map[string]Rate `json:"tiers,omitempty"`
		Warmup       map[string]any  `json:"warmup,omitempty"`
		OnStoreError FailurePolicy   `json:"onStoreError,omitzero"`
	}{r.Endpoint, r.Name, r.Key, r.Mode, r.Additional, cmp.Or(r.Algorithm, AlgorithmTokenBucket), map[string]Rate{"rate": r.Rate}, r.Tiers, r.Warmup.config(), r.OnStoreError}
	if made != nil {
		config.AlgoConfig = made.Config
	}
	return json.Marshal(config)
}

// UnmarshalText sets k to the key type that text spells, such as "ip" or "ip+endpoint". For
// any other text, it returns an error that matches [ErrInvalidConfig] and leaves k unchanged.
func (k *KeyType) UnmarshalText(text []byte) error {
	key, reason := ruleconfig.ParseKey(string(text))
	if reason != "" && len(text) > 0 {
		return &ConfigError{"key", confmap.Quote(string(text)), reason}
	}
	*k = KeyType(key)
	return nil
}

// UnmarshalText sets m to the mode that text spells. For any other text, it returns an error
// that matches [ErrInvalidConfig] and leaves m unchanged.
func (m *Mode) UnmarshalText(text []byte) error {
	for _, mode := range append(modes, "") {
		if len(text) <= confmap.MaxName && confmap.Fold(string(text)) == mode {
			*m = Mode(mode)
			return nil
		}
	}
	return &ConfigError{"mode", confmap.Quote(string(text)), "must be one of " + confmap.List(modes)}
}
