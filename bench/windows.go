package bench

import (
	_ "time/tzdata" // the zone of the calendar below, for machines without time zone data

	"github.com/ratelimit-go/ratelimit"
)

// By default, windows begin at multiples of Per since the Unix epoch. A window of the kind calendarWindow begins with a month in
// Berlin. A window of the kind firstWindow begins with the first use of a key.
const (
	calendarWindow ratelimit.Window = "month Europe/Berlin"
	firstWindow    ratelimit.Window = "first"
)

// The method named "in" returns the limit as a rate whose units are counted in windows of the kind w. For calendarWindow,
// the rate has no Per, because the calendar says how long the windows are.
func (l Limit) in(w ratelimit.Window) ratelimit.Rate {
	r := l.window()
	if r.Window = w; w == calendarWindow {
		r.Per = 0
	}
	return r
}

// newFixedWindowOf returns a function for the field Spec.New. That function makes a FixedWindow whose windows are of
// the given kind.
func newFixedWindowOf(w ratelimit.Window) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		lim, err := ratelimit.NewFixedWindow(l.in(w), l.options()...)
		return fixedWindow{lim}, err
	}
}

// newFixedWindowRules returns a function for the field Spec.New. That function makes a RateLimiter with a hundred
// rules. Each rule limits each user, and counts in fixed windows of the given kind.
func newFixedWindowRules(w ratelimit.Window) func(Limit) (Subject, error) {
	return func(l Limit) (Subject, error) {
		rules := everyEndpoint(ratelimit.Rule{Algorithm: ratelimit.AlgorithmFixedWindow, Rate: l.in(w)})
		limiter, err := ratelimit.New(rules, nil, l.options()...)
		return ruled{limiter, endpoint(ruleCount / 2)}, err
	}
}
