package ruleconfig

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// A Warmup says how the limit of a new key grows. The zero Warmup means that a rule has none.
type Warmup struct {
	From int           // limit of a new key in units; it grows to the number of requests of the rate
	Over time.Duration // time from the first grant of a key until the key has its full limit
}

// Config returns w as a map, in the form that a config of a rule has, or nil if w is zero.
func (w Warmup) Config() map[string]any {
	if w == (Warmup{}) {
		return nil
	}
	return map[string]any{"from": w.From, "over": w.Over.String()}
}

// ValidSpan reports whether d can be the time of a warm-up or of a penalty.
func ValidSpan(d time.Duration) bool { return d >= time.Microsecond && d <= 366*24*time.Hour }

// SpanRange is the reason in the error about a time for which ValidSpan returns false.
const SpanRange = "must be from a microsecond to 366 days"

// Faults returns everything that is wrong with w, whatever the rate of the rule. The zero Warmup has no fault.
func (w Warmup) Faults() (faults []Fault) {
	if w == (Warmup{}) {
		return nil
	}
	if w.From < 1 {
		faults = append(faults, Fault{"from", w.From, "must be at least 1"})
	}
	if !ValidSpan(w.Over) {
		faults = append(faults, Fault{"over", w.Over, SpanRange})
	}
	return faults
}

// MinPortion returns the smallest Warmup.From at which a bucket with the valid rate r grants a new key one unit.
func MinPortion(r ratetext.Rate) int64 {
	return (int64(r.Requests)-1)/burstOf(r) + 1
}

// burstOf returns the largest number of units that the rate r grants at once.
func burstOf(r ratetext.Rate) int64 { return int64(cmp.Or(r.Burst, r.Requests)) }

// FaultsAt returns what is wrong with the field From of w in a rule with the rate r. The caller has checked that r is
// valid and that From is at least 1.
func (w Warmup) FaultsAt(r ratetext.Rate) []Fault {
	switch least := MinPortion(r); {
	case w.From > r.Requests:
		return []Fault{{"from", w.From, "must be at most " + strconv.Itoa(r.Requests) + ", the requests of the rule's rate"}}
	case int64(w.From) < least:
		reason := "must be at least %d: with less, a burst of %d grants a new key nothing"
		return []Fault{{"from", w.From, fmt.Sprintf(reason, least, burstOf(r))}}
	}
	return nil
}

// Misfit checks another rate r that is used with the Warmup w of a rule, such as the rate of a tier. If a new key would
// get no unit at this rate, Misfit returns that as a fault. The caller has checked that w and r are valid.
func (w Warmup) Misfit(r ratetext.Rate) []Fault {
	if w == (Warmup{}) || int64(min(w.From, r.Requests)) >= MinPortion(r) {
		return nil
	}
	minBurst := (r.Requests-1)/w.From + 1
	reason := "must be at least %d: with less, a warm-up from %d of %d grants a new key nothing"
	return []Fault{{"burst", r.Burst, fmt.Sprintf(reason, minBurst, w.From, r.Requests)}}
}

// ruleRateFields are the fields that the algoConfig of a rule may have. The config of a tier may only
// have the fields of rateSchema.
var ruleRateFields = slices.Concat(rateSchema.Fields, algoWarmupSchema.Fields)

const (
	warmupForm  = `must be a map such as {"from": 10, "over": "1h"}`
	secondsForm = "must be a number of seconds, above 0"
)

// Warmup reads the warm-up of the rule with the config n and the algorithm a. The parameter config is the
// algoConfig of the rule, or nil if the algoConfig has a problem.
func (r *Reader) Warmup(n, config *confmap.Node, a Algorithm) (w Warmup) {
	field, given := "", false
	if config != nil && !a.Custom {
		field, given = config.First(algoWarmupSchema.Fields)
	}
	switch {
	case n.Has("warmup") && a.Custom:
		r.Reject(n.Field("warmup"), n.Describe("warmup"), "must be left out: "+a.Name+" has rates of its own")
	case n.Has("warmup") && given:
		r.Reject(config.Field(field), config.Describe(field), "must not stand beside "+n.Written("warmup")+": give one of them")
	case n.Has("warmup"):
		return r.warmupMap(n)
	case given:
		for i, name := range algoWarmupSchema.Fields {
			if other := algoWarmupSchema.Fields[1-i]; !config.Has(name) && !config.Misspelt(name) {
				r.Reject(config.Field(name), "missing", "must be given beside "+config.Written(other))
			}
		}
		if config.Has("warmupRequests") {
			w.From = r.Count(config, "warmupRequests")
		}
		if config.Has("warmupDuration") {
			w.Over = r.seconds(config, "warmupDuration")
		}
	}
	return w
}

