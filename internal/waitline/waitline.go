// Package waitline serves the callers that wait for units of a limiter, in order of arrival.
//
// The callers that wait for the same set of keys form a line, in the order in which they came. A key
// here means a key of a limiter, or of a rule that can deny. Only the first caller of a line, its head,
// can be the next one of the line to be served.
//
// Each key has a queue of the lines that wait for it. A line is in the queue of the key that its head
// must wait for longest, and in some cases also in the queues of its other keys. For the first line in a
// queue, the package knows when its head can be served.
//
// When that instant has come, the next goroutine that calls a method of [Lines] serves this head. The
// goroutine may belong to a waiting caller, or to a new request for a key that others wait for. So a
// caller that wakes up late delays no other caller. As long as a line is in the queue of a key, the key
// is marked in its table, so that all requests for the key are sent to this package.
package waitline

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Lines holds the lines of one limiter, or of one set of rules. Call Init before use.
type Lines struct {
	time    *engine.Timeline
	limit   int      // largest number of callers that may wait at once
	retries *Retries // callers that wait for a store or a custom limiter; they also count towards the field limit; may be nil

	rematch func(*Waiter) // gives a waiting caller its keys under new rules, see Init

	waiting atomic.Int64  // number of callers in all lines
	held    atomic.Int64  // number of callers that wait in a line and also in the field retries
	version atomic.Uint64 // number of changes of the rules so far; written only while mu is held

	mu sync.Mutex

	// mu guards the fields below, and all lines, queues and waiters that they lead to. A goroutine that
	// locks mu and a shard of a key table must lock mu first.

	arrivals uint64 // number of callers that have arrived so far
	lines    map[keytable.Hash]*line
	queues   map[Key]*queue // one queue for each key that a waiting caller needs
	attempts attempts[*Waiter]
	due      heap[*queue]     // queues whose first line can be served at a known instant, ordered by that instant
	work     heap[*line]      // lines whose first callers need a decision, in order of arrival of these callers
	emptied  []*queue         // queues without lines; their keys may still be marked in the tables as keys that callers wait for
	last     keytable.Instant // last reading of the clock
	walked   int              // how often a waiting caller was charged to the copy of a state, to foretell waits; read only by tests
}

// A Key identifies one key of a rule or of a limiter.
type Key struct {
	Keys engine.Lockable // the table that has the key
	Hash keytable.Hash   // the hash of the key
}

func keyOf(s *engine.Spot) Key { return Key{s.Keys, s.Hash} }

// Reasons why the wait of a caller ends without a charge.
var (
	ErrNever = errors.New("waitline: the units will never be there")
	ErrLate  = errors.New("waitline: the units will be there too late")
	ErrFull  = errors.New("waitline: too many callers wait already")

	// ErrReplayed says that the same request was granted earlier, so it is not charged again.
	ErrReplayed = errors.New("waitline: granted before")
)

// Init makes ls ready for use, with the clock of the timeline t. The parameter limit is the largest
// number of callers that may wait in ls and in the given Retries together. The Retries may be nil.
// After a change of the rules, Lines calls the function rematch for callers that wait. This function
// sets the fields Set and Spots of a caller by the new rules. If it sets the field Refused, the caller
// stops waiting.
func (ls *Lines) Init(t *engine.Timeline, limit int, retries *Retries, rematch func(*Waiter)) {
	ls.time, ls.limit, ls.retries, ls.rematch = t, limit, retries, rematch
	ls.lines, ls.queues = make(map[keytable.Hash]*line), make(map[Key]*queue)
}

// Len returns the number of callers that wait in ls.
func (ls *Lines) Len() int { return int(ls.waiting.Load()) }

// All returns the number of callers that wait in ls or in its [Retries]. A caller that waits in both is
// counted once.
func (ls *Lines) All() int {
	n := ls.Len() - int(ls.held.Load())
	if ls.retries != nil {
		n += ls.retries.Len()
	}
	return n
}

// count changes the number of callers that wait by the given number: 1 when the caller w arrives, and
// -1 when the wait of w ends.
func (ls *Lines) count(w *Waiter, change int64) {
	ls.waiting.Add(change)
	if change < 0 && w.counted {
		ls.time.Waits(-1, ls)
	}
	if w.Hold {
		ls.held.Add(change)
	}
}

// Walked returns how much work the forecasts of waits have caused. A forecast copies the state of a key
// and charges the waiting callers to the copy; Walked counts each such charge. Tests check that this
// number stays small.
func (ls *Lines) Walked() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.walked
}

