package engine

import (
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// Windows are the windows of time in which the fixed window algorithm counts the units of a key at one rate. There are three
// kinds. Windows of the first kind begin at multiples of Per since the Unix epoch. Windows of the second kind are those of a
// calendar. A window of the third kind begins with the first unit of a key, and lasts Per.
//
// The methods compute with two facts about a key. One is the instant of its last unit; for windows of the third kind, it is the
// begin of the key's window instead. The other is the number of units that were granted in the window that contains this instant.
type Windows struct {
	exact.Window // the windows of the first kind; the second kind uses only the field Requests, the third kind only Requests and Per

	other bool  // whether the windows are of the second or the third kind
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

// Current returns how many units of a key count at the instant now, and the time left until the end of the window that contains
// now. The parameter last is the instant of the key's last unit, which is not after now. The parameter used is the number of units
// that were granted in the window that contains this instant.
//
// If windows begin with the first unit, last is the begin of the key's window instead. If this window has ended, the time left is
// the length of a window that begins now.
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
	return counted, min(max(now.Until(end), 1), Never-1) // at least 1 ns and less than Never, even if the window ends at keytable.End
}

// SameWindow reports whether the units that were charged at the instant in the parameter at count in the window that contains the
// instant in the parameter last.
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

// stepOtherWindows decides on n units at the plan (rate) p. The state of the key was last written at an old plan (from), which
// has other windows than p. The parameter s is a copy of this state. stepOtherWindows overwrites the copy, and charges nothing.
//
// A charge would move the units that count in the present window of the old plan (from) into the present window of p.
// Without a charge, these units stop counting when the present window of the old plan ends.
func (ps *ratePlans[S, C]) stepOtherWindows(
	s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64,
) (v Verdict, delay time.Duration) {
	was, _ := from.config.Step(&s.state, from.config, now, 1, false)
	p.config.Carry(&s.state, from.config, now)
	v, delay = p.config.Step(&s.state, p.config, now, n, false)
	v.ResetAfter = was.ResetAfter
	if v.RetryAfter != 0 && v.RetryAfter != Never {
		v.RetryAfter = was.ResetAfter
	}
	return v, delay
}

// chargeOtherWindows charges n units at the plan (rate) p to the shared debt s. The debt was last written at an old plan (from),
// which has other windows than p. The caller has checked that the units are granted. The debt keeps the units of all keys. Of the
// two plans, the debt gets the one whose present window ends later. So each unit counts at least until the end of the window in
// which it was granted.
func (ps *ratePlans[S, C]) chargeOtherWindows(s *ratedState[S], from, p *ratePlan[S, C], now keytable.Instant, n int64) (v Verdict) {
	was := *s
	old, _ := from.config.Step(&s.state, from.config, now, 1, false)
	p.config.Carry(&s.state, from.config, now)
	v, _ = p.config.Step(&s.state, p.config, now, n, true)
	if s.tag = p.id; v.ResetAfter < old.ResetAfter {
		*s, v.ResetAfter = was, old.ResetAfter
		from.config.Exceed(&s.state, now, n)
	}
	return v
}
