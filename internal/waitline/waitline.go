// Package waitline keeps the goroutines that wait for a limiter in order of arrival.
//
// Each key, or each set of keys, that somebody waits for has a line. Only the first
// waiter in a line tries to take what it wants, and has a timer; the others are parked
// until they are the first.
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

// A line is the waiters of one key. Lines.mu guards it and what is in it.
type line struct {
	first, last *Waiter
	grant       keytable.Instant // when first expects to be served; 0 if it has not tried
}

// A Waiter is one call of Wait.
type Waiter struct {
	hash         keytable.Hash
	line         *line
	ahead, after *Waiter

	wake chan struct{} // holds one signal to try again
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

// Wakes returns the channel that receives when w is to try again: when it has become the
// first in its line, or when something has changed that the first one waits for.
func (w *Waiter) Wakes() <-chan struct{} { return w.wake }

// Leave takes w out of its line. If it was the first, the next one is woken.
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

// Place reports whether w is the first in its line. If it is not, ahead is when the
// first one expects to be served, or 0 if that is not known.
func (ls *Lines) Place(w *Waiter) (first bool, ahead keytable.Instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.line.first == w {
		return true, 0
	}
	return false, w.line.grant
}

// Expect notes when w, the first in its line, expects to be served.
func (ls *Lines) Expect(w *Waiter, grant keytable.Instant) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	w.line.grant = grant
}

// Wake makes the first waiter for h try again.
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

// wake makes the first waiter try again: the instant at which it expected to be served
// is no longer known. It must be called with Lines.mu held.
func (l *line) wake() {
	l.grant = 0
	select {
	case l.first.wake <- struct{}{}:
	default: // it has a signal already
	}
}

// Len returns how many waiters there are. It panics if a line is not whole.
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
