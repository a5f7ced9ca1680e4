package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestTokenBucketOddRates proves that rates that do not divide a nanosecond lose no
// fraction of a token.
func TestTokenBucketOddRates(t *testing.T) {
	begin(t, tokenBucket, ratelimit.Rate{Requests: 3, Per: 10, Burst: 2}).
		take(2, yes(2, 0, 7), "two tokens take 6.7 ns").
		at(3).take(1, no(2, 0, 1, 4), "0.9 earned: a third of a nanosecond is missing").
		at(4).take(1, yes(2, 0, 6), "1.2 earned; 0.2 kept").
		at(6).take(1, no(2, 0, 1, 4), "0.8: two thirds of a nanosecond are missing").
		at(7).take(1, yes(2, 0, 7), "1.1: nothing was lost").
		at(10).take(1, yes(2, 0, 7), "exactly 1.0").
		at(20).look(yes(2, 2, 0), "full")
	begin(t, tokenBucket, ratelimit.Rate{Requests: 700_000_000, Per: sec, Burst: 7}).
		take(7, yes(7, 0, 10), "seven tokens take exactly 10 ns").
		at(9).take(7, no(7, 6, 1, 1), "6.3 earned").
		at(10).take(7, yes(7, 0, 10), "7 per 10 ns, not 1 per ns")
}

// TestTokenBucketExtremes proves that the slowest, the fastest and the largest bucket do
// not overflow.
func TestTokenBucketExtremes(t *testing.T) {
	const year = 366 * 24 * time.Hour
	begin(t, tokenBucket, ratelimit.Rate{Requests: 1, Per: year, Burst: math.MaxInt32}).
		take(math.MaxInt32, yes(math.MaxInt32, 0, ratelimit.Never), "2^31-1 years are beyond a Duration").
		take(1, no(math.MaxInt32, 0, year, ratelimit.Never), "one year is not").
		take(291, no(math.MaxInt32, 0, 291*year, ratelimit.Never), "291 years are not").
		take(292, no(math.MaxInt32, 0, ratelimit.Never, ratelimit.Never), "292 years are").
		at(year-1).take(1, no(math.MaxInt32, 0, 1, ratelimit.Never), "a nanosecond is missing after a year").
		at(year).take(1, yes(math.MaxInt32, 0, ratelimit.Never), "one token")
	begin(t, tokenBucket, ratelimit.Rate{Requests: math.MaxInt32, Per: 1, Burst: 1}).
		take(1, yes(1, 0, 1), "2^31-1 tokens a nanosecond").
		take(1, no(1, 0, 1, 1), "none within the same nanosecond").
		at(1).take(1, yes(1, 0, 1), "the burst bounds what is kept")
	begin(t, tokenBucket, ratelimit.Rate{Requests: 1, Per: math.MaxInt64}).
		take(1, yes(1, 0, ratelimit.Never), "one in 292 years").
		at(math.MaxInt64-1).take(1, no(1, 0, 1, 1), "a nanosecond is missing").
		at(math.MaxInt64).take(1, yes(1, 0, ratelimit.Never), "the last instant of all")
}

// TestTokenBucketKeepsTokensWhenTheBurstChanges proves that a key keeps its tokens when the burst
// changes, up to the new burst, and that a full bucket stays full.
func TestTokenBucketKeepsTokensWhenTheBurstChanges(t *testing.T) {
	hundred := ratelimit.PerSecond(10).WithBurst(100)
	begin(t, tokenBucket, hundred).
		take(70, yes(100, 30, 7*sec), "30 of 100").
		set(hundred.WithBurst(50)).
		look(yes(50, 30, 2*sec), "stay 30 of 50").
		set(hundred).
		look(yes(100, 30, 7*sec), "and a raise adds none")
	begin(t, tokenBucket, hundred).
		take(10, yes(100, 90, sec), "90 of 100").
		set(hundred.WithBurst(50)).
		look(yes(50, 50, 0), "become 50 of 50").
		take(1, yes(50, 49, 100*ms), "one is taken").
		set(hundred).
		look(yes(100, 49, 5100*ms), "and a raise adds none").
		at(5100*ms-1).set(hundred.WithBurst(200)).
		look(yes(200, 99, 10*sec+1), "a nanosecond before it is full, a raise adds none")
	begin(t, tokenBucket, hundred).
		take(10, yes(100, 90, sec), "90 of 100").
		at(sec).set(hundred.WithBurst(200)).
		look(yes(200, 200, 0), "full at the change: as a key that was never seen").
		at(0).take(200, yes(200, 0, 21*sec), "and a clock that steps back takes nothing from it")
}

