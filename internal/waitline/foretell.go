package waitline

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A request may have to wait behind other callers. This file computes when such a request will be served.
// A line holds the callers that wait for the same keys. For each key of the request, the code computes
// when the key has the units for the request. It starts from one of three states of the key:
//
//   - If callers wait for the same keys as the request, and only their line uses the key, it starts from
//     a copy of the state that the line holds. All callers of the line are charged to the copy in
//     advance, each at the instant at which all keys with such a copy have the units for this caller.
//   - Otherwise, if lines are in the queue of the key, it starts from a copy that the queue holds (the
//     field tail). The callers that take units of the key next are charged to the copy in advance.
//   - Otherwise, it starts from the state of the key itself.
//
// So a key has few copies, however many lines use it. The result is exact in this case: no two lines
// share a key for which callers wait, and each line has at most 64 callers. Otherwise, the result is an
// estimate.

// A forecast says when a request that arrives now will be served.
type forecast struct {
	at      keytable.Instant // the instant at which the request is served; keytable.End if it never is
	sure    keytable.Instant // the request cannot be served before this instant, even if other requests end at once and return their units
	delay   time.Duration    // the Delay of the request: how long its caller must still wait once the units are taken
	binding *engine.Spot     // the key that the request must wait for longest
}

// foretell computes when a request will be served if it arrives at the instant now and waits behind
// other callers. The slice spots has one element for each key of the request. The first parameter is a
// hash, which identifies the keys that can deny. foretell locks the keys, and stores in spots the
// denial that the request gets now. The keys stay locked: the caller of foretell must unlock them.
func (ls *Lines) foretell(set keytable.Hash, spots []engine.Spot, now keytable.Instant) (f forecast) {
	l := ls.lines[set]
	if l != nil && !l.future.fits(l) {
		ls.foretellLine(l, now)
	}
	var known [2]turn
	turns := known[:0]
	for k, s := range enforcing(spots) {
		t := turn{k: k, at: now}
		switch q := ls.queueAt(s); {
		case l != nil && l.future.keys[k] != nil:
			t.behind, t.from = &l.future, l.need
		case q != nil:
			if !q.tail.made {
				ls.foretellQueue(q, now)
			}
			t.behind, t.k, t.from = &q.tail, 0, q.opens()
		}
		if l != nil {
			t.from = max(t.from, l.need)
		}
		turns = append(turns, t)
	}
	engine.Lock(spots, now)
	for i := range spots {
		if spots[i].Shadow {
			spots[i].Look(now)
		}
	}
	for i, s := range enforcing(spots) {
		t := &turns[i]
		t.ask(s, now)
		if !s.Ends {
			f.sure = max(f.sure, t.at)
		}
		if f.binding == nil || t.at > f.at {
			f.at, f.binding = t.at, s
		}
	}
	for i, s := range enforcing(spots) {
		f.delay = max(f.delay, turns[i].delayAt(s, f.at))
	}
	return f
}

// A turn says when one key of a request has the units for it, after the callers ahead of the request
// have taken theirs.
type turn struct {
	behind *copies          // copies of keys' states, charged in advance for the callers ahead; nil if the state of the key itself is used
	k      int              // index of the key's copy in behind.keys
	from   keytable.Instant // the request is served at this instant at the earliest, because of the callers ahead; 0 if none is ahead
	at     keytable.Instant // the instant at which the key has the units for the request
	delay  time.Duration    // the Delay of the request if it is granted at the instant turn.at
}

// ask fills t for a request that arrives at the instant now and takes units of the key s, which is locked.
// It sets t.at to the instant at which the key has the units, and t.delay to the Delay that the request
// gets then. It also stores in s the denial that the request gets now.
func (t *turn) ask(s *engine.Spot, now keytable.Instant) {
	if t.behind == nil {
		t.at, t.delay = s.Ahead(now), s.Delay
	} else {
		t.at, s.Verdict, t.delay = t.behind.ahead(t.k, s.Want, now, s.Units())
	}
	if t.at < t.from {
		t.at, s.RetryAfter = t.from, time.Duration(t.from.Since(now))
	}
	if t.behind != nil || s.RetryAfter > 0 {
		s.Left = 0
	}
	if s.Delay = t.delay; s.RetryAfter > 0 {
		s.Delay = 0
	}
}

// delayAt returns the Delay that a request gets from the key s if the request is granted at the given
// instant. This instant is not before t.at.
func (t *turn) delayAt(s *engine.Spot, at keytable.Instant) time.Duration {
	switch {
	case t.delay == 0 || at == keytable.End:
		return 0
	case at == t.at && at != t.from:
		return t.delay
	case t.behind == nil:
		return s.DelayAt(at)
	}
	_, _, delay := t.behind.ahead(t.k, s.Want, at, s.Units())
	return delay
}

// fits reports whether c holds the copies that the line l needs: one for each key that only l uses, and
// none for the other keys of l.
func (c *copies) fits(l *line) bool {
	if !c.made {
		return false
	}
	for k := range l.places {
		if (c.keys[k] != nil) != l.places[k].alone() {
			return false
		}
	}
	return true
}

// alone reports whether the line of the place p is the only line that uses the key of p.
func (p *place) alone() bool { return p.queue.uses.size == 1 }

