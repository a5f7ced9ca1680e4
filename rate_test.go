package ratelimit_test

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestParseRate proves which Rate each form of text means.
func TestParseRate(t *testing.T) {
	for _, tt := range []struct {
		text string
		want ratelimit.Rate
		why  string
	}{
		{"100/m", ratelimit.PerMinute(100), "m is a minute"},
		{"100/min", ratelimit.PerMinute(100), "min is a minute too"},
		{"100/1m", ratelimit.PerMinute(100), "a number before the unit"},
		{"100 / 1 m", ratelimit.PerMinute(100), "spaces do not matter"},
		{"10 per second", ratelimit.PerSecond(10), "in words"},
		{"10 per 2 minutes", ratelimit.Rate{Requests: 10, Per: 2 * minute}, "in words, with a number"},
		{"100/90s", ratelimit.Rate{Requests: 100, Per: 90 * sec}, "any length"},
		{"1/3s", ratelimit.Rate{Requests: 1, Per: 3 * sec}, "a third per second"},
		{"5/1h30m", ratelimit.Rate{Requests: 5, Per: 90 * minute}, "units run together"},
		{"5/1 hour 30 minutes", ratelimit.Rate{Requests: 5, Per: 90 * minute}, "units may stand apart"},
		{"5/1.5s", ratelimit.Rate{Requests: 5, Per: 1500 * ms}, "a decimal"},
		{"5/0.000000001s", ratelimit.Rate{Requests: 5, Per: 1}, "a decimal down to a nanosecond"},
		{"5/1.50000000000s", ratelimit.Rate{Requests: 5, Per: 1500 * ms}, "zeros at the end of a decimal are dropped"},
		{"1/d", ratelimit.PerDay(1), "a day is 24 hours"},
		{"1/2w", ratelimit.Rate{Requests: 1, Per: 14 * 24 * time.Hour}, "weeks"},
		{"7/µs", ratelimit.Rate{Requests: 7, Per: time.Microsecond}, "the micro sign"},
		{"7/μs", ratelimit.Rate{Requests: 7, Per: time.Microsecond}, "the Greek letter"},
		{"100/m burst 20", ratelimit.PerMinute(100).WithBurst(20), "a burst"},
		{"10 per hour burst 1", ratelimit.PerHour(10).WithBurst(1), "a burst, in words"},
		{"2147483647/ns", ratelimit.Rate{Requests: math.MaxInt32, Per: 1}, "the largest count of every machine"},
		{"100/day", ratelimit.PerDay(100), "a day without a zone is 24 hours"},
		{"100/week", ratelimit.Rate{Requests: 100, Per: 7 * 24 * time.Hour}, "a week without a zone is 7 days"},
		{"100/day UTC", calendarRate("day"), "a day of the calendar"},
		{"100/week UTC", calendarRate("week"), "a week of the calendar"},
		{"100/month", calendarRate("month"), "a month is always one of the calendar"},
		{"100 per month", calendarRate("month"), "in words"},
		{"100/year UTC", calendarRate("year"), "UTC is the default"},
		{"100/ month  Europe/Berlin ", calendarRate("month Europe/Berlin"), "spaces do not matter"},
		{"100 per day America/Argentina/La_Rioja", calendarRate("day America/Argentina/La_Rioja"), "slashes of the zone"},
		{"100/month from day 15 Europe/Berlin", calendarRate("month from day 15 Europe/Berlin"), "another first day"},
		{"100/month from day 01", calendarRate("month"), "the first day is the default"},
		{"100/day from first", ratelimit.Rate{Requests: 100, Per: 24 * time.Hour, Window: "first"}, "from the first use"},
		{"100 per 1h30m from first", ratelimit.Rate{Requests: 100, Per: 90 * minute, Window: "first"}, "from the first use, any length"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := ratelimit.ParseRate(tt.text)
			require.NoError(t, err, tt.why)
			assert.Equal(t, tt.want, got, tt.why)
		})
	}
}

