package ratelimit

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// maxTiers is the largest number of tiers in the config of a rule.
const maxTiers = 10_000

// ruleFields are the fields of a rule's config, in the order in which they are read.
var ruleFields = []string{"endpoint", "name", "key", "mode", "algorithm", "algoConfig", "tiers", "onStoreError"}

// The reasons in the errors for fields of a rule's config.
const (
	ruleForm       = "must be a map that has algorithm and algoConfig"
	algoConfigForm = "must be a map that says what the limit is"
	tiersForm      = `must be a map of rates, such as {"paid": "600/m"}`
	tierForm       = `must be a rate such as "600/m", or a map as an algoConfig is`
	policyForm     = `must be "open", "closed", "local" or, of 4 replicas, "local:4"`
)

// keyTypes are the values that the field key may have.
var keyTypes = []KeyType{KeyUser, KeyEndpoint, KeyUserEndpoint, KeyIP, KeyGlobal}

var (
	keyForm  = "must be one of " + list(keyTypes)
	modeForm = "must be one of " + list(modes)
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
		closeMade(madeFor(rules, defaultRule)...)
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// decodeRules is DecodeRules after the options have been applied to set.
func decodeRules(configs []map[string]any, defaultConfig map[string]any, set *settings) ([]Rule, *Rule, error) {
	return newDecoder(set.factory, set.env()).rules(configs, defaultConfig, set)
}

// only reads the rule of one config, whose path is path.
func (d *decoder) only(path string, config map[string]any, set *settings) (Rule, error) {
	n, ok := confmap.NodeOf(path, config)
	if !ok {
		d.Reject(path, "nil", ruleForm)
		return Rule{}, d.Err()
	}
	r := d.rule(n, newRuleCheck(set), false)
	err := d.Err()
	if err != nil {
		closeMade(r.custom)
	}
	return r, err
}

// rules reads the rules of configs and of defaultConfig.
func (d *decoder) rules(configs []map[string]any, defaultConfig map[string]any, set *settings) ([]Rule, *Rule, error) {
	switch {
	case len(configs) > maxRules:
		d.Reject("configs", fmt.Sprintf("a list of %d", len(configs)), fmt.Sprintf("must have at most %d", maxRules))
		return nil, nil, d.Err()
	case len(configs) == 0 && defaultConfig == nil:
		d.Reject("configs", "empty", "must have at least one config, or there be a default config")
		return nil, nil, d.Err()
	}
	var rules []Rule
	var defaultRule *Rule
	check := newRuleCheck(set)
	for i, config := range configs {
		path := "configs[" + strconv.Itoa(i) + "]"
		n, ok := confmap.NodeOf(path, config)
		if !ok {
			d.Reject(path, "nil", ruleForm)
			continue
		}
		rules = append(rules, d.rule(n, check, false))
	}
	if n, ok := confmap.NodeOf("defaultConfig", defaultConfig); ok {
		r := d.rule(n, check, true)
		defaultRule = &r
	}
	if err := d.Err(); err != nil {
		closeMade(madeFor(rules, defaultRule)...)
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// A decoder reads rules and rates from configs. Its Reader collects everything that is wrong.
type decoder struct {
	*confmap.Reader
	factory *Factory // finds algorithms by name; may be nil
	env     Env      // for custom limiters
	name    string   // of the rule that is read

	// keeps returns the limiter that the rule with this name has and will keep, or nil if
	// one must be made. It may be nil.
	keeps func(name string, a Algorithm, algoConfig map[string]any) Limiter
}

func newDecoder(factory *Factory, env Env) *decoder {
	problem := func(field, value, reason string) error { return &ConfigError{field, value, reason} }
	more := func(n int) error { return moreProblems(n) }
	return &decoder{Reader: confmap.NewReader(problem, more), factory: factory, env: env}
}

// moreProblems is the error that says how many problems are not listed.
type moreProblems int

func (m moreProblems) Error() string {
	return "ratelimit: and " + strconv.Itoa(int(m)) + " more"
}

// Unwrap returns [ErrInvalidConfig].
func (m moreProblems) Unwrap() error { return ErrInvalidConfig }

// rule reads the rule at n. If its config has no problem, check checks it like a rule that is
// written in code. check has seen the rules before it.
func (d *decoder) rule(n *confmap.Node, check *ruleCheck, isDefault bool) (r Rule) {
	before := d.Found()
	d.Unknown(n, ruleFields, rateFields, "it belongs in algoConfig")
	var endpointOK, nameOK, keyOK bool
	r.Endpoint, endpointOK = d.Text(n, "endpoint")
	r.Name, nameOK = d.Text(n, "name")
	r.Key, keyOK = confmap.Choice(d.Reader, n, "key", keyForm, keyTypes)
	r.Mode, _ = confmap.Choice(d.Reader, n, "mode", modeForm, modes)
	d.name = r.completed(isDefault).Name
	d.limit(n, &r)
	r.OnStoreError = d.policy(n)
	if d.Found() == before {
		check.add(n.Path, r, isDefault)
		d.reportCheck(n.Path, check)
		return r
	}
	if endpointOK && nameOK && keyOK && !n.Misspelt("endpoint", "name") {
		d.checkIdentity(n.Path, r, check, isDefault)
	}
	return r
}

// checkIdentity checks only the endpoint, the name and the key of the rule r. It is for a
// rule whose other problems have been reported: a full check would report them again.
//
// Without it, two rules with one name, of which the first has a bad rate, would be found to
// share the name only after somebody has corrected that rate. So check gets a rule with the
// endpoint, name and key of r and a valid rate. It reports if an earlier rule has the same
// name, and can report a later one.
func (d *decoder) checkIdentity(path string, r Rule, check *ruleCheck, isDefault bool) {
	withoutStore := *check // shares the maps of names and custom limiters
	withoutStore.supports = nil
	withoutStore.add(path, Rule{Name: r.Name, Endpoint: r.Endpoint, Key: r.Key, Rate: PerSecond(1)}, isDefault)
	check.problems = withoutStore.problems
	d.reportCheck(path, check)
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

// limit reads the limit of the rule at n: its algorithm and, for one of this package, its
// rate and tiers. For a custom algorithm, it makes the limiter.
func (d *decoder) limit(n *confmap.Node, r *Rule) {
	entry := d.algorithm(n)
	config, ok := d.Child(n, "algoConfig", algoConfigForm)
	r.Algorithm = entry.algorithm
	switch {
	case entry.build != nil:
		if ok {
			if r.custom = d.custom(n, config, entry); r.custom != nil {
				r.Limiter = r.custom.Value.(Limiter)
			}
		}
		if _, ok := n.Get("tiers"); ok {
			d.Reject(n.Field("tiers"), n.Describe("tiers"), "must be left out: "+string(entry.algorithm)+" has rates of its own")
		}
	case entry.algorithm != "":
		if ok {
			r.Rate = d.rate(config, entry.algorithm)
		}
		r.Tiers = d.tiers(n, entry.algorithm)
	}
}

// algorithm reads the algorithm of the rule at n. It returns the zero entry if the algorithm
// is not known. If the name is nearly that of an algorithm of this package, it reports the
// spelling and returns that entry, so that the algoConfig can be checked as well.
func (d *decoder) algorithm(n *confmap.Node) algorithmEntry {
	name, ok := d.algorithmName(n)
	if !ok {
		return algorithmEntry{}
	}
	entry, known := d.factory.find(confmap.Fold(name))
	if known && len(name) <= confmap.MaxName {
		return entry
	}
	names := d.factory.names()
	near := confmap.Nearest(name, names)
	if near == "" {
		d.Reject(n.Field("algorithm"), confmap.Quote(name), "unknown algorithm: must be one of "+list(names))
		return algorithmEntry{}
	}
	d.Reject(n.Field("algorithm"), confmap.Quote(name), "unknown algorithm; did you mean "+confmap.Quote(near)+"?")
	if entry, _ := d.factory.find(confmap.Fold(near)); entry.build == nil {
		return entry
	}
	return algorithmEntry{}
}

// algorithmName reads the name of the algorithm of the rule at n. It reports a name that is
// missing or no string, and then ok is false.
func (d *decoder) algorithmName(n *confmap.Node) (name string, ok bool) {
	const field = "algorithm"
	v, given := n.Get(field)
	if !given {
		if !n.Misspelt(field) {
			d.Reject(n.Field(field), "missing", "must be one of "+list(d.factory.names()))
		}
		return "", false
	}
	if name, ok = confmap.TextOf(v); !ok {
		d.Reject(n.Field(field), confmap.Describe(v), "must be one of "+list(d.factory.names()))
	}
	return name, ok
}

// tiers reads the tiers of the rule at n, in the order of their names.
func (d *decoder) tiers(n *confmap.Node, a Algorithm) map[string]Rate {
	if _, ok := n.Get("tiers"); !ok {
		return nil
	}
	all, ok := d.Child(n, "tiers", tiersForm)
	if !ok || !d.StringKeys(all) {
		return nil
	}
	if all.Len() > maxTiers {
		d.Reject(all.Path, fmt.Sprintf("a map of %d", all.Len()), fmt.Sprintf("must have at most %d", maxTiers))
		return nil
	}
	if all.Len() == 0 {
		return nil
	}
	tiers := make(map[string]Rate, all.Len())
	for _, name := range all.Names() {
		value, _ := all.Get(name)
		tiers[strings.Clone(name)] = d.tier(all.Path+"["+confmap.Quote(name)+"]", name, value, a)
	}
	return tiers
}

// tier reads the rate of the tier with this name and value. path is its path in errors.
func (d *decoder) tier(path, name string, value any, a Algorithm) Rate {
	if len(name) > confmap.MaxText {
		d.Reject(path, confmap.Describe(value), fmt.Sprintf("must have a name of at most %d bytes", confmap.MaxText))
		return Rate{}
	}
	if config, ok := confmap.NodeOf(path, value); ok {
		return d.rate(config, a)
	}
	if _, ok := confmap.TextOf(value); !ok {
		d.Reject(path, confmap.Describe(value), tierForm)
		return Rate{}
	}
	return d.rate(confmap.Inline(path, "rate", value), a) // "600/m" is short for {"rate": "600/m"}
}

// policy reads the failure policy of the rule at n.
func (d *decoder) policy(n *confmap.Node) FailurePolicy {
	v, ok := n.Get("onStoreError")
	if !ok {
		return FailurePolicy{}
	}
	switch text, _ := confmap.TextOf(v); text {
	case "open":
		return FailOpen
	case "closed":
		return FailClosed
	case "local":
		return FailLocal(1)
	default:
		reason := policyForm
		replicas, local := strings.CutPrefix(text, "local:")
		if count, err := strconv.ParseUint(replicas, 10, 31); local && err == nil {
			p := FailLocal(int(count))
			if p.validate("") == nil {
				return p
			}
			reason = "must have at least 1 replica"
		}
		d.Reject(n.Field("onStoreError"), n.Describe("onStoreError"), reason)
		return FailurePolicy{}
	}
}
