package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestFixedWindowEdges proves that a window ends exactly at its edge, to the nanosecond.
func TestFixedWindowEdges(t *testing.T) {
	begin(t, fixedWindow, ratelimit.PerSecond(3)).
		at(sec-1).take(3, yes(3, 0, 1), "the last nanosecond").
		take(1, no(3, 0, 1, 1), "used up").
		at(sec).take(2, yes(3, 1, sec), "the next window").
		take(2, no(3, 1, sec, sec), "one is left").
		at(sec-1).take(2, no(3, 1, sec, sec), "a clock that steps back stands still").
		take(4, no(3, 1, ratelimit.Never, sec), "four never fit").
		at(math.MaxInt64).look(yes(3, 3, 0), "the last instant of all")
}

// TestWindowsAreAligned proves that windows are aligned to the Unix epoch, before and after
// it.
func TestWindowsAreAligned(t *testing.T) {
	for _, tt := range []struct {
		start time.Time
		per   time.Duration
		left  time.Duration
		why   string
	}{
		{time.Unix(0, 0), mins, mins, "the epoch is an edge"},
		{time.Unix(0, -1), mins, 1, "a nanosecond before it"},
		{time.Unix(-59, 0), mins, 59 * sec, "before 1970 too"},
		{time.Date(2026, 11, 20, 16, 53, 7, 0, time.UTC), 24 * time.Hour, 7*time.Hour + 6*mins + 53*sec, "a day ends at midnight UTC"},
		{time.Time{}, 24 * time.Hour, 24 * time.Hour, "the year 1 begins at midnight"},
		{time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC), time.Hour, 1, "the last nanosecond of the year 9999"},
		{time.Unix(10, 0), 7 * sec, 4 * sec, "seconds that do not divide a minute"},
		{time.Unix(3, 500_000_000), 1500 * ms, 1000 * ms, "parts of a second"},
		{time.Unix(1, 0), math.MaxInt64, math.MaxInt64 - sec, "the longest window"},
	} {
		clock := ratelimit.NewFakeClock(tt.start)
		l, err := ratelimit.NewFixedWindow(ratelimit.Rate{Requests: 1, Per: tt.per}, ratelimit.WithClock(clock))
		require.NoError(t, err)
		require.Equal(t, yes(1, 0, tt.left), l.Allow("key"), tt.why)
		require.Equal(t, no(1, 0, tt.left, tt.left), l.Allow("key"), tt.why)
	}
}

// TestFixedWindowSetRate proves what a change of the rate does to the count of the current
// window.
func TestFixedWindowSetRate(t *testing.T) {
	begin(t, fixedWindow, ratelimit.PerMinute(5)).
		at(10*sec).take(4, yes(5, 1, 50*sec), "4 of 5 used").
		set(ratelimit.PerMinute(9)).look(yes(9, 5, 50*sec), "a raise leaves the new limit less what was used").
		set(ratelimit.PerMinute(3)).take(1, no(3, 0, 50*sec, 50*sec), "a cut leaves nothing").
		at(60*sec).look(yes(3, 3, 0), "until the next window").
		take(2, yes(3, 1, 60*sec), "2 of 3 used").
		at(110*sec).set(ratelimit.PerHour(3)).look(yes(3, 1, 58*mins+10*sec), "the count goes into the hour").
		at(105*sec).look(yes(3, 1, 58*mins+10*sec), "a change of Per moves the key's clock").
		at(2*time.Hour).set(ratelimit.PerMinute(3)).look(yes(3, 3, 0), "what has ended is not carried")
}