// Deny denies a request if earlier callers wait for one of its keys. The slice spots has
// one element for each key of the request. The first parameter is a hash, which identifies the keys
// that can deny. Deny stores the denial in spots, and returns the instant of the denial and true. If no
// caller waits for these keys, Deny decides nothing and returns false. The parameter counted says
// whether the denial is added to the totals of the rules.
func (ls *Lines) Deny(set keytable.Hash, spots []engine.Spot, counted bool) (now keytable.Instant, denied bool) {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now = ls.serveDueLocked()
	if !ls.behind(set, spots) {
		return now, false
	}
	ls.foretell(set, spots, now)
	engine.Unlock(spots, counted, false)
	return now, true
}

// enter notes the arrival of the caller w, and places w into its line or ends its wait at once.
func (ls *Lines) enter(w *Waiter) {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.serveDueLocked()
	w.until = ls.patience(w, now)
	ls.arrivals++
	w.arrival, w.since = ls.arrivals, now
	ls.count(w, 1)
	if w.Version != ls.version.Load() && ls.rematch != nil {
		ls.rematch(w)
	}
	if w.Refused != nil || !denies(w.Spots) {
		ls.conclude(w, now)
		return
	}
	ls.place(w, now)
	ls.decideAll(now)
	ls.unmark()
	if w.counted = !w.over.Load(); w.counted { // a caller that is served at once does not wait
		ls.time.Waits(1, ls)
	}
}

// leave takes the caller w out of its line and returns true. If the wait of w has ended already, leave
// returns false. If the last parameter is true, leave first reads the clock and serves the callers that
// are due, which may include w.
func (ls *Lines) leave(w *Waiter, read bool) bool {
	if read {
		ls.time.Renew()
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.last
	if read {
		now = ls.serveDueLocked()
	}
	switch {
	case w.over.Load():
		return false
	case w.follows:
		ls.attempts.remove(w.ID, w)
		ls.count(w, -1)
		return true
	case w.line == nil:
		return false
	}
	l, head := w.line, w.line.first == w
	if head {
		ls.vacate(l)
	}
	w.uncharge(false, now)
	inserted := ls.succeed(w)
	ls.unlink(w)
	ls.count(w, -1)
	if head {
		ls.decideNext(l)
		ls.decideAll(now)
	} else if inserted {
		ls.updateRuns(l, now)
	}
	ls.unmark()
	return true
}

// Settle serves the waiting callers that are due.
func (ls *Lines) Settle() {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.serveDueLocked()
}

// serveDueLocked reads the clock, serves the callers that are due, and returns the reading. It charges
// each of these callers at the instant at which the caller was due, even if this instant is in the
// past. ls.mu must be locked.
func (ls *Lines) serveDueLocked() keytable.Instant {
	now := ls.time.Now()
	ls.last = now
	for len(ls.due) > 0 && ls.due[0].due <= now {
		q := ls.due[0]
		l, at := q.first(), q.due
		l.headDue = true
		ls.work.push(l)
		ls.decideAll(at)
	}
	ls.unmark()
	return now
}

// unmark goes through the queues in ls.emptied. If a queue is still empty, unmark removes the mark of
// its key in the table, and forgets the queue if no line needs it any more. unmark must be called after
// all decisions. If a mark were removed earlier, a new request could take units before the callers that
// wait.
func (ls *Lines) unmark() {
	for _, q := range ls.emptied {
		if len(q.lines) > 0 {
			continue
		}
		if q.marked {
			q.marked = false
			spot := [1]engine.Spot{engine.SpotOf(q.key.Keys, q.key.Hash, 1)}
			engine.Lock(spot[:], 0)
			spot[0].Mark(false)
			engine.Unlock(spot[:], false, false)
		}
		q.tail.drop()
		if q.uses.size == 0 && ls.queues[q.key] == q {
			delete(ls.queues, q.key)
		}
	}
	clear(ls.emptied)
	ls.emptied = ls.emptied[:0]
}

// denies reports whether any of the keys in spots can deny a request.
func denies(spots []engine.Spot) bool {
	for range enforcing(spots) {
		return true
	}
	return false
}

// behind reports whether a request must wait because earlier callers wait for one of its keys. The
// slice spots has one element for each key. The first parameter is a hash, which identifies the keys
// that can deny.
func (ls *Lines) behind(set keytable.Hash, spots []engine.Spot) bool {
	if ls.lines[set] != nil {
		return true
	}
	for _, s := range enforcing(spots) {
		if ls.queueAt(s) != nil {
			return true
		}
	}
	return false
}

// queueAt returns the queue of the key that s names, or nil if no line is in that queue.
func (ls *Lines) queueAt(s *engine.Spot) *queue {
	if q := ls.queues[keyOf(s)]; q != nil && len(q.lines) > 0 {
		return q
	}
	return nil
}

// conclude ends the wait of the caller w at the given instant. The caller is in no line any more.
func (ls *Lines) conclude(w *Waiter, at keytable.Instant) {
	w.At = at
	ls.count(w, -1)
	w.over.Store(true)
	w.nudge()
}
