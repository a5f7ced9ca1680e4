package ratelimittest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// rated returns a rate. The burst is 0 for a window.
func rated(requests int, per time.Duration, burst int) ratelimit.Rate {
	return ratelimit.Rate{Requests: requests, Per: per, Burst: burst}
}

// adoptions are changes of the rate that are not announced, and what they leave: units, and
// the queue of a leaky bucket.
var adoptions = []struct {
	algorithm ratelimit.Algorithm
	from      ratelimit.Rate
	use       int // units taken at 0
	to        ratelimit.Rate
	at        time.Duration
	remaining int
	delay     time.Duration
	why       string
}{
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 5, rated(1, 20, 5), 40, 2, 0, "slower: the time has earned at the new rate"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 20, 5), 5, rated(1, 10, 5), 40, 2, 0, "the new rate is faster, so the old one counts"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 20, 5), 0, rated(1, 10, 9), 40, 9, 0, "a key that was never charged is new"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 5, rated(1, 20, 9), 999, 9, 0, "full by then, so it is as a new key"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 5, rated(1, 20, 9), 50, 9, 0, "full at the only rate of its charges, so it is new"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 5, rated(1, 20, 9), 49, 2, 0,
		"not yet full, so the time has earned at the slower rate, and a higher burst grants nothing"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 5, rated(1, 20, 3), 50, 3, 0, "as a new key, also with a smaller burst"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 3, rated(1, 20, 2), 20, 2, 0, "three are left, and two fit"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 3, rated(1, 20, 2), 0, 2, 0, "two are left, and fit"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 10, 5), 3, rated(1, 20, 2), 59, 2, 0, "nearly full, and two fit"},
	{ratelimit.AlgorithmTokenBucket, rated(1, 3, 5), 5, rated(1, 7, 5), 14, 2, 0, "two sevenths of the units of the old rate do not matter"},
	{ratelimit.AlgorithmLeakyBucket, rated(1, 10, 5), 4, rated(1, 20, 5), 20, 2, 60, "three are queued, at the slower rate"},
	{ratelimit.AlgorithmLeakyBucket, rated(1, 20, 5), 4, rated(1, 10, 5), 20, 2, 30, "three are queued, and leave faster"},
	{ratelimit.AlgorithmLeakyBucket, rated(1, 10, 5), 4, rated(1, 20, 8), 20, 2, 60, "a higher burst delays no request"},
	{ratelimit.AlgorithmLeakyBucket, rated(1, 10, 5), 4, rated(1, 20, 8), 40, 8, 0, "drained at the only rate of its charges, so it is new"},
	{ratelimit.AlgorithmLeakyBucket, rated(1, 10, 5), 4, rated(1, 20, 8), 39, 2, 41, "not yet drained, and a higher burst grants nothing"},
	{ratelimit.AlgorithmLeakyBucket, rated(1, 10, 5), 4, rated(1, 10, 2), 10, 0, 0, "the queue is longer than the burst"},
	{ratelimit.AlgorithmFixedWindow, rated(5, 100, 0), 3, rated(9, 100, 0), 20, 6, 0, "the count stays"},
	{ratelimit.AlgorithmFixedWindow, rated(5, 100, 0), 3, rated(2, 100, 0), 20, 0, 0, "more was used than the new limit"},
	{ratelimit.AlgorithmFixedWindow, rated(5, 10, 0), 3, rated(5, 100, 0), 9, 2, 0, "the count is carried into a longer window"},
	{ratelimit.AlgorithmFixedWindow, rated(5, 10, 0), 3, rated(5, 100, 0), 10, 5, 0, "by the old Per the window has ended"},
	{ratelimit.AlgorithmFixedWindow, rated(5, 100, 0), 3, rated(5, 10, 0), 55, 2, 0, "carried into the shorter window that contains now"},
	{ratelimit.AlgorithmSlidingWindowLog, rated(5, 10, 0), 3, rated(5, 100, 0), 10, 5, 0, "entries that have left do not come back"},
	{ratelimit.AlgorithmSlidingWindowLog, rated(5, 10, 0), 3, rated(5, 100, 0), 9, 2, 0, "entries that have not left stay longer"},
	{ratelimit.AlgorithmSlidingWindowCounter, rated(5, 10, 0), 3, rated(5, 100, 0), 15, 3, 0, "half of three, rounded up, is carried"},
}

