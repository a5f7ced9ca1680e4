package override

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// String returns o in words, such as `block of client "alice" for rule "search" until 2026-12-01T00:00:00Z: "ticket 4711"`.
func (o Override) String() string {
	whom := "client " + confmap.Quote(o.Client)
	if o.IP != "" {
		whom = "IP " + confmap.Quote(o.IP)
	}
	var b strings.Builder
	switch o.Effect {
	case Block, Pardon:
		fmt.Fprintf(&b, "%s of %s", o.Effect, whom)
	case Exempt:
		fmt.Fprintf(&b, "exemption of %s", whom)
	case Rate:
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
	Effect Effect    `json:"effect,omitempty"`
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
