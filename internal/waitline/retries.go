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

// Retries holds the lines (queues) of callers that wait for keys whose state is in a store or in a
// custom limiter. It cannot be computed here when such a key will have units, so a caller has to ask
// the store or the limiter again. Only the first caller of a line (its head) asks, and only when it is due.
// The zero Retries is ready for use.
type Retries struct {
	waiting atomic.Int64  // number of callers in all lines
	wakes   atomic.Uint64 // number of calls of Wake so far; written only while mu is held

	mu    sync.Mutex
	lines map[keytable.Hash]*retryLine // mu guards the map and the contents of the lines
}

// A retryLine holds the callers that wait for the same set of keys: one caller that was denied, and the
// callers that came later.
type retryLine struct {
	list[*Retrier]
	denial Denial
	served bool // set when the first caller was served and left the line; the new first caller then asks at once

	// future is a copy of the state that the binding key (the key that must be waited for longest) will
	// have after all callers in the line are served. It is nil until it is needed.
	future engine.Future
}

// A Denial is the last answer to the head (first caller) of a line of waiting callers.
type Denial struct {
	Due        keytable.Instant // when the head asks again; 0 if the head asks at once, because the denial is out of date
	At         keytable.Instant // when the head was denied
	RetryAfter time.Duration    // the RetryAfter of the denial
	Answer     any              // the denial in the form that the code outside this package needs; not used in this package
	Stands     bool             // whether the head asks again at once, and then waits in [Lines] and no longer in [Retries]

	// Fresh returns a copy of the state that the binding key (the key that must be waited for longest)
	// will have at the instant Due, after the head is served. The field is nil if nothing is known of
	// the state of that key.
	Fresh func() engine.Future
}

// A Retrier is one caller that waits in a line of [Retries].
type Retrier struct {
	N int64 // how many units the caller waits for

	links[*Retrier] // the callers ahead of and after this one in the line
	set             keytable.Hash
	line            *retryLine
	wake            chan struct{} // receives a value when the caller has to call Place again
}

// Len returns the number of callers that wait in rs.
func (rs *Retries) Len() int { return int(rs.waiting.Load()) }

// Ahead reports whether callers wait for a set of keys, which the parameter set, a hash, identifies. If
// so, Ahead also returns the last denial of their line, and an estimate of how long a request for n
// units must wait if it arrives at the instant now.
func (rs *Retries) Ahead(set keytable.Hash, now keytable.Instant, n int64) (d Denial, wait time.Duration, behind bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := rs.lines[set]
	if l == nil {
		return d, 0, false
	}
	at := l.denial.Due
	if l.denial.Fresh != nil {
		if l.future == nil {
			l.future = l.denial.Fresh()
			a := l.first
			if !l.served {
				a = a.after // the copy that Fresh returned already includes the charge of the first caller
			}
			for ; a != nil; a = a.after {
				l.charge(a.N)
			}
		}
		due, _, _ := l.future.Ahead(engine.Wanted{}, at, n)
		at = max(at, due)
	}
	switch wait = l.denial.RetryAfter; { // RetryAfter is the result if neither case applies, because the first caller is due or asks at once
	case at == 0 && !l.denial.Stands: // after a Reset or a change of the rules, the denial is out of date
		wait = time.Millisecond
	case at > now:
		wait = time.Duration(min(at.Since(now), uint64(engine.Never)))
	}
	return l.denial, wait, true
}

// charge charges the n units of a waiting caller to the copy l.future, at the instant when the copy has
// these units.
func (l *retryLine) charge(n int64) {
	if at, _, _ := l.future.Ahead(engine.Wanted{}, l.denial.Due, n); at != keytable.End {
		l.future.Charge(engine.Wanted{}, at, n)
	}
}

