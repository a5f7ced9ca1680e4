package ratelimit

import (
	"math"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// combine writes the answer to a request to res: the Result of the binding rule (see RateLimiter.Check), but Remaining
// is the smallest of all rules with the same Unit, and Delay is the largest of all rules. The slice parts has the answers
// of the rules to req. combine returns the index of the binding rule, or -1 if no rule enforces.
func combine(rules []*activeRule, parts []engine.Part, passes bool, req *Request, res *Result) (binding int) {
	binding = -1
	left, delay := uint64(math.MaxUint64), time.Duration(0)
	advised := false
	for i := range parts {
		p := &parts[i]
		if p.Shadow {
			advised = advised || p.Advises && !p.Granted()
			continue
		}
		if binding < 0 || engine.Binds(p, &parts[binding], passes, rules[i].Index < rules[binding].Index) {
			binding = i
		}
		// Left is -1 if no limit applies. Converted to uint64, -1 is the largest number, so min ignores it.
		left, delay = min(left, uint64(max(p.Left, -1))), max(delay, p.Delay)
	}
	if binding < 0 {
		*res, res.Advised = unlimited, advised
		return binding
	}
	if len(req.Costs) > 0 {
		binding, left = combineUnits(rules, parts, passes, req.Costs, binding)
	}
	fill(res, &parts[binding].Verdict)
	res.Allowed, res.Remaining, res.Rule, res.Advised = passes, int(int64(left)), rules[binding].resultName(), advised
	if passes {
		res.Delay = delay
	}
	return binding
}

// combineUnits finds the binding rule if the rules have several Units. It first chooses a Unit. For a denied request, this is
// the Unit of rules[first]. For a granted one, the Unit is "" if a rule counts requests, and otherwise the first Unit in costs
// that a rule counts. Only a rule with this Unit can be binding. left is the smallest number of units left in all rules with it.
func combineUnits(rules []*activeRule, parts []engine.Part, passes bool, costs []Cost, first int) (binding int, left uint64) {
	counts := func(unit string) bool {
		for i, r := range rules[:len(parts)] {
			if r.Unit == unit && !parts[i].Shadow {
				return true
			}
		}
		return false
	}
	unit := rules[first].Unit
	if passes && counts("") {
		unit = ""
	} else if passes {
		unit = costs[slices.IndexFunc(costs, func(c Cost) bool { return counts(c.Unit) })].Unit
	}
	binding, left = -1, math.MaxUint64
	for i, r := range rules[:len(parts)] {
		p := &parts[i]
		if p.Shadow || r.Unit != unit {
			continue
		}
		if binding < 0 || engine.Binds(p, &parts[binding], passes, r.Index < rules[binding].Index) {
			binding = i
		}
		left = min(left, uint64(max(p.Left, -1)))
	}
	return binding, left
}
