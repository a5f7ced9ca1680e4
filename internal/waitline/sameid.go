package waitline

import (
	"slices"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// attempts holds the waiting callers whose requests have an ID, by a hash of this ID, in order of
// arrival. Callers with the same ID are attempts at the same request, which is charged only once. So
// only the first of them, the leader, has a place in a line. The others, its followers, wait for the
// answer to the leader. If the leader leaves without a grant, the first of its followers becomes the
// leader.
type attempts[T comparable] map[keytable.Hash][]T

// add adds the caller x, which arrives with the given ID. It returns true if another caller waits with
// this ID already: x must then wait for the answer to that caller. A request without an ID has the ID
// zero: for it, add does nothing and returns false.
func (a *attempts[T]) add(id keytable.Hash, x T) (follows bool) {
	if id == (keytable.Hash{}) {
		return false
	}
	if *a == nil {
		*a = make(attempts[T])
	}
	(*a)[id] = append((*a)[id], x)
	return len((*a)[id]) > 1
}

// leader returns the first caller with the given ID, which has a place in a line. ok is false if no caller has the ID.
func (a attempts[T]) leader(id keytable.Hash) (x T, ok bool) {
	if len(a[id]) == 0 {
		return x, false
	}
	return a[id][0], true
}

// followers returns the callers with the given ID that wait for the answer to the first one with this ID.
func (a attempts[T]) followers(id keytable.Hash) []T {
	if len(a[id]) == 0 {
		return nil
	}
	return a[id][1:]
}

// remove removes the caller x, which waits with the given ID and stops waiting. If x was the first of
// several callers with this ID, next is the caller that is the first now, and promoted is true.
func (a attempts[T]) remove(id keytable.Hash, x T) (next T, promoted bool) {
	all := a[id]
	i := slices.Index(all, x)
	if i < 0 {
		return next, false
	}
	if len(all) == 1 {
		delete(a, id)
		return next, false
	}
	a[id] = slices.Delete(all, i, i+1)
	return a[id][0], i == 0
}

// earliest returns an instant before which the waiting caller w will certainly not be served. It uses
// the forecast of the line (line.future), if the forecast says when w will be served.
func (w *Waiter) earliest(now keytable.Instant) keytable.Instant {
	at, c := max(now, w.line.need), &w.line.future
	if c.made && !c.inSum(w.arrival) {
		at = max(at, w.foretold)
	}
	return at
}

// answerFollowers is called when the caller w was granted at the given instant and is still in its line.
// It ends the waits of the followers of w, the callers with the same request ID: they get the recorded
// answer to w. If a follower finds no record, because the record has answered too many retries or was
// dropped, it gets a place in the line of w.
func (ls *Lines) answerFollowers(w *Waiter, at keytable.Instant) {
	followers := ls.attempts.followers(w.ID)
	delete(ls.attempts, w.ID)
	for _, f := range followers {
		if f.follows = false; f.Record.Find(at) {
			f.Refused = ErrReplayed
			ls.conclude(f, at)
		} else if f.follows = ls.attempts.add(f.ID, f); !f.follows {
			w.line.insert(f)
		}
	}
}

// succeed is called when the caller w is about to leave its line without a grant. If other callers with
// the same request ID wait for the answer to w, the first of them gets a place in the line, in order of
// arrival, and succeed returns true.
func (ls *Lines) succeed(w *Waiter) bool {
	next, promoted := ls.attempts.remove(w.ID, w)
	if promoted {
		next.follows = false
		w.line.insert(next)
	}
	return promoted
}

// insert puts the caller w into the line l, in order of arrival. The first caller of l has arrived
// before w.
func (l *line) insert(w *Waiter) {
	ahead := l.last
	for ahead.arrival > w.arrival {
		ahead = ahead.ahead
	}
	l.list.insert(w, ahead)
	l.count(w, 1)
	w.line, w.foretold, w.tail = l, 0, nil
	l.future.drop() // the forecast of the line is wrong now: it has not charged w to its copies
	for i := range l.places {
		l.places[i].endRun()
	}
}
