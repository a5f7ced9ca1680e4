package verify

import (
	"archive/zip"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for machines without time zone data

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/calendar"
)

// hardZones are zones in which clocks were changed at midnight or by unusual amounts, or which skipped a day.
var hardZones = []string{
	"Africa/Cairo", "Africa/Casablanca", "America/Asuncion", "America/Havana", "America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns",
	"Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut", "Asia/Gaza", "Asia/Tehran", "Atlantic/Azores", "Australia/Lord_Howe",
	"Europe/Berlin", "Europe/Dublin", "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein",
}

// TestCalendars compares the edges of all windows from 1970 to 2043 with a walk over the local dates of the zone. Most
// files of zones list the changes until 2037, and have only a rule for those after. A plain run compares the hard zones
// and some others, and with RATELIMIT_SOAK=1 the test compares all.
func TestCalendars(t *testing.T) {
	oneGoroutine(t)
	zones := hardZones
	others := zonesOfGo(t)
	switch {
	case os.Getenv("RATELIMIT_SOAK") == "1":
		zones = others
	case !testing.Short():
		r := rand.New(rand.NewPCG(24, 6))
		for range 8 {
			zones = append(slices.Clip(zones), others[r.IntN(len(others))])
		}
	}
	edges := 0
	for _, zone := range zones {
		edges += compareZone(t, zone)
	}
	t.Logf("%d edges in %d zones", edges, len(zones))
	require.Greater(t, edges, len(zones)*50_000)
}

// zonesOfGo returns the names of all zones that come with Go.
func zonesOfGo(t *testing.T) (names []string) {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	zones, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(out)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, zones.Close()) }()
	for _, f := range zones.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	require.Greater(t, len(names), 500)
	return names
}

// compareZone compares the edges of all calendars of a zone with its local dates, and returns how many edges there are.
func compareZone(t *testing.T, zone string) (edges int) {
	dates := walkDates(t, zone)
	for _, unit := range []string{"day", "week", "year"} {
		edges += dates.compare(t, unit, 1)
	}
	for day := 1; day <= 28; day++ {
		edges += dates.compare(t, "month", day)
	}
	return edges
}

// A dateWalk has the begins of the local dates of a zone.
type dateWalk struct {
	zone   string
	first  int64   // the first date, as a number of days since 1970-01-01
	begins []int64 // the second at which the date first+i begins, for each i
	ahead  []int64 // the last second before clocks are set back over midnight, each time: the date has not begun yet
}

// A localDate is a date, such as 20240229.
type localDate int

// dateOf returns the local date at a second, and the offset from UTC.
func dateOf(sec int64, l *time.Location) (date localDate, offset int) {
	local := time.Unix(sec, 0).In(l)
	y, m, d := local.Date()
	_, offset = local.Zone()
	return localDate(y*10_000 + int(m)*100 + d), offset
}

// days returns the number of days from 1970-01-01 to the date d.
func (d localDate) days() int64 {
	return time.Date(int(d/10_000), time.Month(d/100%100), int(d%100), 0, 0, 0, 0, time.UTC).Unix() / 86_400
}

// walkDates walks over the years 1969 to 2043 by hours, and by seconds where the offset from UTC changes. It notes each
// second at which the local date changes, to a later or to an earlier one. A date then begins after the last of all
// seconds whose local date is before it. No zone changes its offset in an hour and back.
func walkDates(t *testing.T, zone string) dateWalk {
	l, err := time.LoadLocation(zone)
	require.NoError(t, err)
	type change struct{ at, date int64 }
	from, to := time.Date(1969, 1, 2, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2043, 12, 30, 0, 0, 0, 0, time.UTC).Unix()
	date, offset := dateOf(from, l)
	changes := []change{{from, date.days()}}
	for sec := from; sec < to; sec += 3600 {
		next, nextOffset := dateOf(sec+3600, l)
		switch {
		case nextOffset != offset:
			for s := sec + 1; s <= sec+3600; s++ {
				if now, _ := dateOf(s, l); now != date {
					changes, date = append(changes, change{s, now.days()}), now
				}
			}
		case next != date: // once, at some second of this hour
			before, after := sec, sec+3600
			for after-before > 1 {
				middle := (before + after) / 2
				if now, _ := dateOf(middle, l); now == date {
					before = middle
				} else {
					after = middle
				}
			}
			changes = append(changes, change{after, next.days()})
		}
		date, offset = next, nextOffset
	}
	w := dateWalk{zone: zone, first: changes[0].date + 1}
	last := changes[len(changes)-1].date
	for i, c := range changes[1:] {
		if c.date < changes[i].date {
			w.ahead = append(w.ahead, c.at-1)
		}
	}
	w.begins = make([]int64, last-w.first+1)
	for i := len(changes) - 2; i >= 0; i-- {
		for ; last >= w.first && last > changes[i].date; last-- {
			w.begins[last-w.first] = changes[i+1].at
		}
	}
	return w
}

