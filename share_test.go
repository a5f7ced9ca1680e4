package ratelimit

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShareOfAReplica(t *testing.T) {
	const year = 366 * day
	for _, tt := range []struct {
		rate     Rate
		replicas int
		windowed bool
		want     Rate
		why      string
	}{
		{PerSecond(10), 1, false, Rate{10, time.Second, 10}, "all of it"},
		{PerSecond(10), 3, false, Rate{10, 3 * time.Second, 3}, "the refill is exact, the burst rounded down"},
		{PerSecond(12), 4, false, Rate{3, time.Second, 3}, "in the smallest numbers"},
		{PerSecond(12).WithBurst(2), 8, false, Rate{3, 2 * time.Second, 1}, "at least one at once"},
		{PerMinute(10), 3, true, Rate{Requests: 3, Per: time.Minute}, "a window keeps its length"},
		{PerMinute(2), 3, true, Rate{Requests: 1, Per: time.Minute}, "and at least one"},
		{Rate{1, year, 1000}, 291, false, Rate{1, 291 * year, 3}, "as long as a Duration holds"},
		{Rate{1, year, 1000}, 1000, false, Rate{1, math.MaxInt64, 1}, "longer is as long as that"},
	} {
		assert.Equal(t, tt.want, FailLocal(tt.replicas).share(tt.rate, tt.windowed), tt.why)
	}
}

// TestShareIsNeverMore compares what is rounded with the exact share.
func TestShareIsNeverMore(t *testing.T) {
	for _, requests := range []int{2, 3, 1000, math.MaxInt32} {
		for _, per := range []time.Duration{366 * day, math.MaxInt64} {
			for _, replicas := range []int{2, 293, 1000, 99_991, math.MaxInt32} {
				rate := Rate{Requests: requests, Per: per}
				share := FailLocal(replicas).share(rate, false)
				require.NoError(t, share.Validate())
				got := big.NewRat(int64(share.Requests), int64(share.Per))
				want := big.NewRat(int64(requests), int64(per))
				want.Quo(want, big.NewRat(int64(replicas), 1))
				least := big.NewRat(1, math.MaxInt64) // where less than that were its share
				if want.Cmp(least) < 0 {
					want = least
				}
				assert.LessOrEqual(t, got.Cmp(want), 0, "%v of %d: %v", rate, replicas, share)
				next := big.NewRat(int64(share.Requests)+1, int64(share.Per))
				assert.Positive(t, next.Cmp(want), "%v of %d: %v is not the nearest", rate, replicas, share)
			}
		}
	}
}