// TestTokenBucketSetRate proves that a change of the rate grants nothing, and that changing it back
// loses nothing.
func TestTokenBucketSetRate(t *testing.T) {
	ten := ratelimit.PerSecond(10)
	begin(t, tokenBucket, ten).
		take(4, yes(10, 6, 400*ms), "4 of 10 used").
		set(ratelimit.PerSecond(20)).
		look(yes(20, 6, 700*ms), "a raise grants nothing").
		set(ten).
		look(yes(10, 6, 400*ms), "and back: nothing is lost").
		set(ratelimit.PerSecond(7)).
		look(yes(7, 6, 142_857_143), "a cut leaves what fits").
		set(ratelimit.PerSecond(3)).
		take(3, yes(3, 0, sec), "a deeper cut leaves the new burst").
		take(1, no(3, 0, 333_333_334, sec), "and no more").
		at(333_333_334).take(1, yes(3, 0, sec), "a third of a second, rounded up")
	begin(t, tokenBucket, ten).
		take(4, yes(10, 6, 400*ms), "4 of 10 used").
		set(ratelimit.PerSecond(20)).
		at(250*ms).look(yes(20, 11, 450*ms), "five earned at the new rate").
		take(5, yes(20, 6, 700*ms), "five used").
		set(ten).
		look(yes(10, 6, 400*ms), "six are left, and fit")
	begin(t, tokenBucket, ratelimit.Rate{Requests: 1, Per: 3, Burst: 2}).
		take(2, yes(2, 0, 6), "empty").
		at(4).set(ratelimit.Rate{Requests: 1, Per: 2, Burst: 2}).
		look(yes(2, 1, 2), "1.33 tokens become 1 and no half: rounded down").
		at(5).look(yes(2, 1, 1), "it grows by a half in 1 ns").
		at(3).look(yes(2, 1, 3), "a change moves the key's clock: the time back to it is waited for too")
	begin(t, tokenBucket, ten).
		take(10, yes(10, 0, sec), "empty").
		at(100*ms).set(ratelimit.PerSecond(10).WithBurst(10)).
		at(50*ms).take(1, no(10, 0, 50*ms, 950*ms), "the same rate in other words changes nothing, not even the clock").
		at(100*ms).take(1, yes(10, 0, sec), "0.1 s earned a token")
}

// TestLeakyBucketDelay proves that Delay spaces requests evenly, rounded up to the
// nanosecond.
func TestLeakyBucketDelay(t *testing.T) {
	begin(t, leakyBucket, ratelimit.Rate{Requests: 3, Per: 10, Burst: 4}).
		take(1, delayed(0, yes(4, 3, 4)), "leaves at once").
		take(1, delayed(4, yes(4, 2, 7)), "3.33 ns later, rounded up").
		take(1, delayed(7, yes(4, 1, 10)), "6.67 ns: the rounding does not add up").
		take(1, delayed(10, yes(4, 0, 14)), "exactly 10 ns").
		take(1, no(4, 0, 4, 14), "full").
		at(10).look(delayed(4, yes(4, 3, 4)), "one is left of four").
		at(14).look(delayed(0, yes(4, 4, 0)), "empty")
	begin(t, leakyBucket, ratelimit.PerSecond(10).WithBurst(5)).
		take(3, yes(5, 2, 300*ms), "three at once take three places").
		take(2, delayed(300*ms, yes(5, 0, 500*ms)), "two wait for three").
		take(6, no(5, 0, ratelimit.Never, 500*ms), "six never fit")
}

// TestLeakyBucketSetRate proves that a change of the rate neither admits nor delays the requests in
// the queue.
func TestLeakyBucketSetRate(t *testing.T) {
	five := ratelimit.PerSecond(10).WithBurst(5)
	begin(t, leakyBucket, five).
		take(2, yes(5, 3, 200*ms), "two queued").
		set(ratelimit.PerSecond(10).WithBurst(1000)).
		look(delayed(200*ms, yes(1000, 3, 99_700*ms)), "a raise neither grants nor delays").
		set(five).
		look(delayed(200*ms, yes(5, 3, 200*ms)), "and back: nothing is lost").
		set(ratelimit.PerSecond(10).WithBurst(3)).
		look(delayed(200*ms, yes(3, 1, 200*ms)), "a cut leaves the new burst less what is queued").
		set(ratelimit.PerSecond(10).WithBurst(1)).
		take(1, no(1, 0, 100*ms, 200*ms), "a smaller cut leaves nothing; the two that are queued still leave one by one").
		at(100*ms).look(delayed(100*ms, yes(1, 1, 100*ms)), "one of them has yet to leave").
		at(200*ms).look(yes(1, 1, 0), "as good as new when it has")
	begin(t, leakyBucket, five).
		take(5, yes(5, 0, 500*ms), "full").
		set(ratelimit.PerSecond(20).WithBurst(5)).
		take(1, no(5, 0, 50*ms, 250*ms), "the queue drains at the new rate").
		at(50*ms).take(1, delayed(200*ms, yes(5, 0, 250*ms)), "four are queued")
}

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
		{time.Unix(0, 0), minute, minute, "the epoch is an edge"},
		{time.Unix(0, -1), minute, 1, "a nanosecond before it"},
		{time.Unix(-59, 0), minute, 59 * sec, "before 1970 too"},
		{time.Date(2026, 11, 20, 16, 53, 7, 0, time.UTC), 24 * time.Hour, 7*time.Hour + 6*minute + 53*sec, "a day ends at midnight UTC"},
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
		at(110*sec).set(ratelimit.PerHour(3)).look(yes(3, 1, 58*minute+10*sec), "the count goes into the hour").
		at(105*sec).look(yes(3, 1, 58*minute+15*sec), "a change of Per moves the key's clock").
		at(2*time.Hour).set(ratelimit.PerMinute(3)).look(yes(3, 3, 0), "what has ended is not carried")
}

