package ruleconfig

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// A rate is written in one of three forms. Each form has its own fields.
var (
	bucketForm = rateSchema.Fields[0:4]   // fields such as capacity and refillRatePerSecond
	windowForm = rateSchema.Fields[4:9]   // fields such as maxRequests and windowMs
	textForm   = rateSchema.Fields[11:12] // the field rate, which is a text such as "100/m"
)

// A rate in windowForm has two fields: one for the number of requests, and one for the length of the window.
var (
	countFields  = windowForm[:2]
	windowFields = windowForm[2:]
)

// SameFields are the pairs of fields that set the same value, under two names or in two units. A
// config may have only one field of each pair.
var SameFields = [][2]string{
	{"refillRatePerSecond", "leakRatePerSecond"},
	{"refillRatePerSecond", "refillPerMs"},
	{"leakRatePerSecond", "refillPerMs"},
	{"maxRequests", "limit"},
	{"windowMs", "windowSeconds"},
	{"burst", "burstSize"},
}

// formsOf returns a text for errors that lists the fields by which the rate of the algorithm a may be
// written.
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

// Rate reads the algoConfig of an algorithm that is not custom. The parameter rule is the node of the rule,
// and config is the node of its algoConfig. They are the same node if the fields stand in the rule itself,
// see the method Config. Rate returns the zero Rate if a field is wrong.
func (r *Reader) Rate(rule, config *confmap.Node, a Algorithm) ratetext.Rate {
	return r.rate(rule, config, a, ratetext.Rate{})
}

// rate reads the rate of a rule, or of a tier (another rate of a rule, for some clients). For a tier, the
// node rule is nil, and base is the rate of the rule to which the tier belongs. A tier may be unlimited. A
// tier of a windowed algorithm must have the same Per as base.
func (r *Reader) rate(rule, config *confmap.Node, a Algorithm, base ratetext.Rate) ratetext.Rate {
	before := r.Found()
	if config != rule {
		known := ruleRateFields
		if config.Match(rateSchema, algoWarmupSchema); rule == nil {
			config.Drop(algoWarmupSchema)
			known = rateSchema.Fields
		}
		dropLength(config)
		windows := windowHint(config)
		r.Unknown(config, known, func(name string, value any) (string, []string) {
			if _, ok := ruleSchema.Field(name); ok {
				return "unknown field; it belongs beside algoConfig", nil
			}
			if _, ok := algoWarmupSchema.Field(name); ok && rule == nil {
				return "unknown field; a tier has the warm-up of its rule", nil
			}
			return windows(name, value)
		})
	}
	r.countByRate(config)
	r.forms(config, a)
	read := rateReader{Reader: r, node: config, algorithm: a, from: make(map[string]string)}
	for _, f := range RateFields {
		if v, ok := config.Get(f.Name); ok {
			read.field(f, v)
		}
	}
	if r.Found() > before || config.Misspelt(rateSchema.Fields...) {
		return ratetext.Rate{}
	}
	if rule == nil && read.rate == ratetext.Unlimited {
		return read.rate
	}
	faults := r.caller.Refused(a, read.rate)
	if len(faults) == 0 && a.Windowed && base.Requests != 0 {
		faults = OtherWindow(base, read.rate, "must have the window of the rule's rate, "+base.Per.String()+": a window has one length")
	}
	for _, fault := range faults {
		name := cmp.Or(read.from[fault.Field], read.from["requests"])
		r.Reject(config.Field(name), config.Describe(name), fault.Reason)
	}
	return read.rate
}

// countByRate handles a field "rate" that is a number. If the config n has the length of a window, that
// number is the number of requests in the window. If n already has a number of requests, countByRate
// reports the field "rate" as a mistake.
func (r *Reader) countByRate(n *confmap.Node) {
	v, _ := n.Get("rate")
	count, given := n.First(countFields)
	_, window := n.First(windowFields)
	if _, ok := confmap.NumberOf(v); !ok || !window {
		return
	}
	if given {
		r.Reject(n.Field("rate"), n.Describe("rate"), "must not stand beside "+n.Written(count)+": give one of them")
		n.Rename("rate", "")
		return
	}
	n.Rename("rate", "maxRequests")
}

// otherWindows are wrong names that users often write for the field with the length of a window. Each
// is spelt as confmap.Fold returns it.
var otherWindows = []string{"window", "windowsize", "windowlength", "windowduration", "period", "interval", "duration", "per"}

// windowHint returns a hint for fields of n that have a name such as "window" or "period", which does
// not say in which unit the window is given.
func windowHint(n *confmap.Node) confmap.Hint {
	return func(name string, value any) (reason string, meant []string) {
		if !slices.Contains(otherWindows, confmap.Fold(name)) || len(name) > confmap.MaxName {
			return "", nil
		}
		if rate := rateByWindow(n, name, value); rate != "" {
			return "unknown field; did you mean " + rate + "?", windowFields
		}
		return `unknown field; did you mean "windowSeconds"?`, windowFields
	}
}