// warmupMap reads the field "warmup" of the rule with the config n.
func (r *Reader) warmupMap(n *confmap.Node) (w Warmup) {
	m, ok := r.Child(n, "warmup", warmupForm)
	if !ok {
		return w
	}
	m.Match(warmupSchema)
	r.Unknown(m, warmupSchema.Fields, func(string, any) (string, []string) { return "", nil })
	for i, form := range []string{"must be a whole number, at least 1", durationForm} {
		if name := warmupSchema.Fields[i]; !m.Has(name) && !m.Misspelt(name) {
			r.Reject(m.Field(name), "missing", form)
		}
	}
	if m.Has("from") {
		w.From = r.Count(m, "from")
	}
	w.Over = r.span(m, "over")
	return w
}

// span reads the field of n with this name as a length of time. It returns 0 if the field is missing or wrong.
func (r *Reader) span(n *confmap.Node, name string) (d time.Duration) {
	if v, ok := n.Get(name); ok {
		if d, ok = durationOf(v); !ok {
			r.Reject(n.Field(name), n.Describe(name), durationForm)
		}
	}
	return d
}

// durationOf returns v as a length of time, and reports whether v is a length of time above 0.
func durationOf(v any) (time.Duration, bool) {
	if d, ok := v.(time.Duration); ok {
		return d, d > 0
	}
	text, ok := confmap.TextOf(v)
	if !ok || len(text) > confmap.MaxText {
		return 0, false
	}
	d, err := ratetext.ParsePer(text)
	return d, err == nil
}

// seconds reads the field of n with this name as a number of seconds. It returns 0 if the field is
// wrong.
func (r *Reader) seconds(n *confmap.Node, name string) time.Duration {
	x, ok := r.Number(n, name, secondsForm, "must be above 0")
	if !ok {
		return 0
	}
	d, whole, fits := x.Scaled(9, math.MaxInt64)
	switch {
	case !fits:
		r.Reject(n.Field(name), x.String(), ratetext.TooLong)
	case !whole:
		r.Reject(n.Field(name), x.String(), "must be whole nanoseconds")
	}
	return time.Duration(d)
}

// RefuseOfRules reports a warm-up and a penalty in the config n of a single limiter. Such a limiter belongs to no
// rule, and only a rule can have them. The parameter config is the algoConfig in n, or nil if it has a problem.
func (r *Reader) RefuseOfRules(n, config *confmap.Node, a Algorithm) {
	const reason = "must be left out: only a rule has a warm-up, see NewFromConfig"
	if n.Has("penalty") {
		r.Reject(n.Field("penalty"), n.Describe("penalty"), "must be left out: only a rule has a penalty, see NewFromConfig")
	}
	if n.Has("warmup") {
		r.Reject(n.Field("warmup"), n.Describe("warmup"), reason)
	}
	for _, name := range algoWarmupSchema.Fields {
		if config != nil && !a.Custom && config.Has(name) {
			r.Reject(config.Field(name), config.Describe(name), reason)
		}
	}
}

// writtenWarmup returns the path, in the config n, of a field of the rule's warm-up. rest is the
// path of that field within the warm-up, such as ".over".
func writtenWarmup(n *confmap.Node, rest string) string {
	if n.Has("warmup") {
		return n.Field("warmup") + rest
	}
	config := n
	if v, ok := n.Get("algoConfig"); ok {
		config, _ = confmap.NodeOf(n.Field("algoConfig"), v)
		config.Match(algoWarmupSchema)
	}
	if rest == ".over" {
		return config.Field("warmupDuration")
	}
	return config.Field("warmupRequests")
}
