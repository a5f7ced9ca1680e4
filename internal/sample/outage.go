package sample

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lineEvery is the time between two log lines while an outage lasts.
	lineEvery = time.Minute

	// calm is the time without a failure after which an outage counts as over. If the outage began less than
	// lineEvery after the end of the outage before it, this time is lineEvery instead. So a store that fails
	// now and then, or of which one part fails, causes about two log lines a minute.
	calm = time.Second
)

// An Outage writes a log of the outages of a store, such as a server that all clients share: one line when
// an outage begins, one a minute while it lasts, and one when it is over. The number of lines does not depend on
// the number of clients. An Outage is safe for concurrent use by multiple goroutines.
type Outage struct {
	log    *slog.Logger
	prefix string // start of all messages

	lasts atomic.Bool // whether there is an outage; it changes only while mu is held

	mu sync.Mutex

	// The fields below are guarded by mu.

	outage
	ended time.Time // when the last outage was found to be over; the zero Time if there was none
}

// An outage describes the current outage of the store or, if the store works now, its last outage.
type outage struct {
	began, failed time.Time // when the first and the last use of the store failed
	answered      time.Time // when the store first answered after its last failure; the zero Time if it has not
	written       time.Time // when the last log line was written
	decisions     int       // number of decisions made without the store
	denied        int       // number of those decisions that denied a request
}

// NewOutage returns an Outage that writes to log. All messages start with prefix.
func NewOutage(log *slog.Logger, prefix string) *Outage { return &Outage{log: log, prefix: prefix} }

// Failed notes a decision at the time now for which the store failed with err. The parameter denied is true if the
// decision denied the request. Failed writes a log line if an outage begins with this decision, or if the last line
// was written at least a minute ago. The parameter rule is the rule's name, which the first line of an outage shows.
func (o *Outage) Failed(ctx context.Context, now time.Time, rule string, denied bool, err error) {
	if !o.log.Enabled(ctx, slog.LevelWarn) {
		return
	}
	text, attrs := "", []slog.Attr(nil)
	o.mu.Lock()
	begins := !o.lasts.Load()
	if begins {
		o.lasts.Store(true)
		o.outage = outage{began: now}
		text, attrs = "the store failed; failure policies decide until it answers again", []slog.Attr{slog.String("rule", rule)}
	}
	o.failed, o.answered = now, time.Time{}
	o.decisions++
	if denied {
		o.denied++
	}
	if !begins && now.Sub(o.written) >= lineEvery {
		text, attrs = "the store still fails", o.sumLocked(now)
	}
	if text != "" {
		o.written = now
	}
	o.mu.Unlock()
	if text != "" {
		o.write(ctx, text, append(attrs, slog.Any("error", err)))
	}
}

// Answered notes that the store has answered at the time now. If this ends an outage, Answered writes a log line.
func (o *Outage) Answered(ctx context.Context, now time.Time) {
	o.mu.Lock()
	if !o.lasts.Load() {
		o.mu.Unlock()
		return
	}
	if o.answered.IsZero() {
		o.answered = now
	}
	needed := calm
	if !o.ended.IsZero() && o.began.Sub(o.ended) < lineEvery {
		needed = lineEvery
	}
	over, sum := now.Sub(o.failed) >= needed, o.sumLocked(o.answered)
	if over {
		o.lasts.Store(false)
		o.ended = now
	}
	o.mu.Unlock()
	if over {
		o.write(ctx, "the store answers again", sum)
	}
}

// Lasts reports whether there is an outage. Without one, Answered does nothing.
func (o *Outage) Lasts() bool { return o.lasts.Load() }

// sumLocked returns the log attributes for the outage from its beginning to the time end. The caller holds o.mu.
func (o *Outage) sumLocked(end time.Time) []slog.Attr {
	return []slog.Attr{
		slog.Duration("lasted", end.Sub(o.began)), slog.Int("decisions", o.decisions), slog.Int("denied", o.denied),
	}
}

// write writes one log line. The caller does not hold o.mu, because the handler of the log may be slow.
func (o *Outage) write(ctx context.Context, text string, attrs []slog.Attr) {
	o.log.LogAttrs(ctx, slog.LevelWarn, o.prefix+text, attrs...)
}
