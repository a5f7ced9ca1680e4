package ratelimit

import (
	"errors"
	"slices"
	"strings"
)

// rateFields are the fields of an algoConfig, in the order in which they are read.
var rateFields = []string{
	"capacity", "refillRatePerSecond", "leakRatePerSecond",
	"maxRequests", "limit", "windowMs", "windowSeconds",
	"rate",
	"burst", "burstSize",
}

// A rate is written in one of three forms, each of which has fields of its own.
var (
	bucketForm = rateFields[0:3]
	windowForm = rateFields[3:7]
	textForm   = rateFields[7:8]
)

// sameFields are the fields that are two names, or two units, for one thing.
var sameFields = [][2]string{
	{"refillRatePerSecond", "leakRatePerSecond"},
	{"maxRequests", "limit"},
	{"windowMs", "windowSeconds"},
	{"burst", "burstSize"},
}

// formsOf says how a rate of a is written.
func formsOf(a Algorithm) string {
	const windowOrText = "maxRequests and windowMs, or rate"
	switch {
	case algorithms[a].windowed:
		return windowOrText
	case a == AlgorithmLeakyBucket:
		return "capacity and leakRatePerSecond, or " + windowOrText
	}
	return "capacity and refillRatePerSecond, or " + windowOrText
}

// rate reads the algoConfig n of an algorithm of this package.
func (d *decoder) rate(n *node, a Algorithm) Rate {
	before := d.found()
	d.unknown(n, rateFields, ruleFields, "it belongs beside algoConfig")
	d.forms(n, a)
	r := rateReader{decoder: d, node: n, from: make(map[string]string)}
	for _, name := range rateFields {
		if v, ok := n.get(name); ok {
			r.read(name, v, a)
		}
	}
	if d.found() > before {
		return Rate{}
	}
	for _, err := range at("", algorithms[a].validate(r.rate)) {
		var e *ConfigError
		if errors.As(err, &e) {
			name := r.from[strings.TrimPrefix(e.Field, ".")]
			err = &ConfigError{n.field(name), n.shown(name), e.Reason}
		}
		d.report(err)
	}
	return r.rate
}

// first returns the first of names that n has.
func (n *node) first(names []string) (name string, ok bool) {
	for _, name := range names {
		if _, ok := n.get(name); ok {
			return name, true
		}
	}
	return "", false
}

// means reports whether n has one of names, if misspelt.
func (n *node) means(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return n.meant[name] })
}

// forms reports which fields of n do not go together, and which are missing.
func (d *decoder) forms(n *node, a Algorithm) {
	for _, same := range sameFields {
		_, one := n.get(same[0])
		if _, other := n.get(same[1]); one && other {
			d.bad(n.field(same[1]), n.shown(same[1]), "must not stand beside "+same[0]+": give one of them")
		}
	}
	var given []string // the first field of each form
	for _, form := range [][]string{bucketForm, windowForm, textForm} {
		if name, ok := n.first(form); ok {
			given = append(given, name)
		}
	}
	if name, ok := n.first(bucketForm); ok && algorithms[a].windowed {
		d.bad(n.field(name), n.shown(name), "must be left out: it is for TokenBucket and LeakyBucket; "+string(a)+" has "+formsOf(a))
		return
	}
	if _, ok := n.get("leakRatePerSecond"); ok && a != AlgorithmLeakyBucket {
		d.bad(n.field("leakRatePerSecond"), n.shown("leakRatePerSecond"), "must be left out: it is for LeakyBucket; "+string(a)+" has refillRatePerSecond")
	}
	switch len(given) {
	case 0:
		if !n.means(rateFields[:8]...) {
			d.bad(n.path, "a map", "must have "+formsOf(a))
		}
	case 1:
		d.counterpart(n, a)
	default:
		for _, name := range given[1:] {
			d.bad(n.field(name), n.shown(name), "must not stand beside "+given[0]+": give "+formsOf(a))
		}
	}
}

// counterpart reports the field that is missing beside the one that n has.
func (d *decoder) counterpart(n *node, a Algorithm) {
	refill := "refillRatePerSecond"
	if a == AlgorithmLeakyBucket {
		refill = "leakRatePerSecond"
	}
	for _, pair := range []struct {
		one, other []string
		missing    string
	}{
		{bucketForm[:1], bucketForm[1:], refill},
		{bucketForm[1:], bucketForm[:1], "capacity"},
		{windowForm[:2], windowForm[2:], "windowMs"},
		{windowForm[2:], windowForm[:2], "maxRequests"},
	} {
		name, has := n.first(pair.one)
		if _, ok := n.first(pair.other); has && !ok && !n.means(pair.other...) {
			d.bad(n.field(pair.missing), "missing", "must be given beside "+name)
		}
	}
}

// A rateReader puts a Rate together from the fields of an algoConfig.
type rateReader struct {
	*decoder
	node *node
	rate Rate
	from map[string]string // which field each field of the Rate is from
}

// read reads the field with name, whose value is v.
func (r *rateReader) read(name string, v any, a Algorithm) {
	switch name {
	case "capacity":
		r.rate.Burst = r.count(r.node, name)
		r.from["burst"] = name
	case "refillRatePerSecond", "leakRatePerSecond":
		exact := r.perSecond(r.node, name)
		r.rate.Requests, r.rate.Per = exact.Requests, exact.Per
		r.from["requests"], r.from["per"] = name, name
	case "maxRequests", "limit":
		r.rate.Requests = r.count(r.node, name)
		r.from["requests"] = name
	case "windowMs":
		r.rate.Per = r.window(r.node, name, "milliseconds", 6)
		r.from["per"] = name
	case "windowSeconds":
		r.rate.Per = r.window(r.node, name, "seconds", 9)
		r.from["per"] = name
	case "rate":
		r.text(v, a)
	case "burst", "burstSize":
		r.burst(name, a)
	}
}

// text reads a rate that is written as ParseRate reads it.
func (r *rateReader) text(v any, a Algorithm) {
	field := r.node.field("rate")
	text, ok := textOf(v)
	if !ok || len(text) > maxText {
		r.bad(field, shown(v), rateForm)
		return
	}
	parsed, err := ParseRate(text)
	var e *ConfigError
	if errors.As(err, &e) {
		r.bad(field, quoted(text), e.Reason)
		return
	}
	if parsed.Burst != 0 && algorithms[a].windowed {
		r.bad(field, quoted(text), "must have no burst: "+string(a)+" has none")
		return
	}
	r.rate = parsed
	r.from["requests"], r.from["per"], r.from["burst"] = "rate", "rate", "rate"
}

// burst reads the burst that stands beside one of the other forms.
func (r *rateReader) burst(name string, a Algorithm) {
	reason := ""
	switch _, capacity := r.node.get("capacity"); {
	case algorithms[a].windowed:
		reason = "must be left out: " + string(a) + " has no burst"
	case capacity:
		reason = "must not stand beside capacity: that is the burst"
	case r.from["burst"] == "rate" && r.rate.Burst != 0:
		reason = "must not be given twice: rate has a burst"
	}
	if reason != "" {
		r.bad(r.node.field(name), r.node.shown(name), reason)
		return
	}
	r.rate.Burst = r.count(r.node, name)
	r.from["burst"] = name
}
