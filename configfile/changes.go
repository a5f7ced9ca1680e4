package configfile

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// changes lists the names of the rules that a new file adds, removes and changes, each list sorted.
type changes struct{ added, removed, changed []string }

func (c changes) none() bool { return len(c.added)+len(c.removed)+len(c.changed) == 0 }

// named returns all rules of the limiter l, including the default rule, in a map by the names of the rules.
func named(l *ratelimit.RateLimiter) map[string]ratelimit.Rule {
	rules, defaultRule := l.Rules()
	all := make(map[string]ratelimit.Rule, len(rules)+1)
	for _, r := range rules {
		all[r.Name] = r
	}
	if defaultRule != nil {
		all[defaultRule.Name] = *defaultRule
	}
	return all
}

// changesOf returns the changes from the rules in before to the rules in after.
func changesOf(before, after map[string]ratelimit.Rule) (c changes) {
	for name, old := range before {
		if r, ok := after[name]; !ok {
			c.removed = append(c.removed, name)
		} else if !sameRule(old, r) {
			c.changed = append(c.changed, name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			c.added = append(c.added, name)
		}
	}
	slices.Sort(c.added)
	slices.Sort(c.removed)
	slices.Sort(c.changed)
	return c
}

// sameRule reports whether two rules are equal. Their custom Limiters must be the same value. Functions
// in the rules are not compared, because a reload does not change them.
func sameRule(a, b ratelimit.Rule) bool {
	if !confmap.Same(a.Limiter, b.Limiter) {
		return false
	}
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		switch field := x.Type().Field(i); {
		case !field.IsExported() || field.Name == "Limiter" || field.Type.Kind() == reflect.Func:
		case !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()):
			return false
		}
	}
	return true
}

// maxLogged is the largest number of problems in a log line. It is also the largest number of names in
// a list of rules in a log line.
const maxLogged = 10

// describe shortens a list of rule names for a log line, because there may be 10,000 names. It returns
// the first maxLogged names and a text such as "and 5 more".
func describe(names []string) []string {
	if len(names) <= maxLogged {
		return names
	}
	return append(slices.Clone(names[:maxLogged]), fmt.Sprintf("and %d more", len(names)-maxLogged))
}
