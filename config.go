package ratelimit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/hooks"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

// DecodeRules reads rules from maps, such as those that encoding/json or a YAML decoder makes of a file. It returns the
// rules in configs, in their order, and the rule in defaultConfig, or nil if defaultConfig is nil. It is an error if there is no rule.
//
// The map of a [Rule] has the fields algorithm and algoConfig, and may have endpoint, name, key, unit, mode, additional,
// tiers, warmup, penalty and onStoreError. Instead of an algoConfig, the map of the rule may have the fields of the algoConfig
// itself. Names are compared without regard to case, "_" and "-". Any other field is an error, and so is a field that is given twice.
//
// [NewFromConfig] makes a [RateLimiter] from the same maps in one step. DecodeRules is for a caller that adds code to
// the rules first, such as [Rule.Resolve], and then calls [New]. Two options have an effect here: the maps may name the
// custom algorithms of [WithFactory], and the store of [WithStore] must support all rates.
//
// The error lists everything that is wrong, each problem with the path of its field, such as configs[3].algoConfig.capacity. It lists at
// most 100 problems and says how many others there are. It matches [ErrInvalidConfig]. DecodeRules neither keeps nor changes the maps.
func DecodeRules(configs []map[string]any, defaultConfig map[string]any, opts ...Option) ([]Rule, *Rule, error) {
	set, invalid := newSettings(opts)
	rules, defaultRule, err := newDecoder(&set).decode(configs, defaultConfig)
	if err := errors.Join(err, invalid); err != nil {
		hooks.Close(builtFor(rules, defaultRule)...)
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// NewFromConfig returns a RateLimiter whose rules are read from maps, such as decoded JSON. [DecodeRules] describes the maps. It is an
// error if configs is empty and defaultConfig is nil. The error lists every mistake, and matches [ErrInvalidConfig].
func NewFromConfig(configs []map[string]any, defaultConfig map[string]any, opts ...Option) (*RateLimiter, error) {
	set, err := newSettings(opts)
	rules, defaultRule, invalid := newDecoder(&set).decode(configs, defaultConfig)
	if invalid != nil {
		return nil, errors.Join(err, invalid)
	}
	l, err := newRateLimiter(rules, defaultRule, set, err)
	if err != nil {
		hooks.Close(builtFor(rules, defaultRule)...)
	}
	return l, err
}

// A Factory makes limiters from config maps, see [Factory.Create]. It knows the five algorithms of this package, such
// as "TokenBucket", and the custom algorithms that [Factory.Register] has added. With [WithFactory], the configs of a
// [RateLimiter] can name the custom algorithms too.
//
// A Factory is safe for concurrent use by multiple goroutines. The zero Factory and a nil *Factory know the five
// algorithms and have no options. A nil *Factory cannot register algorithms.
type Factory struct {
	opts       []Option
	registered ruleconfig.Registry[BuildFunc]
}

// A BuildFunc makes a limiter of a custom algorithm; [Factory.Register] adds it to a [Factory]. algoConfig is the part
// of the config that says what the limit is. env has the clock to read and the number of keys to keep.
//
// The BuildFunc may keep and change algoConfig: the map, and all maps and lists in it, are copies. If it returns a
// [*ConfigError], or several that are joined, each is reported for its field of algoConfig. Any other error, or a
// panic, is reported as the reason why algoConfig is refused. Package configread reads the fields of an algoConfig.
type BuildFunc func(algoConfig map[string]any, env Env) (Limiter, error)

// NewFactory returns a Factory whose limiters have these options. A [RateLimiter] with the option [WithFactory] has
// these options too. If an option is invalid, [Factory.Create] returns the error.
func NewFactory(opts ...Option) *Factory { return &Factory{opts: slices.Clone(opts)} }

// Register adds a custom algorithm with this name to f: build makes the limiters for configs that name it. Names are
// compared without regard to case, "_" and "-". If the name is empty, longer than 100 bytes or already known to f, or
// if build is nil, Register changes nothing and returns an error that matches [ErrInvalidConfig].
func (f *Factory) Register(algorithm string, build BuildFunc) error {
	switch {
	case f == nil:
		return &ConfigError{"factory", "nil", "must be made by NewFactory"}
	case confmap.Fold(algorithm) == "":
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be a name"}
	case len(algorithm) > confmap.MaxName:
		return &ConfigError{"algorithm", confmap.Quote(algorithm), fmt.Sprintf("must be at most %d bytes long", confmap.MaxName)}
	case build == nil:
		return &ConfigError{"build", "nil", "must be a function that makes a limiter"}
	}
	if other, taken := f.registered.Add(algorithm, build, configAlgorithms()); taken {
		return &ConfigError{"algorithm", confmap.Quote(algorithm), "must be another name: this one is that of " + confmap.Quote(other)}
	}
	return nil
}

// Create makes a limiter with state of its own. config has two fields: "algorithm" is the name of an algorithm that f
// knows, and "algoConfig" is a map that says what the limit is, such as {"capacity": 100, "refillRatePerSecond": 10}.
// Create ignores the other fields that the config of a rule may have, see [DecodeRules]. But a warmup or a penalty is an
// error, because only a rule can have one. An unknown field is an error too.
//
// If f has the option [WithStore], the limiter needs a name: the field "name" or, if there is none, the name from [WithName].
// It then shares its state with all limiters of that name in the [Store].
//
// The error lists everything that is wrong with config and with the options of f, and matches [ErrInvalidConfig].
func (f *Factory) Create(config map[string]any) (Limiter, error) {
	var opts []Option
	if f != nil {
		opts = f.opts
	}
	set, invalid := f.settings().withDefaults()
	set.factory = f
	d := newDecoder(&set)
	n, ok := confmap.NodeOf("", config)
	if !ok {
		d.Reject("config", "nil", ruleconfig.RuleForm)
		return nil, errors.Join(d.Err(), invalid)
	}
	d.Fields(n)
	a := d.Algorithm(n)
	if set.store != nil {
		if name := d.StoreName(n, a, set.name); name != "" {
			opts = append(slices.Clip(opts), WithName(name))
		}
	}
	algoConfig, ok := d.Config(n)
	switch {
	case !ok || a.Name == "" || a.Custom && invalid != nil:
		return nil, errors.Join(d.Err(), invalid)
	case a.Custom:
		d.RefuseOfRules(n, algoConfig, a)
		built := d.custom("", n, algoConfig, a)
		if err := d.Err(); err != nil {
			hooks.Close(built)
			return nil, err
		}
		return built.Value.(Limiter), nil
	}
	r := d.Rate(n, algoConfig, a)
	d.RefuseOfRules(n, algoConfig, a)
	if err := errors.Join(d.Err(), invalid); err != nil {
		return nil, err
	}
	return algorithms[Algorithm(a.Name)].limiter(rateOf(r), opts...)
}

// settings returns the settings that the options of f make.
func (f *Factory) settings() (s settings) {
	if f == nil {
		return s
	}
	s = s.with(f.opts)
	if s.factory != nil {
		s.problems = append(s.problems, &ConfigError{"factory", "set", "must not be an option of a Factory"})
	}
	return s
}

// registry returns the custom algorithms that f knows.
func (f *Factory) registry() *ruleconfig.Registry[BuildFunc] {
	if f == nil {
		return nil
	}
	return &f.registered
}

// A decoder reads rules and limiters from configs. Its Reader collects all problems.
type decoder struct {
	*ruleconfig.Reader
	set   *settings  // settings of the limiter
	check *ruleCheck // checks each rule against the rules read before it

	// current has the rules that are in use. Their custom limiters are kept, not made again, if their configs are unchanged.
	current *ruleSet
}

func newDecoder(set *settings) *decoder {
	custom := set.factory.registry()
	return &decoder{set: set, current: new(ruleSet), check: newRuleCheck(set.store), Reader: ruleconfig.NewReader(ruleconfig.Caller{
		Problem:    func(field, value, reason string) error { return &ConfigError{field, value, reason} },
		Field:      fieldOf,
		More:       func(n int) error { return ruleconfig.More(n, ErrInvalidConfig) },
		Algorithms: configAlgorithms(), Custom: custom.Algorithm, CustomNames: custom.Names, Refused: refusedRate, MaxRules: maxRules,
	})}
}

// fieldOf returns the three fields of err if err is a ConfigError, and reports whether it is one.
func fieldOf(err error) (field string, value any, reason string, ok bool) {
	e, ok := any(err).(*ConfigError) // not errors.As: an error that wraps a ConfigError must keep its own text
	if !ok || e == nil {
		return "", nil, "", false
	}
	return e.Field, e.Value, e.Reason, true
}

// refusedRate returns all reasons why the algorithm a cannot use the rate r. The algorithm is one of this package.
func refusedRate(a ruleconfig.Algorithm, r ratetext.Rate) (faults []ruleconfig.Fault) {
	for _, err := range atPath("", algorithms[Algorithm(a.Name)].validate(rateOf(r))) {
		if field, value, reason, ok := fieldOf(err); ok {
			faults = append(faults, ruleconfig.Fault{Field: strings.TrimPrefix(field, "."), Value: value, Reason: reason})
		}
	}
	return faults
}

// decode reads the rules in the maps configs, and the rule in the map defaultConfig.
func (d *decoder) decode(configs []map[string]any, defaultConfig map[string]any) (rules []Rule, defaultRule *Rule, err error) {
	d.Rules(configs, defaultConfig, func(n *confmap.Node, isDefault bool) {
		r := d.rule(n, isDefault)
		if isDefault {
			defaultRule = &r
			return
		}
		rules = append(rules, r)
	})
	if err := d.Err(); err != nil {
		hooks.Close(builtFor(rules, defaultRule)...)
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// decodeOne reads one rule from the map config. path is the name of the rule in errors.
func (d *decoder) decodeOne(path string, config map[string]any, isDefault bool) (r Rule, err error) {
	if n, ok := confmap.NodeOf(path, config); ok {
		r = d.rule(n, isDefault)
	} else {
		d.Reject(path, "nil", ruleconfig.RuleForm)
	}
	if err = d.Err(); err != nil {
		hooks.Close(r.custom)
	}
	return r, err
}

// rule reads the rule at the node n of a config, and checks it like a rule that is written in code. If reading finds a
// problem, rule checks only the name, the endpoint and the key, because a full check would report that problem again.
func (d *decoder) rule(n *confmap.Node, isDefault bool) Rule {
	before := d.Found()
	r, identified := d.read(n, isDefault)
	switch {
	case d.Found() == before:
		d.check.add(given(n.Path, r, isDefault))
	case identified:
		d.check.identify(given(n.Path, Rule{Name: r.Name, Endpoint: r.Endpoint, Key: r.Key}, isDefault))
	}
	d.ReportChecked(n, d.check.problems)
	d.check.problems = nil
	return r
}

// read reads the fields of the rule at the node n. A field with a problem stays zero. identified is true if the
// endpoint, the name and the key have no problem.
func (d *decoder) read(n *confmap.Node, isDefault bool) (r Rule, identified bool) {
	d.Fields(n)
	var endpointOK, nameOK, keyOK bool
	r.Endpoint, endpointOK = d.Text(n, "endpoint")
	r.Name, nameOK = d.Text(n, "name")
	key, keyOK := d.Key(n)
	r.Key = KeyType(key)
	mode, _ := confmap.Choice(d.Reader.Reader, n, "mode", "must be one of "+confmap.List(modes), modes)
	r.Mode = Mode(mode)
	r.Additional = d.Bool(n, "additional")
	r.Unit, _ = d.Text(n, "unit")
	a := d.Algorithm(n)
	r.Algorithm = Algorithm(a.Name)
	config, ok := d.Config(n)
	switch {
	case ok && a.Custom:
		if r.custom = d.custom(given(n.Path, r, isDefault).Name, n, config, a); r.custom != nil {
			r.Limiter = r.custom.Value.(Limiter)
		}
	case ok && a.Name != "":
		r.Rate = rateOf(d.Rate(n, config, a))
	}
	d.Tiers(n, a, r.Rate.data(), func(tier string, rate ratetext.Rate) {
		if r.Tiers == nil {
			r.Tiers = make(map[string]Rate)
		}
		r.Tiers[tier] = rateOf(rate)
	})
	r.Warmup, r.Penalty = Warmup(d.Warmup(n, config, a)), Penalty(d.Penalty(n, a))
	r.OnStoreError = FailurePolicy{d.Policy(n)}
	return r, endpointOK && nameOK && keyOK && !n.Misspelt("endpoint", "name")
}

// custom returns the limiter that the BuildFunc of the custom algorithm a makes from algoConfig. The limiter is for the
// rule with this name, at the node n of a config. If there is a problem, custom reports the problem and returns nil.
func (d *decoder) custom(name string, n, algoConfig *confmap.Node, a ruleconfig.Algorithm) *hooks.Built {
	config, ok := d.Copy(algoConfig) // a later Reload compares its algoConfig with this copy
	if !ok {
		return nil
	}
	if old := d.current.Named(name); old != nil && old.Limiter != nil && old.keepsLimiter(Algorithm(a.Name), config) {
		return &hooks.Built{Config: config, Value: old.Limiter, Build: func() (any, error) {
			later := newDecoder(d.set)
			if built := later.custom(name, n, algoConfig, a); built != nil {
				return built.Value, nil
			}
			return nil, later.Err()
		}}
	}
	handed, ok := d.Copy(algoConfig) // for the BuildFunc, which may change it
	if !ok {
		return nil
	}
	built := d.Built(n, algoConfig, a, func() (any, error) {
		l, err := d.set.factory.registry().Build(a.Name)(handed, d.set.env())
		if confmap.IsNil(l) {
			return nil, err
		}
		return l, err
	})
	if built == nil {
		return nil
	}
	return &hooks.Built{Config: config, Value: built}
}

// MarshalJSON returns r as a config map that UnmarshalJSON reads. If the rule was read from a config with a custom
// algorithm of a [Factory], its algoConfig is written as it was read; only [DecodeRules] can read such a map. For a
// rule with code, such as a Resolve, MarshalJSON returns an error that matches [ErrInvalidConfig].
func (r Rule) MarshalJSON() ([]byte, error) {
	var algoConfig any = map[string]Rate{"rate": r.Rate}
	switch built := r.built(); {
	case r.Resolve != nil || r.Limiter != nil && built == nil:
		path := "rules[" + confmap.Quote(cmp.Or(r.Name, r.Endpoint)) + "]"
		return nil, &ConfigError{path, "a rule with code", "must have no Resolve and no Limiter to be written as JSON"}
	case built != nil:
		algoConfig = built.Config
	}
	return ruleconfig.Marshal(map[string]any{
		"endpoint": r.Endpoint, "name": r.Name, "key": r.Key, "mode": r.Mode, "additional": r.Additional, "unit": r.Unit,
		"algorithm": cmp.Or(r.Algorithm, AlgorithmTokenBucket), "algoConfig": algoConfig, "tiers": r.Tiers,
		"warmup": ruleconfig.Warmup(r.Warmup).Config(), "penalty": ruleconfig.Penalty(r.Penalty).Config(), "onStoreError": r.OnStoreError,
	})
}

// UnmarshalJSON sets r to the rule whose config map is data, see [DecodeRules]. A []Rule can thus be decoded from JSON.
// The algorithm must not be a custom one; if it is left out, it is [AlgorithmTokenBucket]. An error names the rule by
// its name or endpoint, and matches [ErrInvalidConfig].
func (r *Rule) UnmarshalJSON(data []byte) error {
	return r.UnmarshalYAML(func(config any) error {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		return d.Decode(config)
	})
}

// UnmarshalYAML does what UnmarshalJSON does, for YAML decoders that call a method of this form.
func (r *Rule) UnmarshalYAML(unmarshal func(any) error) error {
	var config map[string]any
	if err := unmarshal(&config); err != nil {
		return err
	}
	path, name := "rule", ruleconfig.NameOf(config)
	if name != "" {
		path = "rules[" + confmap.Quote(name) + "]"
	}
	d := newDecoder(&settings{})
	d.Implied = string(AlgorithmTokenBucket)
	rule, err := d.decodeOne(path, config, name == "")
	if err == nil {
		*r = rule
	}
	return err
}

// UnmarshalText sets k to the key type that text spells, such as "ip" or "ip+endpoint". For any other text, it returns
// an error that matches [ErrInvalidConfig] and leaves k unchanged.
func (k *KeyType) UnmarshalText(text []byte) error {
	key, reason := ruleconfig.ParseKey(string(text))
	if reason != "" && len(text) > 0 {
		return &ConfigError{"key", confmap.Quote(string(text)), reason}
	}
	*k = KeyType(key)
	return nil
}

// UnmarshalText sets m to the mode that text spells. For any other text, it keeps m and returns an error that matches [ErrInvalidConfig].
func (m *Mode) UnmarshalText(text []byte) error {
	for _, mode := range append(modes, "") {
		if len(text) <= confmap.MaxName && confmap.Fold(string(text)) == mode {
			*m = Mode(mode)
			return nil
		}
	}
	return &ConfigError{"mode", confmap.Quote(string(text)), "must be one of " + confmap.List(modes)}
}

// built returns the Limiter of the rule r and its config if a BuildFunc has made the Limiter; nil if code has set it.
func (r *Rule) built() *hooks.Built {
	if r.custom == nil || !confmap.Same(r.custom.Value, r.Limiter) {
		return nil
	}
	return r.custom
}

// keepsLimiter reports whether r keeps its Limiter when its config is read again: either code has set the Limiter, or
// the algorithm and the algoConfig have not changed.
func (r *Rule) keepsLimiter(a Algorithm, algoConfig map[string]any) bool {
	built := r.built()
	return built == nil || r.Algorithm == a && confmap.Equal(built.Config, algoConfig)
}

// builtFor returns the limiters that BuildFuncs made for these rules, which were read from configs.
func builtFor(rules []Rule, defaultRule *Rule) (all []*hooks.Built) {
	for _, r := range allGiven(rules, defaultRule) {
		all = append(all, r.custom)
	}
	return all
}
