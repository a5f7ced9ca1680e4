// Package explained writes what a RateLimiter says of a request: as a table, and in JSON, which it
// also reads. Its types have the fields of those of the root.
package explained

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// An Explanation is what is said of one request.
type Explanation struct {
	Request  Request `json:"request"`            // what was asked
	Match    string  `json:"match"`              // how the rules were found
	Pattern  string  `json:"pattern,omitempty"`  // by which endpoint
	Recorded bool    `json:"recorded,omitempty"` // whether it was granted before, by its ID
	Result   Result  `json:"result"`             // the answer
	Rules    []Rule  `json:"rules,omitempty"`    // those that apply
}

// A Request is the request.
type Request struct {
	Client   string            `json:"client,omitempty"`   // the client
	Endpoint string            `json:"endpoint,omitempty"` // for what
	IP       string            `json:"ip,omitempty"`       // from where
	Tier     string            `json:"tier,omitempty"`     // in which plan
	Attrs    map[string]string `json:"attrs,omitempty"`    // further properties
	Rules    []string          `json:"rules,omitempty"`    // by name
	Cost     int               `json:"cost,omitempty"`     // units
	ID       string            `json:"id,omitempty"`       // of the request
}

// A Result is an answer.
type Result struct {
	Allowed          bool          // whether it is a grant
	Limit, Remaining int           // units, or -1 where no limit applies
	RetryAfter       time.Duration // of a denial
	ResetAfter       time.Duration // until the key is as new
	Delay            time.Duration // of a grant
	Rule             string        // the rule that it is of
	Degraded         bool          // whether a failure policy has answered
}

// A Rule is one rule.
type Rule struct {
	Name      string        `json:"name"`                // of the rule
	Match     string        `json:"match"`               // why it applies
	Pattern   string        `json:"pattern,omitempty"`   // its endpoint
	KeyType   string        `json:"keyType"`             // what has a budget of its own
	Key       string        `json:"key"`                 // whose budget it is
	Algorithm string        `json:"algorithm,omitempty"` // how it decides
	Mode      string        `json:"mode"`                // whether it denies
	Rate      ratetext.Rate `json:"-"`                   // the rate in force, or the zero Rate
	Source    string        `json:"source"`              // where that comes from
	State     string        `json:"state"`               // what has answered
	Receipts  int           `json:"receipts,omitempty"`  // charges that can be given back
	Result    Result        `json:"result"`              // the answer of the rule alone
	MaxIn     int           `json:"maxIn"`               // most units in the time of the rate, or -1
	Err       error         `json:"-"`                   // what went wrong, or nil
}

// longest is the Duration that stands for a wait that never ends, and never is its text.
const (
	longest = time.Duration(1<<63 - 1)
	never   = "never"
)

// A span is a Duration that is text in JSON, such as "1m30s".
type span time.Duration

// MarshalText returns the text of s.
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

// A result is a Result as it is in JSON.
type result struct {
	Allowed    bool   `json:"allowed"`
	Limit      int    `json:"limit"`
	Remaining  int    `json:"remaining"`
	RetryAfter span   `json:"retryAfter,omitzero"`
	ResetAfter span   `json:"resetAfter,omitzero"`
	Delay      span   `json:"delay,omitzero"`
	Rule       string `json:"rule,omitempty"`
	Degraded   bool   `json:"degraded,omitempty"`
}

// MarshalJSON returns r in JSON.
func (r Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(result{r.Allowed, r.Limit, r.Remaining, span(r.RetryAfter), span(r.ResetAfter), span(r.Delay), r.Rule, r.Degraded})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Result) UnmarshalJSON(data []byte) error {
	var in result
	err := json.Unmarshal(data, &in)
	*r = Result{in.Allowed, in.Limit, in.Remaining, time.Duration(in.RetryAfter), time.Duration(in.ResetAfter), time.Duration(in.Delay), in.Rule, in.Degraded}
	return err
}

// plain is a Rule without its methods, and texts are the fields of it that are other texts in JSON.
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

// UnmarshalJSON reads what MarshalJSON writes. Of the error, only the text comes back.
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

// String returns e as a sentence, a table of the rules, and their errors.
func (e *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", e.answer())
	if len(e.Rules) == 0 {
		return b.String()
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	row("rule", "match", "key", "algorithm", "rate", "from", "state", "limit", "left", "retry after", "reset after", "at most")
	for i := range e.Rules {
		r := &e.Rules[i]
		name, algorithm, rate, most := confmap.Quote(r.Name), r.Algorithm, "-", "-"
		if r.Mode == "shadow" {
			name += " (shadow)"
		}
		if r.Rate != (ratetext.Rate{}) {
			rate = r.Rate.String()
		}
		if r.MaxIn >= 0 {
			most = fmt.Sprintf("%d in %s", r.MaxIn, r.Rate.Per)
		}
		if algorithm == "" {
			algorithm = "-"
		}
		row(name, r.Match, r.KeyType+" "+confmap.Quote(r.Key), algorithm, rate, r.Source, r.State,
			count(r.Result.Limit), count(r.Result.Remaining), wait(r.Result.RetryAfter), wait(r.Result.ResetAfter), most)
	}
	_ = w.Flush() // a strings.Builder has no errors
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

// count returns the text of a number of units, of which -1 stands for no limit.
func count(n int) string {
	if n < 0 {
		return "-"
	}
	return strconv.Itoa(n)
}

// wait returns the text of a time.
func wait(d time.Duration) string {
	text, _ := span(d).MarshalText()
	return string(text)
}
