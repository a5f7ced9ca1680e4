package calendar

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // for machines without time zone data

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParse has texts, and the texts of the windows that they describe.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"first":                                 "first",
		" first ":                               "first",
		"day":                                   "day",
		"week UTC":                              "week",
		"month Europe/Berlin":                   "month Europe/Berlin",
		"month  from day 15\tUTC":               "month from day 15",
		"month from day 01 Europe/Berlin":       "month Europe/Berlin",
		"month from day 28 Asia/Kolkata":        "month from day 28 Asia/Kolkata",
		"day from day 1 Etc/GMT+5":              "day Etc/GMT+5",
		"year America/Argentina/ComodRivadavia": "year America/Argentina/ComodRivadavia",
	} {
		w, err := Parse(text)
		require.NoError(t, err, "%q", text)
		assert.Equal(t, want, w.String(), "%q", text)
		again, err := Parse(w.String())
		require.NoError(t, err, "%q", text)
		same := w == again
		assert.True(t, same, "%q: equal windows are equal by ==", text)
		assert.Equal(t, want == "" || want == "first", w.Calendar() == nil, "%q", text)
	}
	w, err := Parse("first")
	require.NoError(t, err)
	assert.Equal(t, First, w)
	w, err = New("", 1, "UTC")
	require.NoError(t, err)
	assert.Equal(t, Window{}, w)
}

// TestParseErrors has texts that describe no window, the part that is wrong, and the error.
func TestParseErrors(t *testing.T) {
	const database = `of the IANA time zone database, such as "Europe/Berlin"`
	const units = `its unit must be "day", "week", "month" or "year"`
	const offset = "its zone must not be an offset, which has no summer time: give a name " + database
	const file = "its zone must not be a file: give a name " + database
	for _, c := range []struct {
		text string
		part Part
		want string
	}{
		{"moonth", PartUnit, `its unit is unknown; did you mean "month"?`},
		{"Month Europe/Berlin", PartUnit, `its unit is unknown; did you mean "month"?`},
		{"frist", PartUnit, `its unit is unknown; did you mean "first"?`},
		{"quarter", PartUnit, units},
		{"Europe/Berlin", PartUnit, units},
		{"hour", PartUnit, units + ": an hour has the same length everywhere, so it is a length of time without a zone"},
		{"min UTC", PartUnit, units + ": a minute has the same length everywhere, so it is a length of time without a zone"},
		{"month from day 0", PartDay, "its day must be from 1 to 28: not every month has a later day"},
		{"month from day 29", PartDay, "its day must be from 1 to 28: not every month has a later day"},
		{"month from day -1 Europe/Berlin", PartDay, "its day must be from 1 to 28: not every month has a later day"},
		{"month from day 99999999999999999999", PartDay, "its day must be from 1 to 28: not every month has a later day"},
		{"week from day 2", PartDay, "its day must be left out: only a month can begin on another day"},
		{"first from day 2", PartDay, "its day must be left out: only a month can begin on another day"},
		{"first from day 1", PartDay, "its day must be left out: only a month can begin on another day"},
		{"first Europe/Berlin", PartZone, "its zone must be left out: only a day, week, month or year has a zone"},
		{" \n", PartForm, Form},
		{"month from 15", PartForm, Form},
		{"month from day", PartForm, Form},
		{"month Europe/Berlin from day 15", PartForm, Form},
		{"day Europe/berlin", PartZone, `its zone is unknown; did you mean "Europe/Berlin"?`},
		{"day Berlin", PartZone, `its zone is unknown; did you mean "Europe/Berlin"?`},
		{"day America/New York", PartZone, `its zone is unknown; did you mean "America/New_York"?`},
		{"day Amerika/Sao_Paolo", PartZone, `its zone is unknown; did you mean "America/Sao_Paulo"?`},
		{"day utc", PartZone, `its zone is unknown; did you mean "UTC"?`},
		{"day right/Europe/Berlin", PartZone, `its zone is unknown; did you mean "Europe/Berlin"?`},
		{"day CEST", PartZone, "its zone is unknown: must be a name " + database},
		{"day PST", PartZone, "its zone is unknown: must be a name " + database},
		{"day localtime", PartZone, "its zone is unknown: must be a name " + database},
		{"day Europe", PartZone, "its zone is unknown: must be a name " + database},
		{"day Europe/", PartZone, "its zone is unknown: must be a name " + database},
		{"day Local", PartZone, `its zone must not be "Local", which is another zone on each machine: give a name ` + database},
		{"day local", PartZone, `its zone must not be "Local", which is another zone on each machine: give a name ` + database},
		{"day +02:00", PartZone, offset},
		{"day -3", PartZone, offset},
		{"day UTC+2", PartZone, offset},
		{"day GMT-03:30", PartZone, offset},
		{"day /etc/localtime", PartZone, file},
		{"day ../Europe/Berlin", PartZone, file},
		{"day Europe/../Europe/Berlin", PartZone, file},
		{`day C:\zones\Berlin`, PartZone, file},
	} {
		_, err := Parse(c.text)
		var e *Error
		require.ErrorAs(t, err, &e, "%q", c.text)
		assert.Equal(t, c.want, err.Error(), "%q", c.text)
		assert.Equal(t, c.part, e.Part, "%q", c.text)
	}
}