// TestParseRateRefuses proves which texts are refused, and what the error says.
func TestParseRateRefuses(t *testing.T) {
	const (
		form   = `must look like "100/m", "10 per 2 minutes", "100/90s" or "100/m burst 20"`
		units  = `its time must be in ns, us, ms, s, m (minutes), h, d or w, or be "month" or "year"`
		words  = `must look like "1000/month", "1000/month from day 15 Europe/Berlin" or "1000/day from first"`
		first  = `must be written "100/d from first"`
		days   = "its day must be from 1 to 28: not every month has a later day"
		zone   = `of the IANA time zone database, such as "Europe/Berlin"`
		number = "its time must have a number before each unit"
	)
	count := " must be a whole number from 1 to " + strconv.Itoa(math.MaxInt)
	for _, tt := range []struct{ text, want, why string }{
		{"", form, "nothing"},
		{"100", form, "no time"},
		{"100 m", form, "neither a slash nor per"},
		{"100per m", form, "per has to stand between spaces"},
		{"/m", "its count" + count, "no count"},
		{"0/m", "its count" + count, "zero grants nothing"},
		{"-1/m", "its count" + count, "negative"},
		{"+1/m", "its count" + count, "a sign"},
		{"1.5/m", "its count" + count, "half a request, which 3/2m says"},
		{"1e3/m", "its count" + count, "no exponents"},
		{"9223372036854775808/m", "its count" + count, "beyond an int"},
		{"100/", "its time must be longer than zero", "no time after the slash"},
		{"100/M", units, "M might be a month"},
		{"100/mounth", `its unit is unknown; did you mean "month"?`, "a misspelt month"},
		{"100/months", `its unit is unknown; did you mean "month"?`, "several months"},
		{"100/y", units, "a year has no abbreviation"},
		{"100/2 months", units, "windows of two months"},
		{"100/days UTC", `its unit is unknown; did you mean "day"?`, "a calendar has windows of one day"},
		{"100/hour Europe/Berlin", `its unit must be "day", "week", "month" or "year": an hour has the same length everywhere, ` +
			"so it is a length of time without a zone", "no calendar is needed"},
		{"100/month Europe/Berln", `its zone is unknown; did you mean "Europe/Berlin"?`, "a misspelt zone"},
		{"100/month in Europe/Berlin", `its zone is unknown; did you mean "Europe/Berlin"?`, "a word too many"},
		{"100/month Local", `its zone must not be "Local", which is another zone on each machine: give a name ` + zone, "no zone is local"},
		{"100/month +02:00", "its zone must not be an offset, which has no summer time: give a name " + zone, "an offset"},
		{"100/month from day 29", days, "February has no such day"},
		{"100/month from day 0", days, "no month has such a day"},
		{"100/week from day 2", "its day must be left out: only a month can begin on another day", "weeks begin on Monday"},
		{"100/month from 15", words, "no day before the number"},
		{"100/month Europe/Berlin from day 15", words, "the zone is the last word"},
		{"100/month from first", `its time before "from first" must be in ns, us, ms, s, m (minutes), h, d or w`, "months differ in length"},
		{"100/day first", first, "from is missing"},
		{"100/DAY FROM FIRST", first, "upper case"},
		{"100/day from first use", first, "a word too many"},
		{"100/day from first Europe/Berlin", first, "24 hours have no zone"},
		{"100/5", units, "a time without a unit"},
		{"100/m s", number, "a unit without a number may only stand alone"},
		{"100/0s", "its time must be longer than zero", "no time at all"},
		{"100/-1s", units, "negative"},
		{"100/1.5ns", "its time must be whole nanoseconds", "half a nanosecond"},
		{"100/1.0000000001s", "its time must be whole nanoseconds", "a tenth of one"},
		{"100/1.2.3s", number, "two points"},
		{"100/.5s", number, "nothing before the point"},
		{"100/9999999w", "its time must be at most 292 years", "beyond a Duration"},
		{"100/99999999999999999999s", "its time must be at most 292 years", "beyond a number"},
		{"100/106751d23h47m17s", "its time must be at most 292 years", "the sum is beyond a Duration"},
		{"100/9223372036.9s", "its time must be at most 292 years", "the decimals are beyond it"},
		{"100/m burst", number, "no burst after the word"},
		{"100/m burst 0", "its burst" + count, "a burst of nothing"},
		{"100/m burst -1", "its burst" + count, "a negative burst"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := ratelimit.ParseRate(tt.text)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, tt.why)
			assert.Equal(t, "ratelimit: rate is "+strconv.Quote(tt.text)+": "+tt.want, err.Error(), tt.why)
			assert.Zero(t, got)
		})
	}
}

