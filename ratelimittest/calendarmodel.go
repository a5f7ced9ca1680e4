package ratelimittest

import (
	"math/big"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-go/ratelimit"
)

// A calendar finds the windows of a [ratelimit.Window] by reading local dates. This is slow, but easy to check.
type calendar struct {
	unit string
	day  int // the day on which a month begins
	zone *time.Location
}

// parseCalendar returns the calendar that the valid text w describes.
func parseCalendar(w ratelimit.Window) calendar {
	words := strings.Fields(string(w))
	c := calendar{unit: words[0], day: 1, zone: time.UTC}
	if words = words[1:]; len(words) >= 3 && words[0] == "from" {
		c.day, _ = strconv.Atoi(words[2])
		words = words[3:]
	}
	if len(words) > 0 {
		c.zone = zoneNamed(words[0])
	}
	return c
}

// zones caches the time zones that were loaded before, by their names.
var zones sync.Map

// zoneNamed returns the time zone with this name.
func zoneNamed(name string) *time.Location {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		panic(err) // the rate of a model must be valid
	}
	zones.Store(name, zone)
	return zone
}

// edges returns the begin and the end of the window that contains the instant u, all in nanoseconds since the Unix epoch.
func (c calendar) edges(u *big.Int) (begin, end *big.Int) {
	sec := floorDiv(u, num(int64(time.Second))).Int64()
	first := c.firstOf(dateOf(sec, c.zone) + 1)
	for c.begin(first) > sec {
		first = c.firstOf(first - 1)
	}
	second := num(int64(time.Second))
	return mul(num(c.begin(first)), second), mul(num(c.begin(c.next(first))), second)
}

// firstOf returns the first date of the window that contains a date. A date is a number of days since 1970-01-01.
func (c calendar) firstOf(date int64) int64 {
	for !c.isFirst(date) {
		date--
	}
	return date
}

// next returns the first date of the next window. The parameter is the first date of the window before it.
func (c calendar) next(first int64) int64 {
	for first++; !c.isFirst(first); first++ {
	}
	return first
}

// isFirst reports whether a window begins with this date.
func (c calendar) isFirst(date int64) bool {
	t := time.Unix(date*24*60*60, 0).UTC()
	switch c.unit {
	case "week":
		return t.Weekday() == time.Monday
	case "month":
		return t.Day() == c.day
	case "year":
		return t.YearDay() == 1
	}
	return true
}

// dateOf returns the date that clocks in the zone show at the second sec since the Unix epoch.
func dateOf(sec int64, zone *time.Location) int64 {
	y, m, d := time.Unix(sec, 0).In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
}

// begins caches the results of the method begin.
var begins sync.Map

// begin returns the second, counted from the Unix epoch, at which the given date begins in the zone. From this second on, clocks in
// the zone never show an earlier date. So if clocks are set back to the evening before, the date begins only at their second
// midnight. To find the second, begin goes back in steps of a quarter of an hour from a later time, until clocks show an earlier
// date. Then it tries each second of that quarter.
func (c calendar) begin(date int64) int64 {
	type place struct {
		zone string
		date int64
	}
	at := place{c.zone.String(), date}
	if known, ok := begins.Load(at); ok {
		return known.(int64)
	}
	const quarter, hours = 15 * 60, 60 * 60
	sec := date*24*hours + 48*hours
	for dateOf(sec, c.zone) >= date {
		sec -= quarter
	}
	for end := sec + quarter; end > sec; end-- {
		if dateOf(end, c.zone) < date {
			sec = end
			break
		}
	}
	begins.Store(at, sec+1)
	return sec + 1
}
