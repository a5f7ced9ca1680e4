package ratelimit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// DecodeRules reads rules from maps, such as those that encoding/json or a YAML decoder makes
// of a file. It returns the rules of configs in their order, and the rule of defaultConfig,
// which is nil if defaultConfig is nil. There must be at least one rule.
//
// The map of a [Rule] has the fields algorithm and algoConfig, and may have endpoint, name,
// key, mode, tiers and onStoreError. Any other field is an error.
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
	rules, defaultRule, err := decodeRules(configs, defaultConfig, &set)
	if err := errors.Join(err, invalid); err != nil {
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// decodeRules is DecodeRules after the options have been applied to set.
func decodeRules(configs []map[string]any, defaultConfig map[string]any, set *settings) (rules []Rule, defaultRule *Rule, err error) {
	d := newDecoder(set.factory, set.env(), "")
	check := newRuleCheck(set)
	d.Rules(configs, defaultConfig, func(path string, read ruleconfig.Rule, isDefault bool) {
		r := d.checked(path, read, check, isDefault)
		if isDefault {
			defaultRule = &r
			return
		}
		rules = append(rules, r)
	})
	if err := d.Err(); err != nil {
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// A decoder reads rules and limiters from configs. Its Reader collects everything that is
// wrong.
type decoder struct {
	*ruleconfig.Reader
	factory *Factory // has the custom algorithms; may be nil
	env     Env      // for custom limiters
}

// newDecoder returns a decoder. implied is the algorithm of a config that has none; if it is
// empty, such a config is refused.
func newDecoder(factory *Factory, env Env, implied Algorithm) *decoder {
	d := &decoder{factory: factory, env: env}
	d.Reader = ruleconfig.NewReader(ruleconfig.Caller{
		Problem:     problem,
		More:        more,
		Custom:      factory.custom,
		CustomNames: factory.names,
		Build:       d.custom,
		Refused:     refusedRate,
		Modes:       texts(modes),
		MaxRules:    maxRules,

		DefaultAlgorithm: string(implied),
	})
	return d
}

// texts returns names as strings.
func texts[S ~string](names []S) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = string(name)
	}
	return all
}

// refusedRate returns what is wrong with r for the algorithm a of this package.
func refusedRate(a ruleconfig.Algorithm, r ratetext.Rate) (faults []ruleconfig.Fault) {
	for _, err := range atPath("", algorithms[Algorithm(a.Name)].validate(Rate(r))) {
		var e *ConfigError
		if errors.As(err, &e) {
			faults = append(faults, ruleconfig.Fault{Field: strings.TrimPrefix(e.Field, "."), Reason: e.Reason})
		}
	}
	return faults
}

// problem makes the error for one field of a config.
func problem(field, value, reason string) error { return &ConfigError{field, value, reason} }

// more makes the error that says how many problems are not listed.
func more(n int) error { return moreProblems(n) }

// moreProblems is the error that says how many problems are not listed.
type moreProblems int

func (m moreProblems) Error() string {
	return "ratelimit: and " + strconv.Itoa(int(m)) + " more"
}

// Unwrap returns [ErrInvalidConfig].
func (m moreProblems) Unwrap() error { return ErrInvalidConfig }

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
		OnStoreError: policyOf(read.OnStoreError),
	}
	if read.Tiers != nil {
		r.Tiers = make(map[string]Rate, len(read.Tiers))
		for tier, rate := range read.Tiers {
			r.Tiers[tier] = Rate(rate)
		}
	}
	if c, ok := read.Custom.(*customLimiter); ok {
		r.custom, r.Limiter = c, c.limiter
	}
	return r
}

// checked returns the Rule that was read from the config at path. If its config has no
// problem, check checks it like a rule that is written in code. check has seen the rules
// before it.
//
// Of a rule with problems, only the name and the endpoint are checked: a full check would
// report the problems again. Without it, two rules with one name, of which the first has a
// bad rate, would be found to share the name only after somebody has corrected that rate.
func (d *decoder) checked(path string, read ruleconfig.Rule, check *ruleCheck, isDefault bool) Rule {
	r := ruleOf(read)
	switch {
	case read.Whole:
		check.add(path, r, isDefault)
	case read.Identified:
		withoutStore := *check // shares the maps of names and custom limiters
		withoutStore.supports = nil
		withoutStore.add(path, Rule{Name: r.Name, Endpoint: r.Endpoint, Key: r.Key, Rate: PerSecond(1)}, isDefault)
		check.problems = withoutStore.problems
	}
	d.reportCheck(path, check)
	return r
}

