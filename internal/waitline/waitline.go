// Package waitline keeps the callers that wait for a limiter in order of arrival.
//
// A line is a queue of waiters. There is one for each key, or each set of keys, that a caller
// waits for. Only the first waiter in a line tries to take its units and has a timer. The
// others sleep until they are the first.
package waitline

import (
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Lines are the lines of one limiter. The zero Lines is ready for use.
type Lines struct {
	mu    sync.Mutex
	lines map[keytable.Hash]*line
}

// A line is the waiters for one key or set of keys. Lines.mu guards it and its waiters.
type line struct {
	first, last *Waiter
	grant       keytable.Instant // when first expects to get its units; 0 if that is not known
}

// A Waiter is one call of Wait that stands in a line.
type Waiter struct {
	hash         keytable.Hash
	line         *line
	ahead, after *Waiter // its neighbours in the line, or nil at the ends

	wake chan struct{} // has room for one signal to try again
}

// Join returns a new waiter, at the end of the line for h.
func (ls *Lines) Join(h keytable.Hash) *Waiter {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.lines[h]
	if l == nil {
		if ls.lines == nil {
			ls.lines = make(map[keytable.Hash]*line)
		}
		l = new(line)
		ls.lines[h] = l
	}
	w := &Waiter{hash: h, line: l, ahead: l.last, wake: make(chan struct{}, 1)}
	if l.last != nil {
		l.last.after = w
	} else {
		l.first = w
	}
	l.last = w
	return w
}

// Wakes returns the channel that receives when w should try again: w has become the first in
// its line, or w is the first and something has changed that it waits for.
func (w *Waiter) Wakes() <-chan struct{} { return w.wake }

// Leave takes w out of its line. If w was the first, Leave wakes the next one.
func (ls *Lines) Leave(w *Waiter) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := w.line
	if w.after != nil {
		w.after.ahead = w.ahead
	} else {
		l.last = w.ahead
	}
	if w.ahead != nil {
		w.ahead.after = w.after
		return
	}
	if l.first = w.after; l.first == nil {
		delete(ls.lines, w.hash)
		return
	}
	l.wake()
}

// Place reports whether w is the first in its line. If it is not, ahead is the instant at which
// the first one expects to get its units, or 0 if that is not known.
func (ls *Lines) Place(w *Waiter) (first bool, ahead keytable.Instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.line.first == w {
		return true, 0
	}
	return false, w.line.grant
}

// Expect notes the instant at which w, the first in its line, expects to get its units.
func (ls *Lines) Expect(w *Waiter, grant keytable.Instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.line.grant = grant
}

// Wake makes the first waiter in the line for h try again.
func (ls *Lines) Wake(h keytable.Hash) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l := ls.lines[h]; l != nil {
		l.wake()
	}
}

// WakeAll makes the first waiter of every line try again.
func (ls *Lines) WakeAll() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.lines {
		l.wake()
	}
}

// wake makes the first waiter try again. The instant at which it expected to get its units does
// not count any more. The caller holds Lines.mu.
func (l *line) wake() {
	l.grant = 0
	select {
	case l.first.wake <- struct{}{}:
	default: // the channel has a signal already
	}
}

// Len returns the number of waiters in all lines. It panics if the links of a line are wrong.
func (ls *Lines) Len() (n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for hash, l := range ls.lines {
		var ahead *Waiter
		for w := l.first; w != nil; w = w.after {
			if w.ahead != ahead || w.line != l || w.hash != hash {
				panic("waitline: a waiter stands in a wrong place")
			}
			ahead = w
			n++
		}
		if ahead == nil || l.last != ahead {
			panic("waitline: a line has a wrong end")
		}
	}
	return n
}
