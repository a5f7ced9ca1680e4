package ruleconfig

import (
	"errors"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ratetext"
)

// The list windowName has the field window, whose value is "first" or a unit of the calendar, such as "month".
// The list zoneFields has the fields zone and firstDay, which may be given together with a unit of the calendar.
var (
	windowName = rateSchema.Fields[8:9]
	zoneFields = rateSchema.Fields[9:11]
)

var (
	windowSchema = confmap.NewSchema(windowName, nil)
	windowNames  = append(calendar.Units(), calendar.First.String())
)

// windowNameForm is the reason in the error for a window that has no known name.
const windowNameForm = `must be "day", "week", "month", "year" or "first"; for a length of time, give windowSeconds`

// dropLength removes the field window from n if its value is a length of time, such as 60 or "1m". The
// field is then reported as unknown, with a hint that names the right field.
func dropLength(n *confmap.Node) {
	v, _ := n.Get("window")
	_, number := confmap.NumberOf(v)
	text, _ := confmap.TextOf(v)
	_, err := ratetext.ParsePer(text[:min(len(text), confmap.MaxName)])
	if number || err == nil && !calendar.IsUnit(text) {
		n.Drop(windowSchema)
	}
}

// calendar reads the field window, and the fields zone and firstDay, which belong to it.
func (r *rateReader) calendar() {
	name, ok := confmap.Choice(r.Reader.Reader, r.node, "window", windowNameForm, windowNames)
	zone, zoneOK := r.Text(r.node, "zone")
	day := 1
	if r.node.Has("firstDay") {
		day = r.Count(r.node, "firstDay")
	}
	if !ok || !zoneOK || day == 0 {
		return
	}
	w, err := calendar.New(name, day, zone)
	if bad := (*calendar.Error)(nil); errors.As(err, &bad) {
		field := map[calendar.Part]string{calendar.PartZone: "zone", calendar.PartDay: "firstDay"}[bad.Part]
		reason := strings.TrimPrefix(bad.Reason, "is ") // the error reads "zone is VALUE: unknown", not "zone is VALUE: is unknown"
		r.Reject(r.node.Field(field), r.node.Describe(field), reason)
		return
	}
	if length, given := r.node.First(windowFields[:2]); given != (w == calendar.First) {
		if given {
			r.Reject(r.node.Field(length), r.node.Describe(length), "must be left out: the windows of a calendar have lengths of their own")
		} else {
			r.Reject(r.node.Field("windowSeconds"), "missing", `must be given beside window: "first"`)
		}
		return
	}
	r.rate.Window = w.String()
	r.from["window"] = "window"
}

// OtherWindow checks that the rate r of a tier has the same windows as base, the rate of the rule. If the windows
// differ, OtherWindow returns that as a fault. Only the day on which the months of a calendar begin may differ. The
// parameter otherPer is the reason in the fault if the two rates have a different Per.
func OtherWindow(base, r ratetext.Rate, otherPer string) []Fault {
	switch {
	case !calendar.Alike(base.Window, r.Window):
		return []Fault{{"window", windowOf(r), "must be that of the rule's rate, " + base.String() + ": only the day of a month may differ"}}
	case base.Per != r.Per:
		return []Fault{{"per", r.Per, otherPer}}
	}
	return nil
}
