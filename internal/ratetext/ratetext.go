// Package ratetext reads and writes rates as texts, such as "100/m burst 20".
package ratetext

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A Rate is a rate that a text describes: how many units are granted in a length of time, and how many at once.
type Rate struct {
	Requests int           // units granted every Per
	Per      time.Duration // the time in which Requests units are granted, above 0; 0 if Window is a calendar
	Burst    int           // units granted at once; 0 if the text has no burst
	Window   string        // text of a [calendar.Window]; empty if windows begin at multiples of Per since the Unix epoch
}

// Unlimited is the rate of the text "unlimited".
var Unlimited = Rate{Requests: -1, Per: -1, Burst: -1}

const unlimited = "unlimited"

// Form is the reason in the error for a text that is not in one of the known forms.
const Form = `must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`

// WindowForm is the reason in the error for a text that has a word such as "from" in a wrong place.
const WindowForm = `must look like "1000/month", "1000/month from day 15 Europe/Berlin" or "1000/day from first"`

// TooLong is the reason in the error for a length of time that a time.Duration cannot hold.
const TooLong = "must be at most 292 years"

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// units are the units of time by name. "m" is a minute. There is no month and no year, because their lengths
// differ: in a rate, they name windows of a calendar.
var units = map[string]time.Duration{
	"ns": 1, "nanosecond": 1, "nanoseconds": 1,
	"us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond,
	"microsecond": time.Microsecond, "microseconds": time.Microsecond,
	"ms": time.Millisecond, "millisecond": time.Millisecond, "milliseconds": time.Millisecond,
	"s": time.Second, "sec": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": day, "day": day, "days": day,
	"w": week, "week": week, "weeks": week,
}

// Parse returns the rate that s describes. If s describes no rate, the error says how a rate must be written.
func Parse(s string) (Rate, error) {
	r, err := parse(s)
	if err == nil {
		return r, nil
	}
	if meant, ok := misspelt(s); ok {
		return Rate{}, errors.New("must be written " + strconv.Quote(meant.String()))
	}
	return Rate{}, err
}

// misspelt returns the rate that s was probably meant to be, such as "100/m burst 20" for the text
// "100/M, burst=20", or "500/d from first" for "500/day first". It reports whether there is one.
func misspelt(s string) (Rate, bool) {
	if len(s) > longestCompared {
		return Rate{}, false
	}
	if text, _, ok := strings.Cut(strings.ToLower(s), " first"); ok {
		r, err := parse(strings.TrimSuffix(strings.TrimRight(text, " ,"), " from") + fromFirst)
		return r, err == nil
	}
	text, burst, ok := strings.Cut(strings.ToLower(s), "burst")
	if !ok {
		return Rate{}, false
	}
	const between = " \t,;:=()"
	r, err := parse(strings.TrimRight(text, between) + " burst " + strings.Trim(burst, between))
	return r, err == nil
}

// longestCompared is the largest length, in bytes, of a text that is compared with known words, to find a spelling mistake.
const longestCompared = 100

func parse(s string) (r Rate, err error) {
	if strings.TrimSpace(s) == unlimited {
		return Unlimited, nil
	}
	text, burst, hasBurst := strings.Cut(s, " burst ")
	count, per, ok := strings.Cut(text, " per ")
	if !ok || strings.Contains(count, "/") {
		count, per, ok = strings.Cut(text, "/") // a zone may have a "/" too, but only after the count
	}
	if !ok {
		return Rate{}, errors.New(Form)
	}
	if r.Requests, err = parseCount(count); err != nil {
		return Rate{}, fmt.Errorf("its count %w", err)
	}
	if r.Per, r.Window, err = parseWindow(per); err != nil {
		return Rate{}, err
	}
	if hasBurst {
		if r.Burst, err = parseCount(burst); err != nil {
			return Rate{}, fmt.Errorf("its burst %w", err)
		}
	}
	return r, nil
}

// fromFirst is the end of the text of a rate whose windows begin with the first use of a key.
const fromFirst = " from first"

// parseWindow returns the Per and the Window of a rate. The parameter text is the part of the rate after the
// count, such as "90s" or "month".
func parseWindow(text string) (per time.Duration, window string, err error) {
	text = strings.TrimSpace(text)
	unit, rest, _ := strings.Cut(text, " ")
	if length, ok := strings.CutSuffix(text, fromFirst); ok {
		if per, err = ParsePer(length); err != nil {
			return 0, "", fmt.Errorf(`its time before "from first" %w`, err)
		}
		return per, calendar.First.String(), nil
	}
	if calendar.IsUnit(unit) && (rest != "" || units[unit] == 0) { // "day" or "week" without a zone is a length of time
		return parseCalendar(text)
	}
	per, err = ParsePer(text)
	switch {
	case err == nil:
		return per, "", nil
	case meansCalendar(unit, rest):
		return parseCalendar(text)
	case errors.Is(err, errUnit):
		return 0, "", fmt.Errorf(`its time %w, or be "month" or "year"`, err)
	}
	return 0, "", fmt.Errorf("its time %w", err)
}