// TestRateString proves how a Rate is written.
func TestRateString(t *testing.T) {
	for _, tt := range []struct {
		rate ratelimit.Rate
		want string
	}{
		{ratelimit.PerSecond(100), "100/s"},
		{ratelimit.PerMinute(100), "100/m"},
		{ratelimit.PerHour(100), "100/h"},
		{ratelimit.PerDay(100), "100/d"},
		{ratelimit.PerDay(100).WithBurst(20), "100/d burst 20"},
		{ratelimit.Rate{Requests: 1, Per: 90 * sec}, "1/90s"},
		{ratelimit.Rate{Requests: 1, Per: 2 * minute}, "1/2m"},
		{ratelimit.Rate{Requests: 1, Per: 36 * time.Hour}, "1/36h"},
		{ratelimit.Rate{Requests: 1, Per: 100 * ms}, "1/100ms"},
		{ratelimit.Rate{Requests: 1, Per: 7 * time.Microsecond}, "1/7us"},
		{ratelimit.Rate{Requests: 1, Per: 14 * 24 * time.Hour}, "1/14d"},
		{ratelimit.Rate{Requests: 1, Per: 1500 * ms}, "1/1500ms"},
		{ratelimit.Rate{Requests: 1, Per: 1}, "1/ns"},
		{ratelimit.Rate{Requests: 1, Per: math.MaxInt64}, "1/9223372036854775807ns"},
		{calendarRate("day"), "100/day UTC"},
		{calendarRate("week"), "100/week UTC"},
		{calendarRate("month"), "100/month"},
		{calendarRate("year UTC"), "100/year"},
		{calendarRate("day Europe/Berlin"), "100/day Europe/Berlin"},
		{calendarRate(ratelimit.Monthly(15, "Europe/Berlin")), "100/month from day 15 Europe/Berlin"},
		{calendarRate(ratelimit.Monthly(1, "UTC")), "100/month"},
		{ratelimit.Rate{Requests: 1, Per: 36 * time.Hour, Window: "first"}, "1/36h from first"},
		{calendarRate("mounth"), "100/mounth"},
		{ratelimit.Rate{}, "0/0s"},
		{ratelimit.Rate{Requests: -1, Per: -sec, Burst: -2}, "-1/-1s burst -2"},
	} {
		assert.Equal(t, tt.want, tt.rate.String())
	}
}

// calendarRate returns the rate of 100 units in each window of a calendar.
func calendarRate(w ratelimit.Window) ratelimit.Rate { return ratelimit.Rate{Requests: 100, Window: w} }

// TestRateOfEachWindow proves that a rate with any Window reads back equal from its text and from its JSON, and that NewFixedWindow
// accepts it.
func TestRateOfEachWindow(t *testing.T) {
	rates := []ratelimit.Rate{{Requests: 7, Per: 1, Window: "first"}, {Requests: 7, Per: math.MaxInt64, Window: "first"}}
	for _, zone := range []string{"", "UTC", "Europe/Berlin", "America/Argentina/La_Rioja", "Etc/GMT+3", "EST5EDT"} {
		for _, unit := range []string{"day", "week", "month", "year"} {
			rates = append(rates, calendarRate(ratelimit.Calendar(unit, zone)))
		}
		for day := 1; day <= 28; day++ {
			rates = append(rates, calendarRate(ratelimit.Monthly(day, zone)))
		}
	}
	texts := make(map[string]ratelimit.Rate)
	for _, r := range rates {
		_, err := ratelimit.NewFixedWindow(r)
		require.NoError(t, err, r)
		read, err := ratelimit.ParseRate(r.String())
		require.NoError(t, err, r)
		require.Equal(t, r, read)
		text, err := json.Marshal(r)
		require.NoError(t, err, r)
		var again ratelimit.Rate
		require.NoError(t, json.Unmarshal(text, &again), r)
		require.Equal(t, r, again)
		texts[r.String()] = r
	}
	require.Len(t, texts, 2+5*(4+27), "different rates have different texts; UTC is the zone that has no name")
}

