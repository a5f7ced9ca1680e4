package waitline

import (
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A line is the callers that wait for one set of keys.
type line struct {
	list[*Waiter]
	set keytable.Hash

	need   keytable.Instant // when its head can be served, as it was last decided on
	stands []*stand         // its places in queues
	was    bool             // whether its head is due now
	inWork int              // index for Lines.work

	future copies // the state of each key that denies once all in the line are served
}

func (l *line) before(other *line) bool { return l.first.arrival < other.first.arrival }
func (l *line) index() *int             { return &l.inWork }

// A queue is the lines whose heads wait at one key. One caller after the other goes on from
// here, by arrival.
type queue struct {
	key   key
	lines heap[*stand]
	due   keytable.Instant // of the first line; valid while the queue is in Lines.due
	inDue int              // index for Lines.due; 0 if the first line must be decided on

	tail copies // the state of the key once those who stand here are served
}

func (q *queue) before(other *queue) bool {
	return q.due < other.due || q.due == other.due && q.first().before(other.first())
}
func (q *queue) index() *int  { return &q.inDue }
func (q *queue) first() *line { return q.lines[0].line }

// A stand is the place of a line in a queue.
type stand struct {
	line    *line
	queue   *queue
	inQueue int // index for queue.lines
}

func (s *stand) before(other *stand) bool { return s.line.before(other.line) }
func (s *stand) index() *int              { return &s.inQueue }

// join puts w at the end of l.
func (l *line) join(w *Waiter) {
	l.append(w)
	w.line = l
}

// unlink takes w out of its line. If it is the head, the line stands nowhere.
func (ls *Lines) unlink(w *Waiter) {
	l := w.line
	l.remove(w)
	if w.line = nil; l.size == 0 {
		delete(ls.lines, l.set)
	}
}

// stand puts l into the queue of s, whose shard is locked.
func (ls *Lines) stand(l *line, s *engine.Spot) {
	q := ls.queues[keyOf(s)]
	if q == nil {
		q = &queue{key: keyOf(s)}
		ls.queues[q.key] = q
		s.Mark(true)
	}
	var before *line
	if len(q.lines) > 0 {
		before = q.first()
	}
	st := &stand{line: l, queue: q}
	q.lines.push(st)
	l.stands = append(l.stands, st)
	if q.first() != l {
		return
	}
	if q.due = l.need; q.inDue == 0 {
		ls.due.push(q)
	} else {
		ls.due.fix(q)
	}
	if before != nil {
		ls.setAlarm(before)
	}
}

// vacate takes l out of the queues that it stands in, and returns them.
func (ls *Lines) vacate(l *line) (stood []*queue) {
	for _, s := range l.stands {
		q := s.queue
		if q.first() == l {
			ls.due.remove(q)
		}
		q.lines.remove(s)
		stood = append(stood, q)
	}
	l.stands = l.stands[:0]
	return stood
}

// standsAt reports whether l stands in q.
func (l *line) standsAt(q *queue) bool {
	return slices.ContainsFunc(l.stands, func(s *stand) bool { return s.queue == q })
}

// patience returns the instant before which w must be served and its Delay be over.
func (ls *Lines) patience(w *Waiter, now keytable.Instant) keytable.Instant {
	if !w.HasDeadline {
		return keytable.End
	}
	return now.Add(max(ls.time.TimeTo(w.Deadline), 0))
}
