package engine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Receipt names one charge that may be given back. 0 names none: the key had no state of its
// own, so nothing is given back.
type Receipt uint64

// Returned is what an algorithm takes off the state of a key.
type Returned struct {
	At   keytable.Instant // when the units were charged
	N    int64            // how many units are given back
	Debt exact.Level      // of a bucket: how much of them the key still owes
	Paid exact.Level      // of a bucket: what they have cost
	Last bool             // whether nothing was charged after them

	First bool             // whether the key was new before them, and none of them stays charged
	Next  keytable.Instant // if First: when the key was charged next; 0 if it was not
}

// A Debtor is an [Algorithm] whose keys owe what they were granted until it has drained.
type Debtor[S any] interface {
	// Debt returns what s owes at now or, if that is later, at its last charge.
	Debt(s *S, now keytable.Instant) exact.Level

	// Arithmetic returns the arithmetic of the debts. It is nil if the keys owe nothing after all.
	Arithmetic() *exact.Bucket
}

// receipts are the charges of one rule that may be given back, those of one key in a list. A
// key's state has the index of its newest receipt.
//
// A receipt belongs to the decision that made the charge, which settles it once. It stays in
// memory until then, also if its key is forgotten or reset. Then no state leads to it any more,
// and nothing is given back. So it does not matter what becomes of a state.
//
// The caller holds the lock of the key's shard.
type receipts struct {
	mu     sync.Mutex
	all    []receipt // guarded by mu; index 0 is not used
	free   uint32    // guarded by mu; the first of the entries not in use, which prev joins
	issued uint32    // guarded by mu; how many receipts there were, modulo 2^32
	open   int       // guarded by mu; how many are not settled
}

// A heldReceipts is the receipts of one rule, made when they are first needed.
type heldReceipts struct{ made atomic.Pointer[receipts] }

func (h *heldReceipts) get() *receipts {
	if h.made.Load() == nil {
		h.made.CompareAndSwap(nil, new(receipts))
	}
	return h.made.Load()
}

// A receipt is one charge.
//
// Invariant: low is at most what the key owed at any time since the charge, up to the next
// charge with a receipt.
type receipt struct {
	id       Receipt
	prev     uint32 // the index of the receipt before it, of the same key; 0 if there is none
	followed bool   // whether units were charged after it that nobody can give back
	at       keytable.Instant
	n        int64
	low      exact.Level      // the least debt since; not used for windows
	each     exact.Level      // what a unit has cost; not used for windows
	first    bool             // whether the key was new before it
	next     keytable.Instant // if followed: when the first of those units was charged
}

// issue adds the receipt e, whose charge was made just now: the key owes e.low. It changes *newest,
// the index in the key's state.
func (r *receipts) issue(newest *uint32, e receipt) Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.free
	if i != 0 {
		r.free = r.all[i].prev
	} else {
		if len(r.all) == 0 {
			r.all = make([]receipt, 1)
		}
		i = uint32(len(r.all))
		r.all = append(r.all, receipt{})
	}
	r.issued++
	r.open++
	e.id, e.prev = Receipt(r.issued)<<32|Receipt(i), *newest
	r.all[i] = e
	*newest = i
	return e.id
}

// lower notes that the key owes debt, before that changes.
func (r *receipts) lower(newest uint32, debt exact.Level) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := &r.all[newest]
	e.low = lesser(e.low, debt)
}

// follow notes that units were charged at at that nobody can give back.
func (r *receipts) follow(newest uint32, at keytable.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[newest].follow(at)
}

func (e *receipt) follow(at keytable.Instant) {
	if !e.followed {
		e.followed, e.next = true, at
	}
}

// rescale brings the receipts of a key from the arithmetic of from to that of to, rounded down.
func (r *receipts) rescale(newest uint32, to, from *exact.Bucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := newest; i != 0; i = r.all[i].prev {
		r.all[i].low = to.RescaledDown(r.all[i].low, from)
		r.all[i].each = to.RescaledDown(r.all[i].each, from)
	}
}

// settle ends the receipt id, of whose units actual stay charged. found is false if the key has
// no such receipt: it was forgotten or reset. Otherwise back is what the caller must take off
// the key's state. b is the arithmetic of the key's debts, or nil.
func (r *receipts) settle(newest *uint32, id Receipt, actual int64, b *exact.Bucket) (back Returned, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	index := uint32(id)
	if id == 0 || int(index) >= len(r.all) || r.all[index].id != id {
		return back, false // there is none, or it is settled already
	}
	e := r.all[index]
	back = Returned{At: e.at, N: max(e.n-actual, 0), Last: *newest == index && !e.followed}
	if b != nil {
		back.Paid = b.Times(e.each, back.N)
	}
	back.Debt = back.Paid
	link, after := newest, uint32(0)
	for *link != 0 && *link != index {
		back.Debt = lesser(back.Debt, r.all[*link].low)
		after, link = *link, &r.all[*link].prev
	}
	if found = *link == index; found {
		back.Debt = lesser(back.Debt, e.low)
		for i := *newest; b != nil && i != index; i = r.all[i].prev {
			r.all[i].low = b.Minus(r.all[i].low, back.Debt)
		}
		if *link = e.prev; e.prev != 0 {
			before := &r.all[e.prev]
			if b != nil {
				before.low = lesser(before.low, b.Minus(e.low, back.Debt))
			}
			if actual > 0 {
				before.follow(e.at)
			} else if e.followed {
				before.follow(e.next)
			}
		}
		if back.First = e.first && actual == 0; back.First {
			back.Next = e.next
			if !e.followed && after != 0 {
				r.all[after].first, back.Next = true, r.all[after].at
			}
		}
	}
	r.all[index] = receipt{prev: r.free}
	r.free = index
	r.open--
	return back, found
}

