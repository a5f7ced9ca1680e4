package waitline

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Copies are states of keys that are charged ahead of time, to foretell when a caller that comes
// later is served. They are made when first needed, and are valid while everybody is served
// at the instant foretold. The zero copies are none.
type copies struct {
	keys []engine.Future // of the keys that deny, in the order of their spots
	size int             // callers that are charged in keys and still wait
	gone int             // callers that were charged in keys and have left
}

// stale is how many of those who have left, at least, make the copies stale, as a part of
// those who are left: one in 64 may be foretold too late.
const stale = 64

func (c *copies) drop() { *c = copies{} }

// left notes that a caller has left. charged says whether the copies have counted it.
func (c *copies) left(charged bool) {
	if c.keys == nil || !charged {
		return
	}
	c.size--
	c.gone++
	c.check()
}

// served notes that a caller that was foretold to be served at one instant was at another.
func (c *copies) served(foretold, at keytable.Instant) {
	if c.keys == nil {
		return
	}
	if c.size--; foretold == 0 || at > foretold || at < foretold && c.gone == 0 {
		c.drop()
		return
	}
	c.check()
}

func (c *copies) check() {
	if c.gone > 0 && stale*c.gone >= c.size {
		c.drop()
	}
}

// charge charges w at the instant at: by all keys or, if only is not -1, by the key of spot
// number only, which is then the only one in c.
func (c *copies) charge(w *Waiter, at keytable.Instant, only int) {
	k := 0
	for i := range w.Spots {
		if s := &w.Spots[i]; !s.Shadow && (only < 0 || only == i) {
			c.keys[k].Charge(s.Want, at, w.N)
			k++
		}
	}
	c.size++
}

// copyOf returns the Future of the key of s at now.
func copyOf(s *engine.Spot, now keytable.Instant) engine.Future {
	spot := [1]engine.Spot{{Keys: s.Keys, Hash: s.Hash}}
	engine.Lock(spot[:], now)
	f := spot[0].Future(now)
	engine.Unlock(spot[:], false, false)
	return f
}

// A forecast says when a request that comes now is served.
type forecast struct {
	at      keytable.Instant // End if never
	delay   time.Duration    // its Delay then
	binding int              // the spot that it is served last by
}

// foretell foretells when a request for n units of spots is served, if it comes at now behind
// callers that wait. It locks spots and writes to them the denial.
func (ls *Lines) foretell(set keytable.Hash, spots []engine.Spot, n int64, now keytable.Instant) (f forecast) {
	l := ls.lines[set]
	if l != nil && l.future.keys == nil {
		ls.foretellLine(l, now)
	}
	for i := range spots {
		if q := ls.queueAt(&spots[i]); q != nil && !spots[i].Shadow && q.tail.keys == nil && !q.only(l) {
			ls.foretellQueue(q, now)
		}
	}
	engine.Lock(spots, now)
	f.binding = -1
	k := 0
	for i := range spots {
		s := &spots[i]
		if s.Shadow {
			s.Look(now, n)
			continue
		}
		due, waits := now, false
		later := func(c *copies, k int, least keytable.Instant) {
			at, v, delay := c.keys[k].Ahead(s.Want, now, n)
			if at < least {
				v.RetryAfter = time.Duration(least.Since(now))
				at = least
			}
			if v.Left = 0; !waits || at > due {
				due, waits, s.Verdict, s.Delay = at, true, v, delay
			}
		}
		if l != nil {
			later(&l.future, k, l.need)
		}
		if q := ls.queueAt(s); q != nil && !q.only(l) {
			later(&q.tail, 0, q.due)
		}
		if !waits {
			due = s.Ahead(now, n)
		}
		if f.binding < 0 || due > f.at {
			f.at, f.binding = due, i
		}
		f.delay = max(f.delay, s.Delay)
		k++
	}
	return f
}

// only reports whether nobody but l stands in q.
func (q *queue) only(l *line) bool { return len(q.lines) == 1 && q.first() == l }

// foretellLine makes the copies of l: the states of its keys once all in it are served, each
// when all keys allow.
func (ls *Lines) foretellLine(l *line, now keytable.Instant) {
	c := &l.future
	for i := range l.first.Spots {
		if s := &l.first.Spots[i]; !s.Shadow {
			c.keys = append(c.keys, copyOf(s, now))
		}
	}
	least := max(l.need, now)
	for w := l.first; w != nil; w = w.after {
		at := w.ready(c.keys, least)
		w.foretold = at
		c.charge(w, at, -1)
		ls.walked++
		least = at
	}
}

// ready returns the instant, not before least, at which all of keys have the units of w.
func (w *Waiter) ready(keys []engine.Future, least keytable.Instant) keytable.Instant {
	at, k := least, 0
	for i := range w.Spots {
		if s := &w.Spots[i]; !s.Shadow {
			if keys[k] != nil {
				due, _, _ := keys[k].Ahead(s.Want, least, w.N)
				at = max(at, due)
			}
			k++
		}
	}
	return at
}

// foretellQueue makes the copy of the key of q, once those are served who stand there: of each
// line the head, and those behind it that this key stops.
func (ls *Lines) foretellQueue(q *queue, now keytable.Instant) {
	tail := copyOf(&engine.Spot{Keys: q.key.keys, Hash: q.key.hash}, now)
	q.tail = copies{keys: []engine.Future{tail}}
	lines := slices.Clone(q.lines)
	slices.SortFunc(lines, func(a, b *stand) int { return cmp.Compare(a.line.first.arrival, b.line.first.arrival) })
	for _, s := range lines {
		l := s.line
		others, at := make([]engine.Future, 0, len(l.first.Spots)), -1
		for i := range l.first.Spots {
			switch s := &l.first.Spots[i]; {
			case s.Shadow:
			case keyOf(s) == q.key:
				at = i
				others = append(others, nil)
			default:
				others = append(others, copyOf(s, now))
			}
		}
		least := max(q.due, now)
		for w := l.first; w != nil; w = w.after {
			at := spotOf(w, at, q.key)
			due, _, _ := tail.Ahead(w.Spots[at].Want, least, w.N)
			also := w.ready(others, least)
			if also > due && w != l.first {
				break // another key stops it longer
			}
			due = max(due, also)
			q.tail.charge(w, due, at)
			w.tail, w.tailAt = q, due
			k := 0
			for i := range w.Spots {
				if s := &w.Spots[i]; !s.Shadow {
					if others[k] != nil {
						others[k].Charge(s.Want, due, w.N)
					}
					k++
				}
			}
			ls.walked++
		}
	}
}

// spotOf returns the index of the spot of w whose key is k. It is likely to be i: it is there
// for the others in the line, unless they have other shadows.
func spotOf(w *Waiter, i int, k key) int {
	if i < len(w.Spots) && keyOf(&w.Spots[i]) == k {
		return i
	}
	return slices.IndexFunc(w.Spots, func(s engine.Spot) bool { return keyOf(&s) == k })
}
