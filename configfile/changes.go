package configfile

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// changes are the names of the rules in which two sets of rules differ, sorted.
type changes struct{ added, removed, changed []string }

func (c changes) none() bool { return len(c.added)+len(c.removed)+len(c.changed) == 0 }

// named returns the rules of l by their names.
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

// changesOf returns the changes from before to after.
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

// sameRule reports whether two rules say the same. A Limiter is the same only if it is the same
// one. What code has given to a rule besides stays with it.
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

// shown returns names for a log line, of which there may be 10,000: the first, and how many more.
func shown(names []string) []string {
	if len(names) <= maxLogged {
		return names
	}
	return append(slices.Clone(names[:maxLogged]), fmt.Sprintf("and %d more", len(names)-maxLogged))
}
