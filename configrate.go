package ratelimit

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
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
	textForm   = rateFields[7:8] // a text that ParseRate reads
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
	case algorithms[a].windowed:
		return windowOrText
	case a == AlgorithmLeakyBucket:
		return "capacity and leakRatePerSecond, or " + windowOrText
	}
	return "capacity and refillRatePerSecond, or " + windowOrText
}

// rate reads the algoConfig n of an algorithm of this package. It returns the zero Rate if a
// field is wrong.
func (d *decoder) rate(n *confmap.Node, a Algorithm) Rate {
	before := d.Found()
	d.Unknown(n, rateFields, ruleFields, "it belongs beside algoConfig")
	d.forms(n, a)
	r := rateReader{decoder: d, node: n, algorithm: a, from: make(map[string]string)}
	for _, name := range rateFields {
		if v, ok := n.Get(name); ok {
			r.read(name, v)
		}
	}
	if d.Found() > before {
		return Rate{}
	}
	for _, err := range atPath("", algorithms[a].validate(r.rate)) {
		var e *ConfigError
		if errors.As(err, &e) {
			name := r.from[strings.TrimPrefix(e.Field, ".")]
			err = &ConfigError{n.Field(name), n.Describe(name), e.Reason}
		}
		d.Report(err)
	}
	return r.rate
}

// forms reports the fields of n that must not stand together, and those that are missing.
func (d *decoder) forms(n *confmap.Node, a Algorithm) {
	reject := func(name, reason string) { d.Reject(n.Field(name), n.Describe(name), reason) }
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
	if name, ok := n.First(bucketForm); ok && algorithms[a].windowed {
		reject(name, "must be left out: it is for TokenBucket and LeakyBucket; "+string(a)+" has "+formsOf(a))
		return
	}
	if _, ok := n.Get("leakRatePerSecond"); ok && a != AlgorithmLeakyBucket {
		reject("leakRatePerSecond", "must be left out: it is for LeakyBucket; "+string(a)+" has refillRatePerSecond")
	}
	switch len(given) {
	case 0:
		if !n.Misspelt(bucketForm...) && !n.Misspelt(windowForm...) && !n.Misspelt(textForm...) {
			d.Reject(n.Path, "a map", "must have "+formsOf(a))
		}
	case 1:
		d.counterpart(n, a)
	default:
		for _, name := range given[1:] {
			reject(name, "must not stand beside "+given[0]+": give "+formsOf(a))
		}
	}
}

// counterpart reports a field that is missing beside another one, such as windowMs beside
// maxRequests.
func (d *decoder) counterpart(n *confmap.Node, a Algorithm) {
	refill := "refillRatePerSecond"
	if a == AlgorithmLeakyBucket {
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
			d.Reject(n.Field(pair.missing), "missing", "must be given beside "+name)
		}
	}
}

// A rateReader puts a Rate together from the fields of an algoConfig.
type rateReader struct {
	*decoder
	node      *confmap.Node // the algoConfig
	algorithm Algorithm
	rate      Rate
	from      map[string]string // by a field of the Rate, the field of node that has set it
}

// read reads the field with this name, whose value is v.
func (r *rateReader) read(name string, v any) {
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

// text reads the field "rate", whose value is v, by ParseRate.
func (r *rateReader) text(v any) {
	field := r.node.Field("rate")
	text, ok := confmap.TextOf(v)
	if !ok || len(text) > confmap.MaxText {
		r.Reject(field, confmap.Describe(v), rateForm)
		return
	}
	parsed, err := ParseRate(text)
	var e *ConfigError
	if errors.As(err, &e) {
		r.Reject(field, confmap.Quote(text), e.Reason)
		return
	}
	if parsed.Burst != 0 && algorithms[r.algorithm].windowed {
		r.Reject(field, confmap.Quote(text), "must have no burst: "+string(r.algorithm)+" has none")
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
	case algorithms[r.algorithm].windowed:
		reason = "must be left out: " + string(r.algorithm) + " has no burst"
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
		r.Reject(r.node.Field(name), x.String(), errTooLong.Error())
	case !whole:
		r.Reject(r.node.Field(name), x.String(), "must be whole nanoseconds")
	}
	return time.Duration(per)
}

// unitsPerSecond reads the field with this name as a number of units a second. It returns the
// zero Rate if the field is wrong.
func (r *rateReader) unitsPerSecond(name string) Rate {
	x, ok := r.Number(r.node, name, "must be a number of units a second, above 0", "must be above 0")
	if !ok {
		return Rate{}
	}
	rate, reason := rateOf(x, name)
	if reason != "" {
		r.Reject(r.node.Field(name), x.String(), reason)
	}
	return rate
}

// Bounds for the number of units a second. Beyond them there is no Rate, and a config with a
// huge exponent is refused before a large power of ten is computed.
const (
	mostPoint  = 28 // digits before the point: a Rate has at most MaxInt units a nanosecond
	leastPoint = -9 // as Decimal.Point: 0.0000000001 a second is one unit in 317 years
	mostPlaces = 63 // digits after the point: a Per cannot hold a denominator of 2^63 or 5^63
)

// The reasons why there is no Rate for a number of units a second.
const (
	tooMany = "must be smaller: it is beyond what can be counted"
	tooSlow = "must be larger: one unit would take more than 292 years"
	tooFine = "must have fewer decimals: they take a count, or a time, beyond what can be counted"
)

// rateOf returns the Rate of exactly x units a second, or the reason why there is none. x is
// above 0, and name is its field. For 0.3333333333 a second, for example, the reason says
// that 1/3 was probably meant.
func rateOf(x confmap.Decimal, name string) (r Rate, reason string) {
	if x.Point() > mostPoint {
		return Rate{}, tooMany
	}
	if x.Point() < leastPoint {
		return Rate{}, tooSlow
	}
	if meant := x.RoundedFraction(); meant != nil {
		in, ok := inSeconds(meant)
		if !ok {
			return Rate{}, tooFine
		}
		return Rate{}, "must be exact, and is " + meant.RatString() + " rounded: give rate: " + strconv.Quote(in.String()) + " and burst in place of capacity and " + name
	}
	if x.Places() > mostPlaces {
		return Rate{}, tooFine
	}
	exact := x.Rat()
	if r, ok := inSeconds(exact); ok {
		return r, ""
	}
	const longest = math.MaxInt64 / int64(time.Second) // the longest Per in whole seconds
	switch {
	case exact.Cmp(big.NewRat(1, longest)) < 0:
		return Rate{}, tooSlow
	case exact.IsInt():
		return Rate{}, tooMany
	}
	return Rate{}, tooFine
}

// inSeconds returns the Rate of x units a second, and reports whether there is one. Its Per is
// a whole number of seconds if possible, and of nanoseconds otherwise.
func inSeconds(x *big.Rat) (Rate, bool) {
	requests, per := x.Num(), new(big.Int).Mul(x.Denom(), big.NewInt(int64(time.Second)))
	if !fitRate(requests, per) {
		d := new(big.Int).GCD(nil, nil, requests, per)
		requests, per = new(big.Int).Quo(requests, d), per.Quo(per, d) // d divides both
	}
	if !fitRate(requests, per) {
		return Rate{}, false
	}
	return Rate{Requests: int(requests.Int64()), Per: time.Duration(per.Int64())}, true
}

// fitRate reports whether a Rate can hold this number of requests and this Per, which is in
// nanoseconds.
func fitRate(requests, per *big.Int) bool {
	return requests.IsInt64() && requests.Int64() <= math.MaxInt && per.IsInt64()
}
