// Package waitline serves the callers that wait for a limiter in order of arrival.
//
// A key is one key of one rule that denies requests, or of a limiter. A line is the callers
// that wait for the same set of keys, in the order in which they came. Only its first caller,
// the head, is ever decided on. A head waits at the queue of one key at a time: that of the key
// that it lacks longest. The first line in a queue is due at a known instant.
//
// Whoever comes to the [Lines] at that instant or later charges the head there: a caller that
// waits, or one that asks for a key that others wait for. So a caller that wakes up late costs
// nothing. A key that has a queue is marked in its table, and all requests for it come here.
package waitline

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Lines are the lines of one limiter, or of one set of rules. The zero Lines has no clock:
// call Init first.
type Lines struct {
	time *engine.Timeline
	most int
	asks *Asks // callers that count towards most, or nil

	again func(*Waiter)

	waiting atomic.Int64  // callers in all lines
	held    atomic.Int64  // those of them that wait in asks too
	version atomic.Uint64 // how often the rules have changed; written while mu is held

	mu sync.Mutex

	// The fields below are guarded by mu, and so are lines, queues and waiters. It is taken
	// before the lock of a shard.

	arrivals uint64 // of all callers so far
	lines    map[keytable.Hash]*line
	queues   map[key]*queue
	due      heap[*queue]     // the queues whose first line has a due instant
	work     heap[*line]      // the lines whose heads have to be decided on
	emptied  []*queue         // queues that were left by their last line: their marks are still set
	last     keytable.Instant // the last reading of the clock
	walked   int              // callers that were charged again to make copies
}

// A key identifies a key of a rule or of a limiter.
type key struct {
	keys engine.Lockable
	hash keytable.Hash
}

func keyOf(s *engine.Spot) key { return key{s.Keys, s.Hash} }

// The reasons for which a caller does not wait.
var (
	ErrNever = errors.New("waitline: the units will never be there")
	ErrLate  = errors.New("waitline: the units will be there too late")
	ErrFull  = errors.New("waitline: too many callers wait already")

	// ErrReplayed says that the request was granted before, so that it is not charged again.
	ErrReplayed = errors.New("waitline: granted before")
)

// Init makes ls ready for use, on the clock of t. At most most callers wait, and those of asks,
// which may be nil, count. When the rules have
// changed, again is called for each caller that waits: it sets Set and Spots by the new rules,
// or Refused.
func (ls *Lines) Init(t *engine.Timeline, most int, asks *Asks, again func(*Waiter)) {
	ls.time, ls.most, ls.asks, ls.again = t, most, asks, again
	ls.lines, ls.queues = make(map[keytable.Hash]*line), make(map[key]*queue)
}

// Len returns the number of callers that wait.
func (ls *Lines) Len() int { return int(ls.waiting.Load()) }

// All returns the number of callers that wait here, in asks or in both.
func (ls *Lines) All() int {
	n := ls.Len() - int(ls.held.Load())
	if ls.asks != nil {
		n += ls.asks.Len()
	}
	return n
}

// count adds 1 or -1 to the callers that wait, because of w.
func (ls *Lines) count(w *Waiter, change int64) {
	ls.waiting.Add(change)
	if w.Hold {
		ls.held.Add(change)
	}
}

// Walked returns how many callers were charged again so far, to make copies of states.
func (ls *Lines) Walked() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.walked
}

// Deny answers a request for n units of spots if somebody waits for one of its keys. It writes
// the answers to spots and returns the instant that they are for, and true. Otherwise, it
// decides nothing and returns false: the caller then decides without the Lines. set
// identifies the keys. counted says whether the denial is added to the totals of the rules.
func (ls *Lines) Deny(set keytable.Hash, spots []engine.Spot, n int64, counted bool) (now keytable.Instant, denied bool) {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now = ls.settleLocked()
	if !ls.behind(set, spots) {
		return now, false
	}
	ls.foretell(set, spots, n, now)
	engine.Unlock(spots, counted, false)
	return now, true
}

// enter places w, which has just come.
func (ls *Lines) enter(w *Waiter) {
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.settleLocked()
	w.until = ls.patience(w, now)
	ls.arrivals++
	w.arrival, w.since = ls.arrivals, now
	ls.count(w, 1)
	if w.Version != ls.version.Load() && ls.again != nil {
		ls.again(w)
	}
	if w.Refused != nil || !denies(w.Spots) {
		ls.conclude(w, now)
		return
	}
	ls.place(w, now)
	ls.judgeAll(now)
	ls.unmark()
}

// leave takes w out of its line, unless it is over. It reports whether it did.
func (ls *Lines) leave(w *Waiter, read bool) bool {
	if read {
		ls.time.Renew()
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	now := ls.last
	if read {
		now = ls.settleLocked()
	}
	if w.over.Load() || w.line == nil {
		return false
	}
	l, head := w.line, w.line.first == w
	var stood []*queue
	if head {
		stood = ls.vacate(l)
	}
	l.future.left(w.foretold != 0)
	if w.tail != nil {
		w.tail.tail.left(true)
	}
	ls.unlink(w)
	ls.count(w, -1)
	if head {
		ls.goOn(l, stood)
		ls.judgeAll(now)
		ls.unmark()
	}
	return true
}

// settleLocked reads the clock and serves the callers that are due.
func (ls *Lines) settleLocked() keytable.Instant {
	now := ls.time.Now()
	ls.last = now
	for len(ls.due) > 0 && ls.due[0].due <= now {
		q := ls.due[0]
		l, at := q.first(), q.due
		l.was = true
		ls.work.push(l)
		ls.judgeAll(at)
	}
	ls.unmark()
	return now
}

// unmark removes the marks of the keys whose queues have stayed empty. This comes last: a
// request cannot take units between two callers that wait.
func (ls *Lines) unmark() {
	for _, q := range ls.emptied {
		if len(q.lines) > 0 || ls.queues[q.key] != q {
			continue
		}
		delete(ls.queues, q.key)
		spot := [1]engine.Spot{{Keys: q.key.keys, Hash: q.key.hash}}
		engine.Lock(spot[:], 0)
		spot[0].Mark(false)
		engine.Unlock(spot[:], false, false)
	}
	clear(ls.emptied)
	ls.emptied = ls.emptied[:0]
}

// denies reports whether a key of spots can deny.
func denies(spots []engine.Spot) bool {
	for i := range spots {
		if !spots[i].Shadow {
			return true
		}
	}
	return false
}

// behind reports whether a request comes behind callers that wait.
func (ls *Lines) behind(set keytable.Hash, spots []engine.Spot) bool {
	if ls.lines[set] != nil {
		return true
	}
	for i := range spots {
		if q := ls.queueAt(&spots[i]); q != nil && !spots[i].Shadow {
			return true
		}
	}
	return false
}

// queueAt returns the queue of the key of s, or nil if nobody stands there.
func (ls *Lines) queueAt(s *engine.Spot) *queue {
	if q := ls.queues[keyOf(s)]; q != nil && len(q.lines) > 0 {
		return q
	}
	return nil
}

// conclude ends the wait of w, which is in no line any more.
func (ls *Lines) conclude(w *Waiter, at keytable.Instant) {
	w.At = at
	ls.count(w, -1)
	w.over.Store(true)
	w.nudge()
}
