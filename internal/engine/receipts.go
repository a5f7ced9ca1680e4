package engine

import (
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Receipt is the number of a charge that can be given back. If a charge cannot be given back, for
// example because the key had no state of its own, its Receipt is 0.
type Receipt uint64

// Returned describes units that are given back. The method GiveBack of an algorithm subtracts them from
// the state of a key.
type Returned struct {
	At   keytable.Instant // when the units were charged
	N    int64            // how many units are given back
	Debt exact.Level      // for a bucket: the part of the debt that is still owed for these units
	Paid exact.Level      // for a bucket: what these units have cost
	Last bool             // whether nothing was charged after these units

	First bool             // whether all units of the charge are given back, and the key was new until this charge
	Next  keytable.Instant // if First is set: the instant of the key's next charge, or 0 if there was none
}

// A Debtor is an [Algorithm] whose keys owe the units that they were granted. The debt drains with time.
type Debtor[S any] interface {
	// Debt returns what the state s owes at the instant now, or at its last charge if that charge is
	// after now.
	Debt(s *S, now keytable.Instant) exact.Level

	// Owe adds the given amount to the debt of the state s at the instant now, even beyond the burst. If
	// now is before the last charge, Owe adds the amount at the instant of that charge.
	Owe(s *S, now keytable.Instant, more exact.Level)

	// Arithmetic returns the Bucket that computes with the debts, or nil if the keys have no debts.
	Arithmetic() *exact.Bucket
}

// receipts holds the receipts of one rule: its charges that can be given back. The receipts of one
// key form a list, the key's chain. The state of the key stores the index of this chain, which is
// called the key's link.
//
// A receipt stays until it is settled or becomes final. It becomes final when its term is over, or when
// there are too many younger receipts, see setTerm. If its key is forgotten or reset before that, the
// link is lost together with the state of the key, and nothing can be given back for the receipt.
//
// A chain that has ended may be used for another key, while the state of the first key still has a
// link to it. So each method that takes a link also takes the hash of the key, and compares it with
// the hash that is stored in the chain.
//
// The caller of a method must hold the lock of the key's shard. Only setTerm needs no such lock.
type receipts struct {
	max int // the largest number of receipts with a term (a time limit)

	mu sync.Mutex

	// The fields below are guarded by mu.

	all       []receipt // index 0 is not used, because 0 stands for none
	free      uint32    // index of the first unused receipt, whose field prev is the index of the next unused receipt
	chains    []chain   // index 0 is not used, because 0 stands for none
	freeChain uint32    // index of the first unused chain, whose field oldest is the index of the next unused chain
	layers    layers    // the debts of the keys, divided among their receipts
	issued    uint32    // how many receipts were ever issued, modulo 2^32
	open      int       // how many receipts are in use

	oldest, newest uint32 // indices of the receipts that got their terms first (oldest) and last (newest); 0 if no receipt has a term
	terms          int    // number of receipts with a term (a time limit, until which units can be given back)
}

// A lazyReceipts makes the receipts of one rule when they are first needed.
type lazyReceipts struct {
	max  int // the largest number of receipts with a term (a time limit)
	made atomic.Pointer[receipts]
}

func (h *lazyReceipts) get() *receipts {
	if r := h.made.Load(); r != nil {
		return r
	}
	h.made.CompareAndSwap(nil, &receipts{max: h.max})
	return h.made.Load()
}

// A chain is the list of the receipts of one key.
type chain struct {
	key            keytable.Hash // the hash of the key
	oldest, newest uint32        // indices of the first and the last receipt of the chain; newest is 0 if the chain is unused
	open           uint32        // how many receipts the chain has
	terms          uint32        // how many receipts of the chain have a term (a time limit)
	top            uint32        // index of the top layer of the key's debt, see layers; 0 if the algorithm counts in windows
	unit           int64         // into how many parts the bucket divides a token; 0 if the algorithm counts in windows
	debt           exact.Level   // the sum of the layers: the lowest debt since the charge of the newest receipt
}

// arithmetic returns a Bucket that adds and subtracts the debts of the chain's key.
func (c *chain) arithmetic() *exact.Bucket { return &exact.Bucket{Unit: c.unit} }

// A receipt is a charge that can be given back.
type receipt struct {
	id             Receipt
	chain          uint32 // index of the receipt's chain
	layer          uint32 // index of its layer (part of the debt), or of a layer merged into it; 0 if the algorithm counts in windows
	prev, next     uint32 // indices of the receipts before and after this one in the chain; 0 if there is none
	earlier, later uint32 // indices of the receipts that got a term (a time limit) just before and just after this one, or 0
	at             keytable.Instant
	n              int64
	portion        Portion          // the portion of the limit that the key had at the charge; zero if the cost is in the field named each
	each           exact.Level      // for a bucket whose rate was changed after the charge: what each unit has cost, rounded down
	then           keytable.Instant // if followed is set: when the key was first charged without a receipt after this charge
	until          keytable.Instant // the last instant at which units can be given back; 0 if there is no time limit
	followed       bool             // whether the key was charged without a receipt after this charge, before the next one with a receipt
	hasTerm        bool             // whether this receipt has a term (a time limit) and is in the list of such receipts
	first          bool             // whether the key was new until this charge; set only if the rule has a Warmup
	twin           Receipt          // the receipt of the same charge in the key's other state, if a fallback keeps two states; otherwise 0
}

// cost returns what n units of the receipt have cost. The parameter b computes with the debts of the key.
func (e *receipt) cost(b *exact.Bucket, n int64) exact.Level {
	if e.portion == (Portion{}) {
		return b.Times(e.each, n)
	}
	return b.Cost(e.portion, n)
}

// chainOf returns the chain (list of receipts) with the given index if it belongs to the key with hash h,
// and otherwise nil.
func (r *receipts) chainOf(h keytable.Hash, index uint32) *chain {
	if int(index) >= len(r.chains) || index == 0 || r.chains[index].newest == 0 || r.chains[index].key != h {
		return nil
	}
	return &r.chains[index]
}

// issue adds the receipt e for the latest charge of the key with hash h, and returns its number. The
// parameter debt is what the key owes after this charge, and b is the bucket that computes with debts; b
// is nil if the algorithm counts in windows. If e.until is not 0, the units can be given back only up to
// that instant. The parameter link is the index of the key's chain (the list of its receipts), as it is
// stored in the key's state. If the key has no chain, issue makes one. The second result is the index of
// the chain, which the caller must store.
func (r *receipts) issue(
	link uint32, h keytable.Hash, e *receipt, debt exact.Level, b *exact.Bucket, now keytable.Instant,
) (Receipt, uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := reuse(&r.all, &r.free, func(e *receipt) uint32 { return e.prev })
	c := r.chainOf(h, link)
	if c == nil {
		link = reuse(&r.chains, &r.freeChain, func(c *chain) uint32 { return c.oldest })
		c = &r.chains[link]
		*c = chain{key: h, oldest: i}
		if b != nil {
			c.unit = b.Unit
		}
	}
	if b != nil {
		e.layer = r.layers.push(c, debt)
	}
	r.issued++
	r.open++
	c.open++
	e.id, e.chain, e.prev = Receipt(r.issued)<<32|Receipt(i), link, c.newest
	r.all[i] = *e
	if c.newest != 0 {
		r.all[c.newest].next = i
	}
	c.newest = i
	if e.until != 0 {
		r.setTermLocked(&r.all[i], e.until, now)
	}
	return e.id, link
}

// reuse returns the index of an unused entry of the slice all. The unused entries form a list: the
// parameter free points to the index of the first unused entry, and the function next returns the index
// of the unused entry after a given one. If there is no unused entry, reuse appends an entry to the
// slice. The first entry of the slice is never used, so the index is not 0.
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

// lower records that the key with hash h owes the given debt at present. It must be called each time
// before the debt changes, because each receipt needs the lowest debt since its charge. The parameter
// link is the index of the key's list of receipts. lower returns false if the key has no receipts any more.
func (r *receipts) lower(link uint32, h keytable.Hash, debt exact.Level) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainOf(h, link)
	if c == nil {
		return false
	}
	r.layers.lower(c, debt)
	return true
}

