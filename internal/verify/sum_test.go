package verify

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestSum makes requests from many goroutines while the clock stands still. Whatever their
// order, exactly as many units must be granted as there are, or as are asked for.
func TestSum(t *testing.T) {
	asks := scaled(2000)
	for _, c := range []struct {
		goroutines, units, limit int
		why                      string
	}{
		{8, 1, 1000, "fewer units are there than are asked for"},
		{8, 1, 1 << 16, "all units that are asked for are there"},
		{8, 3, 1000, "one unit is left, which is too few for any request"},
		{3, 7, 700, "the last ask takes the last unit"},
		{16, 1, 1, "there is only one unit"},
	} {
		for _, procs := range []int{1, 2, 4} {
			t.Run(c.why+"/procs="+strconv.Itoa(procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				want := min(c.goroutines*asks, c.limit/c.units)
				for _, a := range algorithms {
					got := granted(t, a, c.limit, c.goroutines, asks, c.units, ratelimit.WithClock(ratelimit.NewFakeClock(starts[0])))
					require.Equal(t, want, got, "%s: asks granted", a.name)
				}
			})
		}
	}
}

// TestSumOnTheMachinesClock does the same on the machine's clock, at rates that earn
// nothing while the test runs. Aligned windows are left out, because one might end in the
// meantime.
func TestSumOnTheMachinesClock(t *testing.T) {
	asks := scaled(2000)
	for _, a := range algorithms {
		if a.name == "FixedWindow" || a.name == "SlidingWindowCounter" {
			continue
		}
		require.Equal(t, 1000, granted(t, a, 1000, 8, max(asks, 200), 1), a.name)
	}
}

// granted makes asks for units from all goroutines at once, and returns how many are
// granted. The limit earns less than one unit in the meantime.
func granted(t *testing.T, a algorithm, limit, goroutines, asks, units int, opts ...ratelimit.Option) int {
	l := a.start(t, a.rate(ratelimit.Rate{Requests: limit, Per: 10000 * day}), opts...)
	var sum atomic.Int64
	var done sync.WaitGroup
	ready := make(chan struct{})
	for g := range goroutines {
		done.Go(func() {
			<-ready
			for i := range asks {
				if units == 1 && (g+i)%2 == 0 {
					if l.Allow("k").Allowed {
						sum.Add(1)
					}
				} else if res, _ := l.Take(context.Background(), "k", units); res.Allowed {
					sum.Add(1)
				}
			}
		})
	}
	close(ready)
	done.Wait()
	return int(sum.Load())
}

// TestSumOverGrowth asks for many keys at once, so that shards split in the meantime. No
// key may get more or less than the limit.
func TestSumOverGrowth(t *testing.T) {
	const perKey = 3
	for _, a := range algorithms {
		keys := scaled(20000)
		l := a.start(t, a.rate(ratelimit.Rate{Requests: perKey, Per: time.Hour}), ratelimit.WithClock(ratelimit.NewFakeClock(starts[0])))
		var sum atomic.Int64
		var done sync.WaitGroup
		for g := range 5 {
			done.Go(func() {
				for i := range keys {
					if l.Allow(strconv.Itoa((i + g*keys/5) % keys)).Allowed {
						sum.Add(1)
					}
				}
			})
		}
		done.Wait()
		require.EqualValues(t, perKey*keys, sum.Load(), a.name)
		require.Equal(t, keys, l.Len(), a.name)
	}
}
