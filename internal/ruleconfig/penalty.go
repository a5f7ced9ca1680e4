package ruleconfig

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Penalty says when a rule blocks a key for some time. The zero Penalty means that the rule never does so.
type Penalty struct {
	After             int           // number of denials that begin a block
	Within, For, Most time.Duration // time in which denials count together; length of the first block; length of the longest block
}

// Config returns p as a map, in the form that a config of a rule has, or nil if p is zero.
func (p Penalty) Config() map[string]any {
	if p == (Penalty{}) {
		return nil
	}
	config := map[string]any{"after": p.After, "within": p.Within.String(), "for": p.For.String()}
	if p.Most != 0 {
		config["most"] = p.Most.String()
	}
	return config
}

// Faults returns everything that is wrong with p. The zero Penalty has no fault.
func (p Penalty) Faults() (faults []Fault) {
	if p == (Penalty{}) {
		return nil
	}
	if p.After < 1 {
		faults = append(faults, Fault{"after", p.After, "must be at least 1"})
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{{"within", p.Within}, {"for", p.For}, {"most", p.Most}} {
		switch {
		case f.name == "most" && f.d == 0:
		case !ValidSpan(f.d):
			faults = append(faults, Fault{f.name, f.d, SpanRange})
		case f.name == "most" && f.d < p.For:
			faults = append(faults, Fault{f.name, f.d, "must be at least " + p.For.String() + ", the length of the first block"})
		}
	}
	return faults
}

const penaltyForm = `must be a map such as {"after": 10, "within": "1m", "for": "1h"}`

// Penalty reads the penalty of the rule with the config n and the algorithm a.
func (r *Reader) Penalty(n *confmap.Node, a Algorithm) (p Penalty) {
	switch {
	case !n.Has("penalty"):
		return p
	case a.Custom:
		r.Reject(n.Field("penalty"), n.Describe("penalty"), "must be left out: a limiter of one's own has none")
		return p
	}
	m, ok := r.Child(n, "penalty", penaltyForm)
	if !ok {
		return p
	}
	m.Match(penaltySchema)
	r.Unknown(m, penaltySchema.Fields, func(string, any) (string, []string) { return "", nil })
	for _, f := range PenaltyFields {
		form := durationForm
		if f.Kind == Requests {
			form = "must be a whole number, at least 1"
		}
		if f.Name != "most" && !m.Has(f.Name) && !m.Misspelt(f.Name) {
			r.Reject(m.Field(f.Name), "missing", form)
		}
	}
	if m.Has("after") {
		p.After = r.Count(m, "after")
	}
	p.Within, p.For, p.Most = r.span(m, "within"), r.span(m, "for"), r.span(m, "most")
	return p
}
