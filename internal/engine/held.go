package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// withReceipts is the bit of ratedState.plan that is set while the key may have receipts, so that
// the shortest way of a decision, which compares the plan, does not apply to it.
const withReceipts = 1 << 31

// under notes that s is written under the plan p.
func (s *ratedState[S]) under(id uint32) { s.plan = id | s.plan&withReceipts }

// drop lets s forget its receipts: nothing is given back.
func (s *ratedState[S]) drop() { s.chain, s.plan = 0, s.plan&^withReceipts }

// debt returns what s owes at now under p, or zero if p counts in windows.
func (ps *ratePlans[S, C]) debt(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant) exact.Level {
	if p.debts != nil {
		return p.debts.Debt(&s.state, now)
	}
	return exact.Level{}
}

// lower notes in the receipts of s, the state of h, that it owes debt, before that changes; see
// receipts.
func (ps *ratePlans[S, C]) lower(s *ratedState[S], h keytable.Hash, debt exact.Level) {
	if s.chain != 0 && !ps.held.get().lower(s.chain, h, debt) {
		s.drop()
	}
}

// charge takes n units at now from s, the state of h, under its plan p, if they are granted. With
// do Hold, it returns a receipt for them.
func (ps *ratePlans[S, C]) charge(s *ratedState[S], h keytable.Hash, p *ratePlan[S, C], now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt) {
	if s.chain == 0 && do == Take {
		v, delay = p.config.Step(&s.state, p.config, now, n, true)
		return v, delay, 0
	}
	before, young := ps.debt(s, p, now), p.ages != nil && p.ages.Unused(&s.state, now)
	if v, delay = p.config.Step(&s.state, p.config, now, n, true); v.RetryAfter != 0 {
		return v, delay, 0
	}
	ps.lower(s, h, before)
	at := p.config.Charged(&s.state)
	switch {
	case do == Hold:
		e := receipt{at: at, n: n, low: ps.debt(s, p, 0), each: exact.Level{Whole: 1}, first: young}
		if p.ages != nil {
			e.each = p.ages.Cost(&s.state)
		}
		id = ps.held.get().issue(&s.chain, h, e)
		s.plan |= withReceipts
	case s.chain != 0:
		ps.held.get().follow(s.chain, h, at)
	}
	return v, delay, id
}

func (k *ratedKeys[S, C]) Hold(h keytable.Hash, tier string, n int64, term time.Duration) (v Verdict, delay time.Duration, id Receipt, queued bool) {
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
	v, delay, id = ps.step(shard, state, h, ps.ofTier(tier), now, n, Hold)
	if id != 0 {
		k.Keep(id, now.Add(term), now)
	}
	shard.Count(v.RetryAfter == 0)
	shard.Unlock()
	return v, delay, id, false
}

// exceed charges n units at now to the key with hash h, whatever its limit. s is the key's state,
// and decides by the rate that it was written under. If it is nil or unused, it is that of want.
func (ps *ratePlans[S, C]) exceed(shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, want Wanted, now keytable.Instant, n int64) {
	if s != nil {
		p := ps.planOf(s)
		if p == nil {
			p, _ = ps.pick(want)
			s.under(p.id)
		}
		ps.lower(s, h, ps.debt(s, p, now))
		p.config.Exceed(&s.state, now, n)
		if s.chain != 0 {
			ps.held.get().follow(s.chain, h, p.config.Charged(&s.state))
		}
		return
	}
	p, _ := ps.pick(want)
	owed, now := shard.Owed(now)
	state := ps.newcomer(shard, p, now)
	p.config.Exceed(&state.state, now, n)
	state.under(p.id)
	if !shard.Keep(h, state, now) {
		ps.share(owed, p, now)
		ps.planOf(owed).config.Exceed(&owed.state, now, n)
		if p.ages != nil {
			p.ages.Renew(&owed.state) // a debt that keys share does not age
		}
	}
}

// resize brings s, the state of h, after Carry, from the limit of from to that of to, and its
// receipts with it.
func (ps *ratePlans[S, C]) resize(s *ratedState[S], h keytable.Hash, from, to *ratePlan[S, C]) {
	d := to.debts
	switch {
	case s.chain == 0:
		to.config.Resize(&s.state, from.config)
		return
	case d == nil: // units of a window that has another length now cannot be told apart
		if to.config.Resize(&s.state, from.config); to.rate.Per != from.rate.Per {
			s.drop()
		}
		return
	}
	before := d.Debt(&s.state, 0)
	ps.held.get().rescale(s.chain, h, to.arithmetic(), from.arithmetic())
	ps.lower(s, h, before)
	to.config.Resize(&s.state, from.config)
	before.Whole += to.arithmetic().Burst - from.arithmetic().Burst
	if d.Debt(&s.state, 0) != before {
		// A part of the debt was forgiven. It is not known whether it was that of a receipt.
		ps.lower(s, h, exact.Level{})
	}
}

// settle ends the receipt id of s, the state of h, which may be nil, at now: of its units, actual
// stay charged. It returns how many units it has given back.
func (ps *ratePlans[S, C]) settle(s *ratedState[S], h keytable.Hash, id Receipt, actual int64, now keytable.Instant) int64 {
	p, link := ps.base, uint32(0)
	if s != nil && s.chain != 0 {
		p, link = ps.planOf(s), s.chain
	}
	back, found, last := ps.held.get().settle(link, h, id, actual, now, p.arithmetic())
	if !found {
		return 0
	}
	if last {
		s.drop()
	}
	if back.N > 0 {
		p.config.GiveBack(&s.state, back)
	}
	return back.N
}
