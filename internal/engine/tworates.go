package engine

import "github.com/ratelimit-go/ratelimit/internal/keytable"

// twoRates is a bit in the field plan of a ratedState. It is set for a key that was used at two rates and
// may still owe something at the slower rate, even if it owes nothing at the rate at which its state was
// last written. While the bit is set, the table keeps the state until the key owes nothing at the slowest
// rate of the rule. If the table forgot the key earlier, a request at the slower rate would find a new
// key. Decisions do not take their fast path while the bit is set.
const twoRates = 1 << 30

// planBits are the two flags in the field plan of a ratedState. The other bits of this field are the id of
// the plan.
const planBits = withReceipts | twoRates

// usedAt is called before the state s of a key is converted from one plan (rate) to another. The parameter
// from is the plan at which s was last written, and p is the new plan. If one of the two is slower and the
// key owes something, usedAt sets the bit twoRates in s.
func (ps *ratePlans[S, C]) usedAt(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) {
	if (p.config.Slower(from.config) || from.config.Slower(p.config)) && !ps.Idle(s, now) {
		s.plan |= twoRates
	}
}

// slowestPlan returns the plan (rate) of the rule at which a debt takes longest to drain.
func (ps *ratePlans[S, C]) slowestPlan() *ratePlan[S, C] {
	return (*ps.byID.Load())[ps.slowestID.Load()-1]
}

// idleAtSlowest reports whether the key with the state s would owe nothing now if its debt had drained at the
// slowest rate of the rule since the last charge of the key. The parameter p is the plan (rate) at which s
// was last written. The state s is the same before and after the call.
func (ps *ratePlans[S, C]) idleAtSlowest(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) bool {
	slow := ps.slowestPlan()
	if !slow.config.Slower(p.config) {
		return true
	}
	was := s.state
	slow.config.Carry(&s.state, p.config, 0) // instant 0 is before the last charge, so Carry drains no debt
	idle := slow.config.Idle(&s.state, now)
	s.state = was
	return idle
}
