// Package costs computes what a request costs in each of its units.
package costs

import "slices"

// A Cost is how many units of one kind a request costs.
type Cost = struct {
	Unit string // what is counted; "" for requests
	N    int    // how many
}

// UnitForm says what a unit that [ValidUnit] refuses must be.
const UnitForm = `must have at most 64 bytes: lower-case letters, digits, "-", "_" and "."`

// ValidUnit reports whether a rule can count units with this name.
func ValidUnit(unit string) bool {
	for i := range len(unit) {
		switch c := unit[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return len(unit) <= 64
}

// Index returns the index in all of the Cost with this unit, or -1.
func Index(all []Cost, unit string) int {
	return slices.IndexFunc(all, func(c Cost) bool { return c.Unit == unit })
}

// Of returns how many units a request takes from a rule with this unit. If asked is false, the rule does not apply to
// the request. all are the costs of the request by their unit, and requests is its cost in requests if all has none.
func Of(all []Cost, requests int, unit string) (n int64, asked bool) {
	for i := range all {
		if c := &all[i]; c.Unit == unit {
			return int64(c.N), c.N > 0 || unit != ""
		}
	}
	return int64(max(requests, 1)), unit == ""
}

// Complete returns a copy of all, with the unit "" first if the request costs requests too. If all is empty, it returns nil.
func Complete(all []Cost, requests int) (costs []Cost) {
	if len(all) == 0 {
		return nil
	}
	if n, asked := Of(all, requests, ""); asked {
		costs = append(costs, Cost{"", int(n)})
	}
	for _, c := range all {
		if c.Unit != "" {
			costs = append(costs, c)
		}
	}
	return costs
}

// Used returns how many of n charged units were used, according to actual. Without a number for their unit, all were.
func Used(actual []Cost, unit string, n int64) int64 {
	if i := Index(actual, unit); i >= 0 {
		return int64(actual[i].N)
	}
	return n
}
