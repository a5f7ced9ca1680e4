package engine

import (
	"container/list"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// MaxOpen is how many charges of one key may be open at most: the oldest become final.
const MaxOpen = 1024

// A Ledger is the keys of a rule and their open charges: those that may be given back, by the
// numbers that callers have given them, for as long as the callers have said. A charge that is
// not open any more is final.
//
// The methods of a Ledger itself are called one at a time.
type Ledger struct {
	Keys
	most int // how many charges are open at most

	named map[entryName]*list.Element
	of    map[keytable.Hash]*list.List // of *entry, by key; the oldest is first
	all   list.List                    // of *entry; the oldest is first
}

// An entryName is the name of an open charge.
type entryName struct {
	hash keytable.Hash // of the key
	id   uint64
}

// An entry is an open charge.
type entry struct {
	entryName
	receipt Receipt
	n       int64
	until   keytable.Instant // the last instant at which it may be given back
	ofKey   *list.Element    // where it is in Ledger.of
}

// NewLedger returns a Ledger of keys in which so many charges are open at most.
func NewLedger(keys Keys, most int) *Ledger {
	return &Ledger{Keys: keys, most: most, named: make(map[entryName]*list.Element), of: make(map[keytable.Hash]*list.List)}
}

// Charge takes n units from the key of h at now, at the rate that want asks for, if they are
// granted. The charge is open for as long as term, under the number id; if id is 0, it is final.
// If the key has another open charge of that number, that one becomes final.
func (l *Ledger) Charge(h keytable.Hash, want Wanted, now keytable.Instant, n int64, id uint64, term time.Duration) (v Verdict, delay time.Duration) {
	if id == 0 {
		v, delay, _ = l.Ask(h, want, now, n, Take)
		return v, delay
	}
	v, delay, r := l.Ask(h, want, now, n, Hold)
	if r == 0 {
		return v, delay // denied, or a charge of a debt that keys share
	}
	name := entryName{h, id}
	if e := l.named[name]; e != nil {
		l.final(e)
	}
	for e := l.all.Front(); e != nil && (l.all.Len() >= l.most || e.Value.(*entry).until < now); e = l.all.Front() {
		l.final(e)
	}
	of := l.of[h]
	if of != nil && of.Len() == MaxOpen {
		l.final(l.named[of.Front().Value.(*entry).entryName])
	}
	if of == nil || of.Len() == 0 {
		of = list.New()
		l.of[h] = of
	}
	opened := &entry{entryName: name, receipt: r, n: n, until: now.Add(term)}
	opened.ofKey = of.PushBack(opened)
	l.named[name] = l.all.PushBack(opened)
	return v, delay
}

// Close ends the open charge of this number: actual of its units stay charged, and the others
// are given back. If there is none, or if its time is over at now, nothing is given back.
func (l *Ledger) Close(h keytable.Hash, id uint64, actual int64, now keytable.Instant) {
	if e := l.named[entryName{h, id}]; e != nil {
		open := e.Value.(*entry)
		if open.until < now {
			actual = open.n
		}
		l.end(e, actual)
	}
}

// Clear makes all charges final.
func (l *Ledger) Clear() {
	for e := l.all.Front(); e != nil; e = l.all.Front() {
		l.final(e)
	}
}

// final makes the charge of e, which is in l.all, final.
func (l *Ledger) final(e *list.Element) { l.end(e, e.Value.(*entry).n) }

// end takes e, which is in l.all, out of l. Of its units, actual stay charged.
func (l *Ledger) end(e *list.Element, actual int64) {
	closed := l.all.Remove(e).(*entry)
	delete(l.named, closed.entryName)
	of := l.of[closed.hash]
	if of.Remove(closed.ofKey); of.Len() == 0 {
		delete(l.of, closed.hash)
	}
	l.Settle(closed.hash, closed.receipt, actual, 0)
}
