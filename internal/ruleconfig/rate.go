package ruleconfig

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// rateFields are the fields of an algoConfig, in the order in which they are read.
var rateFields = []string{
	"capacity", "refillRatePerSecond", "leakRatePerSecond",
	"maxRequests", "limit", "windowMs", "windowSeconds",
	"rate",
	"burst", "burstSize",
}

// A rate is written in one of three forms. Each form has fields of its own.
var (
	bucketForm = rateFields[0:3] // a capacity, and a number of units a second
	windowForm = rateFields[3:7] // a number of requests, and a length of time
	textForm   = rateFields[7:8] // a text that ratetext reads
)

// sameFields are the pairs of fields that set the same thing, by two names or in two units.
var sameFields = [][2]string{
	{"refillRatePerSecond", "leakRatePerSecond"},
	{"maxRequests", "limit"},
	{"windowMs", "windowSeconds"},
	{"burst", "burstSize"},
}

// formsOf returns a text with the fields by which the rate of an algorithm may be written.
func formsOf(a Algorithm) string {
	const windowOrText = "maxRequests and windowMs, or rate"
	switch {
	case a.Windowed:
		return windowOrText
	case a.Leaks:
		return "capacity and leakRatePerSecond, or " + windowOrText
	}
	return "capacity and refillRatePerSecond, or " + windowOrText
}

// Rate reads the algoConfig n of an algorithm that is not custom. It returns the zero Rate if a
// field is wrong.
func (r *Reader) Rate(n *confmap.Node, a Algorithm) ratetext.Rate {
	before := r.Found()
	r.Unknown(n, rateFields, ruleFields, "it belongs beside algoConfig")
	r.forms(n, a)
	read := rateReader{Reader: r, node: n, algorithm: a, from: make(map[string]string)}
	for _, name := range rateFields {
		if v, ok := n.Get(name); ok {
			read.field(name, v)
		}
	}
	if r.Found() > before {
		return ratetext.Rate{}
	}
	for _, fault := range r.caller.Refused(a, read.rate) {
		name := read.from[fault.Field]
		r.Reject(n.Field(name), n.Describe(name), fault.Reason)
	}
	return read.rate
}

// forms reports the fields of n that must not stand together, and those that are missing.
func (r *Reader) forms(n *confmap.Node, a Algorithm) {
	reject := func(name, reason string) { r.Reject(n.Field(name), n.Describe(name), reason) }
	for _, same := range sameFields {
		_, one := n.Get(same[0])
		if _, other := n.Get(same[1]); one && other {
			reject(same[1], "must not stand beside "+same[0]+": give one of them")
		}
	}
	var given []string // the first field of each form
	for _, form := range [][]string{bucketForm, windowForm, textForm} {
		if name, ok := n.First(form); ok {
			given = append(given, name)
		}
	}
	if name, ok := n.First(bucketForm); ok && a.Windowed {
		reject(name, "must be left out: it is for TokenBucket and LeakyBucket; "+a.Name+" has "+formsOf(a))
		return
	}
	if _, ok := n.Get("leakRatePerSecond"); ok && !a.Leaks {
		reject("leakRatePerSecond", "must be left out: it is for LeakyBucket; "+a.Name+" has refillRatePerSecond")
	}
	switch len(given) {
	case 0:
		if !n.Misspelt(bucketForm...) && !n.Misspelt(windowForm...) && !n.Misspelt(textForm...) {
			r.Reject(n.Path, "a map", "must have "+formsOf(a))
		}
	case 1:
		r.counterpart(n, a)
	default:
		for _, name := range given[1:] {
			reject(name, "must not stand beside "+given[0]+": give "+formsOf(a))
		}
	}
}

// counterpart reports a field that is missing beside another one, such as windowMs beside
// maxRequests.
func (r *Reader) counterpart(n *confmap.Node, a Algorithm) {
	refill := "refillRatePerSecond"
	if a.Leaks {
		refill = "leakRatePerSecond"
	}
	for _, pair := range []struct {
		given, other []string
		missing      string
	}{
		{bucketForm[:1], bucketForm[1:], refill},
		{bucketForm[1:], bucketForm[:1], "capacity"},
		{windowForm[:2], windowForm[2:], "windowMs"},
		{windowForm[2:], windowForm[:2], "maxRequests"},
	} {
		name, has := n.First(pair.given)
		if _, ok := n.First(pair.other); has && !ok && !n.Misspelt(pair.other...) {
			r.Reject(n.Field(pair.missing), "missing", "must be given beside "+name)
		}
	}
}

