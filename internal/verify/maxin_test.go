package verify

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestMaxIn has limiters grant as much as they do at all instants of an interval, or, for a counter,
// at the ends of its windows: that is what MaxIn says. At random instants they grant no more.
func TestMaxIn(t *testing.T) {
	oneGoroutine(t)
	r := rand.New(rand.NewPCG(12, 5))
	for _, a := range algorithms {
		name := ratelimit.Algorithm(a.name)
		for range 1000 {
			rate := ratelimit.Rate{Requests: 1 + r.IntN(9), Per: time.Duration(1 + r.IntN(9))}
			if a.bucket {
				rate.Burst = r.IntN(5)
			}
			length, most := r.IntN(25), 0
			for offset := range int(rate.Per) {
				start := time.Unix(0, int64(rate.Per)*1e15+int64(offset))
				clock := ratelimit.NewFakeClock(start)
				l, err := a.make(rate, ratelimit.WithClock(clock))
				require.NoError(t, err)
				greedy, random := 0, 0
				for at := range length + 1 {
					if name != ratelimit.AlgorithmSlidingWindowCounter || at == length || (offset+at+1)%int(rate.Per) == 0 {
						greedy += takeLeft(t, l, "greedy", math.MaxInt)
					}
					random += takeLeft(t, l, "random", r.IntN(4))
					clock.Advance(1)
				}
				require.LessOrEqual(t, random, name.MaxIn(rate, time.Duration(length)), "%s %v within %d ns", name, rate, length)
				most = max(most, greedy)
			}
			require.Equal(t, most, name.MaxIn(rate, time.Duration(length)), "%s %v within %d ns", name, rate, length)
		}
	}
}

// takeLeft takes n units for key, or as many as are left, and returns how many.
func takeLeft(t *testing.T, l limiter, key string, n int) int {
	n = min(n, l.Peek(key).Remaining)
	if n > 0 {
		res, err := l.Take(t.Context(), key, n)
		require.NoError(t, err)
		require.True(t, res.Allowed)
	}
	return n
}

// TestMaxInOfExtremes: at the ends of the ranges, MaxIn saturates and does not wrap.
func TestMaxInOfExtremes(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		a    ratelimit.Algorithm
		r    ratelimit.Rate
		d    time.Duration
		want uint64
	}{
		{ratelimit.AlgorithmTokenBucket, ratelimit.Rate{Requests: math.MaxInt32, Per: 366 * day, Burst: math.MaxInt32}, 366 * day, 2 * math.MaxInt32},
		{ratelimit.AlgorithmTokenBucket, ratelimit.Rate{Requests: math.MaxInt32, Per: 1, Burst: math.MaxInt32}, math.MaxInt64, math.MaxUint64},
		{ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: math.MaxInt32, Per: 1}, math.MaxInt64, math.MaxUint64},
		{ratelimit.AlgorithmSlidingWindowLog, ratelimit.Rate{Requests: 65_536, Per: 1}, math.MaxInt64, math.MaxUint64},
		{ratelimit.AlgorithmSlidingWindowCounter, ratelimit.Rate{Requests: math.MaxInt32, Per: 366 * day}, 366 * day, 2*math.MaxInt32 - 1},
		{ratelimit.AlgorithmSlidingWindowCounter, ratelimit.Rate{Requests: math.MaxInt32, Per: 3}, math.MaxInt64, math.MaxUint64},
		{ratelimit.AlgorithmSlidingWindowCounter, ratelimit.Rate{Requests: 1, Per: 1}, 1_000_001, 500_001},
	} {
		assert.Equal(t, int(min(c.want, math.MaxInt)), c.a.MaxIn(c.r, c.d), "%s %v within %v", c.a, c.r, c.d)
	}
}
