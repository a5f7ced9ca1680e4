// Package costs computes what a request costs in each unit that rules count, such as requests or tokens.
package costs

// A Cost says how many units of one kind a request costs, such as 500 tokens.
type Cost = struct {
	Unit string // what is counted; "" for requests
	N    int    // how many
}

// UnitForm says what the name of a unit must look like. It is part of the error for a name that [ValidUnit] refuses.
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

// Index returns the index of the Cost with this unit in a list of costs, or -1 if the list has no such
// Cost.
func Index(all []Cost, unit string) int {
	for i := range all {
		if all[i].Unit == unit {
			return i
		}
	}
	return -1
}

// Of returns how many units a request takes from a rule that counts the given unit. The first parameter lists the
// costs of the request, one for each unit. If the list has no cost in requests (the unit is ""), the request costs as
// many requests as the parameter requests says, but at least 1.
//
// The result asked is false if the rule does not apply to the request: if the rule counts requests and the request
// costs 0 requests, or if the rule counts another unit and the list has no cost in this unit.
func Of(all []Cost, requests int, unit string) (n int64, asked bool) {
	for i := range all {
		if c := &all[i]; c.Unit == unit {
			return int64(c.N), c.N > 0 || unit != ""
		}
	}
	return int64(max(requests, 1)), unit == ""
}

// Complete returns a copy of the list of the costs of a request. The first element of the copy is the cost in
// requests, whose unit is ""; it is left out if the request costs 0 requests. If the list is empty, Complete returns
// nil.
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

// Used returns how many units of one kind a request has really used, after n such units were charged. The slice actual
// says what the request has used. If actual has no entry for the unit, Used returns n.
func Used(actual []Cost, unit string, n int64) int64 {
	if i := Index(actual, unit); i >= 0 {
		return int64(actual[i].N)
	}
	return n
}