// TestZoneData has machines that lack zones.
func TestZoneData(t *testing.T) {
	none := func(string) (*time.Location, error) { return nil, errors.New("no such file") }
	old := func(name string) (*time.Location, error) {
		if name == "Europe/Kyiv" {
			return nil, errors.New("no such file")
		}
		return time.LoadLocation(name)
	}
	_, err := zoneFrom("Asia/Tokyo", none)
	require.EqualError(t, err, `its zone cannot be found, because this machine has no time zone data: import _ "time/tzdata"`)
	_, err = zoneFrom("Asia/New_City", none)
	require.EqualError(t, err, `its zone cannot be found, because this machine has no time zone data: import _ "time/tzdata"`)
	_, err = zoneFrom("Europe/Kyiv", old)
	require.EqualError(t, err, `its zone is not in the time zone data of this machine: renew the data, or import _ "time/tzdata"`)
	_, err = zoneFrom("Asia/Tokyo", old)
	require.NoError(t, err)

	// A name that no zone has is not looked for: a file system may find a file for it.
	for _, name := range []string{
		"europe/berlin", "EUROPE/BERLIN", "posix/Europe/Berlin", "localtime", "Local", "Etc/../Etc/UTC", "tzdata.zi", "A/ b",
	} {
		_, err = zoneFrom(name, func(string) (*time.Location, error) { return time.UTC, nil })
		require.Error(t, err, name)
	}
	// One that is new is looked for.
	_, err = zoneFrom("Mars/Olympus_Mons", func(string) (*time.Location, error) { return time.UTC, nil })
	require.NoError(t, err)
}

// TestShared: goroutines that describe the same window get the same calendar, and other windows share its zone.
func TestShared(t *testing.T) {
	var all [8]Window
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			w, err := Parse("month from day 7 Asia/Tokyo")
			assert.NoError(t, err)
			all[i] = w
		})
	}
	wg.Wait()
	for _, w := range all {
		same := w == all[0]
		assert.True(t, same)
	}
	w, err := Parse("week Asia/Tokyo")
	require.NoError(t, err)
	assert.Same(t, w.calendar.zone, all[0].calendar.zone, "calendars of one zone share it")
}

