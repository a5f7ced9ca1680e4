package engine

import (
	"reflect"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Keys are the keys of one rule and what each has used. The interface is the same for all
// algorithms, so that rules of several algorithms can take part in one decision.
type Keys interface {
	// Decide decides on n units for the key with hash h, at the rate of tier, and
	// takes them if they are granted. It is the whole decision if the rule is the
	// only one. For began see [Settle]. It also returns the reading of the clock. If
	// callers wait for the key, Decide decides nothing and sets queued.
	Decide(h keytable.Hash, tier string, n int64, began keytable.Instant) (v Verdict, delay time.Duration, now keytable.Instant, queued bool)

	// Hold is Decide for units that may be given back. If they are granted, it returns a
	// receipt, with a term as Keep gives it.
	Hold(h keytable.Hash, tier string, n int64, term time.Duration) (v Verdict, delay time.Duration, id Receipt, queued bool)

	// Ask decides on n units for the key with hash h at now, at the rate that want
	// asks for. do says whether it takes them, and whether for a receipt.
	Ask(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (Verdict, time.Duration, Receipt)

	// Keep gives the receipt id a term: it may be given back up to the instant until.
	// There are at most as many receipts with a term as keys that have a state, and
	// [MaxOpen] of one key. The oldest become final.
	Keep(id Receipt, until, now keytable.Instant)

	// Settle ends the receipt id of the key with hash h at now: of its units, actual
	// stay charged, and the others are given back. It returns how many that are: none
	// if the key was forgotten or reset since, if the receipt is final, if its term is
	// over, or if id is 0.
	Settle(h keytable.Hash, id Receipt, actual int64, now keytable.Instant) (back int64)

	// Exceed charges n units at now to the key with hash h, whatever its limit. If it
	// has no state, its rate is the one that want asks for.
	Exceed(h keytable.Hash, want Wanted, now keytable.Instant, n int64)

	// Confirm is Settle for a decision with Order.Unsettled that is a grant after all: its n
	// units stay charged, and it is counted.
	Confirm(h keytable.Hash, id Receipt, n int64, now keytable.Instant)

	// Revoke is Settle for one that is denied after all: nothing stays charged, and it is not
	// counted. It returns the answer to a request for n units at then, at the rate that
	// want asks for, and takes none.
	Revoke(h keytable.Hash, id Receipt, want Wanted, then keytable.Instant, n int64) (Verdict, time.Duration)

	// Remember gives the key with hash h a state in which remaining units are left. If rest
	// is not 0, the key is as good as new after that, if left alone.
	Remember(h keytable.Hash, want Wanted, remaining int64, rest time.Duration)

	// Place returns where the state of the key with hash h is at now, and how many of
	// its charges can still be given back.
	Place(h keytable.Hash, now keytable.Instant) (Place, int)

	// Reset makes the key with hash h as if it had never been used. It returns false
	// if it cannot: the key has no state, and a request for one unit by want is
	// denied because of the debt that such keys share.
	Reset(h keytable.Hash, want Wanted) bool

	// Change returns a function that makes r the rates of the keys, or the error if
	// r is invalid. Change and that function are called one at a time.
	Change(r Rates) (commit func(now keytable.Instant), err error)

	// Warm makes w the Warmup of the keys, which have one, from now on. Unlike Change, it
	// changes no key: the next charge decides by w whether the key is new. It is called as
	// Change is.
	Warm(w Warmup) error

	// Fresh returns the Future of a key that was never used, at the rule's own rate.
	Fresh() Future
	// Restart makes every key as if it had never been used, and the configurations
	// again. It is called as Change is.
	Restart()

	// Len returns how many keys have a state.
	Len() int

	// Counts returns the totals of all decisions.
	Counts() keytable.Counts

	Lockable
}

// Lockable are the keys of a rule or of a limiter, as far as a decision by several keys, or a
// caller that waits for a key, has to do with them.
type Lockable interface {
	// lock locks the shard of h and returns it. If the rule reads the machine's
	// clock, now is a reading of it. lock returns the later one of now and the
	// latest reading that the shard has seen. With another clock, it returns now.
	// queued reports whether callers wait for the key.
	lock(h keytable.Hash, now keytable.Instant) (s lockedShard, latest keytable.Instant, queued bool)
}

// A lockedShard is a locked shard of the keys of a rule.
type lockedShard interface {
	// step decides on n units for the key with hash h, at the rate that want asks
	// for. do says whether it takes them, and whether for a receipt.
	step(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt)

	// refusal returns the error for the rate that want asks for, if the rule's own
	// rate is used in its place. Otherwise it returns nil.
	refusal(want Wanted) error

	// ahead returns the instant from which on n units are there for the key with
	// hash h if nobody else takes any: at itself if they are there now, and
	// [keytable.End] if they never are. v is the verdict, counted from at, and delay
	// the Delay of the request when it is granted. do is Look or Probe.
	ahead(h keytable.Hash, want Wanted, at keytable.Instant, n int64, do Intent) (due keytable.Instant, v Verdict, delay time.Duration)

	// delay returns the Delay that n units have, if they are there, at the instant at.
	delay(h keytable.Hash, want Wanted, at keytable.Instant, n int64) time.Duration

	// place returns where the state of the key with hash h is at now, and how many of its
	// charges can still be given back.
	place(h keytable.Hash, now keytable.Instant) (Place, int)

	// revoked returns the answer of Revoke after a charge of n units, which would be
	// granted.
	revoked(h keytable.Hash, want Wanted, now keytable.Instant, n int64) (v Verdict, delay time.Duration)

	// future returns a copy of the state of the key with hash h.
	future(h keytable.Hash, at keytable.Instant) Future

	// mark notes whether callers wait for the key with hash h.
	mark(h keytable.Hash, marked bool)

	// finish counts the decision as t says and unlocks the shard; see
	// keytable.Shard.Finish.
	finish(now keytable.Instant, t keytable.Tally)
}

// An Intent says what a step may change.
type Intent uint8

// The values of an Intent.
const (
	Look  Intent = iota // nothing
	Probe               // the length of the window by which the key's units are counted
	Take                // that rate, and the key is charged if the units are granted
	Hold                // the same, and the charge has a receipt

	Rehearse // nothing: the answer is that of Take, by a copy of the state
)

// ratedKeys implements Keys for one algorithm.
type ratedKeys[S any, C Algorithm[S, C]] struct {
	time      *Timeline
	table     *keytable.Table[ratedState[S], *ratePlans[S, C]]
	configure func(Rate, *Warmup) (C, error)
	refusals  *Refusals
	plans     *ratePlans[S, C] // for Change only; each shard has a copy of the pointer
	held      heldReceipts
	maxKeys   int
}

// NewKeys returns the keys of a rule with the rates r. At most maxKeys of them have a state
// of their own. configure makes the configuration of the algorithm for a rate and a Warmup.
func NewKeys[S any, C Algorithm[S, C]](t *Timeline, r Rates, maxKeys int, configure func(Rate, *Warmup) (C, error), refusals *Refusals) (Keys, error) {
	k := &ratedKeys[S, C]{time: t, configure: configure, refusals: refusals, maxKeys: maxKeys}
	var err error
	if k.plans, err = newRatePlans[S](r, configure, refusals, &k.held); err != nil {
		return nil, err
	}
	k.table = keytable.New[ratedState[S]](k.plans, maxKeys)
	return k, nil
}

// Decide does for a rule what [Limiter.Decide] does for a limiter: the difference is that it
// finds the plan for the tier. The two stay side by side, because joined they would be slower.
func (k *ratedKeys[S, C]) Decide(h keytable.Hash, tier string, n int64, began keytable.Instant) (v Verdict, delay time.Duration, now keytable.Instant, queued bool) {
	now = began
	switch {
	case k.time.clock != nil:
		k.time.Renew()
	case now == 0:
		now = keytable.InstantAt(time.Since(k.time.start))
	}
	shard, state := k.table.Open(h)
	if shard.Marked(h) {
		shard.Unlock()
		return v, 0, now, true
	}
	if k.time.clock == nil {
		now = shard.Latest(now)
	} else {
		now = k.time.nowLocked(shard)
	}
	ps := shard.Algorithm
	p := ps.ofTier(tier)
	if state != nil && state.plan == p.id {
		v, delay = p.config.Step(&state.state, p.config, now, n, true)
	} else {
		v, delay, _ = ps.step(shard, state, h, p, now, n, Take)
	}
	shard.Count(v.RetryAfter == 0)
	shard.Unlock()
	return v, delay, now, false
}

func (k *ratedKeys[S, C]) Ask(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (Verdict, time.Duration, Receipt) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	return (*ratedShard[S, C])(shard).step(h, want, now, n, do)
}

func (k *ratedKeys[S, C]) lock(h keytable.Hash, now keytable.Instant) (lockedShard, keytable.Instant, bool) {
	shard := k.table.Lock(h)
	if k.time.clock == nil {
		now = shard.Latest(now)
	}
	return (*ratedShard[S, C])(shard), now, shard.Marked(h)
}

func (k *ratedKeys[S, C]) Keep(id Receipt, until, now keytable.Instant) {
	k.held.get().keep(id, until, now, k.maxKeys)
}

func (k *ratedKeys[S, C]) Settle(h keytable.Hash, id Receipt, actual int64, now keytable.Instant) (back int64) {
	if id == 0 {
		return 0
	}
	shard := k.table.Lock(h)
	defer shard.Unlock()
	return shard.Algorithm.settle(shard.Find(h), h, id, actual, now)
}

func (k *ratedKeys[S, C]) Exceed(h keytable.Hash, want Wanted, now keytable.Instant, n int64) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	if k.time.clock == nil {
		now = shard.Latest(now)
	}
	shard.Algorithm.exceed(shard, shard.Find(h), h, want, now, n)
}

func (k *ratedKeys[S, C]) Confirm(h keytable.Hash, id Receipt, n int64, now keytable.Instant) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	shard.Algorithm.settle(shard.Find(h), h, id, n, now)
	shard.Count(true)
}

