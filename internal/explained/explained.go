// Package explained writes what RateLimiter.Explain returns as a table and in JSON, and reads that JSON.
// Its types have the fields of the root package's Explanation, Request, Result and RuleExplanation.
package explained

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// An Explanation says how a request would be answered, and why.
type Explanation struct {
	Request  Request `json:"request"`            // the request that was explained
	Match    string  `json:"match"`              // how the rules that may deny the request were found, such as "exact" or "default"
	Pattern  string  `json:"pattern,omitempty"`  // the endpoint of the rules that matched; empty if none matched
	Recorded bool    `json:"recorded,omitempty"` // whether the request, known by its ID, was granted before
	Result   Result  `json:"result"`             // the answer to the request

	Override *Override `json:"override,omitempty"` // the override that blocks the client or its address, or nil if none does

	Rules []Rule `json:"rules,omitempty"` // the rules that apply; empty if an override blocks the request
}

// A Request is the request that was explained.
type Request struct {
	Client   string            `json:"client,omitempty"`   // the client that sends the request
	Endpoint string            `json:"endpoint,omitempty"` // what the request is for, such as a path
	IP       string            `json:"ip,omitempty"`       // the address that the request comes from
	Tier     string            `json:"tier,omitempty"`     // the client's plan
	Attrs    map[string]string `json:"attrs,omitempty"`    // further properties by name
	Rules    []string          `json:"rules,omitempty"`    // names of rules that apply instead of the rules that match Endpoint
	Cost     int               `json:"cost,omitempty"`     // units that the request takes; 0 means 1
	Costs    []cost            `json:"costs,omitempty"`    // what the request costs in other units, such as bytes
	ID       string            `json:"id,omitempty"`       // names the request, so that a retry is not charged again
}

// A cost says how many units of one kind the request costs.
type cost = struct {
	Unit string `json:"unit,omitempty"` // what is counted; empty for requests
	N    int    `json:"n"`              // how many
}

// A Result is the answer to a request, or the answer of one rule. The type result is its JSON form.
type Result struct {
	Allowed          bool          // whether the request is granted
	Advised          bool          // whether a rule in advise mode would have denied the request
	Degraded         bool          // whether a failure policy has answered, because the store or a custom limiter failed
	Limit, Remaining int           // numbers of units, or -1 if no limit applies
	RetryAfter       time.Duration // how long to wait after a denial; 0 after a grant
	ResetAfter       time.Duration // time until the key is as if never used
	Delay            time.Duration // how long the caller should wait before a granted request goes on
	Rule             string        // name of the rule to which Limit, Remaining and the times belong
	Reason           string        // why the request was denied, such as "limit" or "penalty"; empty for a grant
}

// String returns r in words, such as `denied, 0 of 100 remain, retry after 600ms, reset after 1m0s, by rule "/search"`.
func (r Result) String() string {
	b := []byte("denied")
	switch {
	case r == Result{}:
		return "no answer"
	case r.Allowed:
		b = []byte("allowed")
	}
	if r.Limit < 0 {
		b = append(b, ", no limit applies"...)
	} else {
		b = fmt.Appendf(b, ", %d of %d remain", r.Remaining, r.Limit)
	}
	switch {
	case r.RetryAfter == longest:
		b = append(b, ", no wait is long enough"...)
	case r.RetryAfter != 0 || !r.Allowed:
		b = fmt.Appendf(b, ", retry after %v", r.RetryAfter)
	}
	if r.ResetAfter != 0 {
		b = fmt.Appendf(b, ", reset after %v", r.ResetAfter)
	}
	if r.Delay != 0 {
		b = fmt.Appendf(b, ", delay %v", r.Delay)
	}
	if r.Rule != "" {
		b = fmt.Appendf(b, ", by rule %s", confmap.Quote(r.Rule))
	}
	if r.Reason != "" && r.Reason != "limit" && r.Reason != "policy" {
		b = fmt.Appendf(b, ", %s", r.Reason)
	}
	if r.Advised {
		b = append(b, ", advised"...)
	}
	if r.Degraded {
		b = append(b, ", by a failure policy"...)
	}
	return string(b)
}

