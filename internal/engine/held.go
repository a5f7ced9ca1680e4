package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// forgetReceipts removes the link from the state s to its receipts. The units of these receipts stay
// charged.
func (s *ratedState[S]) forgetReceipts() { s.tag = s.tag.withoutChain() }

// debt returns what the key with state s owes at the instant now at the rate of plan (rate) p, or zero
// if the algorithm counts in windows.
func (ps *ratePlans[S, C]) debt(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) exact.Level {
	if p.debts != nil {
		return p.debts.Debt(&s.state, now)
	}
	return exact.Level{}
}

// lower records that the key with hash h owes the given debt at present. The parameter s is the state of
// the key. For each receipt of the key, the lowest debt since its charge must be known, see layer. So
// the caller calls lower each time before it changes the debt.
func (ps *ratePlans[S, C]) lower(s *ratedState[S], h keytable.Hash, debt exact.Level) {
	if s.tag.chain() != 0 && !ps.receipts.get().lower(s.tag.chain(), h, debt) {
		s.forgetReceipts()
	}
}

// charge charges n units to the key with hash h, if the plan (rate) p grants them. The parameter s is
// the state of the key, already converted to p. With the Intent Hold, charge returns a receipt: the
// units can be given back until the instant in the parameter until, or without a time limit if this
// parameter is 0.
func (ps *ratePlans[S, C]) charge(
	s *ratedState[S], h keytable.Hash, p *ratePlan[S, C], now keytable.Instant, n int64, do Intent, until keytable.Instant,
) (v Verdict, delay time.Duration, id Receipt) {
	if s.tag.chain() == 0 && do == Take || p.holds != nil {
		v, delay = p.config.Step(&s.state, p.config, now, n, true)
		return v, delay, p.held(&s.state, v.Granted())
	}
	before, young := ps.debt(s, p, now), p.ages != nil && p.ages.Unused(&s.state, now)
	if v, delay = p.config.Step(&s.state, p.config, now, n, true); v.RetryAfter != 0 {
		return v, delay, 0
	}
	ps.lower(s, h, before)
	at := max(now, p.config.Charged(&s.state))
	switch {
	case do == Hold:
		e := receipt{at: at, n: n, portion: Portion{Units: 1, Of: 1}, first: young, until: until}
		if p.ages != nil {
			e.portion = p.ages.Portion(&s.state)
		}
		var link uint32
		id, link = ps.receipts.get().issue(s.tag.chain(), h, &e, ps.debt(s, p, 0), p.arithmetic(), now)
		s.tag = s.tag.withChain(link)
	case s.tag.chain() != 0:
		ps.receipts.get().follow(s.tag.chain(), h, at)
	}
	return v, delay, id
}

func (k *ratedKeys[S, C]) Hold(
	h keytable.Hash, tier string, n int64, term time.Duration,
) (v Verdict, delay time.Duration, id Receipt, queued bool) {
	var now keytable.Instant
	if k.time.clock == nil {
		now = keytable.InstantAt(time.Since(k.time.start))
	} else {
		k.time.Renew()
	}
	shard, state := k.table.Open(h)
	if shard.Marked(h) {
		shard.Unlock()
		return v, 0, 0, true
	}
	if k.time.clock == nil {
		now = shard.Latest(now)
	} else {
		now = k.time.nowLocked(shard)
	}
	ps := shard.Algorithm
	p, until := ps.ofTier(tier), now.Add(term)
	if state != nil && state.tag.withoutChain() == p.id {
		v, delay, id = ps.charge(state, h, p, now, n, Hold, until)
	} else if v, delay, id = ps.step(shard, state, h, p, now, n, Hold); id != 0 {
		k.SetTerm(id, until, now)
	}
	shard.Count(v.RetryAfter == 0)
	shard.Unlock()
	return v, delay, id, false
}

// held returns the number of the hold (units that running work uses until it ends) that was just granted to
// the key with state s. It returns 0 if nothing was granted, or if the charges of the rule are not holds.
func (p *ratePlan[S, C]) held(s *S, granted bool) Receipt {
	if p.holds == nil || !granted {
		return 0
	}
	return p.holds.newest(s)
}

// endHold ends the hold with the number id, of the key with hash h, and returns how many units it has held.
// If the key has no such hold in its own state, endHold looks in the state that several keys share: the
// hold may have been charged there before the key got a state of its own.
func (ps *ratePlans[S, C]) endHold(shard *tableShard[S, C], h keytable.Hash, id Receipt, now keytable.Instant) (n int64) {
	if s := shard.Find(h); s != nil {
		n = ps.base.holds.end(&s.state, id)
	}
	if n == 0 {
		owed, _ := shard.Owed(now)
		n = ps.base.holds.end(&owed.state, id)
	}
	return n
}

