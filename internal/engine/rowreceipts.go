package engine

import (
	"math"
	"math/bits"

	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
	"github.com/ratelimit-go/ratelimit/internal/packed"
)

// A naming is a function that returns two facts about the charge with the given receipt: the number that the caller of
// Ledger.Charge has given to the charge, and the last instant at which the charge can be given back. The number is 0 if the
// charge is final.
type naming func(Receipt) (id uint64, until keytable.Instant)

// naming returns the naming of the charges of the key with hash h.
func (l *Ledger) naming(h keytable.Hash) naming {
	of := l.of[h]
	if of == nil {
		return func(Receipt) (uint64, keytable.Instant) { return 0, 0 }
	}
	named := make(map[Receipt]*entry, of.Len())
	for e := of.Front(); e != nil; e = e.Next() {
		open := e.Value.(*entry)
		named[open.receipt] = open
	}
	return func(r Receipt) (uint64, keytable.Instant) {
		if open := named[r]; open != nil {
			return open.id, open.until
		}
		return 0, 0
	}
}

// reopen adds the charge e of the key with hash h, which was read from f, to the open charges. The parameter id is the number of
// the charge. If another open charge of the key has this number, reopen marks the row f as broken.
func (l *Ledger) reopen(h keytable.Hash, id uint64, e *receipt, f *packed.Form) {
	name := entryName{h, id}
	switch {
	case id == 0 || !f.OK():
	case l.named[name] != nil:
		f.Fail()
	default:
		l.add(&entry{entryName: name, receipt: e.id, n: e.n, until: e.until})
	}
}

// forget forgets all charges. It is called when the keys have forgotten them.
func (l *Ledger) forget() {
	clear(l.named)
	clear(l.of)
	l.all.Init()
}

// A packedReceipt is a receipt in a row.
type packedReceipt struct {
	receipt
	id     uint64      // the number of the charge; 0 if the charge cannot be given back
	above  bool        // whether the receipt names a layer (part of the debt) above that of the receipt before it
	layer  exact.Level // if above is set: the size of that layer
	whole  bool        // whether the key had the whole limit at the charge, so that portion is 1/1
	scaled bool        // whether the cost of the receipt is in the field named each
}

// pack writes e to f, or reads it from f. The bucket b computes with the debts of the key; it is nil if the algorithm counts in
// windows.
func (e *packedReceipt) pack(f *packed.Form, b *exact.Bucket) {
	packed.Mark(f, &e.id)
	packed.Number(f, &e.n, 1, math.MaxInt64)
	packed.Instant(f, &e.at)
	packed.Instant(f, &e.until)
	packed.Flags(f, &e.first, &e.followed, &e.whole, &e.scaled, &e.above)
	if e.followed {
		packed.Instant(f, &e.then)
	}
	e.portion = Portion{Units: max(e.portion.Units, 1), Of: max(e.portion.Of, 1)}
	switch {
	case e.scaled && b != nil:
		b.PackLevel(f, &e.each)
		e.portion = Portion{}
		e.affordable(f, e.each.Whole)
	case !e.whole && !e.scaled:
		packed.Number(f, &e.portion.Units, 1, math.MaxInt64)
		packed.Number(f, &e.portion.Of, e.portion.Units, math.MaxInt64)
		if b != nil {
			e.affordable(f, e.portion.Of/e.portion.Units)
		}
	}
	if e.above && b != nil {
		b.PackLevel(f, &e.layer)
	}
}

// affordable checks what the units of the receipt have cost. The parameter each is the number of whole tokens that one unit has
// cost; a unit may have cost a fraction of a token in addition. If receipt.cost could not compute the cost of all units, or if one
// unit has cost more than a key can owe, the bytes cannot be right, and affordable marks f as broken. A receipt that stores a
// portion instead of a cost is checked too, because a change of the rate stores its cost in the field named each.
func (e *packedReceipt) affordable(f *packed.Form, each int64) {
	if hi, lo := bits.Mul64(uint64(each)+1, uint64(e.n)); hi > 0 || lo > math.MaxInt64/2 || each > exact.MaxUsed<<1 {
		f.Fail()
	}
}

