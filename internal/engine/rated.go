package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A ratedState is the state of one key of a rule.
type ratedState[S any] struct {
	state S
	plan  uint32 // the id of the plan that state was last written under, and withReceipts; 0 if it is unused
	chain uint32 // the index of the chain of the key's receipts; 0 if it has none
}

// A tableShard is a shard of the table of a rule's keys.
type tableShard[S any, C Algorithm[S, C]] = keytable.Shard[ratedState[S], *ratePlans[S, C]]

// A ratedShard is a tableShard with the methods of a lockedShard.
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
	case do == Rehearse:
		v, delay, _, _ := ps.rehearse(shard, state, h, p, now, n)
		return v, delay, 0
	}
	return ps.step(shard, state, h, p, now, n, do)
}

func (s *ratedShard[S, C]) refusal(want Wanted) error {
	_, err := s.Algorithm.pick(want)
	return err
}

func (s *ratedShard[S, C]) finish(now keytable.Instant, t keytable.Tally) {
	(*tableShard[S, C])(s).Finish(now, t)
}

// planOf returns the plan that s was written under, or nil if s is unused.
func (ps *ratePlans[S, C]) planOf(s *ratedState[S]) *ratePlan[S, C] {
	if s.plan == 0 {
		return nil
	}
	return (*ps.byID.Load())[s.plan&^withReceipts-1]
}

// step decides on n units at the rate of p for the key with hash h. s is the key's state, or
// nil if it has none. If s was written under another plan, it is first brought to p. Unless
// do is Look, it stays brought to p, also if the units are denied. stepCut is the exception.
func (ps *ratePlans[S, C]) step(shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, p *ratePlan[S, C], now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt) {
	if s == nil {
		owed, seen := shard.Owed(now)
		if v, delay = ps.stepShared(shard, owed, p, seen, n, false); do >= Take && v.RetryAfter == 0 {
			v, delay, id = ps.admit(shard, owed, h, p, seen, n, do)
		}
		v.await(seen, now)
		return v, delay, id
	}
	if from := ps.planOf(s); from != nil && from != p {
		if p.config.Fills(from.config) {
			if v, delay = ps.stepCut(shard.Scratch(*s), from, p, now, n); do < Take || v.RetryAfter != 0 {
				return v, delay, 0
			}
		}
		if do == Look {
			s = shard.Scratch(*s)
			s.drop()
		}
		if slow := ps.slower(s, from, p, now); slow != p {
			p.config.Carry(&s.state, from.config, now)
		}
		ps.resize(s, h, from, p)
		s.under(p.id)
	}
	if do < Take {
		v, delay = p.config.Step(&s.state, p.config, now, n, false)
		return v, delay, 0
	}
	if v, delay, id = ps.charge(s, h, p, now, n, do); v.RetryAfter == 0 {
		s.under(p.id)
	}
	return v, delay, id
}

// slower brings s from the plan from to the slower one of from and p, and returns that plan.
// It is not known when, since the last charge, p came into force, so the time since then counts
// at the slower of the two rates.
func (ps *ratePlans[S, C]) slower(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) *ratePlan[S, C] {
	if from.ages != nil {
		from.ages.Forget(&s.state, now) // by its own rate, as if it had been evicted
	}
	slow := from
	if p.config.Slower(from.config) {
		slow = p
		p.config.Carry(&s.state, from.config, 0) // 0 is before the last charge, so nothing drains
	}
	slow.config.Carry(&s.state, slow.config, now)
	return slow
}

// stepCut decides on n units at plan p for a key whose state was written under another plan,
// from, if the change may make the key as good as new. Then only a charge brings s to p.
// Otherwise a client of two rates could let its key become full under the smaller burst, and
// then find it full under the larger one, by requests that cost nothing. to is a copy of the
// state, which stepCut may change. It charges nothing.
func (ps *ratePlans[S, C]) stepCut(to *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64) (v Verdict, delay time.Duration) {
	slow := ps.slower(to, from, p, now)
	p.config.Resize(&to.state, from.config)
	// As long as the key is not charged, its debt drains at the slower rate.
	return p.config.Step(&to.state, slow.config, now, n, false)
}

// admit charges n units at seen, which owed leaves room for, to the key with hash h, which has no
// state yet: to a new state of the key or, if the table has no room for one, to owed. A charge
// of a shared debt has no receipt: it is final.
func (ps *ratePlans[S, C]) admit(shard *tableShard[S, C], owed *ratedState[S], h keytable.Hash, p *ratePlan[S, C], seen keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt) {
	state := ps.newcomer(shard, p, seen)
	v, delay, id = ps.charge(state, h, p, seen, n, do)
	state.under(p.id)
	if shard.Keep(h, state, seen) {
		return v, delay, id
	}
	if id != 0 {
		ps.held.get().settle(0, h, id, 0, 0, nil)
	}
	v, delay = ps.stepShared(shard, owed, p, seen, n, true)
	return v, delay, 0
}

// newcomer returns the state with which a key at plan p begins that gets one at seen.
func (ps *ratePlans[S, C]) newcomer(shard *tableShard[S, C], p *ratePlan[S, C], seen keytable.Instant) *ratedState[S] {
	state := shard.Newcomer(seen)
	if from := ps.planOf(state); from != nil && from != p {
		p.config.Carry(&state.state, from.config, seen)
	}
	return state
}

