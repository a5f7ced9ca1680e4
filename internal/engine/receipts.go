package engine

import (
	"sync"
	"sync/atomic"

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

	// Owe adds more to the debt of s at now, also past the burst. A now before the last charge
	// counts as the time of that charge.
	Owe(s *S, now keytable.Instant, more exact.Level)

	// Arithmetic returns the arithmetic of the debts. It is nil if the keys owe nothing after all.
	Arithmetic() *exact.Bucket
}

// receipts are the charges of one rule that may be given back, those of one key in a chain. A
// key's state has the index of its chain.
//
// A receipt stays until it is settled, or until it becomes final because there are too many
// younger ones; see keep. That may be after its key was forgotten or reset: then no state leads
// to its chain any more, and nothing is given back. And a state may lead to a chain that has ended
// and is one of another key now. So whoever comes from a state says whose it is.
//
// The caller holds the lock of the key's shard, except for keep.
type receipts struct {
	mu sync.Mutex

	// The fields below are guarded by mu.

	all       []receipt // index 0 is not used
	free      uint32    // the first of the receipts not in use, which prev joins
	chains    []chain   // index 0 is not used
	freeChain uint32    // the first of the chains not in use, which oldest joins
	issued    uint32    // how many receipts there were, modulo 2^32
	open      int       // how many are not settled

	oldest, newest uint32 // of the receipts that have a term, in order of time
	kept           int    // how many these are
}

// A heldReceipts is the receipts of one rule, made when they are first needed.
type heldReceipts struct{ made atomic.Pointer[receipts] }

func (h *heldReceipts) get() *receipts {
	if h.made.Load() == nil {
		h.made.CompareAndSwap(nil, new(receipts))
	}
	return h.made.Load()
}

// A chain is the receipts of one key, from the oldest one to the newest.
type chain struct {
	key            keytable.Hash // whose they are
	oldest, newest uint32        // newest is 0 if the chain is not in use
	kept           int           // how many of them have a term
}

// A receipt is one charge.
//
// Invariant: low is at most what the key owed at any time since the charge, up to the next
// charge with a receipt.
type receipt struct {
	id         Receipt
	chain      uint32 // the index of its chain
	prev, next uint32 // the indices of those before and after it in the chain, or 0
	followed   bool   // whether units were charged after it that nobody can give back
	kept       bool   // whether it has a term
	at         keytable.Instant
	n          int64
	low        exact.Level      // the least debt since; not used for windows
	each       exact.Level      // what a unit has cost; not used for windows
	first      bool             // whether the key was new before it
	then       keytable.Instant // if followed: when the first of those units was charged

	until          keytable.Instant // the last instant at which it may be given back, if it has a term
	earlier, later uint32           // the indices of those before and after it of all that have a term
}

// chainOf returns the chain with this index if it is that of h, and otherwise nil.
func (r *receipts) chainOf(h keytable.Hash, index uint32) *chain {
	if int(index) >= len(r.chains) || index == 0 || r.chains[index].newest == 0 || r.chains[index].key != h {
		return nil
	}
	return &r.chains[index]
}

// issue adds the receipt e, whose charge to the key of hash h was made just now: the key owes
// e.low. It changes *link, the index in the key's state.
func (r *receipts) issue(link *uint32, h keytable.Hash, e receipt) Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := reuse(&r.all, &r.free, func(e *receipt) uint32 { return e.prev })
	c := r.chainOf(h, *link)
	if c == nil {
		*link = reuse(&r.chains, &r.freeChain, func(c *chain) uint32 { return c.oldest })
		c = &r.chains[*link]
		*c = chain{key: h, oldest: i}
	}
	r.issued++
	r.open++
	e.id, e.chain, e.prev = Receipt(r.issued)<<32|Receipt(i), *link, c.newest
	r.all[i] = e
	if c.newest != 0 {
		r.all[c.newest].next = i
	}
	c.newest = i
	return e.id
}

// reuse returns the index of an entry of all that is not in use: the first of the free ones, which
// next joins, or a new one.
func reuse[E any](all *[]E, free *uint32, next func(*E) uint32) uint32 {
	if i := *free; i != 0 {
		*free = next(&(*all)[i])
		return i
	}
	var none E
	if len(*all) == 0 {
		*all = append(*all, none)
	}
	*all = append(*all, none)
	return uint32(len(*all) - 1)
}

// lower notes that the key of hash h, whose state has this link, owes debt, before that changes.
// It returns false if the key has no receipts any more.
func (r *receipts) lower(link uint32, h keytable.Hash, debt exact.Level) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainOf(h, link)
	if c == nil {
		return false
	}
	e := &r.all[c.newest]
	e.low = lesser(e.low, debt)
	return true
}

// follow notes that the key of hash h, whose state has this link, was charged at at units that
// nobody can give back.
func (r *receipts) follow(link uint32, h keytable.Hash, at keytable.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.chainOf(h, link); c != nil {
		r.all[c.newest].follow(at)
	}
}

