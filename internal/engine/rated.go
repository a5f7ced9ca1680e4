package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A ratedState is the state of one key of a rule.
type ratedState[S any] struct {
	state S
	plan  uint32 // id of the plan (rate) at which the state was last written, and the bits planBits; 0 if the state was never written
	chain uint32 // index of the chain (list) of the key's receipts; 0 if the key has no receipts
}

// A tableShard is a shard of the table of a rule's keys.
type tableShard[S any, C Algorithm[S, C]] = keytable.Shard[ratedState[S], *ratePlans[S, C]]

// A ratedShard is a tableShard that implements lockedShard.
type ratedShard[S any, C Algorithm[S, C]] tableShard[S, C]

func (s *ratedShard[S, C]) step(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (Verdict, time.Duration, Receipt) {
	ps := s.Algorithm
	p := ps.ofTier(want.Tier)
	if want.Rate != nil {
		p, _ = ps.pick(want)
	}
	shard := (*tableShard[S, C])(s)
	state := shard.Find(h)
	switch {
	case state != nil && state.plan == p.id && do < Hold:
		v, delay := p.config.Step(&state.state, p.config, now, n, do == Take)
		return v, delay, 0
	case do == DryRun:
		v, delay, _, _ := ps.dryRun(shard, state, h, p, now, n)
		return v, delay, 0
	}
	return ps.step(shard, state, h, p, now, n, do)
}

func (s *ratedShard[S, C]) chargeAndUnlock(
	h keytable.Hash, tier string, now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	shard, ps := (*tableShard[S, C])(s), s.Algorithm
	p, state := ps.ofTier(tier), shard.Find(h)
	if state != nil && state.plan == p.id && do == Take {
		v, delay = p.config.Step(&state.state, p.config, now, n, true)
	} else {
		v, delay, id = ps.step(shard, state, h, p, now, n, do)
	}
	shard.Latest(now)
	shard.Count(v.RetryAfter == 0)
	shard.Unlock()
	return v, delay, id
}

func (s *ratedShard[S, C]) refusal(want Wanted) error {
	_, err := s.Algorithm.pick(want)
	return err
}

func (s *ratedShard[S, C]) finish(now keytable.Instant, t keytable.Tally) {
	(*tableShard[S, C])(s).Finish(now, t)
}

// planOf returns the plan (rate) at which the state s was last written, or nil if s was never written.
func (ps *ratePlans[S, C]) planOf(s *ratedState[S]) *ratePlan[S, C] {
	if s.plan == 0 {
		return nil
	}
	return (*ps.byID.Load())[s.plan&^planBits-1]
}

// step decides on n units at the plan (rate) p for the key with hash h. The parameter s is the state of
// the key, or nil if the key has none. If s was last written at another plan, step first converts the
// state to p. The state stays converted even if the units are denied, except in two cases: the
// parameter do is Look, or the method stepCut decides.
func (ps *ratePlans[S, C]) step(
	shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, p *ratePlan[S, C], now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	if s == nil {
		owed, seen := shard.Owed(now)
		if v, delay = ps.stepShared(shard, owed, p, seen, n, false); do >= Take && v.RetryAfter == 0 {
			v, delay, id = ps.admit(shard, owed, h, p, seen, n, do)
		}
		v.await(seen, now)
		return v, delay, id
	}
	if do >= Take && s.plan&twoRates != 0 && ps.Idle(s, now) {
		s.plan &^= twoRates
	}
	if from := ps.planOf(s); from != nil && !from.equals(p) {
		ps.findAt(s, from, p)
		if p.config.Fills(from.config) {
			if v, delay = ps.stepCut(shard.Scratch(*s), from, p, now, n); do < Take || v.RetryAfter != 0 {
				return v, delay, 0
			}
		}
		if do == Look {
			s = shard.Scratch(*s)
			s.forgetReceipts()
		}
		if slow := ps.slower(s, from, p, now); slow != p {
			p.config.Carry(&s.state, from.config, now)
		}
		ps.resize(s, h, from, p)
		s.setPlan(p.id)
	}
	if do < Take {
		v, delay = p.config.Step(&s.state, p.config, now, n, false)
		return v, delay, 0
	}
	if v, delay, id = ps.charge(s, h, p, now, n, do, 0); v.RetryAfter == 0 {
		s.setPlan(p.id)
	}
	return v, delay, id
}

// slower compares two plans (rates): the old plan (from), at which the state s was last written, and
// the new plan (p). It converts s to the slower one of the two, and returns this slower plan. The key
// may have changed to the new plan at any time since its last charge, so the debt drains at the slower
// rate in all of that time.
func (ps *ratePlans[S, C]) slower(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) *ratePlan[S, C] {
	if from.ages != nil {
		from.ages.Forget(&s.state, now) // the old plan decides whether the key is new again; it also decides whether the table evicts the key
	}
	slow := from
	if p.config.Slower(from.config) {
		slow = p
		p.config.Carry(&s.state, from.config, 0) // instant 0 is before the last charge, so Carry drains no debt
	}
	slow.config.Carry(&s.state, slow.config, now)
	return slow
}

// stepCut decides on n units at the new plan (p) for a key whose state was last written at an old plan
// (from). The method step calls stepCut if this change of plans could make a used key seem unused.
// stepCut charges nothing. It converts only a copy of the state (*to). Only a charge converts the state
// itself.
//
// Suppose that a denied or free request converted the state itself. A client with two rates could then
// send requests that cost nothing at the rate with the smaller burst, until the key owes nothing at
// that rate. After a conversion to the rate with the larger burst, the key would owe nothing either,
// and could use the whole larger burst.
func (ps *ratePlans[S, C]) stepCut(
	to *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64,
) (v Verdict, delay time.Duration) {
	slow := ps.slower(to, from, p, now)
	p.config.Resize(&to.state, from.config, true)
	// Until the next charge of the key, its debt drains at the slower rate.
	v, delay = p.config.Step(&to.state, slow.config, now, n, false)
	if delay > 0 && slow != p {
		// A charge changes the rate, so the queue before the units drains at the new rate.
		p.config.Carry(&to.state, slow.config, now)
		_, delay = p.config.Step(&to.state, p.config, now, n, false)
	}
	return v, delay
}

// admit charges n units to the key with hash h, which has no state yet, at the instant in the parameter
// seen. The units are charged to a new state of the key. If the table is full, they are charged to the
// debt that all keys without a state share (owed). The caller has checked that this debt leaves room
// for the units. A charge to the shared debt gets no receipt, because it cannot be given back.
func (ps *ratePlans[S, C]) admit(
	shard *tableShard[S, C], owed *ratedState[S], h keytable.Hash, p *ratePlan[S, C], seen keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	state := ps.newcomer(shard, p, seen)
	v, delay, id = ps.charge(state, h, p, seen, n, do, 0)
	state.setPlan(p.id)
	if shard.Insert(h, state, seen) {
		return v, delay, id
	}
	if id != 0 && p.holds == nil {
		ps.receipts.get().settle(0, h, id, 0, 0)
	}
	v, delay = ps.stepShared(shard, owed, p, seen, n, true)
	return v, delay, p.held(&owed.state, v.Granted())
}

// newcomer returns the first state of a key that gets a slot of the table, at the instant in the
// parameter seen. The state is converted to the plan (rate) p.
func (ps *ratePlans[S, C]) newcomer(shard *tableShard[S, C], p *ratePlan[S, C], seen keytable.Instant) *ratedState[S] {
	state := shard.Newcomer(seen)
	if from := ps.planOf(state); from != nil && !from.equals(p) {
		p.config.Carry(&state.state, from.config, seen)
	}
	return state
}

// share prepares the debt that all keys without a slot share (owed), or a copy of this debt, for a
// decision on a key at the plan (rate) p. A shared debt drains at the slowest rate of the keys that
// share it.
func (ps *ratePlans[S, C]) share(owed *ratedState[S], p *ratePlan[S, C], now keytable.Instant) {
	from := ps.planOf(owed)
	switch {
	case from == nil:
		owed.plan = p.id
	case from.equals(p):
	case from.config.Idle(&owed.state, now):
		p.config.Carry(&owed.state, from.config, now)
		owed.plan = p.id
	case p.config.Slower(from.config):
		p.config.Carry(&owed.state, from.config, 0)
		owed.plan = p.id
	}
}

// stepShared decides on n units at the plan p for a key without a slot in the table. The parameter owed
// is the debt that all such keys share.
func (ps *ratePlans[S, C]) stepShared(
	shard *tableShard[S, C], owed *ratedState[S], p *ratePlan[S, C], now keytable.Instant, n int64, charge bool,
) (v Verdict, delay time.Duration) {
	s := shard.Scratch(*owed)
	ps.share(s, p, now)
	v, delay = p.config.Step(&s.state, ps.planOf(s).config, now, n, charge)
	v.Left = max(v.Left, 0) // the keys that share the debt may owe more than the burst of this key
	if from := ps.planOf(owed); from != nil && from.id != s.plan && v.RetryAfter != 0 && ps.fits(s, p, now, n) {
		// This key has a slower rate than the keys that share the debt. RetryAfter is how long the debt
		// takes to drain at this slower rate. But this key does not share the debt yet, so the debt
		// drains at the faster rate. When the debt is 0, this key is unused, and its request is granted.
		others, _ := from.config.Step(&owed.state, from.config, now, 1, false)
		v.RetryAfter = min(v.RetryAfter, others.ResetAfter)
		v.ResetAfter = min(v.ResetAfter, others.ResetAfter)
	}
	if charge && v.RetryAfter == 0 {
		*owed = *s
		if p.ages != nil {
			p.ages.Renew(&owed.state)
		}
	}
	return v, delay
}

// fits reports whether n units are granted at the plan p to a key that was never used. It uses s as
// working memory, and overwrites it.
func (ps *ratePlans[S, C]) fits(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant, n int64) bool {
	*s = ratedState[S]{}
	v, _ := p.config.Step(&s.state, p.config, now, n, false)
	return v.RetryAfter == 0
}

// Idle reports whether a decision by the state s is the same as for a key that was never used. If the key was
// used at several rates, this holds for a decision at each rate of the rule.
func (ps *ratePlans[S, C]) Idle(s *ratedState[S], now keytable.Instant) bool {
	p := ps.planOf(s)
	return p == nil || p.config.Idle(&s.state, now) && (s.plan&twoRates == 0 || ps.idleAtSlowest(s, p, now))
}

// Inherit returns the first state of a key that has shared the debt s and gets a slot of its own.
func (ps *ratePlans[S, C]) Inherit(s *ratedState[S], now keytable.Instant) ratedState[S] {
	if p := ps.planOf(s); p != nil {
		return ratedState[S]{state: p.config.Inherit(&s.state, now), plan: s.plan}
	}
	return ratedState[S]{}
}

// successors returns which new plan (rate) replaces each old plan after a change of the rates of a
// rule. The old plans are in the parameter old. The result maps the id of an old plan to the new plan.
// The new rate of the rule itself replaces its old rate, and the new rate of a tier replaces the old
// rate of that tier or, if the tier is gone, the new rate of the rule does. The map has no entry for the
// rates that requests have asked for: they belong to no tier, and stay as they are.
func (ps *ratePlans[S, C]) successors(old *ratePlans[S, C]) map[uint32]*ratePlan[S, C] {
	became := make(map[uint32]*ratePlan[S, C], 1+len(old.tiers))
	became[old.base.id] = ps.base
	for tier, from := range old.tiers {
		became[from.id] = ps.ofTier(tier)
	}
	return became
}

// successor returns the plan that replaces the old plan (from) after a change of the rates of a rule. The
// parameter successors is the map that the method successors has returned.
func (ps *ratePlans[S, C]) successor(from *ratePlan[S, C], successors map[uint32]*ratePlan[S, C]) *ratePlan[S, C] {
	if to := successors[from.id]; to != nil {
		return to
	}
	to, err := ps.find(from.rate, true)
	if err != nil { // there is no plan for that rate, because the new windows have another length
		return ps.base
	}
	return to
}

// retag converts s, the state of the key with hash h, from its old plan (rate) to a new plan when the
// rates of the rule change. The parameter successors is the map that the method successors has returned.
// The parameter shared says whether s is the debt that several keys share.
//
//	s                        rates of the rule        plan of s afterwards
//	never written            one, before and after    the successor of the plan for the old rate
//	never written            several                  none: s stays as it is
//	written at a plan        any                      its successor, see the method successor
//	shared by several keys   several                  the slowest plan that one of the keys may have
func (ps *ratePlans[S, C]) retag(
	h keytable.Hash, s *ratedState[S], old *ratePlans[S, C], successors map[uint32]*ratePlan[S, C], now keytable.Instant, shared bool,
) {
	oneRate := ps.hasOneRate() && old.hasOneRate()
	from := old.planOf(s)
	if from == nil {
		if !oneRate {
			return
		}
		from = old.base
	}
	to := ps.successor(from, successors)
	if shared && !oneRate {
		to = ps.slowest(to, from, old.rates.MayGrow)
	}
	s.setPlan(to.id)
	if to.equals(from) {
		if from.ages != nil {
			from.ages.Forget(&s.state, now) // the Warmup may have another duration from now on
		}
		return
	}
	to.config.Carry(&s.state, from.config, now)
	if !shared || oneRate {
		ps.resize(s, h, from, to)
	}
}

// slowest returns the plan (rate) for a shared debt after a change of the rule's rates. The old plan
// (from) was the slowest plan of the keys that share the debt, and a new plan (to) replaces it. But a
// faster plan of these keys may be replaced by a plan that is slower than this new plan. So slowest
// returns the slowest of three kinds of plans: the new plan, the plan for the rule's own rate, and the
// plans for its tiers. The parameter hadGrown says whether requests could ask for rates of their own
// before the change. If so, slowest also compares the plan that now has the rate of the old plan.
func (ps *ratePlans[S, C]) slowest(to, from *ratePlan[S, C], hadGrown bool) *ratePlan[S, C] {
	if hadGrown {
		if same, err := ps.find(from.rate, true); err == nil && same.config.Slower(to.config) {
			to = same
		}
	}
	if ps.base.config.Slower(to.config) {
		to = ps.base
	}
	for _, p := range ps.tiers {
		if p.config.Slower(to.config) {
			to = p
		}
	}
	return to
}
