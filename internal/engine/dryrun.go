package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Found holds what a dry run finds out about one part of a decision (a rule and its key), in addition
// to the answer of this part.
type Found struct {
	Place    Place // where the state of the key is stored; 0 if Part.Keys is nil
	Receipts int   // how many charges of the key can still be given back

	Verdict Verdict       // answer to the next request if the charge were given back; only set if the part grants, with Order.Revocable
	Delay   time.Duration // the Delay of the answer in the field Verdict
}

// A Place says where the table stores the state of a key.
type Place uint8

// The values of a Place.
const (
	Nowhere Place = 1 + iota // the key is unused, and needs no state
	Own                      // the key has a slot of its own in the table
	Shared                   // the key has no slot: what it used is counted together with what other keys without a slot used
)

// find writes into o.Found[i] what a dry run finds out about the part p at the instant now. The key of p
// is locked.
func (o *Order) find(i int, p *Part, now keytable.Instant) {
	for len(o.Found) <= i { // a part whose field Keys is nil gets the zero Found
		o.Found = append(o.Found, Found{})
	}
	at := &o.Found[i]
	at.Place, at.Receipts = p.shard.place(p.Hash, now)
	switch {
	case !o.Revocable || !p.Granted():
	case p.N == 0:
		at.Verdict, at.Delay = p.Verdict, p.Delay
	default:
		at.Verdict, at.Delay = p.shard.revoked(p.Hash, p.Want, now, p.N)
	}
}

// Place returns where the state of the key with hash h is stored at the instant now, and how many
// charges of the key can still be given back.
func (k *ratedKeys[S, C]) Place(h keytable.Hash, now keytable.Instant) (Place, int) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	return (*ratedShard[S, C])(shard).place(h, now)
}

// Held returns how many units of the key with hash h are held by running work at the instant now, and for how
// long the oldest hold has lasted. If the key has no state, Held counts the holds of all keys without a state
// together. If the rule does not limit running work, Held returns zeros.
func (k *ratedKeys[S, C]) Held(h keytable.Hash, now keytable.Instant) Held {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	p := shard.Algorithm.base
	if p.holds == nil {
		return Held{}
	}
	state := shard.Find(h)
	if state == nil {
		state, now = shard.Owed(now)
	}
	return p.holds.held(&state.state, now)
}

func (s *ratedShard[S, C]) place(h keytable.Hash, now keytable.Instant) (Place, int) {
	shard := (*tableShard[S, C])(s)
	state, place, open := shard.Find(h), Own, 0
	if state == nil {
		place = Shared
		state, now = shard.Owed(now)
	} else if state.tag.chain() != 0 {
		open = s.Algorithm.receipts.get().count(state.tag.chain(), h)
	}
	if p := s.Algorithm.base; p.holds != nil {
		open = p.holds.count(&state.state, now)
	}
	if open == 0 && s.Algorithm.Idle(state, now) {
		place = Nowhere
	}
	return place, open
}

// Only rules make dry runs. For the keys of a limiter without rules, the methods below are never
// called.

func (*limiterShard[S, C]) place(keytable.Hash, keytable.Instant) (Place, int) { return 0, 0 }

func (*limiterShard[S, C]) revoked(keytable.Hash, Wanted, keytable.Instant, int64) (v Verdict, delay time.Duration) {
	return v, 0
}

// count returns how many receipts (charges that can be given back) the key with hash h has. The
// parameter link is the index of the key's list of receipts, as it is stored in the key's state.
func (r *receipts) count(link uint32, h keytable.Hash) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.chainOf(h, link); c != nil {
		n = int(c.open)
	}
	return n
}

// dryRun returns the answer that the method step would return with the Intent Take, but changes
// only copies of states. The parameter s is the state of the key with hash h, or nil if the key has
// no state.
//
// The result charged is the copy to which dryRun has charged the units, if they are granted. If the
// result own is true, charged is a copy of the key's own state, or the state that the key would get.
// Otherwise, charged is a copy of the debt that all keys without a state share.
func (ps *ratePlans[S, C]) dryRun(
	shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, p *ratePlan[S, C], now keytable.Instant, n int64,
) (v Verdict, delay time.Duration, charged *ratedState[S], own bool) {
	if s != nil {
		charged = ps.copyOf(s)
		v, delay, _ = ps.step(shard, charged, h, p, now, n, Take)
		return v, delay, charged, true
	}
	owed, seen := shard.Owed(now)
	charged = ps.copyOf(owed)
	if v, delay = ps.stepShared(shard, charged, p, seen, n, false); v.RetryAfter == 0 {
		if own = shard.HasRoom(seen); own {
			*charged = *ps.newcomer(shard, p, seen)
			v, delay, _ = ps.charge(charged, h, p, seen, n, Take, 0)
			charged.tag = charged.tag.withPlan(p.id)
		} else {
			v, delay = ps.stepShared(shard, charged, p, seen, n, true)
		}
	}
	v.await(seen, now)
	return v, delay, charged, own
}

// revoked returns the answer that a request for n units would get if n units had been charged just before
// and given back again. It changes only copies of states.
func (s *ratedShard[S, C]) revoked(h keytable.Hash, want Wanted, now keytable.Instant, n int64) (v Verdict, delay time.Duration) {
	ps, shard, seen := s.Algorithm, (*tableShard[S, C])(s), now
	p, _ := ps.pick(want)
	before := shard.Find(h)
	_, _, state, own := ps.dryRun(shard, before, h, p, now, n)
	if own {
		back := Returned{At: p.config.Charged(&state.state), N: n, Paid: exact.Level{Whole: n}, Last: true}
		if ages := p.ages; ages != nil {
			back.First = before == nil || ages.Unused(&before.state, now)
			if b := p.arithmetic(); b != nil {
				back.Paid = b.Cost(ages.Portion(&state.state), n)
			}
		}
		back.Debt = lesser(back.Paid, ps.debt(state, p, 0))
		p.config.GiveBack(&state.state, back)
	} else {
		_, seen = shard.Owed(now)
		p = ps.planOf(state)
	}
	v, delay = p.config.Step(&state.state, p.config, seen, n, false)
	v.await(seen, now)
	return v, delay
}

// copyOf returns a copy of the state s without receipts. The copy shares no memory with s.
func (ps *ratePlans[S, C]) copyOf(s *ratedState[S]) *ratedState[S] {
	p := ps.planOf(s)
	if p == nil {
		return new(ratedState[S])
	}
	return &ratedState[S]{state: p.config.Clone(&s.state), tag: s.tag.withoutChain()}
}
