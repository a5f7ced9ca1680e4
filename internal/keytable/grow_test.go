package keytable

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGrowthMovesFewKeysAtATime(t *testing.T) {
	const keys = 200_000
	// A shard of fewer than fullKeys keys gets slots for bound of them. One more key splits
	// it.
	bound := capacity(sizeFor(fullKeys - 1))
	table := newDebts(1 << 20)
	most := 0
	for i := range keys {
		h := HashOf(strconv.Itoa(i))
		s := table.Lock(h)
		_, now := s.Owed(at(i))
		state := s.Newcomer(now)
		state.until = math.MaxUint64
		most = max(most, s.count+1) // number of keys that a rebuild would move
		s.Insert(h, state, now)
		s.Unlock()
		if i%50_000 == 0 {
			table.check(t)
		}
	}
	table.check(t)
	assert.Equal(t, keys, table.Len())
	assert.LessOrEqual(t, most, bound+1)
	for _, s := range table.shards() {
		require.LessOrEqual(t, s.count, bound)
	}
	for i := range keys {
		require.True(t, has(table, HashOf(strconv.Itoa(i))), "key %d is lost", i)
	}
}

func TestAFewKeysSplitEarly(t *testing.T) {
	// Hot keys should not share a lock. A table therefore has eight shards for each
	// processor before one of its shards grows large.
	table := newDebts(1 << 20)
	want := 8 * runtime.GOMAXPROCS(0)
	for i := range 16 * want {
		owe(table, spread(i, 16*want), at(0), time.Hour)
	}
	table.check(t)
	assert.GreaterOrEqual(t, len(table.shards()), want)
}

func TestSmallBoundsKeepShardsLarge(t *testing.T) {
	// Room is made within one shard, so each shard must hold enough keys to find an idle
	// one.
	for _, maxKeys := range []int{1, 31, 32, 63, 64, 100, 1000, 5000} {
		table := newDebts(maxKeys)
		for i := range maxKeys {
			owe(table, spread(i, maxKeys), at(0), time.Hour)
		}
		table.check(t)
		shards := len(table.shards())
		assert.True(t, shards == 1 || maxKeys/shards >= minShardKeys, "%d keys in %d shards", maxKeys, shards)
	}
}

func TestIdleKeysAreForgottenInsteadOfGrowing(t *testing.T) {
	table := newDebts(1 << 20)
	for i := range 100_000 {
		owe(table, Hash{uint64(i)*0x9e3779b97f4a7c15 | 1, uint64(i)}, at(i), 100)
	}
	table.check(t)
	counts := table.Counts()
	assert.Equal(t, 100_000, table.Len()+int(counts.Evicted), "each key has a slot or was evicted")
	assert.Less(t, table.Len(), 5000, "only a hundred keys owe anything at one instant")
	assert.Zero(t, counts.Overflowed)
}

func TestConcurrentInsertsFindTheirShards(t *testing.T) {
	const callers, each = 4, 2000
	for seed := range uint64(10) {
		table := newDebts(1 << 20)
		table.minDepth = 12 // so that shards split often
		var wg sync.WaitGroup
		for c := range uint64(callers) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, c))
				for range each {
					owe(table, Hash{r.Uint64() | 1, c}, at(0), time.Hour)
				}
			})
		}
		wg.Wait()
		table.check(t)
		require.Equal(t, callers*each, table.Len(), "a key is lost")
	}
}

func TestCountsAddUp(t *testing.T) {
	table := newDebts(1 << 20)
	r := rand.New(rand.NewPCG(5, 5))
	var want Counts
	for i := range 5000 {
		h, allowed := spread(r.IntN(300), 300), r.IntN(3) > 0
		owe(table, h, at(i), time.Hour)
		s := table.Lock(h)
		s.Count(allowed)
		s.Unlock()
		if allowed {
			want.Allowed++
		} else {
			want.Denied++
		}
	}
	assert.Greater(t, len(table.shards()), 1)
	assert.Equal(t, want, table.Counts())
}

func TestReconfigureReachesEachStateOnce(t *testing.T) {
	const callers, changes = 3, 50
	table := newDebts(1 << 20)
	table.minDepth = 12 // so that shards split often
	var calls, done atomic.Int64
	var wg sync.WaitGroup
	for c := range uint64(callers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(c, 4))
			for done.Load() == 0 {
				owe(table, Hash{r.Uint64() | 1, r.Uint64N(1000)}, at(0), time.Hour)
				calls.Add(1)
			}
		})
	}
	strays := 0
	for version := 2; version < 2+changes; version++ {
		for calls.Load() < int64(100*version) {
			runtime.Gosched()
		}
		table.Reconfigure(&drain{version}, func(_ Hash, s *debt, _ bool) {
			if s.version != version-1 && s.version != 0 {
				strays++
			}
			s.version = version
		})
	}
	done.Store(1)
	wg.Wait()
	table.check(t)
	assert.Zero(t, strays, "states that were converted twice or left out")
	require.NotZero(t, table.Len())
	for _, s := range table.shards() {
		for i := range s.slots {
			if s.slots[i].hash.Hi != 0 {
				require.Equal(t, 1+changes, s.slots[i].state.version)
			}
		}
	}
}

// wide is a state as large as the largest state that is used.
type wide [8]uint64

type wideConfig struct{}

func (*wideConfig) Idle(s *wide, now Instant) bool  { return *s == wide{} }
func (*wideConfig) Inherit(s *wide, _ Instant) wide { return *s }

func TestATableWithoutKeysIsSmall(t *testing.T) {
	const tables = 1000
	kept := make([]*Table[wide, *wideConfig], tables)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range kept {
		kept[i] = New[wide](&wideConfig{}, 1<<20)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/tables, uint64(1024), "bytes that a table takes")
	runtime.KeepAlive(kept)
}

func TestShardsFillEvenly(t *testing.T) {
	const keys, shards = 1 << 16, 16
	var count [shards]int
	for i := range keys {
		count[HashOf("client-"+strconv.Itoa(i)).Hi>>60]++
	}
	mean := keys / shards
	for i, n := range count {
		assert.LessOrEqual(t, n, mean+5*int(math.Sqrt(float64(mean))), "shard %d has more keys than chance explains", i)
	}
}

func TestSweepDoesNotAllocate(t *testing.T) {
	table := newDebts(1 << 20)
	for i := range 1000 {
		owe(table, Hash{Hi: uint64(i) + 1}, at(0), time.Hour) // so that all keys are in one shard
	}
	s := table.shards()[0]
	require.Greater(t, s.count, 500)
	assert.Zero(t, testing.AllocsPerRun(100, func() { s.sweep(at(1)) }))
	table.check(t)
}
