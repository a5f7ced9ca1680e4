// Package calendar cuts time into the days, weeks, months or years of a time zone, for a limit such as 1000
// requests per month.
//
// A [Window] is what a text such as "month Europe/Berlin" describes. The [Calendar] of a Window finds the
// begin and the end of the day, week, month or year that contains an instant. Windows and calendars do not
// change, and are safe for concurrent use by multiple goroutines.
package calendar

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Window says how time is cut into the windows in which the units of a limit are counted. With the zero
// Window, windows have a fixed length and begin at the multiples of this length since the Unix epoch. With
// [First], windows have a fixed length and begin with the first use. With any other Window, they are the days,
// weeks, months or years of a [Calendar].
//
// Two Windows that mean the same are equal by ==, and have the same text. But two names of one zone, such as
// "Asia/Calcutta" and "Asia/Kolkata", count as two zones.
type Window struct {
	text     string    // what String returns
	calendar *Calendar // nil for the zero Window and for First; all Windows with the same text share one Calendar
}

// First is the Window whose windows have a fixed length. A window of a key begins when the key is first used, and
// the next one when the key is first used after the end of the window before.
var First = Window{text: first}

const first = "first"

// A Part names a part of the description of a Window, to say in an [Error] which part is wrong.
type Part string

// The parts of the description of a Window, such as "month from day 15 Europe/Berlin".
const (
	PartUnit Part = "unit"
	PartZone Part = "zone"
	PartDay  Part = "day"
	PartForm Part = "form" // the order of the words in a text
)

// An Error says why a description describes no Window.
type Error struct {
	Part   Part   // the part that is wrong
	Reason string // what a good value of the part is, such as "must be from 1 to 28"
}

// Error returns the reason, such as "its day must be from 1 to 28". For [PartForm], it does not name the part.
func (e *Error) Error() string {
	if e.Part == PartForm {
		return e.Reason
	}
	return "its " + string(e.Part) + " " + e.Reason
}

// Form is the reason in the error for a text that is not in one of the known forms.
const Form = `must look like "day", "week Europe/Berlin", "month from day 15 Europe/Berlin" or "first"`

// Parse returns the Window that text describes. The text consists of a unit; then "from day" and a number, if
// months do not begin on the first day; then a zone, if it is not UTC. The text "first" describes [First], and
// the empty text the zero Window. Parse reads every text that [Window.String] returns. An error is an [*Error].
func Parse(text string) (Window, error) {
	if w, ok := known(text); ok {
		return w, nil
	}
	words := strings.Fields(text)
	if len(words) == 0 {
		return Window{}, &Error{PartForm, Form}
	}
	unit, rest, day := words[0], words[1:], 1
	if len(rest) > 0 && rest[0] == "from" {
		if unit == first { // refuse even day 1: for First, Text returns "first from day 1", and Parse must refuse that text
			return Window{}, &Error{PartDay, onlyMonth}
		}
		if len(rest) < 3 || rest[1] != "day" {
			return Window{}, &Error{PartForm, Form}
		}
		n, err := strconv.ParseUint(rest[2], 10, 31)
		if err != nil {
			return Window{}, &Error{PartDay, dayForm}
		}
		day, rest = int(n), rest[3:]
	}
	if slices.Contains(rest, "from") {
		return Window{}, &Error{PartForm, Form}
	}
	return New(unit, day, strings.Join(rest, " "))
}

// New returns the Window of a unit, which is "day", "week", "month" or "year", in a zone of the IANA time
// zone database. The zone "" is UTC. Weeks begin on Monday. The parameter day, from 1 to 28, is the day on
// which months begin; for the other units, it must be 1.
//
// The unit may also be "first" or empty, with day 1 and without a zone. New then returns [First] or the zero
// Window. An error is an [*Error].
func New(unit string, day int, zone string) (Window, error) {
	u, err := unitOf(unit)
	if err != nil {
		return Window{}, err
	}
	if zone == utc {
		zone = ""
	}
	switch {
	case u == noUnit && zone != "":
		return Window{}, &Error{PartZone, "must be left out: only a day, week, month or year has a zone"}
	case u != month && day != 1:
		return Window{}, &Error{PartDay, onlyMonth}
	case day < 1 || day > maxDay:
		return Window{}, &Error{PartDay, dayForm}
	case unit == "":
		return Window{}, nil
	case u == noUnit:
		return First, nil
	}
	text := unitNames[u]
	if day != 1 {
		text += " from day " + strconv.Itoa(day)
	}
	if zone != "" {
		text += " " + zone
	}
	if w, ok := known(text); ok {
		return w, nil
	}
	z, err := loadZone(zone)
	if err != nil {
		return Window{}, err
	}
	return insert(text, newCalendar(u, day, z)), nil
}