// A Rule says what one rule answers to the request, and why.
type Rule struct {
	Name       string        `json:"name"`                // the rule's name
	Match      string        `json:"match"`               // why the rule applies, such as "prefix"
	Pattern    string        `json:"pattern,omitempty"`   // the rule's endpoint
	KeyType    string        `json:"keyType"`             // what the rule keeps a separate budget for, such as "user"
	Key        string        `json:"key"`                 // the key that the request takes from
	Algorithm  string        `json:"algorithm,omitempty"` // empty for a custom limiter
	Mode       string        `json:"mode"`                // "enforce", "shadow" or "advise"
	Rate       ratetext.Rate `json:"-"`                   // the rate in force; zero for a custom limiter
	RateFrom   string        `json:"rateFrom"`            // where Rate comes from, such as "tier"
	Unit       string        `json:"unit,omitempty"`      // what the rule counts; empty for requests
	Cost       int           `json:"cost,omitempty"`      // how many of these units the request takes; 0 if Request.Costs is empty
	AnsweredBy string        `json:"answeredBy"`          // what has answered for the rule, such as "store"
	Receipts   int           `json:"receipts,omitempty"`  // number of charges of the key that can still be given back
	Held       Held          `json:"held,omitzero"`       // units that requests in progress hold, if the rule counts such requests
	Result     Result        `json:"result"`              // what the rule would answer alone

	Override *Override `json:"override,omitempty"` // the client's exemption or rate, or nil; no effect if the rate does not fit the rule

	MaxIn int   `json:"maxIn"` // most units granted in an interval of length Rate.Per; -1 if not known
	Err   error `json:"-"`     // why the store, the limiter or Resolve failed, or nil
}

// A Held says how many units of a key the requests in progress hold.
type Held struct {
	N      int           // number of units
	Oldest time.Duration // how long ago the oldest of these units were granted or extended
}

// A held is the JSON form of a Held.
type held struct {
	N      int  `json:"n"`
	Oldest span `json:"oldest"`
}

// MarshalJSON returns h in JSON.
func (h Held) MarshalJSON() ([]byte, error) { return json.Marshal(held{h.N, span(h.Oldest)}) }

// UnmarshalJSON reads what MarshalJSON writes.
func (h *Held) UnmarshalJSON(data []byte) error {
	var in held
	err := json.Unmarshal(data, &in)
	*h = Held{in.N, time.Duration(in.Oldest)}
	return err
}

// longest is the RetryAfter of a request that is denied however long the client waits. Its text is "never".
const (
	longest = time.Duration(1<<63 - 1)
	never   = "never"
)

// A span is a time.Duration that is written to JSON as text, such as "1m30s".
type span time.Duration

