package calendar

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

// A zone knows by how much the local time of a time zone differs from UTC, at each instant that int64
// nanoseconds since the Unix epoch can describe.
type zone struct {
	// spans are the spans of time with one offset. The first begins before all instants, and each lasts
	// until the next one.
	spans []span

	minOffset, maxOffset int64 // the smallest and the largest offset of all spans, in seconds
}

// A span is a span of time in which local time differs from UTC by the same amount.
type span struct {
	from   int64 // when the span begins, in seconds since the Unix epoch
	offset int64 // seconds to add to UTC for the local time
}

// The first and the last second since the Unix epoch for which a zone knows the offset. The first contains the
// smallest instant that is an int64 in nanoseconds. The last is two days after the largest such instant, because
// where a date begins can depend on a change of the clocks soon afterwards.
const (
	minSecond = math.MinInt64/int64(time.Second) - 1
	maxSecond = math.MaxInt64/int64(time.Second) + 2*daySeconds
)

// newZone returns the zone of a location. It lists all changes of the offset once, which makes later searches
// fast: a location computes changes in future years from a rule, each time that it is asked.
func newZone(l *time.Location) *zone {
	z := &zone{minOffset: math.MaxInt64, maxOffset: math.MinInt64}
	for sec := minSecond; sec <= maxSecond; {
		t := time.Unix(sec, 0).In(l)
		_, offset := t.Zone()
		if n := len(z.spans); n == 0 || z.spans[n-1].offset != int64(offset) {
			z.spans = append(z.spans, span{sec, int64(offset)})
			z.minOffset, z.maxOffset = min(z.minOffset, int64(offset)), max(z.maxOffset, int64(offset))
		}
		_, end := t.ZoneBounds()
		if end.IsZero() {
			break
		}
		next := end.Unix()
		if next <= sec {
			// On the 366th day of a year, ZoneBounds may return an end that has passed, because it assumes that each
			// year has 365 days. No rule for future years changes an offset on that day, so go on with the next day.
			next = floor(sec, daySeconds)*daySeconds + daySeconds
		}
		sec = next
	}
	z.spans[0].from = math.MinInt64 / 2 // before all instants, but not so small that sums overflow
	z.spans = slices.Clip(z.spans)
	return z
}

// at returns the index of the span that contains the second sec.
func (z *zone) at(sec int64) int {
	low, high := 0, len(z.spans) // the span is in z.spans[low:high]
	for high-low > 1 {
		if mid := int(uint(low+high) / 2); z.spans[mid].from <= sec {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// begin returns the second at which a date begins: the second after the last one whose local date is
// earlier. The date is given as a number of days since 1970-01-01. The search begins at the span with the
// index near, and is fast if the date begins near that span.
//
// Within a span, the seconds whose local date is earlier than the given date come first. So begin finds the
// last span that has such seconds, and returns the second after them.
func (z *zone) begin(date int64, near int) int64 {
	midnight := date * daySeconds // in local time, as seconds
	i := near
	for i+1 < len(z.spans) && z.spans[i+1].from+z.minOffset < midnight {
		i++
	}
	for i > 0 && z.spans[i].from+z.spans[i].offset >= midnight {
		i--
	}
	b := midnight - z.spans[i].offset
	if i+1 < len(z.spans) {
		b = min(b, z.spans[i+1].from)
	}
	return b
}

const utc = "UTC"

// loadZone returns the zone with this name, from the time zone data of the machine. The empty name is UTC.
func loadZone(name string) (*zone, error) {
	if name == "" {
		return utcZone, nil
	}
	loaded.RLock()
	z := loaded.zones[name]
	loaded.RUnlock()
	if z != nil {
		return z, nil
	}
	z, err := zoneFrom(name, time.LoadLocation)
	if err != nil {
		return nil, err
	}
	loaded.Lock()
	defer loaded.Unlock()
	if other := loaded.zones[name]; other != nil { // another goroutine was faster
		return other, nil
	}
	loaded.zones[strings.Clone(name)] = z
	return z, nil
}

var utcZone = newZone(time.UTC)

// zoneFrom returns the zone with this name. It calls the function load, which reads the zone, only if the name
// looks like the name of a zone.
func zoneFrom(name string, load func(name string) (*time.Location, error)) (*zone, error) {
	names := strings.Fields(zoneNames)
	listed := slices.Contains(names, name)
	if !listed && !canBeZone(name, names) {
		return nil, &Error{PartZone, unknownZone(name, names)}
	}
	if l, err := load(name); err == nil {
		return newZone(l), nil
	}
	_, err := load("Europe/Berlin") // every time zone database has this zone
	switch {
	case err != nil:
		return nil, &Error{PartZone, `cannot be found, because this machine has no time zone data: import _ "time/tzdata"`}
	case listed:
		return nil, &Error{PartZone, `is not in the time zone data of this machine: renew the data, or import _ "time/tzdata"`}
	}
	return nil, &Error{PartZone, unknownZone(name, names)}
}

// maxZoneName is the largest length of the name of a zone, in bytes. The longest name in use today has 32 bytes.
const maxZoneName = 64

// canBeZone reports whether a zone can have this name although the name is not in the list names.
//
// Each part of the name must begin with a capital letter. This refuses other files of the time zone database, such as
// "right/Europe/Berlin", whose days have leap seconds, and "localtime", which is another zone on each machine. A name
// that differs from a name in the list only in capital letters is refused too: some file systems would find a file
// for it.
func canBeZone(name string, names []string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] < 'A' || part[0] > 'Z' {
			return false
		}
		for _, c := range []byte(part) {
			switch {
			case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '_', c == '-', c == '+':
			default:
				return false
			}
		}
	}
	return len(name) <= maxZoneName && name != "Local" &&
		!slices.ContainsFunc(names, func(known string) bool { return strings.EqualFold(known, name) })
}

// unknownZone returns the reason in the error for a name that no zone has.
func unknownZone(name string, names []string) string {
	const form = `of the IANA time zone database, such as "Europe/Berlin"`
	switch near := confmap.Nearest(strings.ReplaceAll(name, " ", "_"), names); {
	case strings.EqualFold(name, "local"):
		return `must not be "Local", which is another zone on each machine: give a name ` + form
	case isOffset(name):
		return "must not be an offset, which has no summer time: give a name " + form
	case strings.ContainsAny(name, `.\:~`) || strings.HasPrefix(name, "/"):
		return "must not be a file: give a name " + form
	case near == "", isAbbreviation(name), strings.HasPrefix(near, strings.TrimSuffix(name, "/")+"/"):
		return "is unknown: must be a name " + form
	default:
		return "is unknown; did you mean " + confmap.Quote(near) + "?"
	}
}

// isOffset reports whether name is a difference from UTC, such as "+02:00", "UTC+2" or "GMT-03:30".
func isOffset(name string) bool {
	name = strings.TrimPrefix(strings.TrimPrefix(name, utc), "GMT")
	return name != "" && strings.ContainsAny(name[:1], "+-") && strings.Trim(name, "+-:0123456789") == ""
}

// isAbbreviation reports whether name looks like "CEST" or "PST". For an abbreviation, no error suggests a similar
// name, because the similar name would belong to another zone.
func isAbbreviation(name string) bool {
	return len(name) <= len("CEST") && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