func (k *ratedKeys[S, C]) Revoke(h keytable.Hash, id Receipt, want Wanted, then keytable.Instant, n int64) (v Verdict, delay time.Duration) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	shard.Algorithm.settle(shard.Find(h), h, id, 0, then)
	v, delay, _ = (*ratedShard[S, C])(shard).step(h, want, then, n, Look) // others may have asked at another rate
	return v, delay
}

func (k *ratedKeys[S, C]) Remember(h keytable.Hash, want Wanted, remaining int64, rest time.Duration) {
	now := k.time.Now()
	shard := k.table.Lock(h)
	defer shard.Unlock()
	p, _ := shard.Algorithm.pick(want)
	s, state := shard.Scratch(ratedState[S]{}), shard.Find(h)
	if ages := p.ages; ages != nil {
		var known *S
		if state != nil {
			known = &state.state
		}
		// A charge that is given back again makes the key one that was used at now.
		p.config.Step(&s.state, p.config, now, 1, true)
		paid := ages.Cost(&s.state)
		p.config.GiveBack(&s.state, Returned{At: now, N: 1, Debt: paid, Paid: paid, Last: true})
		if s.plan = p.id; !ages.Age(&s.state, known, rest, now) {
			*s = ratedState[S]{}
		}
	}
	v, _ := p.config.Step(&s.state, p.config, now, 1, false)
	if used := v.Left - max(remaining, 0); used > 0 {
		p.config.Step(&s.state, p.config, now, used, true)
		s.plan = p.id
	}
	switch {
	case state != nil:
		*state = *s
	case s.plan != 0:
		shard.Offer(h, s, now)
	}
}

