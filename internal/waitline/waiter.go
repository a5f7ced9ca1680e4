package waitline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/engine"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Waiter is one caller that waits. The caller of [Lines.Wait] sets the fields from Set to ID,
// except Deadline and HasDeadline, which Wait sets.
type Waiter struct {
	Set      keytable.Hash // a hash that identifies those keys in Spots that can deny
	Spots    []engine.Spot // one element for each key, in the order of locking; holds the answers after the wait
	Deadline time.Time     // deadline of the context if the field HasDeadline is set; Wait sets both fields
	HasDeadline,
	Counted bool // whether a refusal is added to the totals of the rules
	Reserves,
	Hold bool // if Reserves or Hold is set, w gets receipts to give units back; with Hold, a store or a custom limiter may revoke the grant
	Version uint64        // the result of Lines.Version before Spots was filled; if it has changed, Spots is filled again
	Owner   any           // what the function rematch needs to fill Set and Spots by new rules, see Lines.Init; not used in this package
	Record  engine.Record // finds an earlier grant of the same request, or records the new grant; may be nil
	ID      keytable.Hash // identifies the request, together with its keys; zero if Record is nil

	// The following fields hold the outcome. They are valid once Lines.Wait has returned nil.
	At      keytable.Instant // when the outcome was decided; if Refused is nil, the units were taken at this instant
	Refused error            // why w was not served: ErrNever, ErrLate, ErrFull, ErrReplayed or an error that rematch has set
	Wait    time.Duration    // if Refused is ErrLate: how long the caller would have had to wait

	links[*Waiter] // the callers ahead of and after this one in the line
	line           *line

	arrival      uint64           // the number of this caller in the order of arrival, from 1
	since        keytable.Instant // when the caller arrived
	until        keytable.Instant // the deadline as an instant: before it, the caller must be served; keytable.End if there is none
	follows      bool             // whether the caller waits for the answer to another caller with the same ID, see attempts
	counted      bool             // whether the clock was told that the caller waits, see engine.Timeline.Waits
	placedBefore bool             // whether Change, ChangeRules or Restart took the caller out of its line and put it into a line again

	// A forecast copies the states of keys, and charges the waiting callers to the copies.
	foretold keytable.Instant // when the forecast of the line (line.future) charges this caller; 0 if it does not
	tail     *queue           // the queue whose forecast (queue.tail) charges this caller; nil if there is none
	tailAt   keytable.Instant // when that forecast charges this caller; not used if the field tail is nil

	wake chan struct{} // receives a value when the goroutine of the caller has to read the fields due and over
	due  atomic.Uint64 // when the goroutine of the caller must wake up; 0 if another goroutine will wake it
	over atomic.Bool   // set at the end of the wait; from then on, only the goroutine of the caller uses the Waiter
}

// Wait waits until the units of the caller w are taken, or until w is refused, and returns nil. The
// fields At, Refused and Wait of w then hold the outcome. If ctx ends first, Wait returns the error of
// ctx. The Waiter w must not have been used before.
func (ls *Lines) Wait(ctx context.Context, w *Waiter) (err error) {
	w.Deadline, w.HasDeadline = ctx.Deadline()
	w.wake = make(chan struct{}, 1)
	ls.enter(w)
	ended := false
	defer func() {
		if !ended { // a clock or a context has panicked: take the caller out of its line
			ls.leave(w, false)
		}
	}()
	for !w.finished() {
		if err = ls.sleep(ctx, w); err != nil && ls.leave(w, true) {
			break
		}
		err = nil
	}
	ended = true
	return err
}

// finished reports whether the wait of the caller w is over. It drops an earlier wake-up before it reads the field over, and the
// goroutine of w reads the field due after that. So each later change of the two fields leaves a wake-up, which nothing drops.
func (w *Waiter) finished() bool {
	select {
	case <-w.wake:
	default:
	}
	return w.over.Load()
}

// sleep waits until the caller w is due, or until w is woken. If ctx ends first, sleep returns the
// error of ctx.
func (ls *Lines) sleep(ctx context.Context, w *Waiter) error {
	var rings <-chan time.Time
	if due := keytable.Instant(w.due.Load()); due != 0 {
		now := ls.time.Now()
		if now >= due {
			ls.serveDue(w)
			return ctx.Err()
		}
		var stop func()
		rings, stop = ls.time.Ring(now, now.Until(due))
		defer stop()
	}
	select {
	case <-rings:
		ls.serveDue(w)
	case <-w.wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// serveDue serves all callers that are due. It is called when the alarm of the caller w rings, so w is
// probably one of them. If w still waits afterwards and is not the head (first) of its line, w gets no
// further alarm before it is the head.
func (ls *Lines) serveDue(w *Waiter) {
	if w.over.Load() {
		return // another caller has ended the wait of w meanwhile
	}
	ls.time.Renew()
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if now := ls.serveDueLocked(); w.line != nil && w.line.first != w && now >= keytable.Instant(w.due.Load()) {
		w.due.Store(0)
	}
}

// nudge wakes the goroutine of the caller w, which then reads the fields due and over.
func (w *Waiter) nudge() {
	select {
	case w.wake <- struct{}{}:
	default: // the channel still holds an earlier wake-up, which is enough
	}
}
