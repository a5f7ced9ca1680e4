package ratelimit

import (
	"sync"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// waiters are the goroutines in a limiter's Wait: a line for each key that has
// any. Only the first in a line asks and has a timer; the others are parked.
type waiters struct {
	mu    sync.Mutex
	lines map[keytable.Hash]*line
}

// A line is the waiters of one key. waiters.mu guards it and what is in it.
type line struct {
	first, last *waiter
	grant       instant // when first expects to be served; 0 if it has not asked
}

// A waiter is one call of Wait.
type waiter struct {
	hash         keytable.Hash
	line         *line
	ahead, after *waiter

	wake chan struct{} // holds one signal to ask again
}

// join puts a waiter at the end of the line for h.
func (ws *waiters) join(h keytable.Hash) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	l := ws.lines[h]
	if l == nil {
		if ws.lines == nil {
			ws.lines = make(map[keytable.Hash]*line)
		}
		l = new(line)
		ws.lines[h] = l
	}
	w := &waiter{hash: h, line: l, ahead: l.last, wake: make(chan struct{}, 1)}
	if l.last != nil {
		l.last.after = w
	} else {
		l.first = w
	}
	l.last = w
	return w
}

// leave takes w out of its line. If it was the first, the next one is woken.
func (ws *waiters) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
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
		delete(ws.lines, w.hash)
		return
	}
	l.wake()
}

// place reports whether w is the first in its line, and else when the first one
// expects to be served.
func (ws *waiters) place(w *waiter) (first bool, ahead instant) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.line.first == w {
		return true, 0
	}
	return false, w.line.grant
}

// expect notes when w, the first in its line, expects to be served.
func (ws *waiters) expect(w *waiter, grant instant) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.line.grant = grant
}

// wake makes the first waiter for h ask again.
func (ws *waiters) wake(h keytable.Hash) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if l := ws.lines[h]; l != nil {
		l.wake()
	}
}

// wakeAll makes the first waiter of every line ask again.
func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, l := range ws.lines {
		l.wake()
	}
}

// wake makes the first waiter ask again: when it expected to be served is no longer
// known. It must be called with waiters.mu held.
func (l *line) wake() {
	l.grant = 0
	select {
	case l.first.wake <- struct{}{}:
	default: // it has been told
	}
}