// parseCalendar returns the Window that text describes. The first result is always 0.
func parseCalendar(text string) (per time.Duration, window string, err error) {
	w, err := calendar.Parse(text)
	if e := new(calendar.Error); errors.As(err, &e) && e.Part == calendar.PartForm {
		err = errors.New(WindowForm)
	}
	return 0, w.String(), err
}

// meansCalendar is called for a text that is no length of time, such as "month". It reports whether the text was
// probably meant to name windows of a calendar. The parameter unit is the first word of the text, and rest is the text after this word.
func meansCalendar(unit, rest string) bool {
	_, known := units[unit]
	if known && rest != "" {
		_, err := calendar.New("day", 1, rest)
		return err == nil
	}
	return !known && confmap.Nearest(unit, calendar.Units()) != ""
}

// parseCount returns the whole number in s, which must be at least 1.
func parseCount(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, strconv.IntSize-1)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("must be a whole number from 1 to %d", math.MaxInt)
	}
	return int(n), nil
}

// ParsePer returns the length of time in s. This is a unit such as "m", a number and a unit such as
// "90s", or several numbers with units such as "1h30m".
func ParsePer(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if d, ok := units[s]; ok {
		return d, nil
	}
	var sum time.Duration
	for rest := s; rest != ""; {
		end := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		number := rest[:end]
		rest = strings.TrimLeft(rest[end:], " ")
		end = strings.IndexAny(rest, "0123456789. ")
		if end < 0 {
			end = len(rest)
		}
		unit, ok := units[rest[:end]]
		if !ok {
			return 0, errUnit
		}
		rest = strings.TrimLeft(rest[end:], " ")
		d, err := scaled(number, unit)
		if err != nil {
			return 0, err
		}
		if sum > math.MaxInt64-d {
			return 0, errTooLong
		}
		sum += d
	}
	if sum <= 0 {
		return 0, errors.New("must be longer than zero")
	}
	return sum, nil
}

var (
	errTooLong = errors.New(TooLong)
	errUnit    = errors.New("must be in ns, us, ms, s, m (minutes), h, d or w")
)

// scaled returns the product of number and unit, or an error if that is not a whole number of
// nanoseconds. number must have only digits and points.
func scaled(number string, unit time.Duration) (time.Duration, error) {
	whole, decimals, _ := strings.Cut(number, ".")
	if whole == "" || strings.Contains(decimals, ".") {
		return 0, errors.New("must have a number before each unit")
	}
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || n > uint64(math.MaxInt64/unit) {
		return 0, errTooLong
	}
	d := time.Duration(n) * unit
	for _, digit := range strings.TrimRight(decimals, "0") {
		if unit%10 != 0 {
			return 0, errors.New("must be whole nanoseconds")
		}
		unit /= 10
		part := time.Duration(digit-'0') * unit
		if d > math.MaxInt64-part {
			return 0, errTooLong
		}
		d += part
	}
	return d, nil
}

// String returns r in a short form that [Parse] reads, such as "100/m" or "100/90s burst 20". If r
// is not a valid rate, Parse cannot read the text.
func (r Rate) String() string {
	if r == Unlimited {
		return unlimited
	}
	s := strconv.Itoa(r.Requests) + "/" + r.formatWindow()
	if r.Burst != 0 {
		s += " burst " + strconv.Itoa(r.Burst)
	}
	return s
}

// formatWindow returns the Per and the Window of r as the part of a rate after the count, such as "90s" or "month".
func (r Rate) formatWindow() string {
	w, err := calendar.Parse(r.Window)
	switch {
	case err != nil:
		return r.Window
	case r.Window == "":
		return formatPer(r.Per)
	case w == calendar.First:
		return formatPer(r.Per) + fromFirst
	case units[w.String()] > 0: // without the zone, "day" would be a length of time, 24 hours
		return w.String() + " UTC"
	}
	return w.String()
}

// formatPer returns d as a whole number of the largest possible unit. If the number is 1, it returns
// only the unit.
func formatPer(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1}} {
		switch {
		case d == u.unit:
			return u.name
		case d > 0 && d%u.unit == 0:
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String() // reached only if d is not positive
}
