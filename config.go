package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	d := newDecoder(set.factory, set.env())
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

func newDecoder(factory *Factory, env Env) *decoder {
	d := &decoder{factory: factory, env: env}
	d.Reader = ruleconfig.NewReader(ruleconfig.Caller{
		Problem:     func(field, value, reason string) error { return &ConfigError{field, value, reason} },
		More:        func(n int) error { return moreProblems(n) },
		Custom:      factory.custom,
		CustomNames: factory.names,
		Build:       d.custom,
		Refused:     refusedRate,
		Modes:       texts(modes),
		MaxRules:    maxRules,
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
