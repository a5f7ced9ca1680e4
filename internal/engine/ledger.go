package engine

import (
	"container/list"
	"math"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// MaxOpen is the largest number of charges of one key that can be given back. If there are more, the
// oldest of these charges become final, so that their units stay charged.
const MaxOpen = 1024

// A Ledger holds the keys of a rule and their open charges: the charges that can still be given back.
// The caller of Charge gives a charge a number and says how long it stays open. After that time, the
// charge is final: its units stay charged.
//
// The methods that Ledger itself declares must not be called concurrently.
type Ledger struct {
	Keys
	max  int // how many open charges all keys together may have
	most int // how many open charges one key may have

	// holds is set if the charges are holds: units that running work uses until it ends, see [NewInFlight]. Once
	// a hold is final, it can no longer be ended: it lasts until its time is over.
	holds bool

	named map[entryName]*list.Element
	of    map[keytable.Hash]*list.List // the open charges of each key, as *entry values, oldest first
	all   list.List                    // the open charges of all keys, as *entry values, oldest first
}

// An entryName names an open charge: by the key, and by the number that the caller has given to the charge.
type entryName struct {
	hash keytable.Hash // the hash of the key
	id   uint64
}

// An entry is an open charge.
type entry struct {
	entryName
	receipt Receipt
	n       int64
	until   keytable.Instant // the last instant at which the charge can be given back
	ofKey   *list.Element    // this entry's element in the list of the key's open charges, which is in the map Ledger.of
}

// NewLedger returns a Ledger for the keys of a rule. At most maxOpen charges are open at the same time. If
// the parameter holds is set, the charges are holds (units that running work uses until it ends): each stays
// open until it ends or its time is over.
func NewLedger(keys Keys, maxOpen int, holds bool) *Ledger {
	l := &Ledger{Keys: keys, max: maxOpen, most: MaxOpen, holds: holds}
	if holds {
		l.max, l.most = math.MaxInt, MaxHolds
	}
	l.named, l.of = make(map[entryName]*list.Element), make(map[keytable.Hash]*list.List)
	return l
}

// Charge charges n units to the key with hash h, at the rate that the parameter want selects, if they
// are granted. The charge gets the number id, and can be given back for as long as the parameter term
// says. If id is 0, or if the units are charged to a debt that several keys share, the charge cannot be
// given back. If the key already has an open charge with this number, that earlier charge becomes
// final.
func (l *Ledger) Charge(
	h keytable.Hash, want Wanted, now keytable.Instant, n int64, id uint64, term time.Duration,
) (v Verdict, delay time.Duration) {
	if id == 0 {
		v, delay, _ = l.Ask(h, want, now, n, Take)
		return v, delay
	}
	v, delay, r := l.Ask(h, want, now, n, Hold)
	switch {
	case r == 0:
		return v, delay // the request was denied, or charged to a debt that several keys share
	case l.holds:
		term = v.ResetAfter // the time until the key is unused, which is when its newest hold, this one, runs out
	}
	name := entryName{h, id}
	if e := l.named[name]; e != nil {
		l.final(e)
	}
	for e := l.all.Front(); e != nil && (l.all.Len() >= l.max || e.Value.(*entry).until < now); e = l.all.Front() {
		l.final(e)
	}
	if of := l.of[h]; of != nil && of.Len() == l.most {
		l.final(l.named[of.Front().Value.(*entry).entryName])
	}
	l.add(&entry{entryName: name, receipt: r, n: n, until: now.Add(term)})
	return v, delay
}

// add adds an open charge. It becomes the last in the lists, so it must be the newest one.
func (l *Ledger) add(opened *entry) {
	of := l.of[opened.hash]
	if of == nil || of.Len() == 0 {
		of = list.New()
		l.of[opened.hash] = of
	}
	opened.ofKey = of.PushBack(opened)
	l.named[opened.entryName] = l.all.PushBack(opened)
}

// Close ends the open charge of the key with hash h that has the number id. The parameter actual says
// how many of its units stay charged; the remaining units are given back. If there is no such charge,
// or if its term is over, nothing is given back.
func (l *Ledger) Close(h keytable.Hash, id uint64, actual int64, now keytable.Instant) {
	if e := l.named[entryName{h, id}]; e != nil {
		open := e.Value.(*entry)
		if open.until < now && !l.holds { // not for holds: the state of the key itself says which holds have run out
			actual = open.n
		}
		l.end(e, actual)
	}
}

// Extend is for charges that are holds (units that running work uses until it ends). It makes the hold with
// the number id, of the key with hash h, last for rate.Per from the instant now. It returns false if there is
// no such hold, or if it is over.
func (l *Ledger) Extend(h keytable.Hash, id uint64, now keytable.Instant, rate *Rate) bool {
	e := l.named[entryName{h, id}]
	if e == nil {
		return false
	}
	open := e.Value.(*entry)
	next := l.Keys.Extend(h, open.receipt, now, rate.Per)
	if next == 0 {
		return false
	}
	v, _, _ := l.Ask(h, Wanted{Rate: rate}, now, 1, Look)
	open.receipt, open.until = next, now.Add(v.ResetAfter)
	l.all.MoveToBack(e)
	l.of[h].MoveToBack(open.ofKey)
	return true
}

// Clear makes all charges final: they can no longer be given back.
func (l *Ledger) Clear() {
	for e := l.all.Front(); e != nil; e = l.all.Front() {
		l.final(e)
	}
}

// final makes a charge final: it can no longer be given back, so its units stay charged. The parameter e is
// the element of the charge in the list l.all.
func (l *Ledger) final(e *list.Element) { l.end(e, e.Value.(*entry).n) }

// end removes a charge from the Ledger l. The parameter actual says how many of its units stay charged;
// the remaining units are given back. The parameter e is the element of the charge in the list l.all.
func (l *Ledger) end(e *list.Element, actual int64) {
	closed := l.all.Remove(e).(*entry)
	delete(l.named, closed.entryName)
	of := l.of[closed.hash]
	if of.Remove(closed.ofKey); of.Len() == 0 {
		delete(l.of, closed.hash)
	}
	if !l.holds || actual == 0 {
		l.Settle(closed.hash, closed.receipt, actual, 0)
	}
}
