package engine

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// A Dial finds the window of a calendar, such as a day or a month, that contains an instant of a timeline. All
// configurations with the same calendar and timeline share one Dial, see [Timeline.Dial]. Goroutines may call its
// methods concurrently.
//
// The edges (begin and end) of a calendar's windows are times of the wall clock, but a timeline may run by a monotonic
// clock. In that case, the Dial computes at which instants the wall clock will show these times if nobody sets the clock. The Dial
// compares the two clocks when it looks for a window, and again once the last comparison is more than a second old. If
// the two clocks have moved against each other by a millisecond or more (the wall clock was set, or the machine was
// suspended), the Dial computes the edges again:
//
//   - The present window keeps its begin, so the units that were charged in it still count.
//   - If the wall clock was set forward into a later window, this window begins when the Dial notices the change.
//     Units that were charged before belong to the window before.
//   - If the wall clock was set back to less than an hour before the begin of the present window, this window goes
//     on. If the clock was set back further, the window that contains its new time becomes the present one.
type Dial struct {
	calendar *calendar.Calendar
	time     Timeline
	read     Reading // compares the clocks; nil if the timeline runs by the wall clock, so that edges never move

	last atomic.Pointer[dialWindow] // the latest window that was found

	mu    sync.Mutex
	other *dialWindow // another window that was found, before or after the one in the field last; guarded by mu
}

// A dialWindow is a window on a timeline.
type dialWindow struct {
	begin, end keytable.Instant // the window contains the instants from begin until just before end
	until      atomic.Uint64    // the last instant at which begin and end are known to be right without a look at the clocks

	// The fields below are times of the wall clock, in nanoseconds since the Unix epoch.

	start              int64 // the time at the instant keytable.Start; begin and end were computed from it
	wallBegin, wallEnd int64 // when the window begins and ends by the calendar
}

const (
	dialCheck  = keytable.Instant(time.Second)
	dialJitter = int64(time.Millisecond)
	dialBack   = int64(time.Hour)
)

// A Reading is a function that reads the wall clock, in nanoseconds since the Unix epoch, and at the same instant the time
// since the start of a timeline.
type Reading func() (wall int64, since time.Duration)

// NewDial returns a Dial of the calendar c on the timeline t. If read is not nil, the Dial calls it to compare the two clocks.
// The method [Timeline.Dial] calls NewDial. Tests call NewDial directly, with a function that simulates changes of the wall clock.
func NewDial(c *calendar.Calendar, t *Timeline, read Reading) *Dial {
	return &Dial{calendar: c, time: *t, read: read}
}

// dials are the Dials of a timeline, by their calendars.
type dials struct {
	mu  sync.Mutex
	all map[*calendar.Calendar]*Dial // guarded by mu
}

// Dial returns the Dial of the calendar c on the timeline t.
func (t *Timeline) Dial(c *calendar.Calendar) *Dial {
	d := NewDial(c, t, nil)
	if start := t.Start(); start != start.Round(0) { // true if start includes a monotonic time, which Round removes
		d.read = d.time.read
	}
	if t.dials == nil { // t is the zero Timeline, which only serves to check a rate, and keeps no Dials
		return d
	}
	t.dials.mu.Lock()
	defer t.dials.mu.Unlock()
	if known := t.dials.all[c]; known != nil {
		return known
	}
	if t.dials.all == nil {
		t.dials.all = make(map[*calendar.Calendar]*Dial)
	}
	t.dials.all[c] = d
	return d
}

// clear removes all Dials. It is called when the start of the timeline was set again, because each instant then stands for
// another time.
func (d *dials) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.all)
}

// Window returns the begin and the end of the window that contains the instant now.
func (d *Dial) Window(now keytable.Instant) (begin, end keytable.Instant) {
	w := d.last.Load()
	if w == nil || now < w.begin || now >= w.end || uint64(now) > w.until.Load() {
		w = d.find(now)
	}
	return w.begin, w.end
}

