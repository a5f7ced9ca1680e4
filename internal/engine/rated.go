package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A ratedState is the state of one key of a rule.
type ratedState[S any] struct {
	state S
	tag   tag // the plans (rates) of the key, and its receipts
}

// A tableShard is a shard of the table of a rule's keys: a part of the table with a lock of its own.
type tableShard[S any, C Algorithm[S, C]] = keytable.Shard[ratedState[S], *ratePlans[S, C]]

// A ratedShard is a tableShard with the methods of lockedShard, which decisions call while a key is locked.
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
	case state != nil && state.tag == p.id && do < Hold:
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
	if state != nil && state.tag == p.id && do == Take {
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

// withID returns the plan (rate) with the given id, or nil if the id is 0.
func (ps *ratePlans[S, C]) withID(id tag) *ratePlan[S, C] {
	if id == 0 {
		return nil
	}
	return (*ps.byID.Load())[id-1]
}

// planOf returns the plan (rate) at which the state s was last written, or nil if s was never written.
func (ps *ratePlans[S, C]) planOf(s *ratedState[S]) *ratePlan[S, C] {
	return ps.withID(s.tag.plan())
}

// step decides on n units at the plan (rate) p for the key with hash h. The parameter s is the state of
// the key, or nil if the key has none.
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
	if from := ps.planOf(s); from != nil && !from.equals(p) {
		return ps.stepChanged(shard, s, h, from, p, now, n, do)
	}
	if do < Take {
		v, delay = p.config.Step(&s.state, p.config, now, n, false)
		return v, delay, 0
	}
	renewed := ps.renewed(s, p, now)
	if v, delay, id = ps.charge(s, h, p, now, n, do, 0); v.RetryAfter == 0 {
		s.tag = s.tag.withPlan(p.id)
		if renewed {
			keepSlowest(s, p, p)
		}
	}
	return v, delay, id
}

// stepChanged does what step does, for a key whose state s was last written at another plan (rate) than the
// plan p of the request. The parameter from is this old plan. A charge converts s to the plan p. Without a
// charge, s stays as it was, with one exception: if the method learns returns true, a step with the Intent
// Probe converts s too.
func (ps *ratePlans[S, C]) stepChanged(
	shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, from, p *ratePlan[S, C], now keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	before, learns := shard.Scratch(*s), ps.learns(s, from, p, now)
	switch {
	case learns && do == Look:
		s = before
		s.forgetReceipts()
	case !learns && (do < Take || s.tag.chain() != 0):
		// Decide with a copy first, so that s stays as it was if the units are not charged: the conversion of
		// a state with receipts cannot be undone.
		if v, delay = ps.stepCopy(before, s, from, p, now, n); do < Take || v.RetryAfter != 0 {
			return v, delay, 0
		}
	}
	ahead := !learns && s.tag.chain() == 0
	slow := ps.convert(s, h, from, p, now, ahead)
	if do < Take {
		v, delay = p.config.Step(&s.state, p.config, now, n, false)
		return v, delay, 0
	}
	switch v, delay, id = ps.charge(s, h, p, now, n, do, 0); {
	case !ahead:
	case v.RetryAfter == 0:
		keepSlowest(s, p, ps.slowestAfter(before, from, p, now))
	default:
		*s = *before
		if slow != p || p.ages != nil || from.config.Fills(p.config) {
			v, delay = ps.stepCopy(before, s, from, p, now, n)
		} else { // v is already what stepCopy would compute, but its durations may be too long
			ps.endWhenNew(&v, s, from, p, now, n)
		}
	}
	return v, delay, id
}

// slower compares two plans (rates): the old plan (from), at which the state s was last written, and
// the new plan (p). It converts s to the slower one of the two, drains the debt at that rate until
// now, and returns this slower plan. The rate of the key may have changed at any time since the last
// charge, so the slower rate applies to all of that time.
func (ps *ratePlans[S, C]) slower(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant) *ratePlan[S, C] {
	slows := p.config.Slower(from.config) && !ps.isNew(s, from, now)
	if from.ages != nil {
		from.ages.Forget(&s.state, now) // use the old plan, as the table does when it looks for keys that count as new and may be evicted
	}
	slow := from
	if slows {
		slow = p
		p.config.Carry(&s.state, from.config, 0) // instant 0 is before the last charge, so Carry drains no debt
	}
	slow.config.Carry(&s.state, slow.config, now)
	return slow
}

