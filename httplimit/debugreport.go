package httplimit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/bits"
	"net/url"
	"slices"

	"github.com/ratelimit-go/ratelimit"
)

// A debugReport has all that the page of Debug shows about a limiter. Encoded as JSON, it answers requests for JSON.
type debugReport struct {
	Rules       []debugRule            `json:"rules"`      // in the order of the limiter, the default rule last
	Denying     []debugDenials         `json:"mostDenied"` // the rules that have denied requests; the rule with most denials comes first
	Overrides   debugOverrides         `json:"overrides"`
	Store       *debugStore            `json:"store,omitempty"`       // how the store answers; nil if no store was called yet
	Explanation *ratelimit.Explanation `json:"explanation,omitempty"` // the answer to the form; nil if the form is empty
	Problem     string                 `json:"problem,omitempty"`     // the error of the answer to the form; empty if there is no error

	query url.Values
}

// A debugRule has what the page of Debug shows about one rule.
type debugRule struct {
	Name       string            `json:"name"`
	Default    bool              `json:"default,omitempty"`
	Endpoint   string            `json:"endpoint,omitempty"`
	Key        string            `json:"key"`
	Algorithm  string            `json:"algorithm"` // "custom" for a custom limiter without a name
	Mode       string            `json:"mode"`
	Additional bool              `json:"additional,omitempty"`
	Unit       string            `json:"unit,omitempty"`
	Rate       string            `json:"rate,omitempty"` // empty for a custom limiter
	Resolve    bool              `json:"resolve,omitempty"`
	Tiers      map[string]string `json:"tiers,omitempty"`
	Warmup     string            `json:"warmup,omitempty"`
	Penalty    string            `json:"penalty,omitempty"`
	// OnStoreError is the failure policy, such as "open". It is empty if no store was called yet and the rule has no custom limiter.
	OnStoreError string `json:"onStoreError,omitempty"`

	Counts   map[string]uint64 `json:"counts"` // each count of RuleStats, by the name of its field, such as "Denied"
	LiveKeys int               `json:"liveKeys"`
}

// A debugDenials says how many requests a rule has denied.
type debugDenials struct {
	Rule    string `json:"rule"`
	Denied  uint64 `json:"denied"`
	Percent int    `json:"percent"` // Denied, in percent of the requests that the rule has allowed or denied
}

// debugOverrides has the Overrides that apply now, and how many requests Overrides have changed.
type debugOverrides struct {
	Live    []ratelimit.Override    `json:"live"`
	Stats   ratelimit.OverrideStats `json:"stats"`
	Problem string                  `json:"problem,omitempty"` // the error of the method that lists the Overrides; empty if there is none
}

// A debugStore says how the store answers. Parts is the number of parts of the store, such as servers, that were called.
// Open is the number of parts that are hardly called now, because they failed several times in a row. Opened is how
// often a part has become open.
type debugStore struct {
	Parts     int    `json:"parts"`
	Open      int    `json:"open"`
	Opened    uint64 `json:"opened"`
	LastError string `json:"lastError,omitempty"`
}

// newDebugReport returns the report about the limiter l. query has the values that were entered in the form of the page.
func newDebugReport(ctx context.Context, l *ratelimit.RateLimiter, query url.Values) *debugReport {
	rules, defaultRule := l.Rules()
	d := &debugReport{Rules: make([]debugRule, 0, len(rules)+1), Denying: []debugDenials{}, query: query}
	stats := make(map[string]ratelimit.RuleStats)
	for _, s := range l.Stats() {
		stats[s.Rule] = s
	}
	if s := l.StoreStats(); s.Parts > 0 {
		d.Store = &debugStore{s.Parts, s.Open, s.Opened, textOf(s.LastError)}
	}
	for i := range rules {
		d.add(&rules[i], stats[rules[i].Name])
	}
	if defaultRule != nil {
		d.add(defaultRule, stats[defaultRule.Name])
		d.Rules[len(d.Rules)-1].Default = true
	}
	slices.SortStableFunc(d.Denying, func(a, b debugDenials) int { return cmp.Compare(b.Denied, a.Denied) })

	live, err := l.Overrides(ctx)
	d.Overrides = debugOverrides{Live: append([]ratelimit.Override{}, live...), Stats: l.OverrideStats(), Problem: textOf(err)}
	if req, ok := askedRequest(query); ok {
		e, err := l.Explain(ctx, req)
		d.Problem = textOf(err)
		if err == nil || e.Result != (ratelimit.Result{}) {
			d.Explanation = &e
		}
	}
	return d
}