// compare compares the windows of one calendar with the walk. It returns how many edges there are.
func (w *dateWalk) compare(t *testing.T, unit string, day int) (edges int) {
	window, err := calendar.New(unit, day, w.zone)
	require.NoError(t, err)
	c := window.Calendar()
	r := rand.New(rand.NewPCG(1, 2))
	var begin int64
	ahead := w.ahead
	for i, end := range w.begins {
		date := time.Unix((w.first+int64(i))*86_400, 0).UTC()
		switch {
		case unit == "week" && date.Weekday() != time.Monday,
			unit == "month" && date.Day() != day,
			unit == "year" && date.YearDay() != 1,
			end == begin: // the window of a date that the zone skips
			continue
		}
		if edges++; edges > 1 {
			begin, end, last := begin*1e9, end*1e9, end*1e9-1
			instants := []int64{begin, begin + r.Int64N(last-begin+1), last}
			for ; len(ahead) > 0 && ahead[0] < end/1e9; ahead = ahead[1:] {
				instants = append(instants, max(ahead[0]*1e9, begin))
			}
			for _, now := range instants {
				b, e := c.Edges(now)
				if b != begin || e != end {
					require.Failf(t, "wrong edges", "%s at %v: %v to %v in place of %v to %v",
						window, utc(now), utc(b), utc(e), utc(begin), utc(end))
				}
			}
			if end-begin < c.Shortest() || end-begin > c.Longest() {
				require.Failf(t, "wrong length", "%s at %v: %v", window, utc(begin), time.Duration(end-begin))
			}
		}
		begin = end
	}
	return edges
}

func utc(nano int64) time.Time { return time.Unix(0, nano).UTC() }

// TestCalendarsOfAllTimes: over the whole range of int64 nanoseconds, windows follow each other without a gap, the
// shortest and the longest are those that the calendar says, and no interval touches more windows than it says.
func TestCalendarsOfAllTimes(t *testing.T) {
	zones := append([]string{"", "America/Juneau", "Asia/Manila"}, hardZones...)
	for i, zone := range zones {
		units := []string{"week", "month", "year"}
		if i%4 == 0 {
			units = append(units, "day")
		}
		for _, unit := range units {
			day := 1
			if unit == "month" {
				day += i
			}
			window, err := calendar.New(unit, day, zone)
			require.NoError(t, err)
			edges := edgesOf(t, window)
			c := window.Calendar()
			shortest, longest := int64(math.MaxInt64), int64(0)
			for i, end := range edges[1:] {
				shortest, longest = min(shortest, end-edges[i]), max(longest, end-edges[i])
			}
			require.Equal(t, [2]int64{shortest, longest}, [2]int64{c.Shortest(), c.Longest()}, "%q", window)
			requireTouched(t, window, edges)
		}
	}
}

// edgesOf returns the edges of all windows that int64 nanoseconds can describe, except for the ends of the range.
func edgesOf(t *testing.T, window calendar.Window) (edges []int64) {
	c := window.Calendar()
	first, end := c.Edges(math.MinInt64)
	require.Equal(t, int64(math.MinInt64), first)
	for end < math.MaxInt64 {
		edges = append(edges, end)
		begin, next := c.Edges(end)
		b, e := c.Edges(next - 1)
		if begin != end || next <= begin || b != begin || e != next {
			require.Failf(t, "a gap", "%q: at %v %v to %v, and at its end %v to %v", window, utc(end), utc(begin), utc(next), utc(b), utc(e))
		}
		end = next
	}
	begin, end := c.Edges(math.MaxInt64)
	require.Equal(t, []int64{edges[len(edges)-1], math.MaxInt64}, []int64{begin, end}, "%q", window)
	return edges
}

// requireTouched draws lengths, and compares how many windows an interval of that length touches at most with what the
// calendar says. It is never more. In UTC it is as many, apart from spans of many years, and elsewhere at most two less.
func requireTouched(t *testing.T, window calendar.Window, edges []int64) {
	r := rand.New(rand.NewPCG(3, 4))
	c := window.Calendar()
	require.EqualValues(t, 1, c.MaxTouched(0))
	for range 50 {
		windows := 1 + r.IntN(1+r.IntN(40))
		at := r.IntN(len(edges) - windows)
		length := edges[at+windows] - edges[at] + r.Int64N(3) - 1
		most := 1 // windows that a closed interval of this length touches
		for i, j := 0, 0; i < len(edges); i++ {
			for j < len(edges) && edges[j]-edges[i] < length { // the interval begins one instant before edges[i]
				j++
			}
			most = max(most, 1+j-i)
		}
		touched := c.MaxTouched(uint64(length))
		require.LessOrEqual(t, most, int(touched), "%q within %v", window, time.Duration(length))
		require.LessOrEqual(t, int(touched), most+2, "%q within %v", window, time.Duration(length))
		if !strings.Contains(window.String(), "/") && (window.String() != "year" || windows < 8) {
			require.EqualValues(t, most, touched, "%q within %v", window, time.Duration(length))
		}
	}
}

// TestCalendarTexts: texts that mean the same describe one window, and what is not a window is refused.
func TestCalendarTexts(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		" first":                         "first",
		"week UTC":                       "week",
		"month from day 1 Europe/Berlin": "month Europe/Berlin",
		"month  from day 15 UTC":         "month from day 15",
	} {
		w, err := calendar.Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, w.String())
		again, err := calendar.Parse(want)
		require.NoError(t, err, text)
		same := w == again
		require.True(t, same, text)
	}
	for text, want := range map[string]string{
		"moonth":                  `its unit is unknown; did you mean "month"?`,
		"month from day 29":       "its day must be from 1 to 28: not every month has a later day",
		"week from day 2":         "its day must be left out: only a month can begin on another day",
		"first Europe/Berlin":     "its zone must be left out: only a day, week, month or year has a zone",
		"day Europe/berlin":       `its zone is unknown; did you mean "Europe/Berlin"?`,
		"day right/Europe/Berlin": `its zone is unknown; did you mean "Europe/Berlin"?`,
		"day CEST":                `its zone is unknown: must be a name of the IANA time zone database, such as "Europe/Berlin"`,
		"month UTC from day 15":   calendar.Form,
	} {
		_, err := calendar.Parse(text)
		require.EqualError(t, err, want, text)
	}
}