// TestEdges has an instant for each kind of edge, and the begin and the end of its window.
func TestEdges(t *testing.T) {
	for _, c := range []struct{ window, at, begin, end, why string }{
		{"day", "2024-02-29T12:00:00Z", "2024-02-29T00:00:00Z", "2024-03-01T00:00:00Z", "a leap day is a day"},
		{"month", "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", "it is the last of its month"},
		{"month from day 28", "2023-03-01T00:00:00Z", "2023-02-28T00:00:00Z", "2023-03-28T00:00:00Z", "the day after is a day of March"},
		{"year", "2024-12-31T23:59:59Z", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z", "a leap year has 366 days"},
		{"year", "2100-12-31T00:00:00Z", "2100-01-01T00:00:00Z", "2101-01-01T00:00:00Z", "2100 is not a leap year"},
		{"month from day 15", "2026-01-14T23:59:59Z", "2025-12-15T00:00:00Z", "2026-01-15T00:00:00Z", "a month that begins in another year"},
		{"month from day 15", "2025-12-15T00:00:00Z", "2025-12-15T00:00:00Z", "2026-01-15T00:00:00Z", "a month that ends in another year"},
		{"week", "2026-01-01T00:00:00Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", "a week does not end with the year"},
		{"week", "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z", "the epoch is a Thursday"},
		{"week", "1969-12-28T23:59:59Z", "1969-12-22T00:00:00Z", "1969-12-29T00:00:00Z", "before the epoch, divisions still round down"},

		{"day Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "clocks are set forward: 23 hours"},
		{"day Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "clocks are set back: 25 hours"},
		{"month Europe/Berlin", "2026-03-31T22:00:00Z", "2026-03-31T22:00:00Z", "2026-04-30T22:00:00Z", "April begins in summer time"},
		{"year Europe/Berlin", "2026-07-01T00:00:00Z", "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z", "a year begins in winter time"},

		{"day America/Sao_Paulo", "2018-11-04T03:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z", "midnight was skipped"},
		{"day America/Sao_Paulo", "2018-02-18T02:59:59Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z", "an hour before midnight came twice"},
		{"day Asia/Beirut", "2022-03-26T22:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z", "the day began at one o'clock"},
		{"day Asia/Beirut", "2022-10-29T20:59:59Z", "2022-10-28T21:00:00Z", "2022-10-29T22:00:00Z", "midnight was set back to eleven o'clock"},
		{"day Asia/Gaza", "2016-10-28T22:30:00Z", "2016-10-28T21:00:00Z", "2016-10-29T22:00:00Z", "midnight came twice"},
		{"day Africa/Cairo", "2023-04-27T22:00:00Z", "2023-04-27T22:00:00Z", "2023-04-28T21:00:00Z", "the day began at one o'clock"},
		{"day Africa/Cairo", "2023-10-26T20:59:59Z", "2023-10-25T21:00:00Z", "2023-10-26T22:00:00Z", "midnight was set back to eleven o'clock"},
		{"day America/Havana", "2026-11-01T04:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z", "one o'clock was set back to midnight"},
		{"day America/St_Johns", "2006-10-29T02:30:00Z", "2006-10-28T02:30:00Z", "2006-10-29T03:30:00Z", "it was the 29th for a minute before"},
		{"day America/St_Johns", "2006-10-29T02:29:59Z", "2006-10-28T02:30:00Z", "2006-10-29T03:30:00Z", "then 23:01 of the 28th"},

		{"day Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z", "December 29 ends"},
		{"day Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z", "and it is December 31"},
		{"week Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-26T10:00:00Z", "2012-01-01T10:00:00Z", "a week of six days"},
		{"month Pacific/Kiritimati", "1994-12-31T09:59:59Z", "1994-12-01T10:00:00Z", "1994-12-31T10:00:00Z", "a December of 30 days"},
		{"day Antarctica/Casey", "2023-03-09T00:00:00Z", "2023-03-08T13:00:00Z", "2023-03-09T16:00:00Z", "a day of 27 hours"},
		{"year Africa/Casablanca", "2025-03-15T00:00:00Z", "2024-12-31T23:00:00Z", "2025-12-31T23:00:00Z", "clocks are set twice in it"},
	} {
		w, err := Parse(c.window)
		require.NoError(t, err, c.window)
		at, err := time.Parse(time.RFC3339, c.at)
		require.NoError(t, err)
		begin, end := w.Calendar().Edges(at.UnixNano())
		assert.Equal(t, [2]string{c.begin, c.end}, [2]string{text(begin), text(end)}, "%s at %s: %s", c.window, c.at, c.why)
	}
}

// text returns an instant as the table of TestEdges writes it.
func text(nano int64) string { return time.Unix(0, nano).UTC().Format(time.RFC3339Nano) }

// TestEdgesOfRandomZones compares the windows of zones whose clocks are set at random, up to several times a day, with a
// walk over their local dates. Clocks are set by half hours, so that a walk by half hours finds every edge.
func TestEdgesOfRandomZones(t *testing.T) {
	const step, steps = 1800, 48 * 100
	r := rand.New(rand.NewPCG(6, 24))
	for range 300 {
		z := &zone{spans: []span{{math.MinInt64 / 2, 0}}}
		rare := 1 + r.IntN(100)
		var dates [steps]int64 // the local date at each step
		for i := range dates {
			offset := z.spans[len(z.spans)-1].offset
			if i > 48*40 && i < 48*60 && r.IntN(rare) == 0 {
				offset = step * int64(r.IntN(60)-30)
				z.spans = append(z.spans, span{step * int64(i), offset})
			}
			z.minOffset, z.maxOffset = min(z.minOffset, offset), max(z.maxOffset, offset)
			dates[i] = floor(step*int64(i)+offset, daySeconds)
		}
		c := newCalendar([]unit{day, week, month}[r.IntN(3)], 1, z)
		if c.unit == month {
			c.day += r.IntN(maxDay)
		}
		var edges []int64
		least := dates[steps-1] // from a step on
		for i := steps - 1; i > 0; i-- {
			least = min(least, dates[i])
			before := min(least, dates[i-1])
			for date := before + 1; date <= least; date++ { // they begin at this step
				first := time.Unix(date*daySeconds, 0).UTC()
				if c.unit == day || c.unit == week && first.Weekday() == time.Monday || c.unit == month && first.Day() == c.day {
					edges = append(edges, step*int64(i))
					break
				}
			}
		}
		slices.Reverse(edges)
		require.NotEmpty(t, edges)
		for i, end := range edges[1:] {
			for at := edges[i]; at < end; at += step {
				b, e := c.Edges(at * 1e9)
				if b != edges[i]*1e9 || e != end*1e9 {
					require.Equal(t, [2]int64{edges[i] * 1e9, end * 1e9}, [2]int64{b, e}, "%+v %+v at %d", c, z, at)
				}
			}
		}
	}
}

// TestEdgesOfTheRange has instants at the ends of the range of int64 nanoseconds.
func TestEdgesOfTheRange(t *testing.T) {
	for _, c := range []struct {
		window         string
		at, begin, end int64
	}{
		{"year", math.MinInt64, math.MinInt64, -9_214_560_000e9},
		{"year", -9_214_560_000e9 - 1, math.MinInt64, -9_214_560_000e9},
		{"year", math.MaxInt64, 9_214_646_400e9, math.MaxInt64},
		{"year", math.MaxInt64 - 1, 9_214_646_400e9, math.MaxInt64},
		{"day", math.MinInt64, math.MinInt64, -9_223_286_400e9},
		{"day", math.MaxInt64, 9_223_286_400e9, math.MaxInt64},
	} {
		w, err := Parse(c.window)
		require.NoError(t, err)
		begin, end := w.Calendar().Edges(c.at)
		assert.Equal(t, [2]int64{c.begin, c.end}, [2]int64{begin, end}, "%s at %d", c.window, c.at)
	}
}

// TestMaxTouched has lengths, and how many windows they can touch.
func TestMaxTouched(t *testing.T) {
	const day = 24 * uint64(time.Hour)
	for _, c := range []struct {
		window       string
		length, want uint64
	}{
		{"day", 0, 1}, {"day", 1, 2}, {"day", day, 2}, {"day", day + 1, 3},
		{"day Europe/Berlin", 23 * uint64(time.Hour), 2}, {"day Europe/Berlin", 23*uint64(time.Hour) + 1, 3},
		{"day Europe/Berlin", 365 * day, 367},
		{"week", 7 * day, 2}, {"week", 7*day + 1, 3},
		{"month", 28 * day, 2}, {"month", 28*day + 1, 3}, {"month", 365 * day, 13}, {"month", 365*day + 1, 14},
		{"month from day 15 Europe/Berlin", 365 * day, 14},
		{"year", 365 * day, 2}, {"year", 365*day + 1, 3}, {"year", math.MaxInt64, 294},
		{"day", math.MaxUint64, 2 + math.MaxUint64/day}, {"day Asia/Manila", math.MaxUint64, 2 + math.MaxUint64/uint64(23*time.Hour)},
	} {
		w, err := Parse(c.window)
		require.NoError(t, err)
		assert.Equal(t, c.want, w.Calendar().MaxTouched(c.length), "%s within %d ns", c.window, c.length)
	}
}

func TestEdgesDoNotAllocate(t *testing.T) {
	w, err := Parse("month from day 15 Europe/Berlin")
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(100, func() { w.Calendar().Edges(1_800_000_000e9) }))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = Parse("month from day 15 Europe/Berlin") }))
}

