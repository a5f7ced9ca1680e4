package verify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// greedy takes all units of key, and returns how many these were.
func greedy(t *testing.T, l limiter, key string) int {
	n := l.Peek(key).Remaining
	if n == 0 {
		if l.Allow(key).Allowed {
			t.Fatal("a unit was granted although none remained")
		}
		return 0
	}
	if res, err := l.Take(context.Background(), key, n); err != nil || !res.Allowed || res.Remaining != 0 {
		t.Fatalf("Take of the %d that remained: %+v, %v", n, res, err)
	}
	return n
}

// TestWorstCaseOfFixedWindowIsTwiceItsLimit takes the limit at the last instant of one
// window, and again at the first instant of the next.
func TestWorstCaseOfFixedWindowIsTwiceItsLimit(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 10, 100} {
		clock := &manualClock{time.Unix(0, 0)}
		l := algorithms[1].start(t, ratelimit.PerMinute(limit), ratelimit.WithClock(clock))
		clock.now = time.Unix(60, -1)
		taken := greedy(t, l, "k")
		clock.now = time.Unix(60, 0)
		taken += greedy(t, l, "k")
		require.Equal(t, 2*limit, taken)
		clock.now = time.Unix(120, -1)
		require.Zero(t, greedy(t, l, "k"), "the bound holds until the window ends")
		t.Logf("limit %d: %d within 1 ns", limit, taken)
	}
}

// TestWorstCaseOfSlidingCounterIsItsBound takes the limit at the last instant of a window,
// and then each unit as soon as it is free.
func TestWorstCaseOfSlidingCounterIsItsBound(t *testing.T) {
	for _, limit := range []int{1, 2, 3, 6, 10, 100} {
		for _, per := range []time.Duration{2 * time.Duration(limit), time.Minute} {
			edge := time.Unix(0, 0).Add(per)
			clock := &manualClock{time.Unix(0, 0)}
			l := algorithms[3].start(t, ratelimit.Rate{Requests: limit, Per: per}, ratelimit.WithClock(clock))
			clock.now = edge.Add(-1)
			first := clock.now
			taken := greedy(t, l, "k")
			for {
				wait := l.Allow("k").RetryAfter
				require.Positive(t, wait)
				clock.now = clock.now.Add(wait)
				if clock.now.Sub(first) >= per {
					break
				}
				taken += greedy(t, l, "k")
			}
			require.Equal(t, 2*limit-1, taken, "limit %d, per %v", limit, per)
			t.Logf("limit %d per %v: %d within one half-open Per", limit, per, taken)
		}
	}
}

// TestWorstCaseOfSlidingCounterNeedsTime shows that a Per of fewer than 2·limit ns is too
// short for the bound to be reached.
func TestWorstCaseOfSlidingCounterNeedsTime(t *testing.T) {
	const limit, per = 10, 19
	clock := &manualClock{time.Unix(0, per-1)}
	l := algorithms[3].start(t, ratelimit.Rate{Requests: limit, Per: per}, ratelimit.WithClock(clock))
	taken := 0
	for range per {
		taken += greedy(t, l, "k")
		clock.now = clock.now.Add(1)
	}
	require.Less(t, taken, 2*limit-1)
}

// TestWorstCaseOfSlidingLogIsItsLimit does with a log what leads the others to their worst
// case.
func TestWorstCaseOfSlidingLogIsItsLimit(t *testing.T) {
	for _, limit := range []int{1, 2, 10, 100} {
		const per = time.Minute
		clock := &manualClock{time.Unix(60, -1)}
		l := algorithms[2].start(t, ratelimit.Rate{Requests: limit, Per: per}, ratelimit.WithClock(clock))
		taken := greedy(t, l, "k")
		clock.now = clock.now.Add(per - 1)
		taken += greedy(t, l, "k")
		require.Equal(t, limit, taken, "at most the limit in a half-open Per")
		clock.now = clock.now.Add(1)
		require.Equal(t, limit, greedy(t, l, "k"), "an entry that is exactly Per old does not count")
	}
}

// TestWorstCaseOfBucketsIsBurstAndWhatIsEarned takes the burst, and then everything that
// the time earns, in closed intervals of several lengths.
func TestWorstCaseOfBucketsIsBurstAndWhatIsEarned(t *testing.T) {
	for _, a := range []algorithm{algorithms[0], algorithms[4]} {
		for _, c := range []struct {
			rate   ratelimit.Rate
			length time.Duration
			want   int
		}{
			{ratelimit.PerSecond(10).WithBurst(5), 0, 5},
			{ratelimit.PerSecond(10).WithBurst(5), 100*time.Millisecond - 1, 5},
			{ratelimit.PerSecond(10).WithBurst(5), 100 * time.Millisecond, 6},
			{ratelimit.PerSecond(10).WithBurst(5), time.Minute, 605},
			{ratelimit.PerSecond(3).WithBurst(2), 1000 * time.Second, 3002},
			{ratelimit.Rate{Requests: 7, Per: 97, Burst: 4}, 97 * 1000, 7004},
			{ratelimit.PerDay(1).WithBurst(9), 1000 * day, 1009},
		} {
			clock := &manualClock{starts[0]}
			l := a.start(t, c.rate, ratelimit.WithClock(clock))
			end := clock.now.Add(c.length)
			taken := greedy(t, l, "k")
			for {
				next := clock.now.Add(l.Allow("k").RetryAfter)
				if next.After(end) {
					break
				}
				clock.now = next
				taken += greedy(t, l, "k")
			}
			require.Equal(t, c.want, taken, "%s, %v in %v", a.name, c.rate, c.length)
		}
	}
}
