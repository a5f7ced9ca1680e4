package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A ratedState is the state of one key of a rule.
type ratedState[S any] struct {
	state S
	plan  uint32 // the id of the plan that state was written under; 0 if it never was
}

// A tableShard is a shard of the keys of a rule, as the table knows it.
type tableShard[S any, C Algorithm[S, C]] = keytable.Shard[ratedState[S], *ratePlans[S, C]]

// A ratedShard is a tableShard that decides.
type ratedShard[S any, C Algorithm[S, C]] tableShard[S, C]

func (s *ratedShard[S, C]) step(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (Verdict, time.Duration) {
	ps := s.Algorithm
	p := ps.ofTier(want.Tier)
	if want.Rate != nil {
		p, _ = ps.pick(want)
	}
	shard := (*tableShard[S, C])(s)
	state := shard.Find(h)
	if state != nil && state.plan == p.id {
		return p.config.Step(&state.state, p.config, now, n, do == Take)
	}
	return ps.step(shard, state, h, p, now, n, do)
}

func (s *ratedShard[S, C]) refusal(want Wanted) error {
	_, err := s.Algorithm.pick(want)
	return err
}

func (s *ratedShard[S, C]) charged(h keytable.Hash) keytable.Instant {
	state := s.chargedTo(h)
	return s.Algorithm.of(state).config.Charged(&state.state)
}

// chargedTo returns the state that the key with hash h is charged to.
func (s *ratedShard[S, C]) chargedTo(h keytable.Hash) *ratedState[S] {
	shard := (*tableShard[S, C])(s)
	state := shard.Find(h)
	if state == nil {
		state, _ = shard.Owed(0)
	}
	return state
}

func (s *ratedShard[S, C]) finish(now keytable.Instant, t keytable.Tally) {
	(*tableShard[S, C])(s).Finish(now, t)
}

// of returns the plan that s was written under, or nil.
func (ps *ratePlans[S, C]) of(s *ratedState[S]) *ratePlan[C] {
	if s.plan == 0 {
		return nil
	}
	return (*ps.byID.Load())[s.plan-1]
}

// step takes n units at plan p for the key with hash h, whose state is s, or nil if it has
// none. If s was written under another plan, it is brought to p first, and stays so if the
// step may change that, whatever the answer.
func (ps *ratePlans[S, C]) step(shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, p *ratePlan[C], now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration) {
	switch {
	case s == nil && do == Take:
		return ps.takeUnseen(shard, h, p, now, n)
	case s == nil:
		owed, seen := shard.Owed(now)
		return ps.stepShared(shard, owed, p, seen, n, false)
	}
	if from := ps.of(s); from != nil && from != p {
		if do == Look {
			s = shard.Scratch(*s)
		}
		ps.adopt(s, from, p, now)
	}
	if v, delay = p.config.Step(&s.state, p.config, now, n, do == Take); do == Take && v.RetryAfter == 0 {
		s.plan = p.id
	}
	return v, delay
}

// adopt brings s from one plan to another. Nobody has said at which instant since the
// last charge the other came into force, so the time since then counts at the slower of
// the two.
func (ps *ratePlans[S, C]) adopt(s *ratedState[S], from, to *ratePlan[C], now keytable.Instant) {
	if to.config.Slower(from.config) {
		to.config.Carry(&s.state, from.config, 0) // a now before its last charge: nothing drains
		to.config.Carry(&s.state, to.config, now)
	} else {
		to.config.Carry(&s.state, from.config, now)
	}
	to.config.Resize(&s.state, from.config)
	s.plan = to.id
}

// takeUnseen takes n units at now for the key with hash h, which has no state yet.
func (ps *ratePlans[S, C]) takeUnseen(shard *tableShard[S, C], h keytable.Hash, p *ratePlan[C], now keytable.Instant, n int64) (Verdict, time.Duration) {
	owed, seen := shard.Owed(now)
	v, delay := ps.stepShared(shard, owed, p, seen, n, false)
	if v.RetryAfter != 0 {
		return v, delay
	}
	state := shard.Newcomer(seen)
	if from := ps.of(state); from != nil && from != p {
		p.config.Carry(&state.state, from.config, seen)
	}
	v, delay = p.config.Step(&state.state, p.config, seen, n, true)
	state.plan = p.id
	if shard.Keep(h, state, seen) {
		return v, delay
	}
	return ps.stepShared(shard, owed, p, seen, n, true)
}

// share makes owed, a copy of the debt that keys without a state share, the debt that a
// key at plan p finds: it drains at the slowest pace of those who share it.
func (ps *ratePlans[S, C]) share(owed *ratedState[S], p *ratePlan[C], now keytable.Instant) {
	from := ps.of(owed)
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

// stepShared takes n units at plan p for a key without a state.
func (ps *ratePlans[S, C]) stepShared(shard *tableShard[S, C], owed *ratedState[S], p *ratePlan[C], now keytable.Instant, n int64, charge bool) (v Verdict, delay time.Duration) {
	s := shard.Scratch(*owed)
	ps.share(s, p, now)
	v, delay = p.config.Step(&s.state, ps.of(s).config, now, n, charge)
	v.Left = max(v.Left, 0) // the keys may owe more together than fits into this key's burst
	if from := ps.of(owed); from != nil && from.id != s.plan && v.RetryAfter != 0 && n <= v.Limit {
		// It would drain slower with this key among those who share it. But once
		// nothing is owed any more, nobody shares it.
		others, _ := from.config.Step(&owed.state, from.config, now, 1, false)
		v.RetryAfter = min(v.RetryAfter, others.ResetAfter)
		v.ResetAfter = min(v.ResetAfter, others.ResetAfter)
	}
	if charge && v.RetryAfter == 0 {
		*owed = *s
	}
	return v, delay
}

// Idle reports whether s equals the state of a key that has never been used.
func (ps *ratePlans[S, C]) Idle(s *ratedState[S], now keytable.Instant) bool {
	p := ps.of(s)
	return p == nil || p.config.Idle(&s.state, now)
}

// Inherit returns the state that a key starts from when it leaves the shared debt s.
func (ps *ratePlans[S, C]) Inherit(s *ratedState[S], now keytable.Instant) ratedState[S] {
	if p := ps.of(s); p != nil {
		return ratedState[S]{p.config.Inherit(&s.state, now), s.plan}
	}
	return ratedState[S]{}
}

// successors returns which plan of ps each plan of old has become, when the rule's rates
// are changed: that of the rule's own rate and those of its tiers. A plan of old that
// several tiers had, and that has become several, is not among them: a key under it
// is at whichever rate it asks for next, unannounced.
func (ps *ratePlans[S, C]) successors(old *ratePlans[S, C]) map[uint32]*ratePlan[C] {
	became := map[uint32]*ratePlan[C]{old.base.id: ps.base}
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

// retag makes s, a state under the plans old until now, one under ps; successors says
// what they have become.
//
//	s                          rates of the rule        becomes
//	never written              one, before and after    the successor of the old rate
//	never written              several                  stays: nobody knows whose it was
//	written under a plan       any                      its successor, or the same rate
//	shared by several keys     several                  the slowest of them all
func (ps *ratePlans[S, C]) retag(s *ratedState[S], old *ratePlans[S, C], successors map[uint32]*ratePlan[C], now keytable.Instant, shared bool) {
	oneRate := ps.hasOneRate() && old.hasOneRate()
	from := old.of(s)
	if from == nil {
		if !oneRate {
			return
		}
		from = old.base
	}
	to := successors[from.id]
	if to == nil {
		var err error
		if to, err = ps.at(from.rate); err != nil { // a window of another length
			to = ps.base
		}
	}
	if shared && !oneRate {
		to = ps.slowest(to, from, old.rates.MayGrow)
	}
	s.plan = to.id
	if to.rate == from.rate {
		return
	}
	to.config.Carry(&s.state, from.config, now)
	if !shared || oneRate {
		to.config.Resize(&s.state, from.config)
	}
}

// slowest returns the plan at which a debt drains that keys share who may be at any
// rate: to is what from, the slowest of theirs, has become. Each of their plans may have
// become slower than that one, and rates that requests had asked for have stayed.
func (ps *ratePlans[S, C]) slowest(to, from *ratePlan[C], hadGrown bool) *ratePlan[C] {
	if hadGrown {
		if same, err := ps.at(from.rate); err == nil && same.config.Slower(to.config) {
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