func (k *ratedKeys[S, C]) Extend(h keytable.Hash, id Receipt, now keytable.Instant, per time.Duration) (next Receipt) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	p := shard.Algorithm.base
	if p.holds == nil {
		return 0
	}
	if s := shard.Find(h); s != nil {
		p = shard.Algorithm.planOf(s)
		next = p.holds.extend(&s.state, id, now, per)
	}
	if next == 0 {
		owed, _ := shard.Owed(now)
		next = p.holds.extend(&owed.state, id, now, per)
	}
	return next
}

// exceed charges n units to the key with hash h, whatever its limit. The parameter s is the state of the key, or
// nil if the key has none. Usually, the charge uses the plan (rate) at which s was last written. If there is no such
// plan, it uses the rate that the parameter want selects. It also uses that rate if the key counts as new or has to
// warm up again, unless the charges of the rule are holds (units that running work uses until it ends). exceed
// returns what the method Exceed of [Keys] returns.
func (ps *ratePlans[S, C]) exceed(
	shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, want Wanted, now keytable.Instant, n int64,
) Receipt {
	if s != nil {
		p := ps.planOf(s)
		if p == nil || p.holds == nil && ps.Idle(s, now) {
			p, _ = ps.pick(want)
			*s = ratedState[S]{tag: p.id}
		} else if p.ages != nil && p.ages.Unused(&s.state, now) {
			from := p
			if p, _ = ps.pick(want); !p.equals(from) {
				ps.convert(s, h, from, p, now, false)
			}
		}
		ps.lower(s, h, ps.debt(s, p, now))
		p.config.Exceed(&s.state, now, n)
		if s.tag.chain() != 0 {
			ps.receipts.get().follow(s.tag.chain(), h, max(now, p.config.Charged(&s.state)))
		}
		return p.held(&s.state, true)
	}
	p, _ := ps.pick(want)
	owed, now := shard.Owed(now)
	state := ps.newcomer(shard, p, now)
	p.config.Exceed(&state.state, now, n)
	state.tag = state.tag.withPlan(p.id)
	if shard.Insert(h, state, now) {
		return p.held(&state.state, true)
	}
	ps.share(owed, p, now)
	ps.planOf(owed).config.Exceed(&owed.state, now, n)
	if p.ages != nil {
		p.ages.Renew(&owed.state) // a debt that several keys share always counts as the debt of a new key
	}
	return p.held(&owed.state, true)
}

// resize converts the state s of the key with hash h from the limit of the old plan (from) to the limit
// of the new plan (to), after a call of Carry. It converts the receipts of the key too.
func (ps *ratePlans[S, C]) resize(s *ratedState[S], h keytable.Hash, from, to *ratePlan[S, C]) {
	d := to.debts
	switch {
	case s.tag.chain() == 0:
		to.config.Resize(&s.state, from.config, false)
		return
	case d == nil: // the algorithm counts in windows: if their length changes, nothing more can be given back
		if to.config.Resize(&s.state, from.config, false); !to.rate.sameWindows(from.rate) {
			s.forgetReceipts()
		}
		return
	}
	ps.receipts.get().rescale(s.tag.chain(), h, to.arithmetic(), from.arithmetic())
	ps.lower(s, h, d.Debt(&s.state, 0))
	if to.config.Resize(&s.state, from.config, false) {
		// A part of the debt was dropped, and it is not known which receipt it belonged to. So
		// nothing can be given back any more.
		ps.lower(s, h, exact.Level{})
	}
}

// settle ends the receipt with the number id. The parameter actual says how many of its units stay
// charged; the remaining units are given back. The parameter s is the state of the key with hash h, or
// nil if the key has none. The result is the number of units that were given back.
func (ps *ratePlans[S, C]) settle(s *ratedState[S], h keytable.Hash, id Receipt, actual int64, now keytable.Instant) int64 {
	p, link := ps.base, uint32(0)
	if s != nil && s.tag.chain() != 0 {
		p, link = ps.planOf(s), s.tag.chain()
	}
	back, found, last := ps.receipts.get().settle(link, h, id, actual, now)
	if !found {
		return 0
	}
	if last {
		s.forgetReceipts()
	}
	if back.N > 0 {
		p.config.GiveBack(&s.state, back)
	}
	return back.N
}