func (e *receipt) follow(at keytable.Instant) {
	if !e.followed {
		e.followed, e.then = true, at
	}
}

// rescale brings the receipts of a key from the arithmetic of from to that of to, rounded down.
func (r *receipts) rescale(link uint32, h keytable.Hash, to, from *exact.Bucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.chainOf(h, link); c != nil {
		for i := c.newest; i != 0; i = r.all[i].prev {
			e := &r.all[i]
			e.low, e.each = to.RescaledDown(e.low, from), to.RescaledDown(e.each, from)
		}
	}
}

// settle ends the receipt id, of whose units actual stay charged, or all if its term is over at
// now. found is false if the key of hash h, whose state has this link, has no such receipt: it was
// forgotten or reset, or the receipt is final or was settled before. Otherwise back is what the
// caller must take off the key's state, and last says that the key has no receipt any more. b is the
// arithmetic of the key's debts, or nil.
func (r *receipts) settle(link uint32, h keytable.Hash, id Receipt, actual int64, now keytable.Instant, b *exact.Bucket) (back Returned, found, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.named(id)
	if e == nil {
		return back, false, false
	}
	c := r.chainOf(h, link)
	if c == nil || e.chain != link {
		r.final(e)
		return back, false, false
	}
	if e.kept && e.until < now {
		actual = e.n
	}
	back = Returned{At: e.at, N: max(e.n-actual, 0), Last: e.next == 0 && !e.followed}
	if b != nil {
		back.Paid = b.Times(e.each, back.N)
	}
	back.Debt = lesser(back.Paid, e.low)
	for i := e.next; i != 0; i = r.all[i].next {
		back.Debt = lesser(back.Debt, r.all[i].low)
	}
	low := e.low
	if b != nil {
		for i := e.next; i != 0; i = r.all[i].next {
			r.all[i].low = b.Minus(r.all[i].low, back.Debt)
		}
		low = b.Minus(low, back.Debt)
	}
	if back.First = e.first && actual == 0; back.First {
		back.Next = e.then
		if !e.followed && e.next != 0 {
			after := &r.all[e.next]
			after.first, back.Next = true, after.at
		}
	}
	r.remove(e, low, actual > 0)
	return back, true, c.newest == 0
}

// named returns the receipt id, or nil if there is none: it was settled already, or is final.
func (r *receipts) named(id Receipt) *receipt {
	if i := uint32(id); id != 0 && int(i) < len(r.all) && r.all[i].id == id {
		return &r.all[i]
	}
	return nil
}

// remove takes e out of its chain. The one before it takes over what holds until the one after it:
// the least debt, and that units followed, those of e too if any stays charged.
func (r *receipts) remove(e *receipt, low exact.Level, stays bool) {
	c, i := &r.chains[e.chain], uint32(e.id)
	if e.kept {
		r.forget(e)
	}
	if e.prev != 0 {
		before := &r.all[e.prev]
		before.low = lesser(before.low, low)
		if stays {
			before.follow(e.at)
		} else if e.followed {
			before.follow(e.then)
		}
		before.next = e.next
	} else {
		c.oldest = e.next
	}
	if e.next != 0 {
		r.all[e.next].prev = e.prev
	} else if c.newest = e.prev; c.newest == 0 {
		*c = chain{oldest: r.freeChain}
		r.freeChain = e.chain
	}
	*e = receipt{prev: r.free}
	r.free = i
	r.open--
}

// keep gives the receipt id a term: until is the last instant at which it may be given back. There
// are at most most such receipts, and [MaxOpen] of one key. If there are more, the oldest become
// final, and so do those whose term is over at now, from the oldest one on.
func (r *receipts) keep(id Receipt, until, now keytable.Instant, most int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.named(id)
	if e == nil {
		return
	}
	for r.oldest != 0 && (r.kept >= most || r.all[r.oldest].until < now) {
		r.final(&r.all[r.oldest])
	}
	c := &r.chains[e.chain]
	for i := c.oldest; c.kept >= MaxOpen; i = r.all[i].next {
		if r.all[i].kept {
			r.final(&r.all[i])
			break
		}
	}
	c.kept++
	r.kept++
	e.kept, e.until, e.earlier = true, until, r.newest
	if r.newest != 0 {
		r.all[r.newest].later = uint32(id)
	} else {
		r.oldest = uint32(id)
	}
	r.newest = uint32(id)
}

// final ends e. All of its units stay charged.
func (r *receipts) final(e *receipt) { r.remove(e, e.low, true) }

// forget takes e out of those that have a term.
func (r *receipts) forget(e *receipt) {
	if e.earlier != 0 {
		r.all[e.earlier].later = e.later
	} else {
		r.oldest = e.later
	}
	if e.later != 0 {
		r.all[e.later].earlier = e.earlier
	} else {
		r.newest = e.earlier
	}
	r.chains[e.chain].kept--
	r.kept--
}

func lesser(a, b exact.Level) exact.Level {
	if a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac {
		return a
	}
	return b
}