func lesser(a, b exact.Level) exact.Level {
	if a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac {
		return a
	}
	return b
}

// withReceipts is the bit of ratedState.plan that is set while the key has receipts, so that
// the shortest way of a decision, which compares the plan, does not apply to it.
const withReceipts = 1 << 31

// under notes that s is written under the plan p.
func (s *ratedState[S]) under(id uint32) { s.plan = id | s.plan&withReceipts }

// drop lets s forget its receipts: nothing is given back.
func (s *ratedState[S]) drop() { s.newest, s.plan = 0, s.plan&^withReceipts }

// debtor returns p's configuration as a Debtor, or nil.
func debtor[S any, C Algorithm[S, C]](p *ratePlan[C]) Debtor[S] {
	if d, ok := any(p.config).(Debtor[S]); ok && d.Arithmetic() != nil {
		return d
	}
	return nil
}

// debt returns what s owes at now under p, or zero if p counts in windows.
func (ps *ratePlans[S, C]) debt(s *ratedState[S], p *ratePlan[C], now keytable.Instant) exact.Level {
	if d := debtor[S](p); d != nil {
		return d.Debt(&s.state, now)
	}
	return exact.Level{}
}

// charge takes n units at now from s, under its plan p, if they are granted. With do Hold, it
// returns a receipt for them.
func (ps *ratePlans[S, C]) charge(s *ratedState[S], p *ratePlan[C], now keytable.Instant, n int64, do Intent) (v Verdict, delay time.Duration, id Receipt) {
	if s.newest == 0 && do == Take {
		v, delay = p.config.Step(&s.state, p.config, now, n, true)
		return v, delay, 0
	}
	ages, _ := any(p.config).(aging[S])
	before, young := ps.debt(s, p, now), ages != nil && ages.Unused(&s.state, now)
	if v, delay = p.config.Step(&s.state, p.config, now, n, true); v.RetryAfter != 0 {
		return v, delay, 0
	}
	if s.newest != 0 {
		ps.held.get().lower(s.newest, before)
	}
	at := p.config.Charged(&s.state)
	switch {
	case do == Hold:
		e := receipt{at: at, n: n, low: ps.debt(s, p, 0), each: exact.Level{Whole: 1}, first: young}
		if ages != nil {
			e.each = ages.Cost(&s.state)
		}
		id = ps.held.get().issue(&s.newest, e)
		s.plan |= withReceipts
	case s.newest != 0:
		ps.held.get().follow(s.newest, at)
	}
	return v, delay, id
}

// resize brings s, after Carry, from the limit of from to that of to, and its receipts with it.
func (ps *ratePlans[S, C]) resize(s *ratedState[S], from, to *ratePlan[C]) {
	d := debtor[S](to)
	switch {
	case s.newest == 0:
		to.config.Resize(&s.state, from.config)
		return
	case d == nil: // units of a window that has another length now cannot be told apart
		if to.config.Resize(&s.state, from.config); to.rate.Per != from.rate.Per {
			s.drop()
		}
		return
	}
	before := d.Debt(&s.state, 0)
	ps.held.get().rescale(s.newest, d.Arithmetic(), debtor[S](from).Arithmetic())
	ps.held.get().lower(s.newest, before)
	to.config.Resize(&s.state, from.config)
	before.Whole += d.Arithmetic().Burst - debtor[S](from).Arithmetic().Burst
	if d.Debt(&s.state, 0) != before {
		// A part of the debt was forgiven. It is not known whether it was that of a receipt.
		ps.held.get().lower(s.newest, exact.Level{})
	}
}

// settle ends the receipt id of s, which may be nil, and gives back all units but actual.
func (ps *ratePlans[S, C]) settle(s *ratedState[S], id Receipt, actual int64) {
	p, none := ps.base, uint32(0)
	newest := &none
	if s != nil && s.newest != 0 {
		p, newest = ps.planOf(s), &s.newest
	}
	var b *exact.Bucket
	if d := debtor[S](p); d != nil {
		b = d.Arithmetic()
	}
	back, found := ps.held.get().settle(newest, id, actual, b)
	if found && s.newest == 0 {
		s.drop()
	}
	if found && back.N > 0 {
		p.config.GiveBack(&s.state, back)
	}
}
