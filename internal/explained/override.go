package explained

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// An Override is an exception from the rules for one client or for some addresses.
type Override struct {
	Client string        // the client that the override is for; empty if it is for addresses
	IP     string        // the address, or prefix of addresses, that the override is for; empty if it is for a client
	Rules  []string      // the names of the rules that the override is for; empty for all rules
	Effect string        // what the override does, such as "block"
	Rate   ratetext.Rate // the rate that applies instead of the rule's, if Effect is "rate"
	Until  time.Time     // when the override ends; zero if it does not end by itself
	Note   string        // a remark for people, such as the number of a ticket
}

// String returns o in words, such as `block of client "alice" for rule "search" until 2026-12-01T00:00:00Z: "ticket 4711"`.
func (o Override) String() string {
	whom := "client " + confmap.Quote(o.Client)
	if o.IP != "" {
		whom = "IP " + confmap.Quote(o.IP)
	}
	var b strings.Builder
	switch o.Effect {
	case "block", "pardon":
		fmt.Fprintf(&b, "%s of %s", o.Effect, whom)
	case "exempt":
		fmt.Fprintf(&b, "exemption of %s", whom)
	case "rate":
		fmt.Fprintf(&b, "rate %v of %s", o.Rate, whom)
	default:
		fmt.Fprintf(&b, "lifting of the overrides of %s", whom)
	}
	for i, name := range o.Rules {
		b.WriteString([]string{" for rule ", ", "}[min(i, 1)] + confmap.Quote(name))
	}
	if !o.Until.IsZero() {
		b.WriteString(" until " + o.Until.UTC().Format(time.RFC3339Nano))
	}
	if o.Note != "" {
		b.WriteString(": " + confmap.Quote(o.Note))
	}
	return b.String()
}

// A document is the JSON form of an Override.
type document struct {
	Client string    `json:"client,omitempty"`
	IP     string    `json:"ip,omitempty"`
	Rules  []string  `json:"rules,omitempty"`
	Effect string    `json:"effect,omitempty"`
	Rate   string    `json:"rate,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Note   string    `json:"note,omitempty"`
}

// MarshalJSON returns o in JSON, with the rate as text.
func (o Override) MarshalJSON() ([]byte, error) {
	d := document{o.Client, o.IP, o.Rules, o.Effect, "", o.Until, o.Note}
	if o.Rate != (ratetext.Rate{}) {
		d.Rate = o.Rate.String()
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (o *Override) UnmarshalJSON(data []byte) (err error) {
	var d document
	if err = json.Unmarshal(data, &d); err != nil {
		return err
	}
	*o = Override{Client: d.Client, IP: d.IP, Rules: d.Rules, Effect: d.Effect, Until: d.Until, Note: d.Note}
	if d.Rate != "" {
		o.Rate, err = ratetext.Parse(d.Rate)
	}
	return err
}