// rateByWindow is called for a field whose value should be the length of a window as a number. If the value
// has a unit, as "1m" has, rateByWindow returns a suggestion for the error: a field "rate" that means the same
// as this length and the number of requests in n. Otherwise it returns an empty text. The field has the given
// name and value.
func rateByWindow(n *confmap.Node, name string, value any) string {
	text, ok := confmap.TextOf(value)
	per, err := ratetext.ParsePer(text[:min(len(text), confmap.MaxName)])
	if !ok || err != nil {
		return ""
	}
	field, given := n.First(countFields)
	count, _ := n.Get(field)
	if x, ok := confmap.NumberOf(count); ok && given {
		if requests, whole, fits := x.Scaled(0, math.MaxInt); whole && fits && x.Positive() {
			rate := ratetext.Rate{Requests: int(requests), Per: per}
			return "rate: " + strconv.Quote(rate.String()) + " in place of " + n.Written(field) + " and " + name
		}
	}
	return "rate: " + strconv.Quote(ratetext.Rate{Requests: 100, Per: per}.String())
}

// forms reports the fields of the config n that must not stand together, and the fields that are
// missing.
func (r *Reader) forms(n *confmap.Node, a Algorithm) {
	reject := func(name, reason string) { r.Reject(n.Field(name), n.Describe(name), reason) }
	for _, same := range SameFields {
		if n.Has(same[0]) && n.Has(same[1]) {
			reject(same[1], "must not stand beside "+n.Written(same[0])+": give one of them")
		}
	}
	var given []string // for each form, the first of its fields that the config n has, if any
	for _, form := range [][]string{bucketForm, windowForm, textForm} {
		if name, ok := n.First(form); ok {
			given = append(given, name)
		}
	}
	if name, ok := n.First(bucketForm); ok && a.Windowed {
		reject(name, "must be left out: it is for TokenBucket and LeakyBucket; "+a.Name+" has "+formsOf(a))
		return
	}
	if n.Has("leakRatePerSecond") && !a.Leaks {
		reject("leakRatePerSecond", "must be left out: it is for LeakyBucket; "+a.Name+" has refillRatePerSecond")
	}
	switch len(given) {
	case 0:
		if !n.Misspelt(bucketForm...) && !n.Misspelt(windowForm...) && !n.Misspelt(textForm...) {
			r.Reject(cmp.Or(n.Path, "config"), "a map", "must have "+formsOf(a))
		}
	case 1:
		r.counterpart(n, a)
	default:
		for _, name := range given[1:] {
			reject(name, "must not stand beside "+n.Written(given[0])+": give "+formsOf(a))
		}
	}
}

// counterpart reports a field that is missing in the config n although n has a field that needs it: windowMs,
// for example, if n has maxRequests.
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
		{countFields, windowFields, "windowMs"},
		{windowFields, countFields, "maxRequests"},
		{zoneFields, windowName, "window"},
	} {
		name, has := n.First(pair.given)
		if _, ok := n.First(pair.other); has && !ok && !n.Misspelt(pair.other...) {
			r.Reject(n.Field(pair.missing), "missing", "must be given beside "+n.Written(name))
		}
	}
}

// A rateReader composes a Rate from the fields of an algoConfig.
type rateReader struct {
	*Reader
	node      *confmap.Node // the algoConfig
	algorithm Algorithm
	rate      ratetext.Rate     // the rate, as far as it has been read
	from      map[string]string // for each field of the Rate, the name of the config's field that set it
}

// field reads the field f of the algoConfig, and sets the part of the Rate that the field describes. The
// second parameter is the value of the field.
func (r *rateReader) field(f Field, v any) {
	name := f.Name
	switch f.Kind {
	case Capacity:
		r.rate.Burst = r.Count(r.node, name)
		r.from["burst"] = name
	case PerSecond, PerMillisecond:
		exact := r.refill(name)
		r.rate.Requests, r.rate.Per = exact.Requests, exact.Per
		r.from["requests"], r.from["per"] = name, name
	case Requests:
		r.rate.Requests = r.Count(r.node, name)
		r.from["requests"] = name
	case Milliseconds:
		r.rate.Per = r.window(name, "milliseconds", 6)
		r.from["per"] = name
	case Seconds:
		r.rate.Per = r.window(name, "seconds", 9)
		r.from["per"] = name
	case RateText:
		r.text(v)
	case Burst:
		r.burst(name)
	case WindowName:
		r.calendar()
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
	if parsed.Burst > 0 && r.algorithm.Windowed {
		r.Reject(field, confmap.Quote(text), "must have no burst: "+r.algorithm.Name+" has none")
		return
	}
	r.rate = parsed
	r.from["requests"], r.from["per"], r.from["burst"], r.from["window"] = "rate", "rate", "rate", "rate"
}

// burst reads the field with this name, "burst" or "burstSize". A config may have it together with a
// number of requests and a window, or with a rate whose text has no burst.
func (r *rateReader) burst(name string) {
	reason := ""
	switch {
	case r.algorithm.Windowed:
		reason = "must be left out: " + r.algorithm.Name + " has no burst"
	case r.node.Has("capacity"):
		reason = "must not stand beside " + r.node.Written("capacity") + ": that is the burst"
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

// window reads the field with this name as a length of time in units of 10^shift nanoseconds. It
// returns 0 if the field is wrong.
func (r *rateReader) window(name, unit string, shift int) time.Duration {
	form := "must be a number of " + unit + ", above 0"
	v, _ := r.node.Get(name)
	if rate := rateByWindow(r.node, r.node.Written(name), v); rate != "" {
		form += "; for a time with a unit, give " + rate
	}
	x, ok := r.Number(r.node, name, form, "must be above 0")
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
