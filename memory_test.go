package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestKeysShareADebtAtMaxKeys proves that keys beyond the bound share one debt, which is
// never forgiven, and that a key with a slot does not pay for them.
func TestKeysShareADebtAtMaxKeys(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
		spend(t, l, "first", 1)
		first := l.Peek("first")
		spend(t, l, "second", 2)
		assert.Equal(t, 1, l.Len())
		assert.Equal(t, first, l.Peek("first"), "a key with a slot does not pay for other keys")
		assert.Equal(t, 1, l.Peek("third").Remaining, "a key without a slot owes what all of them took")
		assert.Equal(t, l.Peek("second"), l.Peek("third"))
		spend(t, l, "third", 1)
		denied(t, l, "second")
		denied(t, l, "third")
		require.ErrorIs(t, l.Reset("third"), ratelimit.ErrNotReset, "it has no slot, so there is nothing of its own to reset")
		denied(t, l, "third")

		clock.Advance(24 * time.Hour)
		for _, key := range []string{"second", "third"} {
			spend(t, l, key, 3)
			assert.Equal(t, 1, l.Len())
			denied(t, l, key)
			clock.Advance(24 * time.Hour)
		}
	})
}

// TestASharedLogKeepsItsEntries proves that units leave the shared debt of a sliding window
// log one by one.
func TestASharedLogKeepsItsEntries(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	l := algorithm{"sliding window log", slidingLog}.start(t, ratelimit.PerMinute(3),
		ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
	for range 3 {
		spend(t, l, "first", 1) // this key has the only slot
		spend(t, l, "second", 1)
		clock.Advance(20 * sec)
	}
	assert.Equal(t, yes(3, 1, 40*sec), l.Peek("third"), "units leave a shared log one by one")
}

// TestAFloodWinsNothing proves that a flood of keys gets no key more than its limit, and no
// more slots than the bound.
func TestAFloodWinsNothing(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(3), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)), ratelimit.WithMaxKeys(40))
		granted := make(map[string]int)
		r := rand.New(rand.NewPCG(3, 3))
		for range 3000 {
			key := strconv.Itoa(r.IntN(200))
			if r.IntN(20) == 0 {
				if err := l.Reset(key); l.Peek(key).Remaining == 3 {
					require.NoError(t, err)
					granted[key] = 0
				}
			}
			if l.Allow(key).Allowed {
				granted[key]++
			}
			require.LessOrEqual(t, granted[key], 3, "the clock stands still, and %s got more than the limit", key)
			require.LessOrEqual(t, l.Len(), 40)
		}
	})
}

// TestALimiterWithoutKeysIsSmall proves that a limiter that has seen no key keeps less than
// a kilobyte.
func TestALimiterWithoutKeysIsSmall(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		const limiters = 1000
		kept := make([]limiter, limiters)
		opt := ratelimit.WithClock(ratelimit.NewFakeClock(epoch))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i] = a.start(t, ratelimit.PerMinute(5), opt)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		assert.Less(t, int64(after.HeapAlloc-before.HeapAlloc)/limiters, int64(1024), "bytes that a limiter keeps")
		runtime.KeepAlive(kept)
	})
}

// TestNoKeyIsKeptAlive proves that a limiter keeps no reference to the bytes of a key.
func TestNoKeyIsKeptAlive(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		l := a.start(t, ratelimit.PerMinute(5), ratelimit.WithClock(ratelimit.NewFakeClock(epoch)))
		bytes := useOwnKey(t, l)
		runtime.GC()
		assert.Nil(t, bytes.Value(), "the bytes of a key are still reachable")
		assert.Equal(t, 1, l.Len())
		runtime.KeepAlive(l)
	})
}

// useOwnKey calls every method of l with a key in memory of its own, and returns a weak
// pointer to that memory.
//
//go:noinline
func useOwnKey(t *testing.T, l limiter) weak.Pointer[[64]byte] {
	bytes := new([64]byte)
	copy(bytes[:], "a client's key in a buffer of its own")
	key := unsafe.String(&bytes[0], len(bytes))
	spend(t, l, key, 1)
	take(t, l, key, 2)
	l.Peek(key)
	require.NoError(t, l.Reset(key))
	_, err := l.Wait(t.Context(), key, 1)
	require.NoError(t, err)
	return weak.Make(bytes)
}

// TestAnswersWhileKeysComeAndGo proves that the answers for one key are those it would get
// alone, while other keys appear, are reset and are forgotten.
func TestAnswersWhileKeysComeAndGo(t *testing.T) {
	overAll(t, func(t *testing.T, a algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		alone := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		crowded := a.start(t, ratelimit.PerSecond(7), ratelimit.WithClock(clock))
		var wg sync.WaitGroup
		for c := range uint64(2) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(c, 9))
				for range 3000 {
					key := strconv.Itoa(r.IntN(500))
					crowded.Allow(key)
					if r.IntN(9) == 0 {
						_ = crowded.Reset(key)
					}
				}
			})
		}
		r := rand.New(rand.NewPCG(4, 4))
		for range 1000 {
			clock.Advance(time.Duration(r.IntN(200)) * ms)
			n := r.IntN(4)
			require.Equal(t, take(t, alone, "key", n), take(t, crowded, "key", n))
		}
		wg.Wait()
	})
}

// TestRuleWithoutKeysIsSmall proves that a rule that has decided nothing keeps less than
// 1,600 bytes.
func TestRuleWithoutKeysIsSmall(t *testing.T) {
	const count = 10_000
	var rs []ratelimit.Rule
	for i := range count {
		rs = append(rs, ratelimit.Rule{Endpoint: fmt.Sprintf("/%d", i), Rate: ratelimit.PerHour(1)})
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	l, err := ratelimit.New(rs, nil)
	require.NoError(t, err)
	each := (heap() - before) / count
	assert.Less(t, each, int64(1600), "bytes that a rule keeps")
	runtime.KeepAlive(l)
	runtime.KeepAlive(rs)
}