// TestSlidingWindowLogForgetsUnits proves that each unit leaves the log exactly one window after it
// was granted.
func TestSlidingWindowLogForgetsUnits(t *testing.T) {
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

// TestSlidingWindowLogRing compares the ring buffer of the log, as it grows and wraps around, with
// a plain list of entries.
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

// TestSlidingWindowCounterFades proves to the nanosecond how the weight of the previous window
// falls.
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

// TestSlidingWindowCounterResetAfter proves that ResetAfter ends when nothing counts any more.
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
		set(ratelimit.PerHour(10)).look(yes(10, 5, 118*minute+30*sec), "with another Per the estimate, rounded up, is the count").
		at(60*sec).look(yes(10, 5, 119*minute), "the change has moved the key's clock")
}

const (
	byTokens  = ratelimit.AlgorithmTokenBucket
	byWindow  = ratelimit.AlgorithmFixedWindow
	byLog     = ratelimit.AlgorithmSlidingWindowLog
	byCounter = ratelimit.AlgorithmSlidingWindowCounter
	byLeak    = ratelimit.AlgorithmLeakyBucket
)

// TestMaxIn proves which bound MaxIn returns for each algorithm.
func TestMaxIn(t *testing.T) {
	const year, most = 366 * 24 * time.Hour, math.MaxInt32
	perSecond := ratelimit.PerSecond
	for _, c := range []struct {
		a    ratelimit.Algorithm
		r    ratelimit.Rate
		d    time.Duration
		want uint64
		why  string
	}{
		{byTokens, perSecond(100).WithBurst(20), 10 * time.Second, 1020, "the burst, and what is earned"},
		{byTokens, perSecond(100).WithBurst(20), 10*time.Second - 1, 1019, "the last one is earned at the end"},
		{byTokens, perSecond(100).WithBurst(20), 0, 20, "an instant"},
		{byTokens, perSecond(300).WithBurst(1), time.Second, 300, "with a burst of 1, some of each third nanosecond is lost"},
		{byTokens, perSecond(300).WithBurst(2), time.Second, 302, "with a larger one, nothing is"},
		{byTokens, ratelimit.Rate{Requests: 5, Per: 2, Burst: 2}, 3, 8, "more is earned in a nanosecond than the burst holds"},
		{"", perSecond(1), time.Second, 2, "the empty Algorithm is a token bucket"},
		{byLeak, perSecond(100).WithBurst(20), 10 * time.Second, 1020, "as a token bucket"},

		{byWindow, perSecond(100), 0, 100, "an instant"},
		{byWindow, perSecond(100), 1, 200, "an edge may lie between"},
		{byWindow, perSecond(100), time.Second, 200, "two windows"},
		{byWindow, perSecond(100), time.Second + 1, 300, "a whole window, and one instant on each side"},
		{byWindow, perSecond(100), 10 * time.Second, 1100, "eleven windows"},

		{byLog, perSecond(100), time.Second - 1, 100, "as an interval of a second that is open at one end"},
		{byLog, perSecond(100), time.Second, 200, "at both ends"},
		{byLog, perSecond(100), 10 * time.Second, 1100, "eleven times"},

		{byCounter, perSecond(100), 0, 100, "an instant"},
		{byCounter, perSecond(100), 1, 100, "the window before weighs in full"},
		{byCounter, perSecond(100), time.Second, 199, "twice, but for a weight of one"},
		{byCounter, perSecond(100), 10 * time.Second, 100 + 10*99, "each time a weight of one"},
		{byCounter, perSecond(1), 10 * time.Second, 6, "of a limit of 1, one in every other window"},
		{byCounter, ratelimit.Rate{Requests: 7, Per: 1}, 9, 35, "a window of one instant: every other window"},

		{byTokens, ratelimit.Rate{Requests: most, Per: year, Burst: most}, year, 2 * most, "the largest usual rate"},
		{byTokens, ratelimit.Rate{Requests: most, Per: 1, Burst: most}, math.MaxInt64, math.MaxUint64, "saturates"},
		{byTokens, ratelimit.Rate{Requests: most, Per: 1, Burst: 1}, most, 1 << 31, "all but one are lost"},
		{byWindow, ratelimit.Rate{Requests: most, Per: year}, year, 2 * most, "the largest usual rate"},
		{byWindow, ratelimit.Rate{Requests: most, Per: 1}, math.MaxInt64, math.MaxUint64, "saturates"},
		{byWindow, ratelimit.Rate{Requests: 1, Per: math.MaxInt64}, math.MaxInt64, 2, "the longest window"},
		{byLog, ratelimit.Rate{Requests: 65_536, Per: 1}, math.MaxInt64, math.MaxUint64, "saturates"},
		{byLog, ratelimit.Rate{Requests: 65_536, Per: year}, year, 131_072, "the largest usual rate"},
		{byCounter, ratelimit.Rate{Requests: most, Per: year}, year, 2*most - 1, "the largest usual rate"},
		{byCounter, ratelimit.Rate{Requests: most, Per: 2}, math.MaxInt64, math.MaxUint64, "saturates"},

		{byTokens, perSecond(1), -1, 0, "no interval"},
	} {
		want := int(min(c.want, math.MaxInt))
		assert.Equal(t, want, c.a.MaxIn(c.r, c.d), "%s %v within %v: %s", c.a, c.r, c.d, c.why)
	}
}