// MarshalText returns s as text, such as "1m30s" or "never".
func (s span) MarshalText() ([]byte, error) {
	if time.Duration(s) == longest {
		return []byte(never), nil
	}
	return []byte(time.Duration(s).String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (s *span) UnmarshalText(text []byte) error {
	if string(text) == never {
		*s = span(longest)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	*s = span(d)
	return err
}

// A result is the JSON form of a Result.
type result struct {
	Allowed    bool   `json:"allowed"`
	Limit      int    `json:"limit"`
	Remaining  int    `json:"remaining"`
	RetryAfter span   `json:"retryAfter,omitzero"`
	ResetAfter span   `json:"resetAfter,omitzero"`
	Delay      span   `json:"delay,omitzero"`
	Rule       string `json:"rule,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Advised    bool   `json:"advised,omitempty"`
	Degraded   bool   `json:"degraded,omitempty"`
}

// MarshalJSON returns r in JSON.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(result{
		r.Allowed, r.Limit, r.Remaining, span(r.RetryAfter), span(r.ResetAfter), span(r.Delay), r.Rule, r.Reason, r.Advised, r.Degraded,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Result) UnmarshalJSON(data []byte) error {
	var in result
	err := json.Unmarshal(data, &in)
	*r = Result{in.Allowed, in.Advised, in.Degraded, in.Limit, in.Remaining,
		time.Duration(in.RetryAfter), time.Duration(in.ResetAfter), time.Duration(in.Delay), in.Rule, in.Reason}
	return err
}

// The type texts is the JSON form of a Rule: its Rate and Error are texts. The type plain is a Rule without methods, so that
// MarshalJSON can pass it to json.Marshal without calling itself.
type (
	plain Rule
	texts struct {
		plain
		Rate  string `json:"rate,omitempty"`
		Error string `json:"error,omitempty"`
	}
)

// MarshalJSON returns r in JSON. The zero Rate is left out.
func (r Rule) MarshalJSON() ([]byte, error) {
	out := texts{plain: plain(r)}
	if r.Rate != (ratetext.Rate{}) {
		out.Rate = r.Rate.String()
	}
	if r.Err != nil {
		out.Error = r.Err.Error()
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes. The field Err gets a new error with the same text.
func (r *Rule) UnmarshalJSON(data []byte) (err error) {
	var in texts
	if err = json.Unmarshal(data, &in); err != nil {
		return err
	}
	if in.Rate != "" {
		in.plain.Rate, err = ratetext.Parse(in.Rate)
	}
	if in.Error != "" {
		in.Err = errors.New(in.Error)
	}
	*r = Rule(in.plain)
	return err
}

// String returns e as text: a sentence with the answer, then a table of the rules, then lines with further details, such as errors.
func (e *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.answer())
	if e.Override != nil {
		fmt.Fprintf(&b, "by the %v\n", e.Override)
	}
	if len(e.Rules) == 0 {
		return b.String()
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row("rule", "match", "key", "algorithm", "rate", "from", "state", "limit", "left", "retry after", "reset after", "at most")
	for i := range e.Rules {
		r := &e.Rules[i]
		name, algorithm, rate, most := confmap.Quote(r.Name), r.Algorithm, "-", "-"
		if r.Mode != "" && r.Mode != "enforce" {
			name += " (" + r.Mode + ")"
		}
		if r.Rate != (ratetext.Rate{}) {
			rate = r.Rate.String()
		}
		if r.MaxIn >= 0 {
			most = fmt.Sprintf("%d in %s", r.MaxIn, r.Rate.Per)
			if r.Rate.Per == 0 { // the windows of a calendar have no common length, so the text cannot name a time
				most = fmt.Sprintf("%d in each window", r.Rate.Requests)
			}
		}
		if algorithm == "" {
			algorithm = "-"
		}
		row(name, r.Match, r.KeyType+" "+confmap.Quote(r.Key), algorithm, rate, r.RateFrom, r.AnsweredBy,
			count(r.Result.Limit), count(r.Result.Remaining), wait(r.Result.RetryAfter), wait(r.Result.ResetAfter), most)
	}
	_ = w.Flush() // writing to a strings.Builder cannot fail
	tiered := func(r Rule) bool { return r.RateFrom != "rule" }
	if tier := e.Request.Tier; tier != "" && !slices.ContainsFunc(e.Rules, tiered) {
		fmt.Fprintf(&b, "no rule here has a rate for the tier %s\n", confmap.Quote(tier))
	}
	for i := range e.Rules {
		if r := &e.Rules[i]; r.Held.N > 0 {
			fmt.Fprintf(&b, "%s: %d in flight, the oldest for %s\n", confmap.Quote(r.Name), r.Held.N, r.Held.Oldest)
		}
	}
	for i := range e.Rules {
		if r := &e.Rules[i]; r.Override != nil {
			effect := map[bool]string{true: "", false: ", which does not fit the rule"}[r.RateFrom == "override"]
			fmt.Fprintf(&b, "%s: %v%s\n", confmap.Quote(r.Name), r.Override, effect)
		}
	}
	for i := range e.Rules {
		if r := &e.Rules[i]; r.Err != nil {
			fmt.Fprintf(&b, "%s: %v\n", confmap.Quote(r.Name), r.Err)
		}
	}
	return b.String()
}

// answer returns the answer to the request as a sentence.
func (e *Explanation) answer() string {
	who := fmt.Sprintf("%s for %s, cost %d: ", confmap.Quote(e.Request.Client), confmap.Quote(e.Request.Endpoint), max(e.Request.Cost, 1))
	how := " (" + e.Match + ")"
	if e.Pattern != "" {
		how = " (" + e.Match + " " + confmap.Quote(e.Pattern) + ")"
	}
	if e.Result.Degraded {
		how += ", by a failure policy"
	}
	if e.Recorded {
		how += ", as before by its ID"
	}
	switch r := &e.Result; {
	case e.Override != nil && r.RetryAfter == longest:
		return who + "denied for ever"
	case e.Override != nil:
		return who + "denied for " + r.RetryAfter.String()
	case r.Rule == "":
		return who + "allowed, no limit applies" + how
	case r.Allowed:
		return who + "allowed, " + count(r.Remaining) + " left by rule " + confmap.Quote(r.Rule) + how
	case r.RetryAfter == longest:
		return who + "denied for ever by rule " + confmap.Quote(r.Rule) + how
	default:
		return who + "denied for " + r.RetryAfter.String() + " by rule " + confmap.Quote(r.Rule) + how
	}
}

// count returns the text of a number of units, or "-" for -1, which means no limit.
func count(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// wait returns the text of a duration, or "never" for the duration longest.
func wait(d time.Duration) string {
	text, _ := span(d).MarshalText()
	return string(text)
}