// FuzzParse requires that what Parse returns has a text that Parse returns it for.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "first", "day", "month from day 15 Europe/Berlin", "year  UTC", "moonth", "week ../x", "month from day 99",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		w, err := Parse(text)
		if err != nil {
			require.ErrorAs(t, err, new(*Error))
			require.Zero(t, w)
			return
		}
		again, err := Parse(w.String())
		require.NoError(t, err)
		same := w == again
		require.True(t, same)
		require.LessOrEqual(t, len(w.String()), len("month from day 28 ")+maxZoneName)
	})
}

// FuzzEdges requires that each instant is in its window, and that windows follow each other without a gap.
func FuzzEdges(f *testing.F) {
	zones := strings.Fields(zoneNames)
	for _, at := range []int64{0, math.MinInt64, math.MaxInt64, 1_325_239_200e9, 1_541_300_400e9} {
		f.Add(uint8(0), uint8(15), uint16(0), at)
		f.Add(uint8(2), uint8(15), uint16(slices.Index(zones, "Pacific/Apia")), at)
	}
	f.Fuzz(func(t *testing.T, u, d uint8, zone uint16, at int64) {
		which, first := day+unit(u%4), 1
		if which == month {
			first += int(d % maxDay)
		}
		w, err := New(unitNames[which], first, zones[int(zone)%len(zones)])
		require.NoError(t, err)
		c := w.Calendar()
		begin, end := c.Edges(at)
		require.LessOrEqual(t, begin, at)
		if at < math.MaxInt64 {
			require.Less(t, at, end)
		}
		if end < math.MaxInt64 {
			next, after := c.Edges(end)
			require.Equal(t, end, next)
			require.Greater(t, after, end)
		}
		if begin > math.MinInt64 {
			before, to := c.Edges(begin - 1)
			require.Equal(t, begin, to)
			require.Less(t, before, begin)
		}
		if begin > math.MinInt64 && end < math.MaxInt64 {
			require.GreaterOrEqual(t, end-begin, c.Shortest())
			require.LessOrEqual(t, end-begin, c.Longest())
		}
	})
}

func BenchmarkEdges(b *testing.B) {
	for _, text := range []string{
		"day", "day Europe/Berlin", "week Europe/Berlin", "month Europe/Berlin", "month from day 15 America/New_York", "year Africa/Casablanca",
	} {
		b.Run("window="+text, func(b *testing.B) {
			w, err := Parse(text)
			require.NoError(b, err)
			c, at := w.Calendar(), int64(1_800_000_000e9)
			b.ReportAllocs()
			for b.Loop() {
				c.Edges(at)
				if at += 987_654_321_987; at > 2_100_000_000e9 {
					at = 0
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.Run("known", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = Parse("month from day 15 Europe/Berlin")
		}
	})
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			z, err := zoneFrom("Europe/Berlin", time.LoadLocation)
			require.NoError(b, err)
			newCalendar(month, 15, z)
		}
	})
}