// Wait calls the function ask until ask returns no denial, and then returns nil. The first call is made
// at once, with newcomer set to true. If this call returns a denial, the caller joins the line for the
// keys that the parameter set, a hash, identifies. It waits there for n units. Each time when the
// caller is the first in the line and is due, Wait calls ask again. The result served of ask says
// whether the caller was served. If it was, the next caller in the line asks at once.
//
// If ctx ends, Wait returns the error of ctx. Wait calls the function changed before each call of ask
// except the first. If changed returns true, Wait returns ErrChanged.
func (rs *Retries) Wait(
	ctx context.Context, t *engine.Timeline, set keytable.Hash, n int64,
	changed func() bool, ask func(newcomer bool) (d *Denial, served bool),
) error {
	var a *Retrier
	served := false
	defer func() {
		if a != nil { // the deferred function runs even if a store, a context or a clock panics
			rs.Leave(a, served)
		}
	}()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if a != nil {
			if !rs.turn(ctx, t, a) {
				continue
			}
			if changed() {
				return ErrChanged
			}
		}
		var d *Denial
		wakes := rs.wakes.Load()
		switch d, served = ask(a == nil); {
		case d == nil:
			return nil
		case a == nil:
			a = rs.Join(set, n, *d, wakes)
		default:
			rs.Denied(a, *d, wakes)
		}
	}
}

// ErrChanged says that the rules have changed. The caller has to start its wait again, by the new
// rules.
var ErrChanged = errors.New("waitline: the rules have changed")

// turn waits until the given caller is due or is woken, or until ctx ends. It returns true if the
// caller is the head (first) of its line and is due: the caller must then ask.
func (rs *Retries) turn(ctx context.Context, t *engine.Timeline, a *Retrier) bool {
	head, due := rs.Place(a)
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

// Join puts a new caller, which waits for n units, at the end of the line for the keys that the
// parameter set, a hash, identifies. If there is no such line yet, Join makes one with the given
// denial. The parameter wakes is the number of calls of Wake before the caller asked.
func (rs *Retries) Join(set keytable.Hash, n int64, denial Denial, wakes uint64) *Retrier {
	rs.waiting.Add(1)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := rs.lines[set]
	if l == nil {
		if rs.lines == nil {
			rs.lines = make(map[keytable.Hash]*retryLine)
		}
		l = new(retryLine)
		rs.lines[set] = l
		rs.deny(l, denial, wakes)
	} else if l.future != nil {
		l.charge(n)
	}
	a := &Retrier{N: n, set: set, line: l, wake: make(chan struct{}, 1)}
	l.append(a)
	return a
}

// Leave removes a caller from its line. If the caller was the head (first) of the line, Leave wakes the
// next caller. The parameter served says whether the caller that leaves was served. If the head was
// served, the next caller asks at once.
func (rs *Retries) Leave(a *Retrier, served bool) {
	rs.waiting.Add(-1)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l := a.line
	head := l.first == a
	l.remove(a)
	switch {
	case l.size == 0:
		delete(rs.lines, a.set)
	case head:
		l.served = l.served || served
		l.first.nudge()
	}
	if !head || !served {
		l.future = nil
	}
}

// Place reports whether the given caller is the head (first) of its line. If so, the result due is the
// instant at which the caller asks again, or 0 if it asks at once.
func (rs *Retries) Place(a *Retrier) (head bool, due keytable.Instant) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if due = a.line.denial.Due; a.line.served || a.line.denial.Stands {
		due = 0
	}
	return a.line.first == a, due
}

// Denied notes that the given caller, the head of its line, has asked again and got the denial d. The
// parameter wakes is the number of calls of Wake before the caller asked.
func (rs *Retries) Denied(a *Retrier, d Denial, wakes uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.deny(a.line, d, wakes)
}

// deny makes d the denial of the line l. The parameter wakes is the number of calls of Wake before the
// request that got d. If Wake was called since then, d counts as out of date.
func (rs *Retries) deny(l *retryLine, d Denial, wakes uint64) {
	l.denial, l.served, l.future = d, false, nil
	if rs.wakes.Load() != wakes {
		l.outdate()
	}
}

// outdate marks the denial of the line l as out of date, so that the first caller of l asks at once.
func (l *retryLine) outdate() { l.denial.Due, l.denial.Fresh, l.future = 0, nil, nil }

// Wake wakes all callers. The first caller of each line then asks at once.
func (rs *Retries) Wake() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.wakes.Add(1)
	for _, l := range rs.lines {
		l.outdate()
		for a := l.first; a != nil; a = a.after {
			a.nudge()
		}
	}
}

// nudge wakes the goroutine of the caller, which then calls Place.
func (a *Retrier) nudge() {
	select {
	case a.wake <- struct{}{}:
	default: // the channel still holds an earlier wake-up, which is enough
	}
}