// follow records that the key with hash h was charged at the given instant, without a receipt. The
// parameter link is the index of the key's list of receipts.
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

// rescale converts the debts of a key's receipts, and what their units have cost, from the old bucket
// (from) to the new bucket (to). The two buckets divide a token into different numbers of parts.
// rescale rounds down. The parameter link is the index of the key's list of receipts.
func (r *receipts) rescale(link uint32, h keytable.Hash, to, from *exact.Bucket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.chainOf(h, link)
	if c == nil || to.Unit == from.Unit {
		return
	}
	r.layers.rescale(c, to, from)
	for i := c.newest; i != 0; i = r.all[i].prev {
		e := &r.all[i]
		if e.portion.Units != e.portion.Of {
			e.each, e.portion = from.CostDown(e.portion), Portion{}
		}
		e.each = to.RescaledDown(e.each, from)
	}
}

// settle ends the receipt with the number id. The parameter actual says how many of its units stay
// charged; the remaining units are given back. If the term of the receipt is over at the instant now,
// all units stay charged.
//
// The parameter h is the hash of the key, and link is the index of its list of receipts. The result found
// is false if this list has no such receipt, because the key was forgotten or reset, or because the
// receipt is final or was settled before. Otherwise, the result back says what the caller must subtract
// from the key's state, and the result last says whether this was the key's last receipt.
func (r *receipts) settle(
	link uint32, h keytable.Hash, id Receipt, actual int64, now keytable.Instant,
) (back Returned, found, last bool) {
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
	if e.hasTerm && e.until < now {
		actual = e.n
	}
	back = Returned{At: e.at, N: max(e.n-actual, 0), Last: e.next == 0 && !e.followed}
	if e.layer != 0 && back.N > 0 {
		b := c.arithmetic()
		back.Paid = b.Minus(e.cost(b, e.n), e.cost(b, e.n-back.N))
		back.Debt = r.layers.take(c, e.layer, back.Paid)
	}
	if back.First = e.first && actual == 0; back.First {
		back.Next = e.then
		if !e.followed && e.next != 0 {
			after := &r.all[e.next]
			after.first, back.Next = true, after.at
		}
	}
	r.remove(e, actual > 0)
	return back, true, c.newest == 0
}

