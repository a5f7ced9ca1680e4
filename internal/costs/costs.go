// Package costs computes what a request costs in each of its units.
package costs

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

// Index searches the slice all for the Cost with this unit. It returns its index, or -1 if there is none.
func Index(all []Cost, unit string) int {
	for i := range all {
		if all[i].Unit == unit {
			return i
		}
	}
	return -1
}

// Of returns how many units a request takes from a rule that counts the given unit. The slice all has the costs of the
// request by their units. If it has no cost for the unit "" (requests), the parameter requests is that cost, but at
// least 1. If asked is false, the rule does not apply to the request: its unit is not "" and all has no cost for it, or
// its unit is "" and all has a cost of 0 for it.
func Of(all []Cost, requests int, unit string) (n int64, asked bool) {
	for i := range all {
		if c := &all[i]; c.Unit == unit {
			return int64(c.N), c.N > 0 || unit != ""
		}
	}
	return int64(max(requests, 1)), unit == ""
}

// Complete returns a copy of all, the costs of a request. Unless the request costs 0 requests, the first element of the
// copy is its cost in requests, whose unit is "". If all is empty, Complete returns nil.
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

// Used returns how many units a request has used, of n units that it was charged. The slice actual has the units that
// it has used, by kind. If actual has no entry for the given unit, Used returns n.
func Used(actual []Cost, unit string, n int64) int64 {
	if i := Index(actual, unit); i >= 0 {
		return int64(actual[i].N)
	}
	return n
}