// A rateReader puts a Rate together from the fields of an algoConfig.
type rateReader struct {
	*Reader
	node      *confmap.Node // the algoConfig
	algorithm Algorithm
	rate      ratetext.Rate
	from      map[string]string // by a field of the Rate, the field of node that has set it
}

// field reads the field with this name, whose value is v.
func (r *rateReader) field(name string, v any) {
	switch name {
	case "capacity":
		r.rate.Burst = r.Count(r.node, name)
		r.from["burst"] = name
	case "refillRatePerSecond", "leakRatePerSecond":
		exact := r.unitsPerSecond(name)
		r.rate.Requests, r.rate.Per = exact.Requests, exact.Per
		r.from["requests"], r.from["per"] = name, name
	case "maxRequests", "limit":
		r.rate.Requests = r.Count(r.node, name)
		r.from["requests"] = name
	case "windowMs":
		r.rate.Per = r.window(name, "milliseconds", 6)
		r.from["per"] = name
	case "windowSeconds":
		r.rate.Per = r.window(name, "seconds", 9)
		r.from["per"] = name
	case "rate":
		r.text(v)
	case "burst", "burstSize":
		r.burst(name)
	}
}

// text reads the field "rate", whose value is v, as a rate.
func (r *rateReader) text(v any) {
	field := r.node.Field("rate")
	text, ok := confmap.TextOf(v)
	if !ok || len(text) > confmap.MaxText {
		r.Reject(field, confmap.Describe(v), ratetext.Form)
		return
	}
	parsed, err := ratetext.Parse(text)
	if err != nil {
		r.Reject(field, confmap.Quote(text), err.Error())
		return
	}
	if parsed.Burst != 0 && r.algorithm.Windowed {
		r.Reject(field, confmap.Quote(text), "must have no burst: "+r.algorithm.Name+" has none")
		return
	}
	r.rate = parsed
	r.from["requests"], r.from["per"], r.from["burst"] = "rate", "rate", "rate"
}

// burst reads the field with this name, "burst" or "burstSize", which may stand beside
// requests and a time, or beside a rate without a burst.
func (r *rateReader) burst(name string) {
	reason := ""
	switch _, capacity := r.node.Get("capacity"); {
	case r.algorithm.Windowed:
		reason = "must be left out: " + r.algorithm.Name + " has no burst"
	case capacity:
		reason = "must not stand beside capacity: that is the burst"
	case r.from["burst"] == "rate" && r.rate.Burst != 0:
		reason = "must not be given twice: rate has a burst"
	}
	if reason != "" {
		r.Reject(r.node.Field(name), r.node.Describe(name), reason)
		return
	}
	r.rate.Burst = r.Count(r.node, name)
	r.from["burst"] = name
}

// window reads the field with this name as a length of time in a unit of 10^shift
// nanoseconds. It returns 0 if the field is wrong.
func (r *rateReader) window(name, unit string, shift int) time.Duration {
	x, ok := r.Number(r.node, name, "must be a number of "+unit+", above 0", "must be above 0")
	if !ok {
		return 0
	}
	per, whole, fits := x.Scaled(shift, math.MaxInt64)
	switch {
	case !fits:
		r.Reject(r.node.Field(name), x.String(), ratetext.TooLong)
	case !whole:
		r.Reject(r.node.Field(name), x.String(), "must be whole nanoseconds")
	}
	return time.Duration(per)
}

// unitsPerSecond reads the field with this name as a number of units a second. It returns the
// zero Rate if the field is wrong.
func (r *rateReader) unitsPerSecond(name string) ratetext.Rate {
	x, ok := r.Number(r.node, name, "must be a number of units a second, above 0", "must be above 0")
	if !ok {
		return ratetext.Rate{}
	}
	rate, reason := rateOf(x, name)
	if reason != "" {
		r.Reject(r.node.Field(name), x.String(), reason)
	}
	return rate
}
