package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Rehearsal is for a decision that changes nothing. Each part gets the answer that it would get
// if the decision were made: one that charges the part is made on a copy of the key's state.
type Rehearsal struct {
	Parts []Rehearsed // one for each part of [Settle], which sets them
}

// A Rehearsed is what a Rehearsal finds out about one part beside the answer.
type Rehearsed struct {
	Place    Place // where the state of the key is; 0 if it was not looked up
	Receipts int   // how many charges of the key can still be given back

	Verdict Verdict       // with Order.Revocable: the answer if the charge is revoked, see [Keys]
	Delay   time.Duration // of that answer
}

// A Place says where the state of a key is.
type Place uint8

// The values of a Place.
const (
	Nowhere Place = 1 + iota // the key is as if it had never been used
	Own                      // in the key's own slot
	Shared                   // the table is full, and keys without a slot share what they owe
)

// rehearsed sets the i-th part of r, which is p; its key is locked.
func (r *Rehearsal) rehearsed(i int, p *Part, now keytable.Instant, order *Order) {
	for len(r.Parts) <= i { // the parts without keys have the zero Rehearsed
		r.Parts = append(r.Parts, Rehearsed{})
	}
	at := &r.Parts[i]
	at.Place, at.Receipts = p.shard.place(p.Hash, now)
	if order.Revocable && p.Granted() {
		at.Verdict, at.Delay = p.shard.revoked(p.Hash, p.Want, now, order.N)
	}
}

// Place returns where the state of the key with hash h is at now, and how many of its charges can
// still be given back.
func (k *ratedKeys[S, C]) Place(h keytable.Hash, now keytable.Instant) (Place, int) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	return (*ratedShard[S, C])(shard).place(h, now)
}

func (s *ratedShard[S, C]) place(h keytable.Hash, now keytable.Instant) (Place, int) {
	shard := (*tableShard[S, C])(s)
	state, place, open := shard.Find(h), Own, 0
	if state == nil {
		place = Shared
		state, now = shard.Owed(now)
	} else if state.chain != 0 {
		open = s.Algorithm.held.get().count(state.chain, h)
	}
	if open == 0 && s.Algorithm.Idle(state, now) {
		place = Nowhere
	}
	return place, open
}

// Nobody rehearses a limiter.

func (*limiterShard[S, C]) place(keytable.Hash, keytable.Instant) (Place, int) { return 0, 0 }

func (*limiterShard[S, C]) revoked(keytable.Hash, Wanted, keytable.Instant, int64) (v Verdict, delay time.Duration) {
	return v, 0
}

// count returns how many receipts the key of hash h has, whose state has this link.
func (r *receipts) count(link uint32, h keytable.Hash) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.chainOf(h, link); c != nil {
		for i := c.newest; i != 0; i = r.all[i].prev {
			n++
		}
	}
	return n
}

// rehearse answers as step with do Take would, but changes only copies. s is the state of the key
// with hash h, or nil if it has none. charged is the copy that was charged, and own says whether it
// would be the key's own state.
func (ps *ratePlans[S, C]) rehearse(shard *tableShard[S, C], s *ratedState[S], h keytable.Hash, p *ratePlan[S, C], now keytable.Instant, n int64) (v Verdict, delay time.Duration, charged *ratedState[S], own bool) {
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
			v, delay, _ = ps.charge(charged, h, p, seen, n, Take)
			charged.under(p.id)
		} else {
			v, delay = ps.stepShared(shard, charged, p, seen, n, true)
		}
	}
	v.await(seen, now)
	return v, delay, charged, own
}

// revoked returns the answer of Revoke after a charge of n units, which would be granted. Nothing
// changes but copies.
func (s *ratedShard[S, C]) revoked(h keytable.Hash, want Wanted, now keytable.Instant, n int64) (v Verdict, delay time.Duration) {
	ps, shard, seen := s.Algorithm, (*tableShard[S, C])(s), now
	p, _ := ps.pick(want)
	before := shard.Find(h)
	_, _, state, own := ps.rehearse(shard, before, h, p, now, n)
	if own {
		back := Returned{At: p.config.Charged(&state.state), N: n, Paid: exact.Level{Whole: n}, Last: true}
		if ages := p.ages; ages != nil {
			back.First = before == nil || ages.Unused(&before.state, now)
			if b := p.arithmetic(); b != nil {
				back.Paid = b.Times(ages.Cost(&state.state), n)
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

// copyOf returns a copy of s without its receipts, which shares no memory with s.
func (ps *ratePlans[S, C]) copyOf(s *ratedState[S]) *ratedState[S] {
	p := ps.planOf(s)
	if p == nil {
		return new(ratedState[S])
	}
	return &ratedState[S]{state: p.config.Clone(&s.state), plan: p.id}
}