// dump writes the receipts of the key with hash h to f. The parameter link is the index of the key's list of receipts.
func (r *receipts) dump(link uint32, h keytable.Hash, f *packed.Form, named naming) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, count := r.chainOf(h, link), 0
	if c == nil {
		packed.Number(f, &count, 0, MaxOpen)
		return
	}
	count = int(c.open)
	packed.Number(f, &count, 0, MaxOpen)
	var b *exact.Bucket
	if c.unit > 0 {
		b = c.arithmetic()
	}
	under := uint32(0)
	for i := c.oldest; i != 0; i = r.all[i].next {
		e := packedReceipt{receipt: r.all[i]}
		if e.id, e.until = named(r.all[i].id); b != nil {
			at := r.layers.find(r.all[i].layer)
			e.above, e.layer, under = at != under, r.layers.all[at].size, at
		}
		e.whole, e.scaled = e.portion == Portion{Units: 1, Of: 1}, e.portion == Portion{}
		e.pack(f, b)
	}
}

// load reads the receipts of the key with hash h from f. It calls the function opened for each receipt, with the number of the charge.
// The bucket b computes with the debts of the key; it is nil if the algorithm counts in windows. The result is the key's link (the
// index of its list of receipts).
func (r *receipts) load(h keytable.Hash, f *packed.Form, b *exact.Bucket, opened func(uint64, *receipt)) (link uint32) {
	count, sum := 0, exact.Level{}
	packed.Number(f, &count, 0, MaxOpen)
	for i := 0; i < count && f.OK(); i++ {
		var e packedReceipt
		e.pack(f, b)
		// The bytes are wrong in three cases: a receipt has a layer (part of the debt) although the algorithm counts in
		// windows; the first receipt of a bucket has no layer of its own; or the debt is more than a key can owe.
		switch {
		case b == nil && e.above, b != nil && i == 0 && !e.above, sum.Whole > exact.MaxUsed<<1:
			f.Fail()
		}
		if !f.OK() {
			break
		}
		named := e.receipt
		named.until = 0 // the receipt itself gets no time limit, because the Ledger ends the charge
		if e.above {
			sum = b.Plus(sum, e.layer)
		}
		named.id, link = r.issueAt(link, h, &named, sum, b, e.above)
		named.until = e.until
		opened(e.id, &named)
	}
	return link
}

// issueAt does what issue does, for a receipt that was read from a row. If the parameter above is not set, the receipt names the
// same layer (part of the debt) as the receipt before it.
func (r *receipts) issueAt(link uint32, h keytable.Hash, e *receipt, debt exact.Level, b *exact.Bucket, above bool) (Receipt, uint32) {
	if above || b == nil {
		return r.issue(link, h, e, debt, b, 0)
	}
	id, link := r.issue(link, h, e, debt, nil, 0)
	r.mu.Lock()
	defer r.mu.Unlock()
	c, i := &r.chains[link], uint32(id)
	r.all[i].layer = c.top
	r.layers.all[c.top].refs++
	return id, link
}

// pack writes the holds of the state s to f. The holds that somebody has ended are left out.
func (c *inFlight) pack(s *held, f *packed.Form, named naming) {
	count, last := 0, c.Charged(s)
	packed.Instant(f, &last)
	if s.holds != nil {
		count = s.open
	}
	packed.Number(f, &count, 0, MaxHolds)
	for i := 0; count > 0 && i < len(s.list); i++ {
		if e := s.list[i]; e.n > 0 {
			id, _ := named(e.id)
			packed.Mark(f, &id)
			packed.Number(f, &e.n, 1, math.MaxInt64)
			packed.Instant(f, &e.until)
		}
	}
}

// unpack reads the holds of the state s from f. It calls the function opened for each hold, with the number of the charge.
func (c *inFlight) unpack(s *held, f *packed.Form, opened func(uint64, *receipt)) {
	count, last := 0, keytable.Instant(0)
	packed.Instant(f, &last)
	packed.Number(f, &count, 0, MaxHolds)
	s.holds = &holds{last: last}
	for i := 0; i < count && f.OK(); i++ {
		var id uint64
		e := hold{id: Receipt(lastHold.Add(1))}
		packed.Mark(f, &id)
		packed.Number(f, &e.n, 0, math.MaxInt64-s.sum)
		packed.Instant(f, &e.until)
		if e.n == 0 || i > 0 && e.until < s.list[i-1].until {
			f.Fail()
		}
		if f.OK() {
			s.add(e.id, e.n, last, e.until)
			opened(id, &receipt{id: e.id, n: e.n, until: e.until})
		}
	}
}
