package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// When a bucket with several rates counts as new
//
// The requests for one key may come with different rates. The debt of the key is the number of units that were
// charged to it and have not drained yet. Let s be the slowest rate at which the key was charged since it last
// counted as new. The key counts as new again once its debt would be zero if the debt had drained at the rate s
// since the last charge. If the rule has a Warmup, the debt must also have been zero for the time Warmup.Over.
// A key that counts as new gets the same answers whether its state is still stored or was evicted. Keys in
// Redis count as new at the same instant, see redisstore/lua/bucket.lua.
//
// No debt is lost when a key counts as new. Suppose that a request at the rate r comes for such a key.
//
//   - If r is as fast as s or faster, the key owes nothing at the rate r anyway. Since the last charge, its debt
//     has drained at the rate r or at the rate of that charge, whichever is slower. Neither is slower than s.
//   - If r is slower than s, nothing was granted at r, or at a slower rate, since the key last counted as new. So
//     the grants at r begin with this request, on a bucket that owes nothing. In any time T, they are at most
//     Burst + T·Requests/Per. The units that were granted before, at s or at faster rates, have drained already.

// slowestOf returns the plan with the slowest rate at which the key with the state s was charged since the key
// last counted as new. The state s was last written at the plan p.
func (ps *ratePlans[S, C]) slowestOf(s *ratedState[S], p *ratePlan[S, C]) *ratePlan[S, C] {
	if slow := ps.withID(s.tag.slow()); slow != nil {
		return slow
	}
	return p
}

// slowestAfter is called before the state s of a key is converted from an old plan (from) to a new plan (p). It
// returns the plan that the method slowestOf returns for s. But it returns p if that plan is not slower than p, or if
// the key counts as new at the instant now. After the conversion, the caller records the result in s, by a call of
// keepSlowest.
func (ps *ratePlans[S, C]) slowestAfter(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) *ratePlan[S, C] {
	if slow := ps.slowestOf(s, from); slow.config.Slower(p.config) && !ps.isNew(s, from, now) {
		return slow
	}
	return p
}

// keepSlowest records two plans (rates) in the state s of a key: p, at which s is now written, and slow, the
// slowest at which the key was charged since the key last counted as new.
func keepSlowest[S, C any](s *ratedState[S], p, slow *ratePlan[S, C]) {
	s.tag = s.tag.withPlans(p.id, slow.id)
}

// renewed reports whether a slowest plan (rate) is recorded in the state s although the key counts as new at the instant
// now. A charge at this instant must then remove this record. The parameter p is the plan at which s was last written.
func (ps *ratePlans[S, C]) renewed(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) bool {
	return s.tag.slow() != 0 && ps.isNew(s, p, now)
}

// moveTo is called when the plans (rates) of a rule change: ps has the new plans, and the parameter old has the old ones. It
// records in the state s of a key that the key now has the new plan in the parameter to. It also replaces the slowest plan that
// is recorded in s. The parameter successors is the map that the method successors has returned.
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

// idle does what Idle does, for a state s that was last written at the plan (rate) p.
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

// untilNew returns how long it takes until the key with the state s, which has the plan (rate) p, counts as new if
// no request comes. If the rule has a Warmup, the key may count as new later, by up to Warmup.Over. The parameter
// slow is the plan that the method slowestOf returns.
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
// was last written at an old plan (from), and p is slower than this old plan. So the key may count as new, and have its
// whole burst, before its debt would have drained at the rate of p.
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

// convert converts the state s of the key with hash h from an old plan (from) to a new plan (p), at the instant now.
// It returns the slower one of the two plans, see the method slower.
//
// The parameter ahead is true if the caller does not know yet whether the request will be granted. In this case,
// convert calls Resize with ahead set, and does not call keepSlowest. Afterwards, the caller must undo the conversion
// if the request is denied, and call keepSlowest if the request is granted.
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

// learns reports whether a request at the plan (rate) p converts the state s of a key to p even if the
// request is denied. The state was last written at the old plan from. A store learns the limit of a rule
// only from requests. Suppose that a key has no units left, and its rate becomes faster. If denied requests
// did not convert the state, the key would go on earning units at the old, slower rate.
//
// A denied request converts the state neither to a smaller burst nor, without a Warmup, to a slower rate:
// otherwise such a request could take units from other requests for the same key. A bucket that owes nothing
// at its last rate is not converted either. It may still owe units at the slowest of its rates, see the top
// of this file, and the conversion would lose this debt.
func (ps *ratePlans[S, C]) learns(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) bool {
	if !ps.rates.Learns {
		return false
	}
	if p.debts != nil && p.ages == nil && from.config.Idle(&s.state, max(now, from.config.Reached(&s.state))) {
		return false
	}
	return !p.config.Fills(from.config) && (p.ages != nil || !p.config.Slower(from.config))
}
