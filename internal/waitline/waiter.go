package waitline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Waiter is one caller that waits. The fields up to the channel are the caller's.
type Waiter struct {
	Set      keytable.Hash // identifies the keys of Spots that are no shadows
	Spots    []engine.Spot // the keys, in the order of locking; when it is over, their answers
	N        int64         // units, at least 1
	Deadline time.Time     // of the caller, if HasDeadline is set
	HasDeadline,
	Counted bool // whether a refusal is added to the totals of the rules
	Hold    bool          // whether the units may be given back, by the receipts of Spots; it waits in Asks too
	Version uint64        // Lines.Version before Spots were made
	Owner   any           // what the caller keeps with it
	Record  engine.Record // of grants of the same request; may be nil

	// The outcome, once Wait has returned nil.
	At      keytable.Instant // when it was decided: if Refused is nil, the units were taken then
	Refused error            // ErrNever, ErrLate, ErrFull, ErrReplayed, or what Again has set
	Wait    time.Duration    // if Refused is ErrLate: how long it would have lasted

	links[*Waiter] // in its line
	line           *line

	arrival uint64
	since   keytable.Instant // when it came
	until   keytable.Instant // its deadline, as it was when it was placed
	anew    bool             // whether it was placed before

	foretold keytable.Instant // when it is charged, in the copies of its line
	tail     *queue           // the queue in whose tail it is charged, or nil
	tailAt   keytable.Instant // when it is charged in that tail

	wake chan struct{}
	due  atomic.Uint64 // the instant at which it has to look at the clock; 0 if another caller does
	over atomic.Bool   // set last: from then on, only its own goroutine uses the Waiter
}

// Wait waits until the units of w are taken, or it is known that they are not there in time. It
// returns the error of ctx if ctx ends before. w must be new.
func (ls *Lines) Wait(ctx context.Context, w *Waiter) (err error) {
	w.Deadline, w.HasDeadline = ctx.Deadline()
	w.wake = make(chan struct{}, 1)
	ls.enter(w)
	ended := false
	defer func() {
		if !ended { // a clock or a context has panicked
			ls.leave(w, false)
		}
	}()
	for !w.over.Load() {
		if err = ls.sleep(ctx, w); err != nil && ls.leave(w, true) {
			break
		}
		err = nil
	}
	ended = true
	return err
}

// sleep waits until w should look again, or its context ends.
func (ls *Lines) sleep(ctx context.Context, w *Waiter) error {
	select {
	case <-w.wake: // the signal to look at due, which happens here
	default:
	}
	var rings <-chan time.Time
	if due := keytable.Instant(w.due.Load()); due != 0 {
		now := ls.time.Now()
		if now >= due {
			ls.look(w)
			return ctx.Err()
		}
		var stop func()
		rings, stop = ls.time.Ring(now, now.Until(due))
		defer stop()
	}
	select {
	case <-rings:
		ls.look(w)
	case <-w.wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// look serves the callers that are due, now that w is expected to be one of them. If it is not,
// and others are ahead of it, it looks again when it is told.
func (ls *Lines) look(w *Waiter) {
	if w.over.Load() {
		return // another caller has served it meanwhile
	}
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if now := ls.settleLocked(); w.line != nil && w.line.first != w && now >= keytable.Instant(w.due.Load()) {
		w.due.Store(0)
	}
}

// nudge makes the goroutine of w look again.
func (w *Waiter) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // it has yet to look for another reason
	}
}
