package engine

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Keys stores what each key of one rule has used. The interface is the same for all algorithms, so that
// rules with different algorithms can take part in one decision.
type Keys interface {
	// Decide decides on n units for the key with hash h at the rate of the given tier, and charges the units if
	// they are granted. Decide serves requests to which only this one rule applies. The parameter began is a
	// reading of the machine's clock that the caller has made for this decision, or 0. The result now is the
	// instant of the decision. If callers wait for the key, Decide decides nothing and sets queued.
	Decide(h keytable.Hash, tier string, n int64, began keytable.Instant) (v Verdict, delay time.Duration, now keytable.Instant, queued bool)

	// Hold does what Decide does, for units that can be given back. If the units are granted, Hold
	// returns the number of a receipt. With this number, the units can be given back for as long as the
	// parameter term says, see Settle and SetTerm.
	Hold(h keytable.Hash, tier string, n int64, term time.Duration) (v Verdict, delay time.Duration, id Receipt, queued bool)

	// Ask decides on n units for the key with hash h at the instant now, at the rate that the parameter
	// want selects. The parameter do says whether Ask takes the units if they are granted, and whether
	// it returns a receipt for them.
	Ask(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (Verdict, time.Duration, Receipt)

	// SetTerm gives the receipt with the number id a term: the units of the receipt can be given back
	// until the instant in the parameter until, and also at this instant. A key has at most [MaxOpen]
	// receipts with a term. For all keys of the rule together, the largest number is the parameter maxKeys
	// of [NewKeys]. If there are more, the oldest receipts become final: their units stay charged.
	SetTerm(id Receipt, until, now keytable.Instant)

	// Settle ends the receipt with the number id, of the key with hash h, at the instant now. The parameter actual
	// says how many of its units stay charged; the remaining units are given back. Settle returns how many units
	// it gave back: none if id is 0, if the receipt is final, if its term is over, or if the key was forgotten or
	// reset since the charge. If the charges of the rule are holds (units that running work uses until it ends),
	// Settle ends the hold and gives back all its units, whatever actual is.
	Settle(h keytable.Hash, id Receipt, actual int64, now keytable.Instant) (back int64)

	// Extend is for rules whose charges are holds (units that running work uses until it ends). It makes the hold
	// with the number id last from the instant now for the duration in the parameter per. The result is its new number.
	// It returns 0 if the hold is over, or if the charges of the rule are not holds.
	Extend(h keytable.Hash, id Receipt, now keytable.Instant, per time.Duration) Receipt

	// Exceed charges n units at the instant now to the key with hash h, even beyond its limit. A key that has no
	// state yet gets the rate that the parameter want selects. If the charges of the rule are holds (units that
	// running work uses until it ends), Exceed returns the number of the hold, and otherwise 0.
	Exceed(h keytable.Hash, want Wanted, now keytable.Instant, n int64) Receipt

	// Confirm ends a decision that was left open (by Order.Unsettled), and which turned out to be a grant. The n
	// units of its receipt stay charged, and the grant is counted.
	Confirm(h keytable.Hash, id Receipt, n int64, now keytable.Instant)

	// Revoke ends a decision that was left open (by Order.Unsettled), and which turned out to be a denial. All
	// units of its receipt are given back, and the decision is not counted. Revoke then returns the answer that a
	// request for n units would get at the instant in the parameter then, at the rate that the parameter want
	// selects. It does not charge these n units.
	Revoke(h keytable.Hash, id Receipt, want Wanted, then keytable.Instant, n int64) (Verdict, time.Duration)

	// Remember gives the key with hash h a state that agrees with the answer of a store: at most the given
	// number of units (remaining) is left. The parameter rest is the ResetAfter in that answer, or 0 if it
	// is not known. If the keys have a Warmup (a lower limit for new keys), Remember uses the parameter
	// rest to compute how far the limit of the key has grown.
	Remember(h keytable.Hash, want Wanted, remaining int64, rest time.Duration)

	// Place returns where the state of the key with hash h is stored at the instant now, and
	// how many charges of the key can still be given back.
	Place(h keytable.Hash, now keytable.Instant) (Place, int)

	// Held returns how many units of the key with hash h are held by running work at the instant now, and for how
	// long the oldest hold has lasted. If the rule does not limit running work, Held returns zeros.
	Held(h keytable.Hash, now keytable.Instant) Held

	// Reset forgets everything that the key with hash h has used, and returns true. A key that has no
	// state of its own shares one debt with all other such keys, and Reset does not change this debt.
	// If the debt denies a request for one unit at the rate that the parameter want selects, Reset
	// returns false.
	Reset(h keytable.Hash, want Wanted) bool

	// Admit prepares the keys for a request that asks for the rate r. If r is nil, Admit does nothing. If
	// requests have asked for too many rates, Admit forgets the rates that no key uses any more. If all
	// rates are in use, it returns the error of Refusals.TooMany. The caller must hold no lock of the
	// keys.
	Admit(r *Rate) error

	// Change returns a function that sets the rates of the keys to the given rates r, or an error if r
	// is invalid. Neither Change nor the returned function may be called concurrently.
	Change(r Rates) (commit func(now keytable.Instant), err error)

	// Warm sets the Warmup of the keys to w. The keys must have a Warmup already. Warm does not change
	// the state of any key: at the next charge of a key, the Warmup w decides whether the key is new.
	// Warm must not be called concurrently with Change.
	Warm(w Warmup) error

	// Fresh returns the Future (a copy of the state) of a key that was never used.
	Fresh() Future
	// Restart forgets the states of all keys, so that every key counts as never used, and computes the
	// configurations of all rates again. It must not be called concurrently with Change.
	Restart()

	// Len returns how many keys have a state.
	Len() int

	// Counts returns the totals of all decisions.
	Counts() keytable.Counts

	// issued returns the receipts of all keys: the charges that can be given back.
	issued() *receipts

	Lockable
}

// A Lockable stores the keys of a rule or of a limiter, and can lock one of them. [DecideAll] locks one
// key of each rule of a request. Package waitline locks the keys that a caller waits for.
type Lockable interface {
	// lock locks the shard (the part of the table) that has the key with hash h, and returns the shard.
	// The parameter now is a reading of the clock. If the clock is the machine's, the result latest is the
	// later one of now and the latest reading that the shard has seen. With any other clock, latest equals
	// now. The result queued says whether callers wait for the key.
	lock(h keytable.Hash, now keytable.Instant) (s lockedShard, latest keytable.Instant, queued bool)
}

// A lockedShard is a locked shard (a part of the table of keys) of a rule or of a limiter. Its methods
// must not be called after finish or chargeAndUnlock.
type lockedShard interface {
	// step decides on n units for the key with hash h at the rate that the parameter want selects. The
	// parameter do says whether step takes the units if they are granted, and whether it returns a
	// receipt for them.
	step(h keytable.Hash, want Wanted, now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt)

	// refusal returns the error that says why the rule cannot use want.Rate. The rule then decides at its
	// own rate instead. If the rule can use want.Rate, refusal returns nil.
	refusal(want Wanted) error

	// ahead decides on a request for n units of the key with hash h at the instant in the parameter at,
	// and returns the verdict v. The result due is the earliest instant from then on at which the units
	// are available if no other request comes. If the units are never available, due is [keytable.End].
	// The result delay is the Delay of the request once it is granted. ahead charges nothing.
	ahead(h keytable.Hash, want Wanted, at keytable.Instant, n int64) (due keytable.Instant, v Verdict, delay time.Duration)

	// delay returns the Delay that a request for n units has if it is granted at the given instant.
	delay(h keytable.Hash, want Wanted, at keytable.Instant, n int64) time.Duration

	// place returns where the state of the key with hash h is stored at the instant now, and
	// how many charges of the key can still be given back.
	place(h keytable.Hash, now keytable.Instant) (Place, int)

	// revoked returns the answer that a request for n units would get if n units had been charged just before and
	// given back again, see Keys.Revoke. The caller has checked that these units would be granted. revoked changes
	// nothing.
	revoked(h keytable.Hash, want Wanted, now keytable.Instant, n int64) (v Verdict, delay time.Duration)

	// future returns a copy of the state that the key with hash h has at the given instant.
	future(h keytable.Hash, at keytable.Instant) Future

	// mark notes in the table whether callers wait for the key with hash h.
	mark(h keytable.Hash, marked bool)

	// finish adds the decision to the total t and unlocks the shard, see [keytable.Shard.Finish].
	finish(now keytable.Instant, t keytable.Tally)

	// chargeAndUnlock decides on n units at the rate of the given tier, takes them if they are granted,
	// counts the answer and unlocks the shard. The parameter do is Take or Hold.
	chargeAndUnlock(h keytable.Hash, tier string, now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt)
}

// An Intent says what a step may change in the state of a key.
type Intent uint8

// The values of an Intent.
const (
	Look  Intent = iota // change nothing
	Probe               // charge nothing; but if Rates.Learns is set, even a denied request may give its rate to the key
	Take                // if the units are granted, give the key the rate of the request, and charge the units; otherwise do what Probe does
	Hold                // do what Take does, and issue a receipt for the charge

	DryRun // change nothing, but compute the answer of Take with a copy of the state
)

// ratedKeys implements Keys for one algorithm.
type ratedKeys[S any, C Algorithm[S, C]] struct {
	time      *Timeline
	table     *keytable.Table[ratedState[S], *ratePlans[S, C]]
	configure func(Rate, *Warmup) (C, error)
	refusals  *Refusals
	receipts  lazyReceipts

	changing sync.Mutex // held while the plans (rates and their configurations) change

	// plans are the rates of the rule with their configurations. Each shard of the table has a copy of
	// this pointer, and decisions use that copy.
	plans atomic.Pointer[ratePlans[S, C]]
}

// NewKeys returns the keys of a rule with the rates r. At most maxKeys keys have a state of their own.
// The function configure returns the configuration of the algorithm for a rate and a Warmup.
func NewKeys[S any, C Algorithm[S, C]](
	t *Timeline, r Rates, maxKeys int, configure func(Rate, *Warmup) (C, error), refusals *Refusals,
) (Keys, error) {
	k := &ratedKeys[S, C]{time: t, configure: configure, refusals: refusals, receipts: lazyReceipts{max: min(maxKeys, maxChains/2)}}
	ps, err := newRatePlans[S](r, configure, refusals, &k.receipts)
	if err != nil {
		return nil, err
	}
	k.plans.Store(ps)
	k.table = keytable.New[ratedState[S]](ps, maxKeys)
	return k, nil
}

// Decide does for a rule what [Limiter.Decide] does for a limiter, and also finds the plan (rate) for
// the tier. One method for both would be slower.
func (k *ratedKeys[S, C]) Decide(
	h keytable.Hash, tier string, n int64, began keytable.Instant,
) (v Verdict, delay time.Duration, now keytable.Instant, queued bool) {
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
	if state != nil && state.tag == p.id {
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

func (k *ratedKeys[S, C]) SetTerm(id Receipt, until, now keytable.Instant) {
	k.receipts.get().setTerm(id, until, now)
}

func (k *ratedKeys[S, C]) Settle(h keytable.Hash, id Receipt, actual int64, now keytable.Instant) (back int64) {
	if id == 0 {
		return 0
	}
	shard := k.table.Lock(h)
	defer shard.Unlock()
	if shard.Algorithm.base.holds != nil {
		return shard.Algorithm.endHold(shard, h, id, now)
	}
	return shard.Algorithm.settle(shard.Find(h), h, id, actual, now)
}

func (k *ratedKeys[S, C]) Exceed(h keytable.Hash, want Wanted, now keytable.Instant, n int64) Receipt {
	_ = k.Admit(want.Rate)
	shard := k.table.Lock(h)
	defer shard.Unlock()
	if k.time.clock == nil {
		now = shard.Latest(now)
	}
	return shard.Algorithm.exceed(shard, shard.Find(h), h, want, now, n)
}

func (k *ratedKeys[S, C]) Confirm(h keytable.Hash, id Receipt, n int64, now keytable.Instant) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	shard.Algorithm.settle(shard.Find(h), h, id, n, now)
	shard.Count(true)
}

func (k *ratedKeys[S, C]) Revoke(
	h keytable.Hash, id Receipt, want Wanted, then keytable.Instant, n int64,
) (v Verdict, delay time.Duration) {
	shard := k.table.Lock(h)
	defer shard.Unlock()
	shard.Algorithm.settle(shard.Find(h), h, id, 0, then)
	// Another request may have changed the rate of the key since the charge. The method step converts
	// the state to the rate of this request.
	v, delay, _ = (*ratedShard[S, C])(shard).step(h, want, then, n, Look)
	return v, delay
}

func (k *ratedKeys[S, C]) Remember(h keytable.Hash, want Wanted, remaining int64, rest time.Duration) {
	now := k.time.Now()
	_ = k.Admit(want.Rate)
	shard := k.table.Lock(h)
	defer shard.Unlock()
	p, _ := shard.Algorithm.pick(want)
	s, state, b := shard.Scratch(ratedState[S]{}), shard.Find(h), p.arithmetic()
	if ages := p.ages; ages != nil {
		var known *S
		if state != nil {
			known = &state.state
		}
		// Charge one unit and give it back. The key then counts as used at the instant now, but it
		// owes nothing.
		p.config.Step(&s.state, p.config, now, 1, true)
		back := Returned{At: now, N: 1, Last: true}
		if b != nil {
			back.Paid = b.Cost(ages.Portion(&s.state), 1)
			back.Debt = back.Paid
		}
		p.config.GiveBack(&s.state, back)
		if s.tag = p.id; !ages.Age(&s.state, known, rest, now) {
			*s = ratedState[S]{}
		}
	}
	v, _ := p.config.Step(&s.state, p.config, now, 1, false)
	if used := v.Left - max(remaining, 0); used > 0 {
		v, _ = p.config.Step(&s.state, p.config, now, used, true)
		if over := max(remaining, 0) - v.Left; over > 0 { // the cost of the units was rounded up, so too few are left: give back the excess
			room := b.Minus(exact.Level{Whole: b.Burst}, b.Cost(p.ages.Portion(&s.state), remaining))
			back := b.Minus(p.debts.Debt(&s.state, now), room)
			p.config.GiveBack(&s.state, Returned{At: now, Debt: back, Paid: back, Last: true})
		}
		s.tag = p.id
		if first, ok := any(p.config).(beginner[S]); ok && p.rate.Window != "" && rest > 0 {
			first.Begin(&s.state, now-keytable.Instant(max(p.rate.Per-rest, 0)))
		}
	}
	switch {
	case state != nil:
		*state = *s
	case s.tag != 0:
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
	ps, err := newRatePlans[S](r, k.configure, k.refusals, &k.receipts)
	if err != nil {
		return nil, err
	}
	return func(now keytable.Instant) {
		k.changing.Lock()
		defer k.changing.Unlock()
		old := k.plans.Load()
		if reflect.DeepEqual(r, old.rates) {
			return
		}
		successors := ps.successors(old)
		k.table.Reconfigure(ps, func(h keytable.Hash, s *ratedState[S], shared bool) {
			ps.retag(h, s, old, successors, now, shared)
		})
		k.plans.Store(ps)
	}, nil
}

func (k *ratedKeys[S, C]) Fresh() Future { return &ratedFuture[S, C]{plans: k.plans.Load()} }

func (k *ratedKeys[S, C]) Restart() {
	k.changing.Lock()
	defer k.changing.Unlock()
	// No error is possible: the rates were valid before, and a new start of the timeline cannot make them invalid.
	if ps, err := newRatePlans[S](k.plans.Load().rates, k.configure, k.refusals, &k.receipts); err == nil {
		k.table.Restart(ps)
		k.plans.Store(ps)
	}
}

func (k *ratedKeys[S, C]) Len() int                { return k.table.Len() }
func (k *ratedKeys[S, C]) Counts() keytable.Counts { return k.table.Counts() }
func (k *ratedKeys[S, C]) issued() *receipts       { return k.receipts.get() }
