package waitline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Asks are the lines for keys whose state cannot be looked at ahead of time, because it is in
// a store or in a limiter of the user's. Only the head of a line asks again, once it is due.
// The zero Asks is ready for use.
type Asks struct {
	waiting atomic.Int64
	wakes   atomic.Uint64 // calls of Wake

	mu    sync.Mutex
	lines map[keytable.Hash]*askLine
}

// An askLine is the callers that were denied, or came after one that was.
type askLine struct {
	list[*Asker]
	denial Denial
	served bool          // whether the caller that was denied has been served since: the head asks at once
	future engine.Future // what is known of the binding key, once all in the line are served
}

// A Denial is the last answer to the head of a line.
type Denial struct {
	Due        keytable.Instant // when the head asks again; 0 if at once, because the denial is out of date
	At         keytable.Instant // when it was denied
	RetryAfter time.Duration    // what it was told
	Answer     any              // the answer itself
	Stands     bool             // whether the head asks at once, because asking stands in [Lines]

	// Fresh returns a copy of the binding key as it is at Due, once the head is served. It
	// is nil if nothing is known of it.
	Fresh func() engine.Future
}

// An Asker is one caller that waits.
type Asker struct {
	N int64 // units

	links[*Asker]
	set  keytable.Hash
	line *askLine
	wake chan struct{}
}

// Len returns the number of callers that wait.
func (as *Asks) Len() int { return int(as.waiting.Load()) }

// Ahead returns the last denial of the line of set, and how long it takes until a request for n
// units that comes now is served, as far as that is known. If nobody waits there, behind is
// false.
func (as *Asks) Ahead(set keytable.Hash, now keytable.Instant, n int64) (d Denial, wait time.Duration, behind bool) {
	as.mu.Lock()
	defer as.mu.Unlock()
	l := as.lines[set]
	if l == nil {
		return d, 0, false
	}
	at := l.denial.Due
	if l.denial.Fresh != nil {
		if l.future == nil {
			l.future = l.denial.Fresh()
			a := l.first
			if !l.served {
				a = a.after // Fresh has counted the head
			}
			for ; a != nil; a = a.after {
				l.charge(a.N)
			}
		}
		due, _, _ := l.future.Ahead(engine.Wanted{}, at, n)
		at = max(at, due)
	}
	switch wait = l.denial.RetryAfter; { // if the head is asking
	case at == 0 && !l.denial.Stands: // a Reset or other rules have made the denial out of date
		wait = time.Millisecond
	case at > now:
		wait = time.Duration(min(at.Since(now), uint64(engine.Never)))
	}
	return l.denial, wait, true
}

// charge charges a caller that waits to the future of l.
func (l *askLine) charge(n int64) {
	if at, _, _ := l.future.Ahead(engine.Wanted{}, l.denial.Due, n); at != keytable.End {
		l.future.Charge(engine.Wanted{}, at, n)
	}
}

// Wait waits until ask needs no more to be called: it returns nil then. While nobody is known
// to wait for set, it calls ask at once, with newcomer set. Of those for whom ask has returned
// a denial, only the head of the line calls it again, once it is due. If ask returns that the
// caller is served, the next one asks at once. Wait returns the error of ctx if ctx ends, and
// ErrChanged if changed is true when it is a caller's turn to ask again.
func (as *Asks) Wait(ctx context.Context, t *engine.Timeline, set keytable.Hash, n int64, changed func() bool, ask func(newcomer bool) (d *Denial, served bool)) error {
	var a *Asker
	served := false
	defer func() {
		if a != nil { // also if a store, a context or a clock has panicked
			as.Leave(a, served)
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if a != nil {
			if !as.turn(ctx, t, a) {
				continue
			}
			if changed() {
				return ErrChanged
			}
		}
		var d *Denial
		wakes := as.wakes.Load()
		switch d, served = ask(a == nil); {
		case d == nil:
			return nil
		case a == nil:
			a = as.Join(set, n, *d, wakes)
		default:
			as.Denied(a, *d, wakes)
		}
	}
}

// ErrChanged says that the rules have changed: the caller waits anew, by the new ones.
var ErrChanged = errors.New("waitline: the rules have changed")

// turn waits until a should look again. It reports whether a, which is then the head of its
// line, asks now.
func (as *Asks) turn(ctx context.Context, t *engine.Timeline, a *Asker) bool {
	head, due := as.Place(a)
	if !head {
		select {
		case <-a.wake:
		case <-ctx.Done():
		}
		return false
	}
	now := t.Now()
	if now < due {
		_ = t.Sleep(ctx, now, now.Until(due), a.wake)
	}
	return now >= due
}

// Join puts a caller for n units at the end of the line of set. If nobody is there, denial is
// that of the line. wakes is how often Wake had been called before the caller asked.
func (as *Asks) Join(set keytable.Hash, n int64, denial Denial, wakes uint64) *Asker {
	as.waiting.Add(1)
	as.mu.Lock()
	defer as.mu.Unlock()
	l := as.lines[set]
	if l == nil {
		if as.lines == nil {
			as.lines = make(map[keytable.Hash]*askLine)
		}
		l = new(askLine)
		as.lines[set] = l
		as.deny(l, denial, wakes)
	} else if l.future != nil {
		l.charge(n)
	}
	a := &Asker{N: n, set: set, line: l, wake: make(chan struct{}, 1)}
	l.append(a)
	return a
}

// Leave takes a out of its line. If a was the head, the next one is told: to ask at once if a
// was served.
func (as *Asks) Leave(a *Asker, served bool) {
	as.waiting.Add(-1)
	as.mu.Lock()
	defer as.mu.Unlock()
	l := a.line
	head := l.first == a
	l.remove(a)
	switch {
	case l.size == 0:
		delete(as.lines, a.set)
	case head:
		l.served = l.served || served
		l.first.nudge()
	}
	if !head || !served {
		l.future = nil
	}
}

// Place reports whether a is the head of its line. If so, due is when it asks.
func (as *Asks) Place(a *Asker) (head bool, due keytable.Instant) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if due = a.line.denial.Due; a.line.served || a.line.denial.Stands {
		due = 0
	}
	return a.line.first == a, due
}

// Denied notes that a, the head of its line, was denied again. wakes is how often Wake had been
// called before it asked.
func (as *Asks) Denied(a *Asker, d Denial, wakes uint64) {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.deny(a.line, d, wakes)
}

// deny makes d the denial of l. If Wake was called in the meantime, d may be out of date.
func (as *Asks) deny(l *askLine, d Denial, wakes uint64) {
	l.denial, l.served, l.future = d, false, nil
	if as.wakes.Load() != wakes {
		l.outdate()
	}
}

// outdate makes the head of l ask at once. What the denial foretells does not count any more.
func (l *askLine) outdate() { l.denial.Due, l.denial.Fresh, l.future = 0, nil, nil }

// Wake makes all callers look again: the heads ask at once.
func (as *Asks) Wake() {
	as.mu.Lock()
	defer as.mu.Unlock()
	as.wakes.Add(1)
	for _, l := range as.lines {
		l.outdate()
		for a := l.first; a != nil; a = a.after {
			a.nudge()
		}
	}
}

func (a *Asker) nudge() {
	select {
	case a.wake <- struct{}{}:
	default: // it has yet to look for another reason
	}
}