// TestRateText proves that a Rate read from its own JSON is equal, and that an invalid Rate has no
// JSON.
func TestRateText(t *testing.T) {
	var rules map[string]ratelimit.Rate
	require.NoError(t, json.Unmarshal([]byte(`{"free": "60 per minute", "paid": "600/m burst 50"}`), &rules))
	require.Equal(t, map[string]ratelimit.Rate{
		"free": ratelimit.PerMinute(60),
		"paid": ratelimit.PerMinute(600).WithBurst(50),
	}, rules)
	text, err := json.Marshal(rules)
	require.NoError(t, err)
	require.JSONEq(t, `{"free": "60/m", "paid": "600/m burst 50"}`, string(text))

	kept := ratelimit.PerDay(3)
	require.ErrorIs(t, kept.UnmarshalText([]byte("often")), ratelimit.ErrInvalidConfig)
	require.Equal(t, ratelimit.PerDay(3), kept, "a failure leaves the rate unchanged")
	_, err = ratelimit.Rate{}.MarshalText()
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig, "an invalid rate has no text that can be read back")
}

// TestRateValidate proves that Validate reports everything that is wrong with a Rate.
func TestRateValidate(t *testing.T) {
	require.NoError(t, ratelimit.Rate{Requests: math.MaxInt, Per: math.MaxInt64, Burst: math.MaxInt}.Validate())
	require.NoError(t, ratelimit.Rate{Requests: 1, Per: 1}.Validate())
	require.EqualError(t, ratelimit.Rate{}.Validate(), ""+
		"ratelimit: requests is 0: must be at least 1\n"+
		"ratelimit: per is 0s: must be longer than zero")
	err := ratelimit.Rate{Requests: -5, Per: -sec, Burst: -1}.Validate()
	require.EqualError(t, err, ""+
		"ratelimit: requests is -5: must be at least 1\n"+
		"ratelimit: per is -1s: must be longer than zero\n"+
		"ratelimit: burst is -1: must be at least 1, or 0 for as many as requests")
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	var first *ratelimit.ConfigError
	require.ErrorAs(t, err, &first)
	require.Equal(t, ratelimit.ConfigError{Field: "requests", Value: -5, Reason: "must be at least 1"}, *first)
	for _, tt := range []struct {
		rate ratelimit.Rate
		want string
	}{
		{ratelimit.Rate{Requests: 1, Per: sec, Window: "month"}, "per is 1s: must be 0: the windows of a calendar have lengths of their own"},
		{ratelimit.Rate{Requests: 1, Window: "first"}, "per is 0s: must be longer than zero"},
		{ratelimit.Rate{Requests: 1, Per: sec, Window: "First"}, `window is "First": its unit is unknown; did you mean "first"?`},
		{calendarRate(ratelimit.Calendar("mounth", "Europe/Berlin")),
			`window is "mounth from day 1 Europe/Berlin": its unit is unknown; did you mean "month"?`},
		{calendarRate(ratelimit.Calendar("day", "Europe/Berln")),
			`window is "day from day 1 Europe/Berln": its zone is unknown; did you mean "Europe/Berlin"?`},
		{calendarRate("month UTC"), `window is "month UTC": must be written "month"`},
		{calendarRate(ratelimit.Calendar("first", "")),
			`window is "first from day 1": its day must be left out: only a month can begin on another day`},
		{calendarRate(ratelimit.Monthly(29, "")), `window is "month from day 29": its day must be from 1 to 28: not every month has a later day`},
	} {
		require.EqualError(t, tt.rate.Validate(), "ratelimit: "+tt.want)
	}
	_, err = ratelimit.NewTokenBucket(calendarRate("month"))
	require.EqualError(t, err, `ratelimit: window is "month": needs the algorithm FixedWindow: no other counts in such windows`)
}