func TestAdopt(t *testing.T) {
	for _, row := range adoptions {
		start := time.Unix(0, 0)
		m := algorithmNamed(row.algorithm).model(start, row.from).(keeper)
		if row.use > 0 {
			assert.True(t, m.Ask(start, row.use).Allowed)
		}
		at := start.Add(row.at)
		looked := m.clone()
		looked.adopt(at, row.to)
		m.adopt(at, row.to)
		res := m.peek(at, 1)
		assert.Equal(t, row.remaining, res.Remaining, "%s: %s", row.algorithm, row.why)
		assert.Equal(t, row.delay, res.Delay, "%s: %s", row.algorithm, row.why)
		m.adopt(at, row.to)
		assert.Equal(t, res, m.peek(at, 1), "%s: a second time it changes something", row.algorithm)
		m.Ask(at, 1)
		assert.Equal(t, res, looked.peek(at, 1), "%s: a clone changes with it", row.algorithm)
	}
}

// TestAdoptNeverGrants charges a bucket at one rate or at two, and then changes its rate without an announcement. This never
// leaves more than if the change had been announced at any instant since the last charge, with two exceptions. A bucket that
// is full at the slower one of the old and the new rate stays full. And a bucket is new, and so full, from the instant on at
// which it would be full if it had earned units, since its last charge, at the slowest rate of its charges.
func TestAdoptNeverGrants(t *testing.T) {
	start := time.Unix(0, 0)
	charged := start.Add(20)
	rates := []ratelimit.Rate{
		{Requests: 1, Per: 5}, {Requests: 3, Per: 10}, {Requests: 3, Per: 10, Burst: 6},
		{Requests: 1, Per: 7, Burst: 5}, {Requests: 2, Per: 3, Burst: 1},
	}
	for _, model := range []func(time.Time, ratelimit.Rate) Model{TokenBucketModel, LeakyBucketModel} {
		for _, first := range rates {
			for _, from := range rates {
				used, slowest := model(start, first).(keeper), from
				require.True(t, used.Ask(start, burst(first)).Allowed)
				if slower(first, from) && used.peek(charged, 0).ResetAfter > 0 {
					slowest = first
				}
				used.adopt(charged, from)
				if !used.Ask(charged, max(1, used.peek(charged, 0).Remaining)).Allowed {
					continue // the queue of a leaky bucket is longer than the burst
				}
				for _, to := range rates {
					adoptsLate(t, used, charged, from, slowest, to)
				}
			}
		}
	}
}

// adoptsLate checks what TestAdoptNeverGrants promises of a bucket that was last charged at the given instant and at the rate
// from, for changes to the rate to until the bucket is new. The rate slowest is the slowest one of its charges.
func adoptsLate(t *testing.T, used keeper, charged time.Time, from, slowest, to ratelimit.Rate) {
	drains := func(r ratelimit.Rate) keeper { // the bucket, if it earns units at the rate r from its last charge on
		m := used.clone()
		m.SetRate(charged, r.WithBurst(burst(from)))
		return m
	}
	atSlowest, atSlower := drains(slowest), used
	if slower(to, from) {
		atSlower = drains(to)
	}
	for now := time.Duration(0); ; now++ {
		at := charged.Add(now)
		quiet := used.clone()
		quiet.adopt(at, to)
		got, isNew := quiet.peek(at, 0).Remaining, atSlowest.peek(at, 0).ResetAfter == 0
		if isNew || atSlower.peek(at, 0).ResetAfter == 0 {
			require.Equal(t, burst(to), got, "%v to %v at %v, with charges at %v", from, to, now, slowest)
			if isNew {
				return
			}
			continue
		}
		for v := range now + 1 {
			told := used.clone()
			told.SetRate(charged.Add(v), to)
			most := told.peek(at, 0).Remaining
			require.LessOrEqual(t, got, most, "%v to %v: more remains at %v than if the rate had changed at %v", from, to, now, v)
		}
	}
}