// textOf returns the text of err, or "" if it is nil.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// add adds the rule r with its counts s to the report.
func (d *debugReport) add(r *ratelimit.Rule, s ratelimit.RuleStats) {
	out := debugRule{
		Name: r.Name, Endpoint: r.Endpoint, Key: string(r.Key), Algorithm: string(r.Algorithm), Mode: string(r.Mode), Additional: r.Additional,
		Unit: r.Unit, Resolve: r.Resolve != nil, Warmup: warmupText(r.Warmup), Penalty: penaltyText(r.Penalty),
		Counts: make(map[string]uint64), LiveKeys: s.LiveKeys,
	}
	if d.Store != nil || r.Limiter != nil {
		out.OnStoreError = r.OnStoreError.String()
	}
	if r.Limiter == nil {
		out.Rate = r.Rate.String()
	} else {
		out.Algorithm = cmp.Or(out.Algorithm, "custom")
	}
	for tier, rate := range r.Tiers {
		if out.Tiers == nil {
			out.Tiers = make(map[string]string)
		}
		out.Tiers[tier] = rateText(rate)
	}
	for _, c := range ratelimit.Counters() {
		out.Counts[c.Field] = c.Value(&s)
	}
	d.Rules = append(d.Rules, out)
	if s.Denied > 0 {
		d.Denying = append(d.Denying, debugDenials{r.Name, s.Denied, percent(s.Denied, s.Denied+s.Allowed)})
	}
}

// percent returns 100*part/whole, rounded down. The parameter part must not be larger than the parameter whole.
func percent(part, whole uint64) int {
	hi, lo := bits.Mul64(part, 100)
	if hi >= whole {
		return 100 // part is larger than whole: the caller has added two counts to get whole, and the sum has overflowed
	}
	quotient, _ := bits.Div64(hi, lo, whole)
	return int(min(quotient, 100))
}

// rateText returns the text of the rate of a tier.
func rateText(rate ratelimit.Rate) string {
	if rate == ratelimit.Unlimited {
		return "unlimited"
	}
	return rate.String()
}

// warmupText returns the Warmup w in words, or "" if it is zero.
func warmupText(w ratelimit.Warmup) string {
	if w.From == 0 {
		return ""
	}
	return fmt.Sprintf("a new key gets %d, and the full limit after %s", w.From, shortText(w.Over))
}

// penaltyText returns the Penalty p in words, or "" if it is zero.
func penaltyText(p ratelimit.Penalty) string {
	if p.After == 0 {
		return ""
	}
	text := fmt.Sprintf("blocked for %s after %d denials in %s", shortText(p.For), p.After, shortText(p.Within))
	if p.Most > p.For {
		text += fmt.Sprintf(", up to %s if repeated", shortText(p.Most))
	}
	return text
}

// How many entries of a long list the page shows at most. The JSON form has all of them.
const (
	maxTop       = 10
	maxTiersText = 5
	maxLive      = 1000
)

// Top returns the rules that have denied most requests, at most maxTop of them.
func (d *debugReport) Top() []debugDenials { return d.Denying[:min(len(d.Denying), maxTop)] }

// OtherDenying returns the number of rules that have denied requests but are not in the result of Top.
func (d *debugReport) OtherDenying() int { return len(d.Denying) - len(d.Top()) }

// First returns the Overrides that the page shows: the first ones, at most maxLive.
func (d *debugOverrides) First() []ratelimit.Override { return d.Live[:min(len(d.Live), maxLive)] }

// Others returns how many Overrides the page does not show.
func (d *debugOverrides) Others() int { return len(d.Live) - len(d.First()) }

// Allowed and Denied return how many requests the rule has allowed and how many it has denied.
func (r *debugRule) Allowed() uint64 { return r.Counts["Allowed"] }
func (r *debugRule) Denied() uint64  { return r.Counts["Denied"] }

// A debugCount is a count of a rule with its name.
type debugCount struct {
	Name string
	N    uint64
}

// OtherCounts returns the counts that are not 0, except Allowed and Denied, which have columns of their own.
func (r *debugRule) OtherCounts() (counts []debugCount) {
	for _, c := range ratelimit.Counters() {
		if n := r.Counts[c.Field]; n > 0 && c.Field != "Allowed" && c.Field != "Denied" {
			counts = append(counts, debugCount{cmp.Or(c.Result, c.Name), n})
		}
	}
	for i := range counts {
		counts[i].Name = words(counts[i].Name)
	}
	return counts
}

// words returns a name such as shadow_denied with spaces in place of the underscores.
func words(name string) string {
	text := []byte(name)
	for i, c := range text {
		if c == '_' {
			text[i] = ' '
		}
	}
	return string(text)
}

// TierTexts returns the rates of the tiers, in the order of their names.
func (r *debugRule) TierTexts() (texts []string) {
	for i, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		if i == maxTiersText {
			return append(texts, fmt.Sprintf("and %d more tiers", len(r.Tiers)-i))
		}
		texts = append(texts, tier+" "+r.Tiers[tier])
	}
	return texts
}

// A debugField is a field of the form.
type debugField struct{ Name, Label, Value string }

// Fields returns the fields of the form, with the values that were entered last.
func (d *debugReport) Fields() (fields []debugField) {
	for _, f := range [...][2]string{{"client", "Client"}, {"endpoint", "Endpoint"}, {"ip", "IP"}, {"tier", "Tier"}} {
		fields = append(fields, debugField{f[0], f[1], d.query.Get(f[0])})
	}
	return fields
}

// JSONURL returns the URL of the report in JSON, relative to the page.
func (d *debugReport) JSONURL() string {
	query := maps.Clone(d.query)
	if query == nil {
		query = make(url.Values)
	}
	query.Set("format", "json")
	return "?" + query.Encode()
}