// TestMaxInBadInput proves what MaxIn returns for invalid rates, for Unlimited, and for an
// algorithm that this package does not have.
func TestMaxInBadInput(t *testing.T) {
	for _, a := range []ratelimit.Algorithm{byTokens, byWindow, byLog, byCounter, byLeak} {
		for _, r := range []ratelimit.Rate{{}, {Requests: -1, Per: 1}, {Requests: 1}, {Requests: 1, Per: -1}, {Requests: 1, Per: 1, Burst: -1}} {
			assert.Zero(t, a.MaxIn(r, time.Second), "%s: %v is invalid", a, r)
		}
		assert.Equal(t, -1, a.MaxIn(ratelimit.Unlimited, time.Second), "%s: no limit applies", a)
	}
	assert.Zero(t, byWindow.MaxIn(ratelimit.PerSecond(1).WithBurst(2), time.Second), "a window has no burst")
	assert.Zero(t, byLog.MaxIn(ratelimit.PerSecond(65_537), time.Second), "too many for a log")
	assert.Zero(t, byCounter.MaxIn(ratelimit.Rate{Requests: 1, Per: math.MaxInt64}, time.Second), "too long for a counter")
	assert.Equal(t, -1, ratelimit.Algorithm("Cooldown").MaxIn(ratelimit.PerSecond(1), time.Second), "not of this package")
	assert.Equal(t, -1, ratelimit.Algorithm("Cooldown").MaxIn(ratelimit.Rate{}, -1), "not of this package, whatever the rate")
}

// TestAlgorithms proves what a tool can learn of the five algorithms: Windowed says which rates each
// one takes.
func TestAlgorithms(t *testing.T) {
	assert.Equal(t, []ratelimit.Algorithm{
		ratelimit.AlgorithmTokenBucket, ratelimit.AlgorithmLeakyBucket, ratelimit.AlgorithmFixedWindow,
		ratelimit.AlgorithmSlidingWindowCounter, ratelimit.AlgorithmSlidingWindowLog,
	}, ratelimit.Algorithms())
	ratelimit.Algorithms()[0] = "changed"
	assert.Equal(t, ratelimit.AlgorithmTokenBucket, ratelimit.Algorithms()[0], "each call returns a list of its own")
	for _, a := range ratelimit.Algorithms() {
		rule := ratelimit.Rule{Endpoint: "/a", Algorithm: a, Rate: ratelimit.PerMinute(5)}
		_, err := ratelimit.New([]ratelimit.Rule{rule}, nil)
		require.NoError(t, err, a)
		bursty := rule
		bursty.Rate.Burst = 7
		_, err = ratelimit.New([]ratelimit.Rule{bursty}, nil)
		assert.Equal(t, a.Windowed(), err != nil, "%s refuses a burst", a)
		rule.Tiers = map[string]ratelimit.Rate{"paid": ratelimit.PerHour(500)}
		_, err = ratelimit.New([]ratelimit.Rule{rule}, nil)
		assert.Equal(t, a.Windowed(), err != nil, "%s refuses a tier with another Per", a)
	}
	assert.False(t, ratelimit.Algorithm("Custom").Windowed())
}
