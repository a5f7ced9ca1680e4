package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// A costsFlag is a flag that says what each request costs. Its value is a number, for limits that count requests, or
// unit=number, for limits that count another unit such as tokens. The flag may be repeated.
type costsFlag struct {
	value    int // cost in requests
	maxValue int
	costs    []ratelimit.Cost // costs in other units
}

func (f *costsFlag) String() string { return strconv.Itoa(f.value) }

// Set reads one cost from the text of the flag.
func (f *costsFlag) Set(text string) error {
	unit, count, ok := strings.Cut(text, "=")
	if !ok {
		unit, count = "", text
	}
	n, err := strconv.Atoi(count)
	switch {
	case err != nil || n > f.maxValue || ok && n < 0 || !ok && n < 1:
		return fmt.Errorf("must be a whole number from 1 to %d, or unit=number", f.maxValue)
	case !ok:
		f.value = n
		return nil
	case unit == "":
		return fmt.Errorf("must name a unit, as in tokens=2000")
	}
	f.costs = slices.DeleteFunc(f.costs, func(c ratelimit.Cost) bool { return c.Unit == unit })
	f.costs = append(f.costs, ratelimit.Cost{Unit: unit, N: n})
	return nil
}

// check returns a usageError if a cost has a unit that no rule counts, because such a cost would change nothing.
func (f *costsFlag) check(rules []ratelimit.Rule) error {
	for _, c := range f.costs {
		if !counts(rules, c.Unit) {
			return usageError(fmt.Sprintf("-cost has the unit %q, which no rule counts", c.Unit))
		}
	}
	return nil
}

// allRules returns all rules of the limiter l, the default rule last.
func allRules(l *ratelimit.RateLimiter) []ratelimit.Rule {
	rules, byDefault := l.Rules()
	if byDefault != nil {
		rules = append(slices.Clip(rules), *byDefault)
	}
	return rules
}

// counts reports whether at least one of the rules counts the given unit.
func counts(rules []ratelimit.Rule, unit string) bool {
	return slices.ContainsFunc(rules, func(r ratelimit.Rule) bool { return r.Unit == unit })
}

// holds reports whether the rule r limits how many requests run at the same time.
func holds(r *ratelimit.Rule) bool { return r.Algorithm == ratelimit.AlgorithmInFlight }
