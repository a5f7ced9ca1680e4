package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// heap returns the bytes in use, after what can be freed has been freed.
func heap() uint64 {
	for range 3 {
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// longKey returns an ask for a key of size bytes.
func longKey(i, size int, r ratelimit.Rate, n int) ratelimit.Ask {
	return ratelimit.Ask{Rule: "rule", Key: fmt.Sprint(i, strings.Repeat("k", size)), Algorithm: ratelimit.AlgorithmTokenBucket, Rate: r, N: n}
}

// TestDeniedKeysInBytes denies 16,000 keys of 16 kB, and checks how much memory the denial cache
// holds afterwards.
func TestDeniedKeysInBytes(t *testing.T) {
	store := newStore(t, startReal(t).client(t), redisstore.WithDenialCache(time.Hour))
	const keys = 16_000
	before := heap()
	eachOf(8, keys, func(i int) {
		u := longKey(i, 16<<10, yearly(1), 1)
		for range 2 {
			if _, err := store.Take(context.Background(), []ratelimit.Ask{u}); err != nil {
				t.Error(err)
			}
		}
	})
	held := int64(heap()) - int64(before)
	assert.Greater(t, store.Denials(), keys*8/10)
	assert.Less(t, held, int64(8<<20))
	t.Logf("%d denied keys of 16 kB hold %.1f MiB", store.Denials(), float64(held)/(1<<20))
}

// TestLeasedKeysInBytes takes units ahead for 2,000 keys of 40 kB, and checks how much memory the
// leases hold afterwards.
func TestLeasedKeysInBytes(t *testing.T) {
	store := newStore(t, startReal(t).client(t), redisstore.WithLeases(100))
	before := heap()
	eachOf(8, 2000, func(i int) {
		u := longKey(i, 40<<10, yearly(100_000), 1)
		for range 3 {
			if _, err := store.Take(context.Background(), []ratelimit.Ask{u}); err != nil {
				t.Error(err)
			}
		}
	})
	held := int64(heap()) - int64(before)
	assert.Positive(t, store.Stats().Leased)
	assert.Less(t, held, int64(8<<20))
	t.Logf("leases of 2,000 keys of 40 kB hold %.1f MiB", float64(held)/(1<<20))
	require.NoError(t, store.Close())
}

// TestStaleDropped denies keys, and others when the first are not believed any more. It checks
// that the first are dropped, although nobody asks for them again.
func TestStaleDropped(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, start(t).client(t), redisstore.WithClock(clock), redisstore.WithDenialCache(time.Second))
	deny := func(first, n int) {
		eachOf(8, n, func(i int) {
			u := longKey(first+i, 8, ratelimit.PerDay(1), 1)
			for range 2 {
				_, err := store.Take(context.Background(), []ratelimit.Ask{u})
				assert.NoError(t, err)
			}
		})
	}
	deny(0, 2000)
	require.Equal(t, 2000, store.Denials())
	clock.Advance(2 * time.Second)
	deny(2000, 4000)
	assert.Less(t, store.Denials(), 4400, "the first 2,000 are stale")
}