// Text returns the text of the Window that New returns for these parameters. If New returns an error, or a Window
// that has no Calendar, Text returns a text that Parse refuses: the parameters as they are, such as "day from day 5".
func Text(unit string, day int, zone string) string {
	w, err := New(unit, day, zone)
	if err == nil && w.calendar != nil {
		return w.text
	}
	return strings.TrimSpace(fmt.Sprintf("%s from day %d %s", cmp.Or(unit, "?"), day, zone))
}

// LengthAt returns the length of the window that contains the time t, if the text describes a Window with a
// calendar. Otherwise, it returns the parameter per.
func LengthAt(text string, per time.Duration, t time.Time) time.Duration {
	w, _ := Parse(text)
	if w.calendar == nil {
		return per
	}
	begin, end := w.calendar.Edges(t.UnixNano())
	return time.Duration(min(uint64(end)-uint64(begin), math.MaxInt64))
}

// maxDay is the largest number of a day that exists in every month.
const maxDay = 28

const onlyMonth = "must be left out: only a month can begin on another day"

var dayForm = fmt.Sprintf("must be from 1 to %d: not every month has a later day", maxDay)

// A unit is a unit of the calendar, such as a month.
type unit uint8

const (
	noUnit unit = iota // no unit: windows do not follow the calendar, but begin with the first request, or at multiples of their length
	day
	week
	month
	year
)

// unitNames are the names of the units. In the text of a Window, "first" stands where other texts have
// a unit, so it is in this list too.
var unitNames = []string{noUnit: first, day: "day", week: "week", month: "month", year: "year"}

// The map fixed has names of units of time for which no Window is needed, because they have the same length
// everywhere. Its values are the names that errors use for these units.
var fixed = map[string]string{
	"s": "a second", "sec": "a second", "second": "a second", "seconds": "a second",
	"m": "a minute", "min": "a minute", "minute": "a minute", "minutes": "a minute",
	"h": "an hour", "hr": "an hour", "hour": "an hour", "hours": "an hour",
}

// Units returns the names of the units that a calendar can have.
func Units() []string { return unitNames[day:] }

// IsUnit reports whether a calendar can have a unit with this name.
func IsUnit(name string) bool { return slices.Contains(Units(), name) }

// Alike reports whether the texts a and b describe two Windows that differ at most in the day on which a
// month begins.
func Alike(a, b string) bool {
	if a == b {
		return true
	}
	v, errA := Parse(a)
	w, errB := Parse(b)
	if errA != nil || errB != nil || v.calendar == nil || w.calendar == nil {
		return false
	}
	return v.calendar.Alike(w.calendar)
}

// Alike reports whether c and d differ at most in the day on which a month begins.
func (c *Calendar) Alike(d *Calendar) bool { return c.unit == d.unit && c.zone == d.zone }

// unitOf returns the unit with this name. It returns noUnit for "first" and for the empty name.
func unitOf(name string) (unit, error) {
	if name == "" {
		return noUnit, nil
	}
	for u, known := range unitNames {
		if name == known {
			return unit(u), nil
		}
	}
	reason := `must be "day", "week", "month" or "year"`
	if length, ok := fixed[name]; ok {
		reason += ": " + length + " has the same length everywhere, so it is a length of time without a zone"
	} else if near := confmap.Nearest(name, unitNames); near != "" {
		reason = "is unknown; did you mean " + confmap.Quote(near) + "?"
	}
	return noUnit, &Error{PartUnit, reason}
}

// String returns the text of w that [Parse] reads, such as "month from day 15 Europe/Berlin". The text leaves
// out the zone UTC and the day 1.
func (w Window) String() string { return w.text }

// Calendar returns the calendar of w, or nil for the zero Window and for [First].
func (w Window) Calendar() *Calendar { return w.calendar }

// loaded holds each Calendar that was made, by the text of its Window, and each zone that was read, by its name. It
// keeps them for as long as the process runs, so that equal texts share one calendar. Its memory is bounded: a zone
// has at most 31 calendars, one each for days, weeks and years, and 28 for months, which can begin on day 1 to 28. All
// of the 597 zones of 2026 take 6 MB.
var loaded = struct {
	sync.RWMutex
	calendars map[string]*Calendar
	zones     map[string]*zone
}{calendars: make(map[string]*Calendar), zones: make(map[string]*zone)}

// known returns the Window whose String is text. If no such Window has been made before, ok is false.
func known(text string) (w Window, ok bool) {
	switch text {
	case "":
		return Window{}, true
	case first:
		return First, true
	}
	loaded.RLock()
	defer loaded.RUnlock()
	c, ok := loaded.calendars[text]
	if !ok {
		return Window{}, false
	}
	return Window{c.text, c}, true
}

// insert returns the Window with this text, and stores its calendar in the map loaded. The calendar is c, unless
// another goroutine has already stored one for this text.
func insert(text string, c *Calendar) Window {
	loaded.Lock()
	defer loaded.Unlock()
	if other, ok := loaded.calendars[text]; ok {
		return Window{other.text, other}
	}
	c.text = text
	loaded.calendars[text] = c
	return Window{text, c}
}