// named returns the receipt with the number id, or nil if that receipt was settled already or is final.
func (r *receipts) named(id Receipt) *receipt {
	if i := uint32(id); id != 0 && int(i) < len(r.all) && r.all[i].id == id {
		return &r.all[i]
	}
	return nil
}

// remove takes the receipt e out of its chain (the list of the key's receipts). Charges without a receipt
// may follow the charge of a receipt, and the receipt records when the first of them was made. So remove
// updates the receipt before e in the chain, unless that receipt has recorded such a charge already:
//
//   - If the parameter stays is true, units of e stay charged. The charge of e then becomes a charge
//     without a receipt, and the receipt before e records it.
//   - Otherwise, if e has recorded a charge without a receipt, the receipt before e records that charge.
func (r *receipts) remove(e *receipt, stays bool) {
	c, i := &r.chains[e.chain], uint32(e.id)
	if e.hasTerm {
		r.endTerm(e)
	}
	if e.layer != 0 {
		r.layers.leave(c, e.layer)
	}
	if e.prev != 0 {
		before := &r.all[e.prev]
		if stays {
			before.follow(e.at)
		} else if e.followed {
			before.follow(e.then)
		}
		before.next = e.next
	} else {
		c.oldest = e.next
	}
	c.open--
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

// setTerm gives the receipt with the number id a term: the units of the receipt can be given back until
// the instant in the parameter until, and also at this instant. At most r.max receipts, and at most
// [MaxOpen] receipts of one key, have a term. Above these numbers, the oldest receipts become final.
// First of all, setTerm looks at the two oldest receipts, and ends those whose terms are over at the
// instant now. It looks at only two, so that a call is fast even if many terms are over.
func (r *receipts) setTerm(id Receipt, until, now keytable.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.named(id); e != nil {
		r.setTermLocked(e, until, now)
	}
}

// setTermLocked does what setTerm does, for the receipt e. The caller holds r.mu.
func (r *receipts) setTermLocked(e *receipt, until, now keytable.Instant) {
	for ended := 0; r.oldest != 0 && (r.terms >= r.max || ended < 2 && r.all[r.oldest].until < now); ended++ {
		r.final(&r.all[r.oldest])
	}
	c, i := &r.chains[e.chain], uint32(e.id)
	for i := c.oldest; c.terms >= MaxOpen; i = r.all[i].next {
		if r.all[i].hasTerm {
			r.final(&r.all[i])
			break
		}
	}
	c.terms++
	r.terms++
	e.hasTerm, e.until, e.earlier = true, until, r.newest
	if r.newest != 0 {
		r.all[r.newest].later = i
	} else {
		r.oldest = i
	}
	r.newest = i
}

// final ends the receipt e. All its units stay charged.
func (r *receipts) final(e *receipt) { r.remove(e, true) }

// endTerm takes the receipt e out of the list of receipts with a term (a time limit).
func (r *receipts) endTerm(e *receipt) {
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
	r.chains[e.chain].terms--
	r.terms--
}

func lesser(a, b exact.Level) exact.Level {
	if a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac {
		return a
	}
	return b
}
