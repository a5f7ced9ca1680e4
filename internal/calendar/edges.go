package calendar

import (
	"math"
	"time"
)

// A Calendar cuts time into the days, weeks, months or years of a zone. The instants at which it cuts are called
// edges.
//
// A date begins right after the last instant at which the local date is an earlier one. On most days that is
// midnight. If clocks are set back over midnight, it is the second midnight; if they are set forward over
// midnight, it is the instant at which they are set. A date that a zone skips has no instants: the window of the
// day before ends where the window of the day after begins. A window of days, weeks, months or years begins with
// its first date, and ends where the first date of the next window begins.
//
// Invariant: an edge is a whole second, or the smallest or the largest int64 of nanoseconds since the Unix epoch.
type Calendar struct {
	zone *zone
	unit unit
	day  int    // the day on which months begin; 1 for all other units
	text string // what String of its Window returns; the function insert sets it

	shortest, longest int64 // lengths of the shortest and of the longest window, in nanoseconds
}

// newCalendar returns the calendar of a unit in the zone z.
func newCalendar(u unit, day int, z *zone) *Calendar {
	c := &Calendar{zone: z, unit: u, day: day}
	c.shortest, c.longest = c.lengths()
	return c
}

// Edges returns the begin and the end of the window that contains the instant now, in nanoseconds since the
// Unix epoch: begin <= now < end. The next window is the one that contains the instant end.
//
// An int64 cannot hold an edge before the year 1678 or after the year 2262. In place of such an edge, Edges
// returns the smallest or the largest int64. So if now is the largest int64, end is equal to now.
func (c *Calendar) Edges(now int64) (begin, end int64) {
	sec := floor(now, int64(time.Second))
	at := c.zone.at(sec)
	// Look first at the window that contains the current local date. This window may not have begun yet: if the clocks
	// will soon be set back to before its first date, an earlier window contains the instant now.
	from := c.firstDate(floor(sec+c.zone.spans[at].offset, daySeconds))
	to := c.nextFirst(from)
	b := c.zone.begin(from, at)
	for b > sec {
		to, from = from, c.firstDate(from-1)
		b = c.zone.begin(from, at)
	}
	return nanoseconds(b), nanoseconds(c.zone.begin(to, at))
}

// Shortest returns the length of the shortest window, in nanoseconds.
func (c *Calendar) Shortest() int64 { return c.shortest }

// Longest returns the length of the longest window, in nanoseconds.
func (c *Calendar) Longest() int64 { return c.longest }

// MaxTouched returns how many windows a closed interval of this length, in nanoseconds, can touch at most. It
// is an upper bound: for some lengths, no interval touches so many.
//
// An interval can touch two windows in part: the first and the last. All other windows lie in the interval as a
// whole, and last at most length-1 nanoseconds together. So there are two bounds on the number of these other
// windows. First, each of them is at least as long as the shortest window. Second, together they last at least 24
// hours for each of their dates, minus the time by which clocks are set forward in them. This time is at most the
// difference between the largest and the smallest offset of the zone.
func (c *Calendar) MaxTouched(length uint64) uint64 {
	if length == 0 {
		return 1
	}
	inside, forward := length-1, uint64(c.zone.maxOffset-c.zone.minOffset)*uint64(time.Second)
	n := inside / uint64(c.shortest)
	if inside <= math.MaxUint64-forward {
		n = min(n, c.maxInDays((inside+forward)/uint64(24*time.Hour)))
	}
	return 2 + n
}

// monthsDays has at index n the fewest days that n months in a row have together.
var monthsDays = [...]uint64{0, 28, 59, 89, 120, 150, 181, 212, 242, 273, 303, 334}

// maxInDays returns how many windows in a row can have at most n dates together. For months and years, the result
// may be too large, because the computation assumes that each year has 365 days.
func (c *Calendar) maxInDays(n uint64) uint64 {
	switch c.unit {
	case week:
		return n / 7
	case month:
		months := uint64(len(monthsDays) - 1)
		for monthsDays[months] > n%365 {
			months--
		}
		return n/365*12 + months
	case year:
		return n / 365
	}
	return n
}

// lengths returns the lengths of the shortest and of the longest window, in nanoseconds. A window has an
// unusual length only if the offset of the zone changes in it or at one of its ends, so only such windows are
// measured.
func (c *Calendar) lengths() (shortest, longest int64) {
	days := [...][2]int64{day: {1, 1}, week: {7, 7}, month: {28, 31}, year: {365, 366}}[c.unit]
	shortest, longest = days[0]*daySeconds*int64(time.Second), days[1]*daySeconds*int64(time.Second)
	for _, s := range c.zone.spans[1:] {
		for _, now := range [...]int64{nanoseconds(s.from) - 1, nanoseconds(s.from)} {
			if begin, end := c.Edges(now); begin > math.MinInt64 && end < math.MaxInt64 {
				shortest, longest = min(shortest, end-begin), max(longest, end-begin)
			}
		}
	}
	return shortest, longest
}

// firstDate returns the first date of the window that contains the given date. Dates are days since
// 1970-01-01, which was a Thursday.
func (c *Calendar) firstDate(date int64) int64 {
	switch c.unit {
	case week:
		const monday = 4
		return monday + 7*floor(date-monday, 7)
	case month:
		y, m, d := civil(date)
		if d < c.day {
			m--
		}
		return days(y, m, c.day)
	case year:
		y, _, _ := civil(date)
		return days(y, time.January, 1)
	}
	return date
}

// nextFirst returns the first date of a window. The parameter first is the first date of the window before it.
func (c *Calendar) nextFirst(first int64) int64 {
	switch c.unit {
	case week:
		return first + 7
	case month:
		y, m, d := civil(first)
		return days(y, m+1, d)
	case year:
		y, _, _ := civil(first)
		return days(y+1, time.January, 1)
	}
	return first + 1
}

const daySeconds = 24 * 60 * 60

// civil returns year, month and day of a date, which is a number of days since 1970-01-01.
func civil(date int64) (int, time.Month, int) { return time.Unix(date*daySeconds, 0).UTC().Date() }

// days returns the date as a number of days since 1970-01-01. The month 0 is December of the year before, and
// the month 13 is January of the year after.
func days(y int, m time.Month, d int) int64 {
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / daySeconds // divides without a remainder, because the time is a midnight
}

// floor returns the quotient a/b, rounded down. b is above 0.
func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// nanoseconds returns seconds since the Unix epoch as nanoseconds, or the nearest int64.
func nanoseconds(sec int64) int64 {
	switch {
	case sec > math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case sec < math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return sec * int64(time.Second)
}
