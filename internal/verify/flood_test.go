package verify

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// mostBytes is how many bytes a key may take on average, including the free space around
// it. A log that begins with a shared debt has two entries at once, and therefore a ring of
// four.
func mostBytes(a algorithm) float64 {
	if a.name == "SlidingWindowLog" {
		return 128 + 4*16
	}
	return 128
}

// TestFlood asks for two million random keys of a limiter that has room for a hundred
// thousand. It checks that the table never holds more, that a key which was there before
// gets exactly what it would get alone, and that the memory stays within a bound.
func TestFlood(t *testing.T) {
	flood, room := 2_000_000, 100_000
	if raceEnabled || testing.Short() {
		flood, room = flood/20, room/20
	}
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			r := a.rate(ratelimit.Rate{Requests: 10, Per: 10 * time.Minute, Burst: 10})
			clock := &manualClock{time.Unix(0, 0)}
			before := heap()
			l := a.start(t, r, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(room))
			alone := a.start(t, r, ratelimit.WithClock(&sinceStart{clock, true}))
			random := rand.New(rand.NewPCG(1, 2))
			admitted, overAdmitted, most := 0, 0, 0
			for i := range flood {
				clock.now = clock.now.Add(time.Microsecond)
				if i%10000 == 0 {
					// The key is never as good as new, so it never makes room.
					clock.now = clock.now.Add(time.Second)
					got, want := l.Allow(victim), alone.Allow(victim)
					if got.Allowed && !want.Allowed {
						overAdmitted++
					}
					require.Equal(t, want, got)
				}
				if l.Allow(strconv.FormatUint(random.Uint64(), 36)).Allowed {
					admitted++
				}
				most = max(most, l.Len())
			}
			perKey := (heap() - before) / float64(room)
			t.Logf("%s: %d random keys, %d admitted, at most %d kept (of %d), victim over-admitted %d, %.1f bytes per key",
				a.name, flood, admitted, most, room, overAdmitted, perKey)
			require.LessOrEqual(t, most, room)
			require.Equal(t, room, most, "the bound was reached")
			require.Less(t, perKey, mostBytes(a))
			runtime.KeepAlive(l)
		})
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() float64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
