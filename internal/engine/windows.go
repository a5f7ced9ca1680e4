package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Windows are the windows of time in which a fixed window counts the units of a key at one rate. They are of one of three
// kinds: they begin at multiples of Per since the Unix epoch; they are the windows of a calendar; or a window begins with the
// first unit of a key, and lasts Per.
//
// Of each key, the methods know the instant of its last unit, or the begin of its window if windows begin with the first unit,
// and the number of units that were granted in the window of that instant.
type Windows struct {
	exact.Window // of the first kind; Requests is set for all kinds, and Per for all but a calendar

	other bool  // whether the windows are of another kind
	first bool  // whether a window begins with the first unit of a key
	dial  *Dial // finds the windows of a calendar; nil for the other kinds
}

// Windows returns the windows of the rate r, which is valid.
func (t *Timeline) Windows(r Rate) Windows {
	w := Windows{other: r.Window != ""}
	if named, _ := calendar.Parse(r.Window); named.Calendar() != nil {
		w.Requests, w.dial = int64(r.Requests), t.Dial(named.Calendar())
		return w
	}
	w.Window, w.first = exact.NewWindow(int64(r.Requests), r.Per, t.Start()), w.other
	return w
}

// FromEpoch reports whether windows begin at multiples of Per since the Unix epoch.
func (w *Windows) FromEpoch() bool { return !w.other }

// FromFirst reports whether a window begins with the first unit of a key.
func (w *Windows) FromFirst() bool { return w.first }

// Same reports whether w and v are the same windows. Their Requests may differ.
func (w *Windows) Same(v *Windows) bool {
	return w.Per == v.Per && w.first == v.first && w.dial == v.dial
}

// Carried returns how many units of a key that were counted in the windows from count in the windows w, which are others,
// at the instant now, which is not before the instant last. Those of the window of from that contains now count. But if only
// the day on which a month begins differs, they count only if the last of them was charged in the month of w that contains
// now: the units of another month of w are not those of this one.
func (w *Windows) Carried(from *Windows, now, last keytable.Instant, used int64) int64 {
	used, _ = from.Current(now, last, used)
	if w.dial != nil && from.dial != nil && w.dial.calendar.Alike(from.dial.calendar) && !w.SameWindow(last, now) {
		return 0
	}
	return used
}

// Current returns how many of the used units of a key count at the instant now, which is not before the instant last, and the
// time until the end of the window that contains now. If windows begin with the first unit and the last one has ended, that is
// a window that begins now.
func (w *Windows) Current(now, last keytable.Instant, used int64) (counted int64, left time.Duration) {
	if w.other {
		return w.currentOther(now, last, used)
	}
	offset := w.Offset(now)
	if now.Since(last) <= offset {
		counted = used
	}
	return counted, time.Duration(w.Per - offset)
}

func (w *Windows) currentOther(now, last keytable.Instant, used int64) (counted int64, left time.Duration) {
	if w.first {
		if age := now.Since(last); used > 0 && age < w.Per {
			return used, time.Duration(w.Per - age)
		}
		return 0, time.Duration(w.Per)
	}
	begin, end := w.dial.Window(now)
	if last >= begin {
		counted = used
	}
	return counted, min(max(now.Until(end), 1), Never-1) // the last window of all time may end now, or never
}

// SameWindow reports whether units that were charged at the instant at count in the window that contains the instant last.
func (w *Windows) SameWindow(at, last keytable.Instant) bool {
	switch {
	case w.dial != nil:
		begin, _ := w.dial.Window(last)
		return at >= begin
	case w.first:
		return at >= last
	}
	return last.Since(at) <= w.Offset(last)
}

// shareWindows completes v, the verdict of stepShared on a key whose windows are not those of the shared debt s, which has the
// plan (rate) from. The units of the debt count for the key until the window of either plan has ended.
//
// A charge keeps the units of all other keys, and gives the debt the plan whose window ends last. So no unit is forgotten
// before the window ends for which it was granted.
func (ps *ratePlans[S, C]) shareWindows(
	v *Verdict, s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64, charge bool,
) {
	others, _ := from.config.Step(&s.state, from.config, now, 1, false)
	switch {
	case v.RetryAfter != 0 && ps.fits(s, p, now, n):
		v.RetryAfter, v.ResetAfter = min(v.RetryAfter, others.ResetAfter), min(v.ResetAfter, others.ResetAfter)
	case charge && v.RetryAfter == 0:
		if from.config.Exceed(&s.state, now, n); v.ResetAfter > others.ResetAfter {
			s.tag = p.id
		}
		then, _ := p.config.Step(&s.state, p.config, now, 1, false)
		v.Left = max(then.Left, 0)
	}
}