func (k *ratedKeys[S, C]) Reset(h keytable.Hash, want Wanted) bool {
	now := k.time.Now()
	shard := k.table.Lock(h)
	defer shard.Unlock()
	if shard.Find(h) == nil {
		v, _, _ := (*ratedShard[S, C])(shard).step(h, want, now, 1, Look)
		return v.RetryAfter == 0
	}
	shard.Reset(h)
	return true
}

func (k *ratedKeys[S, C]) Change(r Rates) (func(now keytable.Instant), error) {
	ps, err := newRatePlans[S](r, k.configure, k.refusals, &k.held)
	if err != nil {
		return nil, err
	}
	return func(now keytable.Instant) {
		old := k.plans
		if reflect.DeepEqual(r, old.rates) {
			return
		}
		k.plans = ps
		successors := ps.successors(old)
		k.table.Reconfigure(ps, func(h keytable.Hash, s *ratedState[S], shared bool) {
			ps.retag(h, s, old, successors, now, shared)
		})
	}, nil
}

func (k *ratedKeys[S, C]) Fresh() Future { return &ratedFuture[S, C]{plans: k.plans} }

func (k *ratedKeys[S, C]) Restart() {
	// The rates were valid before, and no rate is valid at one start only.
	if ps, err := newRatePlans[S](k.plans.rates, k.configure, k.refusals, &k.held); err == nil {
		k.plans = ps
		k.table.Restart(ps)
	}
}

func (k *ratedKeys[S, C]) Len() int                { return k.table.Len() }
func (k *ratedKeys[S, C]) Counts() keytable.Counts { return k.table.Counts() }