// FuzzParseRate proves that any Rate that ParseRate returns is valid, and that its String reads
// back equal.
func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{
		"100/m", "10 per 2 minutes", "100/90s", "100/m burst 20", "5/1h30m", "1/1.5s", "7/µs", "1/ns",
		"9223372036854775807/106751d23h47m16.854775807s", "1/M", "1/1.2.3s", "/", " per ", "1/m burst ",
		"1/month from day 15 Europe/Berlin", "1 per week UTC", "1/day from first", "1/month from day 29", "1/day first", "1/year +02:00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ratelimit.ParseRate(text)
		if err != nil {
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			return
		}
		require.NoError(t, r.Validate())
		again, err := ratelimit.ParseRate(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

// FuzzRateRoundTrip proves that the text of any valid Rate reads back equal, and that an invalid
// Rate has no text.
func FuzzRateRoundTrip(f *testing.F) {
	f.Add(100, int64(time.Minute), 0, "")
	f.Add(1, int64(math.MaxInt64), 1, "")
	f.Add(math.MaxInt, int64(1), math.MaxInt, "")
	f.Add(7, int64(90061001001001), 3, "") // some of every unit
	f.Add(7, int64(time.Hour), 0, "first")
	f.Add(7, int64(0), 3, "month from day 28 Europe/Berlin")
	f.Add(7, int64(0), 0, "week")
	f.Add(7, int64(1), 0, " ") // once read as no Window, with a text that ParseRate refused
	f.Fuzz(func(t *testing.T, requests int, per int64, burst int, window string) {
		r := ratelimit.Rate{Requests: requests, Per: time.Duration(per), Burst: burst, Window: ratelimit.Window(window)}
		text, err := r.MarshalText()
		if r.Validate() != nil {
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			return
		}
		require.NoError(t, err)
		var again ratelimit.Rate
		require.NoError(t, again.UnmarshalText(text))
		require.Equal(t, r, again)
	})
}

// TestRetryAfterRoundsUp proves that milliseconds and seconds of RetryAfter are rounded up, so that
// a client that waits for so long is not early.
func TestRetryAfterRoundsUp(t *testing.T) {
	for _, tt := range []struct {
		retry time.Duration
		ms, s int64
		why   string
	}{
		{1, 1, 1, "a nanosecond is not nothing"},
		{ms, 1, 1, "exactly a millisecond"},
		{ms + 1, 2, 1, "a nanosecond more"},
		{sec, 1000, 1, "exactly a second"},
		{sec + 1, 1001, 2, "a nanosecond more than a second"},
		{90 * sec, 90_000, 90, "a whole number of both"},
		{ratelimit.Never - 1, 9223372036855, 9223372037, "the longest wait there is"},
	} {
		r := ratelimit.Result{RetryAfter: tt.retry}
		gotMs, ok := r.RetryAfterMs()
		assert.True(t, ok, tt.why)
		assert.Equal(t, tt.ms, gotMs, tt.why)
		gotS, ok := r.RetryAfterSeconds()
		assert.True(t, ok, tt.why)
		assert.Equal(t, tt.s, gotS, tt.why)
	}
}

// TestRetryAfterHasNoAnswer proves that there is no number to send if the request was allowed or
// would never be.
func TestRetryAfterHasNoAnswer(t *testing.T) {
	for _, tt := range []struct {
		res ratelimit.Result
		why string
	}{
		{ratelimit.Result{Allowed: true}, "granted"},
		{ratelimit.Result{RetryAfter: ratelimit.Never}, "no wait is long enough"},
		{ratelimit.Result{}, "nothing was decided"},
	} {
		n, ok := tt.res.RetryAfterMs()
		assert.False(t, ok, tt.why)
		assert.Zero(t, n, tt.why)
		n, ok = tt.res.RetryAfterSeconds()
		assert.False(t, ok, tt.why)
		assert.Zero(t, n, tt.why)
	}
}
