package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/ratelimit-go/ratelimit"
)

const (
	byTokens  = ratelimit.AlgorithmTokenBucket
	byWindow  = ratelimit.AlgorithmFixedWindow
	byLog     = ratelimit.AlgorithmSlidingWindowLog
	byCounter = ratelimit.AlgorithmSlidingWindowCounter
	byLeak    = ratelimit.AlgorithmLeakyBucket
)

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
