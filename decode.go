package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// What a config may have, so that a hostile one costs little.
const (
	maxProblems = 100    // that an error lists; it counts the others
	maxTiers    = 10_000 // of one rule
	maxText     = 1024   // bytes in an endpoint, a name or a tier
	maxName     = 100    // bytes in the name of an algorithm
)

// ruleFields are the fields of a rule's config, in the order in which they are
// read.
var ruleFields = []string{"endpoint", "name", "key", "mode", "algorithm", "algoConfig", "tiers", "onStoreError"}

// algoConfigForm is what an algoConfig must be.
const algoConfigForm = "must be a map that says what the limit is"

// DecodeRules returns the rules that configs and defaultConfig describe, as
// [NewFromConfig] makes a limiter of them, so that code may be attached to them
// first. A nil defaultConfig gives no default rule.
//
// All that is wrong is returned at once, each problem with its path, such as
// configs[3].algoConfig.capacity; beyond 100 problems the others are counted.
// Errors match [ErrInvalidConfig]. The maps are neither kept nor changed.
func DecodeRules(configs []map[string]any, defaultConfig map[string]any, opts ...Option) ([]Rule, *Rule, error) {
	set, invalid := newSettings(opts)
	rules, defaultRule, err := decodeRules(configs, defaultConfig, &set)
	if err := errors.Join(err, invalid); err != nil {
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// decodeRules is DecodeRules with the options applied.
func decodeRules(configs []map[string]any, defaultConfig map[string]any, set *settings) ([]Rule, *Rule, error) {
	d := decoder{factory: set.factory, env: set.env()}
	switch {
	case len(configs) > maxRules:
		d.bad("configs", fmt.Sprintf("a list of %d", len(configs)), fmt.Sprintf("must have at most %d", maxRules))
		return nil, nil, d.err()
	case len(configs) == 0 && defaultConfig == nil:
		d.bad("configs", "empty", "must have at least one config, or there be a default config")
		return nil, nil, d.err()
	}
	var rules []Rule
	var defaultRule *Rule
	check := newRuleCheck(set)
	for i, config := range configs {
		path := "configs[" + strconv.Itoa(i) + "]"
		if config == nil {
			d.bad(path, "nil", "must be a map that has algorithm and algoConfig")
			continue
		}
		rules = append(rules, d.rule(&node{path: path, fields: config}, check, false))
	}
	if defaultConfig != nil {
		r := d.rule(&node{path: "defaultConfig", fields: defaultConfig}, check, true)
		defaultRule = &r
	}
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	return rules, defaultRule, nil
}

// A decoder reads configs. A problem does not stop it, so that it finds them all;
// it finds them in the order of the fields, so that an error reads the same each
// time.
type decoder struct {
	factory  *Factory
	env      Env
	problems []error
	more     int // problems that are not listed
	copied   int // values copied
}

// bad reports what is wrong with a field. value is what shown says of it.
func (d *decoder) bad(field, value, reason string) {
	d.report(&ConfigError{field, value, reason})
}

func (d *decoder) report(err error) {
	if len(d.problems) == maxProblems {
		d.more++
		return
	}
	d.problems = append(d.problems, err)
}

// hidden counts n problems that are not listed.
func (d *decoder) hidden(n int) { d.more += n }

// found returns how many problems there are.
func (d *decoder) found() int { return len(d.problems) + d.more }

// err returns all problems, joined, or nil.
func (d *decoder) err() error {
	if d.more > 0 {
		return errors.Join(append(slices.Clip(d.problems), moreProblems(d.more))...)
	}
	return errors.Join(d.problems...)
}

// moreProblems says how many problems an error does not list.
type moreProblems int

func (m moreProblems) Error() string {
	return "ratelimit: and " + strconv.Itoa(int(m)) + " more"
}

// Unwrap returns [ErrInvalidConfig].
func (m moreProblems) Unwrap() error { return ErrInvalidConfig }
