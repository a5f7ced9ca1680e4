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
		at(sec-1).take(2, no(3, 1, sec+1, sec+1), "a clock that steps back stands still until it has caught up").
		take(4, no(3, 1, ratelimit.Never, sec+1), "four never fit").
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
		at(105*sec).look(yes(3, 1, 58*mins+15*sec), "a change of Per moves the key's clock").
		at(2*time.Hour).set(ratelimit.PerMinute(3)).look(yes(3, 3, 0), "what has ended is not carried")
}

// TestSlidingWindowLogLeaves proves that each unit leaves the log exactly one window after
// it was granted.
func TestSlidingWindowLogLeaves(t *testing.T) {
	begin(t, slidingLog, ratelimit.Rate{Requests: 5, Per: 10}).
		at(1).take(2, yes(5, 3, 10), "two at 1").
		at(3).take(1, yes(5, 2, 10), "one at 3").
		take(1, yes(5, 1, 10), "and another at the same instant").
		at(4).take(2, no(5, 1, 7, 9), "two fit when the two have left, at 11").
		take(3, no(5, 1, 7, 9), "three fit then as well").
		take(4, no(5, 1, 9, 9), "four fit when all have left").
		take(6, no(5, 1, ratelimit.Never, 9), "six never fit").
		at(2).take(1, yes(5, 0, 11), "a clock that steps back stands still at 3").
		at(11).take(2, yes(5, 0, 10), "after exactly the advised wait").
		take(1, no(5, 0, 2, 10), "when those at 3 leave").
		at(13).look(yes(5, 3, 8), "exactly a window old").
		at(21).look(yes(5, 5, 0), "empty")
}

// TestSlidingWindowLogSetRate proves that a change of the rate keeps the instants of all
// units that are still in the log.
func TestSlidingWindowLogSetRate(t *testing.T) {
	begin(t, slidingLog, ratelimit.Rate{Requests: 5, Per: 10}).
		take(2, yes(5, 3, 10), "two at 0").
		at(5).take(2, yes(5, 1, 10), "two at 5").
		set(ratelimit.Rate{Requests: 9, Per: 10}).look(yes(9, 5, 10), "a raise leaves the new limit less what was used").
		set(ratelimit.Rate{Requests: 3, Per: 10}).look(no(3, 0, 5, 10), "a cut leaves nothing until two have left").
		at(12).set(ratelimit.Rate{Requests: 9, Per: 100}).look(yes(9, 7, 93), "units that had left do not come back").
		set(ratelimit.Rate{Requests: 9, Per: 8}).look(yes(9, 7, 1), "the others keep their instants").
		at(5).look(yes(9, 7, 8), "a change of Per moves the key's clock")
}

// TestSlidingWindowLogRing compares the ring, as it grows and wraps around, with a plain
// list of entries.
func TestSlidingWindowLogRing(t *testing.T) {
	const limit, per = 100, 1000
	s := begin(t, slidingLog, ratelimit.Rate{Requests: limit, Per: per})
	type entry struct {
		at time.Duration
		n  int
	}
	var entries []entry
	for i := range 5000 {
		at := time.Duration(i * 7)
		for len(entries) > 0 && entries[0].at+per <= at {
			entries = entries[1:]
		}
		used := 0
		for _, e := range entries {
			used += e.n
		}
		n := 1 + i%3
		want := yes(limit, limit-used-n, per)
		if used+n > limit {
			want = no(limit, limit-used, 0, entries[len(entries)-1].at+per-at)
			for _, e := range entries {
				if used -= e.n; used+n <= limit {
					want.RetryAfter = e.at + per - at
					break
				}
			}
		} else {
			entries = append(entries, entry{at, n})
		}
		s.at(at).take(n, want, "the plain list of entries agrees")
	}
	require.Equal(t, 1, s.l.Len())
}

// TestSlidingWindowCounterFades proves how the previous window weighs less and less, to the
// nanosecond.
func TestSlidingWindowCounterFades(t *testing.T) {
	begin(t, slidingCounter, ratelimit.Rate{Requests: 4, Per: 10}).
		at(9).take(4, yes(4, 0, 11), "the last nanosecond of a window").
		take(1, no(4, 0, 4, 11), "weighs 3 from 12.5 on: 13").
		at(12).take(1, no(4, 0, 1, 8), "a nanosecond early").
		at(13).take(1, yes(4, 0, 17), "4·7/10 + 1 = 3.8").
		take(2, no(4, 0, 5, 17), "4·2/10 + 3 = 3.8 at 18").
		at(18).take(2, yes(4, 0, 12), "after exactly the advised wait").
		take(4, no(4, 0, 12, 12), "when both have gone, at 30").
		at(20).take(1, yes(4, 0, 20), "3 fade: 3·10/10 + 1 = 4").
		at(29).look(yes(4, 2, 11), "3·1/10 + 1 = 1.3").
		at(30).look(yes(4, 3, 10), "what was current is previous").
		at(40).look(yes(4, 4, 0), "two windows later nothing is left")
}

// TestSlidingWindowCounterResetAfter proves that ResetAfter reaches to the instant at which
// nothing counts any more.
func TestSlidingWindowCounterResetAfter(t *testing.T) {
	begin(t, slidingCounter, ratelimit.PerMinute(4)).
		at(15*sec).take(1, yes(4, 3, 105*sec), "until the end of the next window").
		at(60*sec).look(yes(4, 3, 60*sec), "that window has begun").
		at(61*sec).look(yes(4, 3, 59*sec), "any weight, however small, costs one of the four units").
		at(120*sec).look(yes(4, 4, 0), "gone").
		at(15*sec).look(yes(4, 3, 105*sec), "a look does not move the key's clock")
}

// TestSlidingWindowCounterSetRate proves what a change of the rate does to the counts of
// both windows.
func TestSlidingWindowCounterSetRate(t *testing.T) {
	begin(t, slidingCounter, ratelimit.PerMinute(10)).
		at(30*sec).take(9, yes(10, 1, 90*sec), "9 in the first window").
		at(90*sec).set(ratelimit.PerMinute(20)).look(yes(20, 15, 30*sec), "9 weigh 4.5: counts are kept").
		set(ratelimit.PerMinute(3)).look(no(3, 0, 16_666_666_667, 30*sec), "a cut leaves nothing until 9 weigh 2").
		set(ratelimit.PerMinute(10)).
		set(ratelimit.PerHour(10)).look(yes(10, 5, 118*mins+30*sec), "with another Per the estimate, rounded up, is the count").
		at(60*sec).look(yes(10, 5, 119*mins), "the change has moved the key's clock")
}