// stepCopy decides on n units at the new plan (p) for a key with the state s, which was last written at
// an old plan (from). stepCopy charges nothing, and does not change s. It converts only a copy of s, which the
// caller has made (the parameter named to). A later charge converts s itself. Until then, the debt
// drains at the slower of the two rates. Once the debt is zero, the key has the whole burst of the new
// plan. The durations in v take this into account.
//
// Suppose that requests that are denied or cost nothing converted s too. A client with two rates, of 10
// and of 1000 units at once, could then convert its key to the smaller burst, wait until the key owes
// nothing of these 10 units, and convert it back: the key would have all 1000 units. Where clients share
// a key, one of them could also take units from the others by denied requests at a low rate.
func (ps *ratePlans[S, C]) stepCopy(
	to, s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64,
) (v Verdict, delay time.Duration) {
	otherWindows, rest := p.debts == nil && !from.rate.sameWindows(p.rate), time.Duration(0)
	if otherWindows && p.ages == nil {
		return ps.stepOtherWindows(to, from, p, now, n)
	}
	slow, old := ps.slower(to, from, p, now), Verdict{}
	grows := from.config.Fills(p.config) // whether the burst of the new plan is larger
	if grows {
		old, _ = from.config.Step(&to.state, slow.config, now, 1, false)
	}
	if otherWindows {
		was, _ := from.config.Step(&to.state, from.config, now, 1, false)
		p.config.Carry(&to.state, from.config, now)
		slow, rest = p, was.ResetAfter
	}
	p.config.Resize(&to.state, from.config, true)
	v, delay = p.config.Step(&to.state, slow.config, now, n, false)
	if grows {
		v.ResetAfter = old.ResetAfter
	}
	v.ResetAfter = max(v.ResetAfter, rest)
	if slow != p && (delay > 0 || p.ages != nil) {
		// Decide again at the new rate, to which a charge would convert the key: the queue before the
		// units then drains at the new rate, so the Delay differs. With a Warmup, a unit costs fractions
		// of a token, and these are rounded differently at the new rate, so the number of units left may
		// differ too.
		p.config.Carry(&to.state, slow.config, now)
		var then Verdict
		then, delay = p.config.Step(&to.state, p.config, now, n, false)
		if v.Left = then.Left; v.RetryAfter == 0 || then.RetryAfter == 0 {
			v.RetryAfter = then.RetryAfter
		}
	}
	switch {
	case v.RetryAfter == 0 || n > v.Limit: // granted now, or more units than can ever be granted
	case p.ages != nil && !ps.rates.Learns:
		v.RetryAfter = ps.firstGrant(to, s, from, p, now, n, v.ResetAfter)
	case grows && n > old.Limit:
		v.RetryAfter = old.ResetAfter
	}
	if p.ages == nil && slow == p {
		ps.endWhenNew(&v, s, from, p, now, n)
	}
	return v, delay
}

// admit charges n units to the key with hash h, which has no state yet, at the instant in the parameter
// seen. The units are charged to a new state of the key. If the table is full, they are charged to the
// debt that all keys without a state share (owed). The caller has checked that this debt leaves room
// for the units. A charge to the shared debt cannot be given back, so it gets no receipt.
func (ps *ratePlans[S, C]) admit(
	shard *tableShard[S, C], owed *ratedState[S], h keytable.Hash, p *ratePlan[S, C], seen keytable.Instant, n int64, do Intent,
) (v Verdict, delay time.Duration, id Receipt) {
	state := ps.newcomer(shard, p, seen)
	v, delay, id = ps.charge(state, h, p, seen, n, do, 0)
	state.tag = state.tag.withPlan(p.id)
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
		slowest := ps.slowestAfter(state, from, p, seen)
		p.config.Carry(&state.state, from.config, seen)
		keepSlowest(state, p, slowest)
	}
	return state
}

// share prepares a decision on a key that has no slot in the table. The parameter owed is the debt
// that all such keys share, or a copy of this debt, and p is the plan (rate) of the key. If p is
// slower than the plan of the debt, or if the debt is zero, share changes the debt to p. So the debt
// drains at the slowest rate of the keys that share it.
func (ps *ratePlans[S, C]) share(owed *ratedState[S], p *ratePlan[S, C], now keytable.Instant) {
	from := ps.planOf(owed)
	switch {
	case from == nil:
		owed.tag = p.id
	case from.equals(p):
	case from.config.Idle(&owed.state, now):
		p.config.Carry(&owed.state, from.config, now)
		owed.tag = p.id
	case p.config.Slower(from.config):
		p.config.Carry(&owed.state, from.config, 0)
		owed.tag = p.id
	}
}

