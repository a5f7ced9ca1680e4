package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// When a bucket with several rates is new
//
// A key may be charged at several rates. Let s be the slowest rate at which it was charged since it was last
// new. The key counts as new again once its debt would be zero if it had drained at the rate s since the last
// charge. With a Warmup, the debt must also have been zero for the Warmup's Over. Such a key gets the same
// answers whether its state is still stored or was evicted. Keys in Redis follow the same rule, see
// redisstore/lua/bucket.lua.
//
// The rule forgives no debt. Suppose that a request at the rate r comes for a key that counts as new.
//
//   - If r is not slower than s, the key would owe nothing without the rule, too: since its last charge, its
//     debt has drained at the slower one of r and the rate of that charge, and neither is slower than s.
//   - If r is slower than s, nothing was granted at r, or at a slower rate, since the key was last new. So the
//     grants at r begin with this request, on a bucket that owes nothing. In any time T, they are at most
//     Burst + T·Requests/Per. What was granted before, at s or at faster rates, has drained already.

// slowestOf returns the plan with the slowest rate at which the key with the state s was charged since it was
// new. The plan (rate) p is the one at which s was last written.
func (ps *ratePlans[S, C]) slowestOf(s *ratedState[S], p *ratePlan[S, C]) *ratePlan[S, C] {
	if slow := ps.withID(s.tag.slow()); slow != nil {
		return slow
	}
	return p
}

// slowestAfter is called before the state s of a key is converted from one plan (rate) to another. The parameter
// from is the plan at which s was last written, and p is the new plan. It returns what keepSlowest must record
// after the conversion.
func (ps *ratePlans[S, C]) slowestAfter(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) *ratePlan[S, C] {
	if slow := ps.slowestOf(s, from); slow.config.Slower(p.config) && !ps.isNew(s, from, now) {
		return slow
	}
	return p
}

// keepSlowest gives the state s the plan (rate) p, and records in s that the plan slow is the slowest at which
// the key was charged since it was new.
func keepSlowest[S, C any](s *ratedState[S], p, slow *ratePlan[S, C]) {
	s.tag = s.tag.withPlans(p.id, slow.id)
}

// renewed reports whether a slowest plan (rate) is recorded in the state s although the key counts as new at the instant
// now. A charge at this instant must then remove this record. The parameter p is the plan at which s was last written.
func (ps *ratePlans[S, C]) renewed(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) bool {
	return s.tag.slow() != 0 && ps.isNew(s, p, now)
}

// moveTo gives the state s of a key another plan (rate), the parameter to. The plan to is one of ps: the plans ps replace
// the plans in the parameter old. The parameter successors is the map that the method successors has returned.
func (ps *ratePlans[S, C]) moveTo(s *ratedState[S], to *ratePlan[S, C], old *ratePlans[S, C], successors map[tag]*ratePlan[S, C]) {
	slow := to
	if from := old.withID(s.tag.slow()); from != nil {
		if was := ps.successor(from, successors); was.config.Slower(to.config) {
			slow = was
		}
	}
	keepSlowest(s, to, slow)
}

// isNew reports whether the key with the state s, which has the plan (rate) p, counts as new for a request at the
// instant now. A request that comes before the last charge of the key counts as made at the instant of that charge.
func (ps *ratePlans[S, C]) isNew(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) bool {
	return ps.idle(s, p, max(now, p.config.Reached(&s.state)))
}

// Idle reports whether the key with the state s counts as new at the instant now. The comment at the top of
// this file says when a key does.
func (ps *ratePlans[S, C]) Idle(s *ratedState[S], now keytable.Instant) bool {
	p := ps.planOf(s)
	return p == nil || ps.idle(s, p, now)
}

// idle does what Idle does, for a state s that has the plan (rate) p.
func (ps *ratePlans[S, C]) idle(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) bool {
	idle := p.config.Idle(&s.state, now)
	if !idle || s.tag.slow() == 0 {
		return idle
	}
	slow, was := ps.slowestOf(s, p), s.state
	slow.config.Carry(&s.state, p.config, 0) // instant 0 is before the last charge, so Carry drains no debt
	idle = slow.config.Idle(&s.state, now)
	s.state = was
	return idle
}

// untilNew returns how long it takes until the key with the state s, which has the plan (rate) p and has no
// Warmup, counts as new if no request comes. The parameter slow is the plan that the method slowestOf returns.
func untilNew[S any, C Algorithm[S, C]](s *ratedState[S], p, slow *ratePlan[S, C], now keytable.Instant) time.Duration {
	if slow == p {
		v, _ := p.config.Step(&s.state, p.config, now, 1, false)
		return v.ResetAfter
	}
	was := s.state
	slow.config.Carry(&s.state, p.config, 0)
	v, _ := slow.config.Step(&s.state, slow.config, now, 1, false)
	s.state = was
	return v.ResetAfter
}

// endWhenNew shortens the durations of v, which is the answer to a request for n units at the plan (rate) p. The state s
// was last written at the plan from, and p is slower than from. So the key may count as new, and have its whole burst,
// before its debt would have drained at p.
func (ps *ratePlans[S, C]) endWhenNew(v *Verdict, s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64) {
	slow := ps.slowestOf(s, from)
	if slow == p {
		return
	}
	rest := untilNew(s, from, slow, now)
	if v.ResetAfter = min(v.ResetAfter, rest); n <= v.Limit {
		v.RetryAfter = min(v.RetryAfter, rest)
	}
}

// convert converts the state s of the key with hash h from its old plan (from) to the plan (rate) p at the instant
// now. It returns the plan that the method slower returns. The parameter ahead is set if it is not known yet whether
// the request will be granted. convert then sets the parameter ahead of Resize too. After a denial, the caller must
// undo the conversion; after a grant, it must call keepSlowest.
func (ps *ratePlans[S, C]) convert(
	s *ratedState[S], h keytable.Hash, from, p *ratePlan[S, C], now keytable.Instant, ahead bool,
) (slow *ratePlan[S, C]) {
	slowest := p
	if !ahead {
		slowest = ps.slowestAfter(s, from, p, now)
	}
	if slow = ps.slower(s, from, p, now); slow != p {
		p.config.Carry(&s.state, from.config, now)
	}
	if ahead {
		p.config.Resize(&s.state, from.config, true)
		return slow
	}
	ps.resize(s, h, from, p)
	keepSlowest(s, p, slowest)
	return slow
}

// learns reports whether a request at the plan (rate) p converts the state of a key to p even if the
// request is denied. The state was last written at an old plan (from). A store is told the limit of a rule
// only by requests. If the denied requests of a key that has no units left did not convert it to a faster
// rate, the key would go on earning units at the old, slower rate. A smaller burst does not convert it,
// nor does a slower rate unless the rule has a Warmup: otherwise a denied request could take units from
// others that use the same key. A bucket that owes nothing at its last rate is not converted either: it may
// still owe units at the slowest of its rates, see the top of this file, and this debt would be lost.
func (ps *ratePlans[S, C]) learns(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) bool {
	if !ps.rates.Learns {
		return false
	}
	if p.debts != nil && p.ages == nil && from.config.Idle(&s.state, max(now, from.config.Reached(&s.state))) {
		return false
	}
	return !p.config.Fills(from.config) && (p.ages != nil || !p.config.Slower(from.config))
}