// find returns the window that contains the instant now, and keeps it for later calls.
func (d *Dial) find(now keytable.Instant) *dialWindow {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last.Load()
	start := d.wallStart(last)
	for _, w := range [...]*dialWindow{last, d.other} {
		if w != nil && w.start == start && w.begin <= now && now < w.end {
			w.trust(now, d.read == nil)
			return w
		}
	}
	w := d.place(now, start)
	if last != nil && now < last.begin {
		d.other = w
		return w
	}
	if last != nil {
		w.follow(last, now)
	}
	w.trust(now, d.read == nil)
	d.other = last
	d.last.Store(w)
	return w
}

// wallStart returns the time of the wall clock at the instant keytable.Start. If the clocks have moved against each
// other by less than a millisecond since the edges in the parameter last were computed, it returns last.start.
func (d *Dial) wallStart(last *dialWindow) (start int64) {
	if d.read == nil {
		return d.time.Start().UnixNano()
	}
	defer func() {
		if recover() != nil { // ignore a panic of the user's clock: it panics again for the next decision, outside of any lock
			if start = d.time.Start().UnixNano(); last != nil {
				start = last.start
			}
		}
	}()
	wall, since := d.read()
	start = wall - int64(since)
	if last != nil && max(start, last.start)-min(start, last.start) < dialJitter {
		return last.start
	}
	return start
}

// read reads the clock of t, see [Reading].
func (t *Timeline) read() (wall int64, since time.Duration) {
	reading := time.Now()
	if t.clock != nil {
		reading = t.clock.Now()
	}
	return reading.UnixNano(), reading.Sub(t.Start())
}

// place returns the window of the calendar that contains the instant now. The parameter start is the time of the
// wall clock at the instant keytable.Start.
func (d *Dial) place(now keytable.Instant, start int64) *dialWindow {
	w := &dialWindow{start: start}
	wall, since := start, int64(now.Duration())
	switch {
	case since > 0 && start > math.MaxInt64-since:
		wall = math.MaxInt64
	case since < 0 && start < math.MinInt64-since:
		wall = math.MinInt64
	default:
		wall += since
	}
	w.wallBegin, w.wallEnd = d.calendar.Edges(wall)
	w.begin, w.end = w.instant(w.wallBegin), w.instant(w.wallEnd)
	return w
}

// instant returns the instant at which the wall clock shows the given time, or the nearest instant.
func (w *dialWindow) instant(wall int64) keytable.Instant {
	if wall >= w.start {
		if d := uint64(wall) - uint64(w.start); d <= math.MaxInt64 {
			return keytable.Start + keytable.Instant(d)
		}
		return keytable.End
	}
	if d := uint64(w.start) - uint64(wall); d <= uint64(keytable.Start) {
		return keytable.Start - keytable.Instant(d)
	}
	return 0
}

// follow corrects w, the present window at the instant now. The parameter last is the window that was the present one
// before. If a clock was set, follow does what the comment of [Dial] says:
//
//   - If w is the same window of the calendar as last, it keeps the begin of last.
//   - If w is a later window, it begins at the end of last or, if that is still to come, at the instant now. It
//     does not begin earlier than by the calendar.
//   - If w is an earlier window, and the wall clock will show the begin of last in less than an hour, the window last goes on: w
//     gets the begin of last, and ends when the wall clock shows the end of last.
func (w *dialWindow) follow(last *dialWindow, now keytable.Instant) {
	switch {
	case w.wallBegin == last.wallBegin:
		w.begin = last.begin
	case w.wallBegin > last.wallBegin:
		w.begin = max(w.begin, min(last.end, now))
	case w.instant(last.wallBegin).Since(now) < uint64(dialBack):
		w.wallBegin, w.wallEnd = last.wallBegin, last.wallEnd
		w.begin, w.end = last.begin, w.instant(last.wallEnd)
	}
}

// trust records that the edges of w are right at the instant now, so that the clocks need not be compared for a
// second. If steady is set, the edges never move, and the clocks are never compared.
func (w *dialWindow) trust(now keytable.Instant, steady bool) {
	if steady {
		w.until.Store(math.MaxUint64)
		return
	}
	w.until.Store(uint64(max(now, now+dialCheck)))
}
