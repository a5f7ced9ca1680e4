package ratelimit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// rule reads the rule at n and compares it with those before it.
func (d *decoder) rule(n *node, check *ruleCheck, isDefault bool) (r Rule) {
	before := d.found()
	d.unknown(n, ruleFields, rateFields, "it belongs in algoConfig")
	identified := !n.meant["endpoint"] && !n.meant["name"]
	var ok bool
	r.Endpoint, ok = d.text(n, "endpoint")
	identified = identified && ok
	r.Name, ok = d.text(n, "name")
	identified = identified && ok
	r.Key, ok = choice(d, n, "key", keyTypes)
	identified = identified && ok
	r.Mode, _ = choice(d, n, "mode", modes)
	d.limit(n, &r)
	r.OnStoreError = d.policy(n)
	if d.found() > before {
		if identified {
			d.standIn(n.path, r, check, isDefault)
		}
		return r
	}
	check.add(n.path, r, isDefault)
	d.take(n.path, check)
	return r
}

// standIn compares a rule that has other problems with those before it, and puts
// it in line for those after it.
func (d *decoder) standIn(path string, r Rule, check *ruleCheck, isDefault bool) {
	quiet := *check
	quiet.supports = nil
	quiet.add(path, Rule{Name: r.Name, Endpoint: r.Endpoint, Key: r.Key, Rate: PerSecond(1)}, isDefault)
	check.problems = quiet.problems
	d.take(path, check)
}

// take reports the problems that check has found with the rule at path, in the
// words of a config.
func (d *decoder) take(path string, check *ruleCheck) {
	for _, err := range check.problems {
		var e *ConfigError
		if errors.As(err, &e) {
			field := e.Field
			if rest, ok := strings.CutPrefix(field, path+".rate"); ok {
				field = path + ".algoConfig" + rest
			}
			value := shown(e.Value)
			switch v := e.Value.(type) {
			case string:
				value = v
				if raw, err := strconv.Unquote(v); err == nil {
					value = quoted(raw)
				}
			case fmt.Stringer:
				value = v.String()
			}
			err = &ConfigError{cut(field, maxField), cut(value, maxShown), e.Reason}
		}
		d.report(err)
	}
	check.problems = nil
}

// limit reads what the rule at n limits to: its algorithm, its rate and its tiers.
func (d *decoder) limit(n *node, r *Rule) {
	entry := d.algorithm(n)
	config, ok := d.child(n, "algoConfig", algoConfigForm)
	r.Algorithm = entry.algorithm
	switch {
	case entry.build != nil:
		if ok {
			if r.custom = d.custom(n, config, entry); r.custom != nil {
				r.Limiter = r.custom.limiter
			}
		}
		if tiers, ok := n.get("tiers"); ok {
			d.bad(n.field("tiers"), shown(tiers), "must be left out: "+string(entry.algorithm)+" has rates of its own")
		}
	case entry.algorithm != "":
		if ok {
			r.Rate = d.rate(config, entry.algorithm)
		}
		r.Tiers = d.tiers(n, entry.algorithm)
	}
}

// algorithm reads the algorithm of the rule at n. The zero entry is that of one
// which is not known. One that is misspelt is reported, and read on as what was
// meant if that is one of this package.
func (d *decoder) algorithm(n *node) algorithmEntry {
	name, given := d.required(n, "algorithm")
	if !given {
		return algorithmEntry{}
	}
	entry, ok := d.factory.find(plain(name))
	if ok && len(name) <= maxName {
		return entry
	}
	names := d.factory.names()
	meant := nearest(name, names)
	if meant == "" {
		d.bad(n.field("algorithm"), quoted(name), "unknown algorithm: must be one of "+list(names))
		return algorithmEntry{}
	}
	d.bad(n.field("algorithm"), quoted(name), "unknown algorithm; did you mean "+quoted(meant)+"?")
	if entry, _ := d.factory.find(plain(meant)); entry.build == nil {
		return entry
	}
	return algorithmEntry{}
}

// required reads the name of an algorithm.
func (d *decoder) required(n *node, field string) (name string, ok bool) {
	v, given := n.get(field)
	if !given {
		if !n.meant[field] {
			d.bad(n.field(field), "missing", "must be one of "+list(d.factory.names()))
		}
		return "", false
	}
	if name, ok = textOf(v); !ok {
		d.bad(n.field(field), shown(v), "must be one of "+list(d.factory.names()))
	}
	return name, ok
}

// tiers reads the tiers of the rule at n.
func (d *decoder) tiers(n *node, a Algorithm) map[string]Rate {
	if _, ok := n.get("tiers"); !ok {
		return nil
	}
	all, ok := d.child(n, "tiers", `must be a map of rates, such as {"paid": "600/m"}`)
	if !ok || !d.stringKeys(all) {
		return nil
	}
	if all.len() > maxTiers {
		d.bad(all.path, fmt.Sprintf("a map of %d", all.len()), fmt.Sprintf("must have at most %d", maxTiers))
		return nil
	}
	values := make(map[string]any, all.len())
	var names []string
	for key, value := range all.all() {
		name, _ := textOf(key)
		names = append(names, name)
		values[name] = value
	}
	slices.Sort(names)
	var tiers map[string]Rate
	for _, name := range names {
		if tiers == nil {
			tiers = make(map[string]Rate, len(names))
		}
		tiers[strings.Clone(name)] = d.tier(all.path+"["+quoted(name)+"]", name, values[name], a)
	}
	return tiers
}

// tier reads the rate of one tier, which is found at path.
func (d *decoder) tier(path, name string, value any, a Algorithm) Rate {
	if len(name) > maxText {
		d.bad(path, shown(value), fmt.Sprintf("must have a name of at most %d bytes", maxText))
		return Rate{}
	}
	if config, ok := mapOf(value); ok {
		config.path = path
		return d.rate(config, a)
	}
	// A string is an algoConfig that has a rate alone.
	if _, ok := textOf(value); !ok {
		d.bad(path, shown(value), `must be a rate such as "600/m", or a map as an algoConfig is`)
		return Rate{}
	}
	return d.rate(&node{path: path, fields: map[string]any{"rate": value}, inline: true}, a)
}

// policy reads the failure policy of the rule at n.
func (d *decoder) policy(n *node) FailurePolicy {
	const form = `must be "open", "closed", "local" or, of 4 replicas, "local:4"`
	v, ok := n.get("onStoreError")
	if !ok {
		return FailurePolicy{}
	}
	text, ok := textOf(v)
	if !ok {
		d.bad(n.field("onStoreError"), shown(v), form)
		return FailurePolicy{}
	}
	switch text {
	case "open":
		return FailOpen
	case "closed":
		return FailClosed
	case "local":
		return FailLocal(1)
	}
	replicas, local := strings.CutPrefix(text, "local:")
	if count, err := strconv.ParseUint(replicas, 10, 31); local && err == nil {
		p := FailLocal(int(count))
		if p.validate("") == nil {
			return p
		}
		d.bad(n.field("onStoreError"), quoted(text), "must have at least 1 replica")
		return FailurePolicy{}
	}
	d.bad(n.field("onStoreError"), quoted(text), form)
	return FailurePolicy{}
}
