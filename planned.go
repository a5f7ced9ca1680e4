package ratelimit

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// planned is the state of one key under a rule.
type planned[S any] struct {
	state S
	plan  uint32 // which plan state was written under; 0 if it never was
}

// of returns the plan that s was written under, or nil.
func (ps *plans[S, C]) of(s *planned[S]) *plan[C] {
	if s.plan == 0 {
		return nil
	}
	return (*ps.byID.Load())[s.plan-1]
}

// step takes n units for the key with state s at plan p; see [algorithm]. If s was
// written under another plan, it is brought to p first, and stays so if keep is
// set, whatever the answer.
func (ps *plans[S, C]) step(shard *keytable.Shard[planned[S], *plans[S, C]], s *planned[S], p *plan[C], now instant, n int64, charge, keep bool) (v verdict, delay time.Duration) {
	if from := ps.of(s); from != nil && from != p {
		if !keep {
			s = shard.Scratch(*s)
		}
		ps.adopt(s, from, p, now)
	}
	if v, delay = p.config.step(&s.state, p.config, now, n, charge); charge && v.retryAfter == 0 {
		s.plan = p.id
	}
	return v, delay
}

// adopt brings s from one plan to another. Nobody has said since when the other
// holds, so the time since s was written counts at the slower of the two.
func (ps *plans[S, C]) adopt(s *planned[S], from, to *plan[C], now instant) {
	if to.config.slower(from.config) {
		to.config.carry(&s.state, from.config, 0) // a now before its last charge: nothing drains
		to.config.carry(&s.state, to.config, now)
	} else {
		to.config.carry(&s.state, from.config, now)
	}
	to.config.resize(&s.state, from.config)
	s.plan = to.id
}

// share makes owed, a copy of what keys without a state share, what a key at plan p
// finds: it drains at the slowest pace of those who share it.
func (ps *plans[S, C]) share(owed *planned[S], p *plan[C], now instant) {
	from := ps.of(owed)
	switch {
	case from == nil || from == p:
		owed.plan = p.id
	case from.config.Idle(&owed.state, now):
		p.config.carry(&owed.state, from.config, now)
		owed.plan = p.id
	case p.config.slower(from.config):
		p.config.carry(&owed.state, from.config, 0)
		owed.plan = p.id
	}
}

// stepShared takes n units at plan p for a key without a state.
func (ps *plans[S, C]) stepShared(shard *keytable.Shard[planned[S], *plans[S, C]], owed *planned[S], p *plan[C], now instant, n int64, charge bool) (v verdict, delay time.Duration) {
	s := shard.Scratch(*owed)
	ps.share(s, p, now)
	v, delay = p.config.step(&s.state, ps.of(s).config, now, n, charge)
	v.left = max(v.left, 0) // others may owe more than fits into this key's burst
	if from := ps.of(owed); from != nil && from.id != s.plan && v.retryAfter != 0 && n <= v.limit {
		// It would drain slower with this key among those who share it. But
		// once it is nothing, nobody does.
		others, _ := from.config.step(&owed.state, from.config, now, 1, false)
		v.retryAfter = min(v.retryAfter, others.resetAfter)
		v.resetAfter = min(v.resetAfter, others.resetAfter)
	}
	if charge && v.retryAfter == 0 {
		*owed = *s
	}
	return v, delay
}

// Idle reports whether s equals the state of a key that has never been used.
func (ps *plans[S, C]) Idle(s *planned[S], now instant) bool {
	p := ps.of(s)
	return p == nil || p.config.Idle(&s.state, now)
}

// Inherit returns the state that a key starts from when it leaves the shared debt
// s.
func (ps *plans[S, C]) Inherit(s *planned[S], now instant) planned[S] {
	if p := ps.of(s); p != nil {
		return planned[S]{p.config.Inherit(&s.state, now), s.plan}
	}
	return planned[S]{}
}

// alone reports whether there is one plan, and can be no other.
func (ps *plans[S, C]) alone() bool { return ps.tiers == nil && !ps.rates.open }

// moves returns which plan of ps each plan of old has become: the rule's own rate
// and those of its tiers. A plan that has become several is not among them: who asks
// next is at a new rate without having been told.
func (ps *plans[S, C]) moves(old *plans[S, C]) map[uint32]*plan[C] {
	became := map[uint32]*plan[C]{old.base.id: ps.base}
	torn := make(map[uint32]bool)
	for tier, from := range old.tiers {
		to := ps.tiers[tier]
		if to == nil {
			to = ps.base
		}
		if known, ok := became[from.id]; ok && known != to {
			torn[from.id] = true
		}
		became[from.id] = to
	}
	for id := range torn {
		delete(became, id)
	}
	return became
}

// renumber makes s, a state under the plans old until now, one under ps; moves is
// what they have become. shared says that s is owed by several keys.
func (ps *plans[S, C]) renumber(s *planned[S], old *plans[S, C], moves map[uint32]*plan[C], now instant, shared bool) {
	single := ps.alone() && old.alone()
	from := old.of(s)
	if from == nil {
		if !single {
			return // nobody knows the rates of the keys that were forgotten
		}
		from = old.base
	}
	to := moves[from.id]
	if to == nil {
		var err error
		if to, err = ps.at(from.rate); err != nil { // a window of another length
			to = ps.base
		}
	}
	if shared && !single {
		to = ps.slowest(to, from, old.rates.open)
	}
	s.plan = to.id
	if to.rate == from.rate {
		return
	}
	to.config.carry(&s.state, from.config, now)
	if !shared || single {
		to.config.resize(&s.state, from.config)
	}
}

// slowest returns the plan at which a debt drains that keys share who may be at any
// rate: to is what from, the slowest of theirs, has become. Each of them may have
// become slower than that, and the resolved ones have stayed.
func (ps *plans[S, C]) slowest(to, from *plan[C], resolved bool) *plan[C] {
	if resolved {
		if same, err := ps.at(from.rate); err == nil && same.config.slower(to.config) {
			to = same
		}
	}
	if ps.base.config.slower(to.config) {
		to = ps.base
	}
	for _, p := range ps.tiers {
		if p.config.slower(to.config) {
			to = p
		}
	}
	return to
}