// share changes owed, a copy of the debt that the keys without a state share, so that a key
// at plan p can be decided by it. A shared debt drains at the slowest rate of the keys that
// share it.
func (ps *ratePlans[S, C]) share(owed *ratedState[S], p *ratePlan[S, C], now keytable.Instant) {
	from := ps.planOf(owed)
	switch {
	case from == nil || from == p:
		owed.plan = p.id
	case from.config.Idle(&owed.state, now):
		p.config.Carry(&owed.state, from.config, now)
		owed.plan = p.id
	case p.config.Slower(from.config):
		p.config.Carry(&owed.state, from.config, 0)
		owed.plan = p.id
	}
}

// stepShared decides on n units at plan p for a key without a state, by the debt owed that
// such keys share.
func (ps *ratePlans[S, C]) stepShared(shard *tableShard[S, C], owed *ratedState[S], p *ratePlan[S, C], now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration) {
	s := shard.Scratch(*owed)
	ps.share(s, p, now)
	v, delay = p.config.Step(&s.state, ps.planOf(s).config, now, n, charge)
	v.Left = max(v.Left, 0) // together, the keys may owe more than this key's burst
	if from := ps.planOf(owed); from != nil && from.id != s.plan && v.RetryAfter != 0 && ps.fits(s, p, now, n) {
		// This key is slower than those that share the debt, so RetryAfter is for a
		// debt that drains at this key's rate. But the key has not joined them: the
		// debt drains at their rate, and once it is 0, the key finds none.
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

// fits reports whether n units are granted to a key that was never used. It overwrites s.
func (ps *ratePlans[S, C]) fits(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant, n int64) bool {
	*s = ratedState[S]{}
	v, _ := p.config.Step(&s.state, p.config, now, n, false)
	return v.RetryAfter == 0
}

// Idle reports whether s equals the state of a key that has never been used.
func (ps *ratePlans[S, C]) Idle(s *ratedState[S], now keytable.Instant) bool {
	p := ps.planOf(s)
	return p == nil || p.config.Idle(&s.state, now)
}

// Inherit returns the state that a key starts from when it leaves the shared debt s.
func (ps *ratePlans[S, C]) Inherit(s *ratedState[S], now keytable.Instant) ratedState[S] {
	if p := ps.planOf(s); p != nil {
		return ratedState[S]{state: p.config.Inherit(&s.state, now), plan: s.plan}
	}
	return ratedState[S]{}
}

// successors returns, for a change of the rule's rates, which plan of ps follows each plan of
// old, by id. The rule's own rate follows its own rate, and the rate of each tier that of the
// same tier. A plan of old that several tiers shared, and that different plans follow, is
// left out: it is not known from which tier a key under that plan came.
func (ps *ratePlans[S, C]) successors(old *ratePlans[S, C]) map[uint32]*ratePlan[S, C] {
	became := map[uint32]*ratePlan[S, C]{old.base.id: ps.base}
	ambiguous := make(map[uint32]bool)
	for tier, from := range old.tiers {
		to := ps.ofTier(tier)
		if known, ok := became[from.id]; ok && known != to {
			ambiguous[from.id] = true
		}
		became[from.id] = to
	}
	for id := range ambiguous {
		delete(became, id)
	}
	return became
}

// retag brings s, the state of h under the plans old until now, to a plan of ps. successors are the
// plans that follow those of old. shared is set if several keys share s.
//
//	s                        rates of the rule        plan of s afterwards
//	unused                   one, before and after    the successor of the old rate
//	unused                   several                  none: s stays as it is
//	written under a plan     any                      its successor, or that of the same rate
//	shared by several keys   several                  the slowest of all that the keys may have
func (ps *ratePlans[S, C]) retag(h keytable.Hash, s *ratedState[S], old *ratePlans[S, C], successors map[uint32]*ratePlan[S, C], now keytable.Instant, shared bool) {
	oneRate := ps.hasOneRate() && old.hasOneRate()
	from := old.planOf(s)
	if from == nil {
		if !oneRate {
			return
		}
		from = old.base
	}
	to := successors[from.id]
	if to == nil {
		var err error
		if to, err = ps.planFor(from.rate); err != nil { // its window has another length
			to = ps.base
		}
	}
	if shared && !oneRate {
		to = ps.slowest(to, from, old.rates.MayGrow)
	}
	s.under(to.id)
	if to.rate == from.rate {
		if from.ages != nil {
			from.ages.Forget(&s.state, now) // it may have another Over from now on
		}
		return
	}
	to.config.Carry(&s.state, from.config, now)
	if !shared || oneRate {
		ps.resize(s, h, from, to)
	}
}

// slowest returns the plan for a shared debt after a change of the rule's rates. from was the
// slowest plan of the keys that share it, and to is its successor. Other plans of these keys
// may have successors that are slower than to. So slowest returns the slowest of to, of all
// plans of the rule and, if requests could ask for rates of their own, of from's rate.
func (ps *ratePlans[S, C]) slowest(to, from *ratePlan[S, C], hadGrown bool) *ratePlan[S, C] {
	if hadGrown {
		if same, err := ps.planFor(from.rate); err == nil && same.config.Slower(to.config) {
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
