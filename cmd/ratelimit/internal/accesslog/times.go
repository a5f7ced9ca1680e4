package accesslog

import (
	"bytes"
	"hash/maphash"
	"math"
	"time"
)

// The type named "times" parses texts that are times. It keeps some results, because several lines often have the same time.
// They may follow each other in one log, or be in different logs that are read together.
type times [64]keptTime

// A keptTime is a text and the time that it means.
type keptTime struct {
	text []byte
	ns   int64
}

// parse returns a time in nanoseconds since the Unix epoch. The time must be from 1970 to 2262. The text must have
// one of these forms:
//   - 10/Oct/2026:13:55:36 -0700, with or without brackets around it.
//   - 2026-10-10T13:55:36.5Z, with any number of decimals. There may be a space instead of the T. Without a time
//     zone, the time is in UTC.
//   - A number since the Unix epoch. A number below 1e11 is in seconds, below 1e14 in milliseconds, below 1e17 in
//     microseconds, and otherwise in nanoseconds.
//
// The variable to which the parameter last points holds the time of the previous line of the log. It is nil before the first
// line. If the text is a time, the method stores this time in the variable.
func (t *times) parse(text []byte, last **keptTime) (ns int64, ok bool) {
	if *last != nil && bytes.Equal(text, (*last).text) {
		return (*last).ns, true
	}
	kept := &t[maphash.Bytes(keptSeed, text)%uint64(len(t))]
	if len(text) > 0 && bytes.Equal(text, kept.text) {
		*last = kept
		return kept.ns, true
	}
	if ns, ok = parseTime(text); ok {
		kept.text, kept.ns = append(kept.text[:0], text...), ns
		*last = kept
	}
	return ns, ok
}

// ParseTime parses a time in any of the forms that a log may have. It returns nanoseconds since the Unix epoch. It
// returns false if text has none of these forms.
func ParseTime(text string) (ns int64, ok bool) { return parseTime([]byte(text)) }

func parseTime(text []byte) (ns int64, ok bool) {
	if n := len(text); n > 2 && text[0] == '[' && text[n-1] == ']' {
		text = text[1 : n-1]
	}
	s := scan{text: text, ok: true}
	switch {
	case len(text) > 4 && text[4] == '-':
		return s.iso()
	case len(text) > 2 && text[2] == '/':
		return s.clf()
	}
	return s.epoch()
}

// A scan reads a text from left to right. When it reads something unexpected, it sets its field ok to false.
type scan struct {
	text []byte
	ok   bool
}

// number reads a number that must have n digits.
func (s *scan) number(n int) (v int) {
	if len(s.text) < n {
		s.ok = false
		return 0
	}
	for _, c := range s.text[:n] {
		s.ok = s.ok && '0' <= c && c <= '9'
		v = v*10 + int(c-'0')
	}
	s.text = s.text[n:]
	return v
}

// The method named "one" reads one byte, which must be one of the bytes in set.
func (s *scan) one(set string) (c byte) {
	if len(s.text) == 0 || bytes.IndexByte([]byte(set), s.text[0]) < 0 {
		s.ok = false
		return 0
	}
	c, s.text = s.text[0], s.text[1:]
	return c
}

// fraction reads the decimals of a second, and returns them in nanoseconds. It ignores digits after the ninth. It
// returns 0 if there are no decimals.
func (s *scan) fraction() (ns int) {
	if len(s.text) == 0 || s.text[0] != '.' && s.text[0] != ',' {
		return 0
	}
	s.text = s.text[1:]
	digits, unit := 0, 100_000_000
	for len(s.text) > 0 && '0' <= s.text[0] && s.text[0] <= '9' {
		ns += unit * int(s.text[0]-'0')
		unit /= 10
		digits++
		s.text = s.text[1:]
	}
	s.ok = s.ok && digits > 0
	return ns
}

// zone reads a time zone such as Z, -0700 or +02:00. It returns the offset of the zone from UTC in seconds.
func (s *scan) zone() (seconds int) {
	sign := s.one("+-Zz")
	if sign != '+' && sign != '-' {
		return 0
	}
	hours := s.number(2)
	if len(s.text) > 0 && s.text[0] == ':' {
		s.text = s.text[1:]
	}
	minutes := 0
	if len(s.text) > 0 {
		minutes = s.number(2)
	}
	s.ok = s.ok && hours < 24 && minutes < 60
	if seconds = hours*3600 + minutes*60; sign == '-' {
		return -seconds
	}
	return seconds
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

func (s *scan) clf() (int64, bool) {
	day := s.number(2)
	s.one("/")
	month := 0
	if len(s.text) >= 3 {
		for i := 0; i < len(months); i += 3 {
			if string(s.text[:3]) == months[i:i+3] {
				month = i/3 + 1
			}
		}
		s.text = s.text[3:]
	}
	s.one("/")
	year := s.number(4)
	s.one(":")
	return s.clock(year, month, day, false)
}

func (s *scan) iso() (int64, bool) {
	year := s.number(4)
	s.one("-")
	month := s.number(2)
	s.one("-")
	day := s.number(2)
	s.one("Tt ")
	return s.clock(year, month, day, true)
}

// clock reads the time of the day and the time zone, and adds them to the given date. If zoneOptional is true, the
// text may end without a time zone.
func (s *scan) clock(year, month, day int, zoneOptional bool) (int64, bool) {
	h := s.number(2)
	s.one(":")
	m := s.number(2)
	s.one(":")
	sec := s.number(2)
	ns := s.fraction()
	if len(s.text) > 0 && s.text[0] == ' ' {
		s.text = s.text[1:]
	}
	zone := 0
	if len(s.text) > 0 || !zoneOptional {
		zone = s.zone()
	}
	if !s.ok || len(s.text) > 0 || h > 23 || m > 59 || sec > 60 || year < 1969 || year > 2262 || month < 1 || month > 12 || day < 1 {
		return 0, false
	}
	t := time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC)
	if t.Day() != day { // true if the month has fewer days than the argument day
		return 0, false
	}
	return inRange(t.Unix()+int64(h*3600+m*60+sec-zone), int64(ns))
}

// epoch reads the time since the Unix epoch as a number, with or without decimals. The unit is seconds,
// milliseconds, microseconds or nanoseconds, depending on the size of the number.
func (s *scan) epoch() (int64, bool) {
	whole, digits := int64(0), 0
	for len(s.text) > 0 && '0' <= s.text[0] && s.text[0] <= '9' && digits < 19 {
		if whole > (math.MaxInt64-9)/10 {
			return 0, false
		}
		whole = whole*10 + int64(s.text[0]-'0')
		digits++
		s.text = s.text[1:]
	}
	ns := int64(s.fraction())
	if digits == 0 || !s.ok || len(s.text) > 0 {
		return 0, false
	}
	switch {
	case whole < 1e11:
		return inRange(whole, ns)
	case whole < 1e14:
		return inRange(whole/1e3, whole%1e3*1e6+ns/1e3)
	case whole < 1e17:
		return inRange(whole/1e6, whole%1e6*1e3+ns/1e6)
	}
	return inRange(whole/1e9, whole%1e9)
}

// inRange returns a time in nanoseconds since the Unix epoch. The parameters are the seconds since the Unix epoch,
// and further nanoseconds. If the time is before the Unix epoch or does not fit into an int64, inRange returns
// false.
func inRange(seconds, ns int64) (int64, bool) {
	if seconds < 0 || seconds > math.MaxInt64/1_000_000_000-1 {
		return 0, false
	}
	return seconds*1_000_000_000 + ns, true
}