// foretellLine fills the field future of the line l: it copies the states of the keys that only l uses,
// and charges the callers in l to these copies.
func (ls *Lines) foretellLine(l *line, now keytable.Instant) {
	ls.takePlaces(l)
	l.future = copies{made: true}
	c := &l.future
	for k := range l.places {
		var f engine.Future
		if p := &l.places[k]; p.alone() {
			f = copyOf(p.queue.key, now)
		}
		c.keys = append(c.keys, f)
	}
	at := max(l.need, now)
	w := l.first
	for ; w != nil && c.size < stale; w = w.after {
		at = c.ready(w.Spots, at, nil)
		w.foretold = at
		c.add(w.Spots, at, nil)
		ls.walked++
	}
	if w != nil {
		units := make([]int64, len(l.places))
		for k := range l.places {
			units[k] = l.places[k].units
		}
		for charged := l.first; charged != w; charged = charged.after {
			for k, s := range enforcing(charged.Spots) {
				units[k] -= s.N
			}
		}
		c.sumFrom, c.sumTo = w.ahead.arrival, l.last.arrival
		c.sum(l.first.Spots, at, l.size-c.size, units)
	}
}

// foretellQueue fills the field tail of the queue q: it copies the state of the key of q, and charges
// to the copy the callers that will take units of the key next (the runs of the lines in q). If more
// than 64 lines are in q, it charges the units of these callers as one sum.
func (ls *Lines) foretellQueue(q *queue, now keytable.Instant) {
	q.tail = copies{made: true, keys: []engine.Future{copyOf(q.key, now)}}
	if len(q.lines) > stale {
		p := q.lines[0]
		w := p.line.first
		q.tail.sumTo = ls.arrivals
		q.tail.sum(w.spotOf(q.key), max(q.opens(), now), q.callers, []int64{q.units})
		return
	}
	stands := slices.Clone(q.lines)
	slices.SortFunc(stands, func(a, b *place) int { return cmp.Compare(a.line.first.arrival, b.line.first.arrival) })
	for _, p := range stands {
		p.queue.callers -= p.run.size
		p.queue.units -= p.run.units
		p.run = run{}
	}
	for _, p := range stands {
		ls.startRun(p, now)
	}
}

// inTail is called after a decision, for the place p (the link of a line to the queue of one key) if the
// line is in this queue. If the queue holds a copy of the key's state (the field tail), inTail charges
// the callers at the front of the line to the copy, unless some are charged already.
func (ls *Lines) inTail(p *place, now keytable.Instant) {
	q := p.queue
	if !q.tail.made && len(q.lines) >= stale { // call foretellQueue now: with more lines, it would charge all callers as one sum
		ls.foretellQueue(q, now)
	}
	if q.tail.made && p.run.size == 0 {
		ls.startRun(p, now)
	}
}

// startRun forecasts for the queue of the place p (the link of a line to the queue of one key): it
// charges the callers at the front of the line to the copy of the key's state in this queue. These are
// the callers that will take units of the key next: the first caller and the callers behind it. startRun
// stops before the first caller that must wait longer for a key that only this line uses.
func (ls *Lines) startRun(p *place, now keytable.Instant) {
	l, q := p.line, p.queue
	if l.size > 1 && !l.future.fits(l) {
		ls.foretellLine(l, now)
	}
	at := max(q.opens(), now)
	for w := l.first; w != nil; w = w.after {
		s := w.spotOf(q.key)
		if p.run.size == stale { // only 64 callers are charged one by one; the callers behind them are charged as one sum
			callers, units := l.size-p.run.size, p.units-p.run.units
			q.tail.sum(s, at, callers, []int64{units})
			p.extend(callers, units, l.last)
			return
		}
		due := q.tail.ready(s, at, nil)
		if w != l.first && !l.future.inSum(w.arrival) && w.foretold > due {
			return
		}
		at = due
		q.tail.add(s, at, nil)
		p.extend(1, s[0].N, w)
		w.tail, w.tailAt = q, at
		ls.walked++
	}
}

// uncharge is called when the caller w is about to leave its line. It notes this in the copies of keys'
// states to which w is charged in advance. The parameter served says whether w was served. If so, the
// parameter at says at which instant.
func (w *Waiter) uncharge(served bool, at keytable.Instant) {
	l := w.line
	if l.future.made {
		l.future.uncharge(w.arrival, w.foretold, served, at)
	}
	for i := range l.places {
		p := &l.places[i]
		c, foretold := &p.queue.tail, keytable.Instant(0)
		if w.tail == p.queue {
			foretold = w.tailAt
		}
		covered := p.run.covers(w)
		if covered {
			p.leaves(w)
		}
		switch {
		case !c.made:
		case covered:
			c.uncharge(w.arrival, foretold, served, at)
		case served && !p.alone():
			c.changed()
		}
	}
}

// spotOf returns the element of w.Spots for the key k, as a slice of one element. If no element that
// can deny has this key, spotOf returns nil.
func (w *Waiter) spotOf(k Key) []engine.Spot {
	for i := range w.Spots {
		if s := &w.Spots[i]; !s.Shadow && keyOf(s) == k {
			return w.Spots[i : i+1]
		}
	}
	return nil
}