// stepShared decides on n units at the plan (rate) p for a key without a slot in the table. The
// parameter owed is the debt that all such keys share.
func (ps *ratePlans[S, C]) stepShared(
	shard *tableShard[S, C], owed *ratedState[S], p *ratePlan[S, C], now keytable.Instant, n int64, charge bool,
) (v Verdict, delay time.Duration) {
	s := shard.Scratch(*owed)
	ps.share(s, p, now)
	v, delay = p.config.Step(&s.state, ps.planOf(s).config, now, n, charge)
	v.Left = max(v.Left, 0) // Left is negative if the shared debt is above the burst of this key
	from := ps.planOf(owed)
	if from != nil && s.tag == from.id && p.debts == nil && !from.rate.sameWindows(p.rate) {
		*s = *owed
		if v, delay = ps.stepOtherWindows(s, from, p, now, n); charge && v.RetryAfter == 0 {
			*s = *owed
			v = ps.chargeOtherWindows(s, from, p, now, n)
		}
		v.Left = max(v.Left, 0)
	} else if from != nil && from.id != s.tag && v.RetryAfter != 0 && ps.fits(s, p, now, n) {
		// v was computed with the rate of this key, which is slower than the rate of the keys that share
		// the debt. A denied key does not share the debt, so the debt still drains at the faster rate.
		// When the debt is zero, this key counts as unused, and its request is granted. So the request
		// need not wait longer than that.
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

// fits reports whether n units are granted at the plan (rate) p to a key that was never used. It
// overwrites s, which it uses as working memory.
func (ps *ratePlans[S, C]) fits(s *ratedState[S], p *ratePlan[S, C], now keytable.Instant, n int64) bool {
	*s = ratedState[S]{}
	v, _ := p.config.Step(&s.state, p.config, now, n, false)
	return v.RetryAfter == 0
}

// Inherit returns the first state of a key that has shared the debt s with other keys, and now gets a slot of
// its own in the table.
func (ps *ratePlans[S, C]) Inherit(s *ratedState[S], now keytable.Instant) ratedState[S] {
	if p := ps.planOf(s); p != nil {
		// The tag can be copied, because the tag of a shared debt never has a chain of receipts.
		return ratedState[S]{state: p.config.Inherit(&s.state, now), tag: s.tag}
	}
	return ratedState[S]{}
}

// successors is used when the rates of a rule change. It returns a map from the id of each old plan (rate)
// in the parameter old to the new plan that replaces it. The new plan of the rule itself replaces its old
// plan. The new plan of a tier replaces the old plan of this tier; if the tier is gone, the new plan of the
// rule replaces it. The map has no entry for the rates that requests have asked for: they stay as they are.
func (ps *ratePlans[S, C]) successors(old *ratePlans[S, C]) map[tag]*ratePlan[S, C] {
	became := make(map[tag]*ratePlan[S, C], 1+len(old.tiers))
	became[old.base.id] = ps.base
	for tier, from := range old.tiers {
		became[from.id] = ps.ofTier(tier)
	}
	return became
}

// successor returns the plan (rate) that replaces an old plan after a change of the rates of a rule. The
// parameter from is the old plan. The parameter successors is the map that the method successors has returned.
func (ps *ratePlans[S, C]) successor(from *ratePlan[S, C], successors map[tag]*ratePlan[S, C]) *ratePlan[S, C] {
	if to := successors[from.id]; to != nil {
		return to
	}
	to, err := ps.find(from.rate, true)
	if err != nil { // the rule's windows now have another length, or the rule has no ids left for plans
		return ps.base
	}
	return to
}

// retag is called when the rates of the rule change. It converts s, the state of the key with hash h,
// from its old plan (rate) to a new plan. The parameter successors is the map that the method successors
// has returned. The parameter shared says whether s is the debt that several keys share.
//
//	s                        rates of the rule        plan of s afterwards
//	never written            one, before and after    the successor of the plan for the old rate
//	never written            several                  none: s stays as it is
//	written at a plan        any                      its successor, see the method successor
//	shared by several keys   several                  the slowest plan that one of the keys may have
func (ps *ratePlans[S, C]) retag(
	h keytable.Hash, s *ratedState[S], old *ratePlans[S, C], successors map[tag]*ratePlan[S, C], now keytable.Instant, shared bool,
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
	ps.moveTo(s, to, old, successors)
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

// slowest returns the plan (rate) for the debt that several keys share, after a change of the rule's rates. The
// parameter from is the old plan of the debt, and the parameter to is the new plan that replaces it. The result
// is the slowest of these plans:
//
//   - the plan in the parameter to
//   - the plans for the rule's own rate and for its tiers, which may be slower after the change
//   - if the parameter hadGrown is true, the new plan for the rate of the old plan: requests could ask for
//     rates of their own before the change, and some keys may keep that rate
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
