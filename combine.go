package ratelimit

import (
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/costs"
	"github.com/ratelimit-go/ratelimit/internal/engine"
)

// combine writes the answer to a request to res. It is the Result of the binding rule (see RateLimiter.Check), except that
// Remaining is the smallest of all rules with the same Unit, and Delay the largest of all rules. The slice parts has the
// answers of the rules to req. combine returns the index of the binding rule, or -1 if no rule enforces.
func combine(rules []*activeRule, parts []engine.Part, passes bool, req *Request, res *Result) (binding int) {
	binding, left, delay, advised := -1, uint64(math.MaxUint64), time.Duration(0), false
	unit, several := "", len(req.Costs) > 0
	if several && passes {
		unit = shownUnit(rules, parts, req.Costs)
	}
	for i := range parts {
		p, r := &parts[i], rules[i]
		if p.Shadow {
			advised = advised || p.Advises && !p.Granted()
			continue
		}
		if delay = max(delay, p.Delay); several && passes && r.Unit != unit {
			continue
		}
		if binding < 0 || engine.Binds(p, &parts[binding], passes, r.Index < rules[binding].Index) {
			binding = i
		}
		// Left is -1 if no limit applies. Converted to uint64, -1 is the largest number, so min ignores it.
		left = min(left, uint64(max(p.Left, -1)))
	}
	if binding < 0 {
		*res, res.Advised = unlimited, advised
		return binding
	}
	if several && !passes {
		left = leftOf(rules[binding].Unit, rules, parts)
	}
	fill(res, &parts[binding].Verdict)
	res.Allowed, res.Remaining, res.Rule, res.Advised = passes, int(int64(left)), rules[binding].resultName(), advised
	if passes {
		res.Delay = delay
	}
	return binding
}

// shownUnit returns the Unit in which the Result of a granted request counts. It returns "" if one of the rules that enforce
// counts requests. Otherwise, it returns the first Unit in the slice named all that one of the rules that enforce counts.
func shownUnit(rules []*activeRule, parts []engine.Part, all []Cost) (unit string) {
	best := len(all)
	for i, r := range rules[:len(parts)] {
		switch n := costs.Index(all, r.Unit); {
		case parts[i].Shadow:
		case r.Unit == "":
			return ""
		case n < best:
			best, unit = n, r.Unit
		}
	}
	return unit
}

// leftOf returns the smallest number of units that are left in the rules that enforce and count this Unit.
func leftOf(unit string, rules []*activeRule, parts []engine.Part) (left uint64) {
	left = math.MaxUint64
	for i, r := range rules[:len(parts)] {
		if p := &parts[i]; !p.Shadow && r.Unit == unit {
			left = min(left, uint64(max(p.Left, -1)))
		}
	}
	return left
}
