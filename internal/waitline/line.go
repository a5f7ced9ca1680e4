package waitline

import (
	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A line holds the callers that wait for the same set of keys, in order of arrival. The first caller
// is the head of the line.
type line struct {
	list[*Waiter]
	set keytable.Hash // hash that identifies the set of keys that the callers in the line wait for

	places  []place          // for each key that can deny, the link to its queue, in the order of Waiter.Spots; nil until a caller waits
	need    keytable.Instant // when the first caller of the line can be served, according to the last decision
	headDue bool             // whether the first caller of the line was due already, but one of its keys lacked the units
	inWork  int              // index of the line in the heap Lines.work, plus one; 0 if the line is not in this heap

	// future is a forecast that tells when a newcomer to the line will be served. It holds copies of the
	// states of those keys that only this line uses. The callers in the line are charged to these copies
	// in advance.
	future copies
}

func (l *line) before(other *line) bool { return l.first.arrival < other.first.arrival }
func (l *line) index() *int             { return &l.inWork }

// A place links a line to the queue of one key that the callers of the line wait for.
type place struct {
	line  *line
	queue *queue
	units int64 // the sum of the units of the key that the callers in the line wait for

	links[*place]      // the places before and after this one in the list queue.uses
	inQueue       int  // index of this place in the heap queue.lines, plus one; 0 if the line is not in the queue
	binding       bool // whether the line is in the queue because its first caller must wait for this key longer than for its others
	left          bool // whether vacate has taken the line out of the queue, and leftQueues has not been called since
	run           run
}

func (p *place) before(other *place) bool { return p.line.before(other.line) }
func (p *place) index() *int              { return &p.inQueue }

// A queue holds the lines whose first callers wait for the same key, in order of arrival of these
// callers. There is a queue for each key that any waiting caller needs. The queue is empty if all callers
// that need its key are in lines whose first callers wait for another key.
type queue struct {
	key    Key
	uses   list[*place] // the places of all lines whose callers need the key
	lines  heap[*place] // the places of the lines in the queue
	marked bool         // whether the key is marked in its table as a key that callers wait for

	// due is the instant at which the first caller of the first line in the queue can be served. The
	// instant is known if two conditions hold: that caller must wait for this key longer than for its
	// other keys, and a decision on the line was made after the line became the first in the queue. While
	// due is known, the queue is in the heap Lines.due.
	due   keytable.Instant
	inDue int // index of the queue in the heap Lines.due, plus one; 0 if the field due is not known

	// tail is a forecast. It holds a copy of the key's state. The callers that will take units of the key
	// next are charged to this copy in advance. They stand at the front of the lines in the queue. Such
	// callers of one line are called the run of this line.
	tail    copies
	callers int   // number of callers in the runs of all lines
	units   int64 // the sum of the units of the key that these callers wait for
}

func (q *queue) before(other *queue) bool {
	return q.due < other.due || q.due == other.due && q.first().before(other.first())
}
func (q *queue) index() *int  { return &q.inDue }
func (q *queue) first() *line { return q.lines[0].line }

// opens returns the earliest instant at which the first line of the queue can be served, according to
// the last decision on this line. The queue must not be empty.
func (q *queue) opens() keytable.Instant {
	if q.inDue != 0 {
		return q.due
	}
	return q.first().need
}

// waits reports whether the first line of the queue needs a decision. The line needs a decision under two
// conditions: its first caller must wait for the key of this queue longer than for its other keys, and the
// instant at which this caller can be served is not known. The queue must not be empty.
func (q *queue) waits() bool { return q.lines[0].binding && q.inDue == 0 }

// join puts the caller w at the end of the line l.
func (l *line) join(w *Waiter) {
	l.append(w)
	l.count(w, 1)
	w.line = l
}

// count updates the sums in l.places: for each key, the number of units that the callers in the line l wait
// for. If the parameter sign is 1, count adds the units that the caller w waits for; if sign is -1, count
// subtracts them. If l has no places yet, count does nothing: takePlaces makes the places later, and then
// counts the units of all callers.
func (l *line) count(w *Waiter, sign int64) {
	if l.places == nil {
		return
	}
	for k, s := range enforcing(w.Spots) {
		l.places[k].units += sign * s.N
	}
}

// unlink takes the waiting caller w out of its line. If w is the first in the line, the code that calls unlink must first
// call vacate, which takes the line out of its queues.
func (ls *Lines) unlink(w *Waiter) {
	l := w.line
	if l.first == w {
		l.headDue = false
	}
	l.remove(w)
	l.count(w, -1)
	w.line = nil
	if l.size == 0 {
		ls.dissolve(l)
	}
}

// takePlaces makes the places of the line l: for each key that its callers need, a link to the queue of
// the key. If l has its places already, takePlaces does nothing.
func (ls *Lines) takePlaces(l *line) {
	if l.places != nil {
		return
	}
	for _, s := range enforcing(l.first.Spots) {
		q := ls.queues[keyOf(s)]
		if q == nil {
			q = &queue{key: keyOf(s)}
			ls.queues[q.key] = q
		}
		l.places = append(l.places, place{line: l, queue: q})
	}
	for i := range l.places {
		l.places[i].queue.uses.append(&l.places[i])
	}
	for w := l.first; w != nil; w = w.after {
		l.count(w, 1)
	}
}

// dissolve removes the line l from ls. The line must not be in a queue. Its callers have left it, or
// are put into lines again afterwards.
func (ls *Lines) dissolve(l *line) {
	delete(ls.lines, l.set)
	for i := range l.places {
		p := &l.places[i]
		p.endRun()
		p.queue.uses.remove(p)
	}
	for i := range l.places {
		ls.decideFirst(l.places[i].queue)
	}
	l.places = nil
}

// stand puts the line of the place p (its link to the queue of one key) into that queue. The parameter s is
// the element for this key in the field Spots of the line's first caller; the key is locked. The parameter
// binding says whether this caller must wait for this key longer than for its other keys.
func (ls *Lines) stand(p *place, s *engine.Spot, binding bool) {
	l, q := p.line, p.queue
	var before *line
	if len(q.lines) > 0 {
		before = q.first()
	}
	if !q.marked {
		q.marked = true
		s.Mark(true)
	}
	p.binding = binding
	q.lines.push(p)
	if q.first() != l {
		return
	}
	ls.due.remove(q)
	if binding {
		q.due = l.need
		ls.due.push(q)
	}
	if before != nil {
		ls.setAlarm(before)
	}
}

// vacate takes the line l out of all its queues. The caller of vacate must then call leftQueues or
// dissolve. Each of these methods makes sure that the line that is now first in such a queue gets a
// decision, if it needs one.
func (ls *Lines) vacate(l *line) {
	for i := range l.places {
		p := &l.places[i]
		if p.inQueue == 0 {
			continue
		}
		if p.queue.first() == l {
			ls.due.remove(p.queue)
		}
		p.queue.lines.remove(p)
		p.binding, p.left = false, true
	}
}

// leftQueues is called after a decision on the line l. It calls decideFirst for each queue that l was
// in before the decision, because another line may be the first in this queue now.
func (ls *Lines) leftQueues(l *line) {
	for i := range l.places {
		if p := &l.places[i]; p.left {
			p.left = false
			ls.decideFirst(p.queue)
		}
	}
}

// decideFirst is called for a queue that a line may have left. If the first line of the queue needs a
// decision, decideFirst puts this line into ls.work. If the queue is empty, it adds the queue to
// ls.emptied.
func (ls *Lines) decideFirst(q *queue) {
	switch {
	case len(q.lines) == 0:
		ls.emptied = append(ls.emptied, q)
	case q.waits() && q.first().inWork == 0:
		ls.work.push(q.first())
	}
}

// patience returns the instant of the deadline of the caller w, or keytable.End if w has no deadline.
// Before that instant, w must be served and the Delay of the grant must be over.
func (ls *Lines) patience(w *Waiter, now keytable.Instant) keytable.Instant {
	if !w.HasDeadline {
		return keytable.End
	}
	return now.Add(max(ls.time.TimeTo(w.Deadline), 0))
}