// reportCheck moves the problems of check to the Reader. They are those of the rule at path.
// A config has no field rate, so the path of a problem with the rate becomes algoConfig.
func (d *decoder) reportCheck(path string, check *ruleCheck) {
	for _, err := range check.problems {
		var e *ConfigError
		if errors.As(err, &e) {
			field := e.Field
			if rest, ok := strings.CutPrefix(field, path+".rate"); ok {
				field = path + ".algoConfig" + rest
			}
			err = &ConfigError{confmap.Truncate(field, confmap.MaxPath), describeChecked(e.Value), e.Reason}
		}
		d.Report(err)
	}
	check.problems = nil
}

// describeChecked returns the short text that shows value in an error. value comes from an
// error of a ruleCheck, which quotes strings in full.
func describeChecked(value any) string {
	text := ""
	switch v := value.(type) {
	case string:
		text = v
		if raw, err := strconv.Unquote(v); err == nil {
			text = confmap.Quote(raw)
		}
	case fmt.Stringer:
		text = v.String()
	default:
		text = confmap.Describe(v)
	}
	return confmap.Truncate(text, confmap.MaxValue)
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
	d := newDecoder(nil, Env{}, AlgorithmTokenBucket)
	n, ok := confmap.NodeOf(path, config)
	if !ok {
		d.Reject(path, "nil", ruleconfig.RuleForm)
		return d.Err()
	}
	read := d.Rule(n)
	rule := d.checked(path, read, newRuleCheck(&settings{}), read.Name == "" && read.Endpoint == "")
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
	made := r.custom != nil && same(r.custom.limiter, r.Limiter)
	if r.Resolve != nil || r.Limiter != nil && !made {
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
		OnStoreError FailurePolicy   `json:"onStoreError,omitzero"`
	}{r.Endpoint, r.Name, r.Key, r.Mode, r.Additional, cmp.Or(r.Algorithm, AlgorithmTokenBucket), map[string]Rate{"rate": r.Rate}, r.Tiers, r.OnStoreError}
	if made {
		config.AlgoConfig = r.custom.algoConfig
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
		if len(text) <= confmap.MaxName && confmap.Fold(string(text)) == string(mode) {
			*m = mode
			return nil
		}
	}
	return &ConfigError{"mode", confmap.Quote(string(text)), "must be one of " + list(modes)}
}

// A ConfigReader reads the algoConfig of a custom algorithm for a [BuildFunc]. It reads what
// any decoder makes of a field: a number may be an int, a float64 or a json.Number. The names
// of fields are read without regard to case, "_" and "-".
//
// Each method but Has reads the field with this name, which must be there, and returns zero
// if something is wrong with it. [ConfigReader.Err] then says what. A ConfigReader must be
// used by one goroutine only.
type ConfigReader struct {
	fields *ruleconfig.Fields
}

// ReadConfig returns a ConfigReader for algoConfig.
func ReadConfig(algoConfig map[string]any) *ConfigReader {
	return &ConfigReader{ruleconfig.NewFields(algoConfig, problem, more)}
}

// Has reports whether the config has a field. It is for fields that may be left out.
func (c *ConfigReader) Has(name string) bool { return c.fields.Has(name) }

// Int reads a whole number.
func (c *ConfigReader) Int(name string) int { return c.fields.Int(name) }

// Float reads a number.
func (c *ConfigReader) Float(name string) float64 { return c.fields.Float(name) }

// String reads a text of at most 1,024 bytes.
func (c *ConfigReader) String(name string) string { return c.fields.String(name) }

// Bool reads true or false.
func (c *ConfigReader) Bool(name string) bool { return c.fields.Bool(name) }

// Duration reads a time with its unit, such as "90s", "1h30m" or "2 days". It is above 0.
func (c *ConfigReader) Duration(name string) time.Duration { return c.fields.Duration(name) }

// Rate reads a text as [ParseRate] does. It is not [Unlimited].
func (c *ConfigReader) Rate(name string) Rate { return Rate(c.fields.Rate(name)) }

// Err returns everything that was wrong with the fields that have been read, and the fields
// of the config that nobody has asked for, joined, or nil. Each problem is a [*ConfigError]. A
// BuildFunc returns the error as it is.
func (c *ConfigReader) Err() error { return c.fields.Err() }
