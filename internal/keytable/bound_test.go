package keytable

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filled returns a full table of one shard with n keys. All of them owe until the same instant.
func filled(tb testing.TB, n int, until Instant) *debts {
	tb.Helper()
	table := newDebts(n)
	table.grow.Lock() // so that no shard splits
	defer table.grow.Unlock()
	for i := range n {
		owe(table, spread(i, n), at(0), time.Duration(until.Since(at(0))))
	}
	require.Equal(tb, n, table.Len())
	return table
}

func TestOverflowOnlyAtTheBound(t *testing.T) {
	const maxKeys = 500
	table := newDebts(maxKeys)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 3 * maxKeys {
		h := Hash{r.Uint64() | 1, r.Uint64()}
		before := table.Len()
		owe(table, h, at(i), time.Hour)
		require.Equal(t, before < maxKeys, has(table, h), "key %d, of which %d have a slot", i, before)
		require.Equal(t, min(i+1, maxKeys), table.Len())
	}
	table.check(t)
	assert.Equal(t, Counts{Overflowed: 2 * maxKeys}, table.Counts(), "nothing was evicted: all owe for an hour")
}

func TestUnseenKeysShareOneDebtAtTheBound(t *testing.T) {
	table := filled(t, 20, at(1000))
	first, second := Hash{Hi: 11, Lo: 1}, Hash{Hi: 12, Lo: 2}
	assert.Zero(t, owed(table, first, at(0)), "the first unseen key finds no debt")
	owe(table, first, at(0), 300)
	assert.Equal(t, at(300), owed(table, second, at(0)), "another unseen key owes what the first one does")
	owe(table, second, at(0), 200)
	assert.Equal(t, at(500), owed(table, first, at(0)), "the first unseen key owes what the other does")
	assert.Equal(t, at(1000), owed(table, spread(3, 20), at(0)), "a key with a slot has its own debt")
	assert.Equal(t, Counts{Overflowed: 2}, table.Counts())
	table.check(t)
}

func TestIdleKeysMakeRoom(t *testing.T) {
	table := filled(t, 20, at(1000))
	table.shards()[0].slots[0].state.until = at(40)
	require.Equal(t, spread(0, 20), table.shards()[0].slots[0].hash)

	owe(table, Hash{Hi: 11}, at(39), 300)
	assert.False(t, has(table, Hash{Hi: 11}), "one nanosecond early, no key is as good as new")
	owe(table, Hash{Hi: 12}, at(40), 300)
	assert.True(t, has(table, Hash{Hi: 12}), "at the instant at which a key is as good as new, it makes room")
	assert.False(t, has(table, spread(0, 20)), "the idle key is the one that is evicted")
	assert.Equal(t, at(639), owed(table, Hash{Hi: 12}, at(40)), "the newcomer inherits the shared debt, and adds its own")
	assert.Equal(t, at(339), owed(table, Hash{Hi: 13}, at(40)), "the shared debt stays as it was")
	assert.Equal(t, Counts{Evicted: 1, Overflowed: 1}, table.Counts())
	table.check(t)
}

func TestASearchForIdleKeysGoesOn(t *testing.T) {
	// There are more slots than one search looks at, and the only idle key is behind them.
	// New keys must find it after some searches.
	const n = 20 * sweepSlots
	table := filled(t, n, at(1000))
	s := table.shards()[0]
	table.check(t)
	i, ok := s.search(spread(n-1, n))
	require.True(t, ok)
	s.slots[i].state.until = at(1)
	searches := 0
	for !has(table, Hash{Hi: 5}) {
		searches++
		require.LessOrEqual(t, searches, 2*len(s.slots)/sweepSlots+1, "the idle key is never found")
		owe(table, Hash{Hi: 5}, at(1), 1)
	}
	assert.Greater(t, searches, 1, "one search is bounded")
	table.check(t)
}

func TestResetWithoutOverflowFreesTheSlot(t *testing.T) {
	table := filled(t, 20, at(1000))
	reset(table, spread(7, 20))
	table.check(t)
	assert.Equal(t, 19, table.Len())
	assert.Zero(t, owed(table, spread(7, 20), at(0)), "the key is as good as new")
	owe(table, Hash{Hi: 5}, at(0), 1)
	assert.True(t, has(table, Hash{Hi: 5}), "another key takes the slot")
	assert.Equal(t, Counts{}, table.Counts(), "a reset is no eviction")
}

func TestResetWithOverflowKeepsTheSlot(t *testing.T) {
	table := filled(t, 20, at(1000))
	owe(table, Hash{Hi: 5}, at(0), 300)
	reset(table, spread(7, 20))
	table.check(t)
	assert.Equal(t, 20, table.Len())
	assert.Zero(t, owed(table, spread(7, 20), at(0)), "a key that is reset does not inherit what others owe")

	reset(table, Hash{Hi: 5})
	assert.Equal(t, at(300), owed(table, Hash{Hi: 5}, at(0)), "a reset of a key without a slot does nothing")
	table.check(t)
}

func TestNobodyWinsByEviction(t *testing.T) {
	// The clock steps back to before a key was evicted. If the key had been kept, its debt
	// would end only at 40.
	table := filled(t, 1, at(40))
	owe(table, Hash{Hi: 5}, at(40), 100)
	require.True(t, has(table, Hash{Hi: 5}))
	reset(table, Hash{Hi: 5})

	s := table.Lock(spread(0, 1))
	_, now := s.Owed(at(10))
	s.Unlock()
	assert.Equal(t, at(40), now, "a key without a slot counts an earlier reading as that of the eviction")
	owe(table, spread(0, 1), at(10), 5)
	assert.Equal(t, at(45), owed(table, spread(0, 1), at(10)))
}

func TestASplitKeepsFloorAndOverflow(t *testing.T) {
	table := filled(t, 64, at(1000))
	table.shards()[0].slots[0].state.until = at(0)
	owe(table, Hash{Hi: 5}, at(30), 970)
	require.True(t, has(table, Hash{Hi: 5}), "a key was evicted at 30")
	owe(table, Hash{Hi: 6}, at(20), 300)
	require.Equal(t, at(330), owed(table, Hash{Hi: 7}, at(0)), "the shard has a debt to share")

	s := table.shards()[0]
	s.mu.Lock()
	s.rebuild(at(35))
	s.mu.Unlock()
	table.check(t)
	halves := table.shards()
	require.Len(t, halves, 2, "64 keys must fit into at most two shards")
	for i, half := range halves {
		h := Hash{Hi: uint64(i)<<63 + 9}
		assert.Equal(t, at(330), owed(table, h, at(0)), "half %d shares the debt", i)
		half.mu.Lock()
		_, now := half.Owed(at(10))
		half.mu.Unlock()
		assert.Equal(t, at(30), now, "half %d keeps the instant of the eviction", i)
	}
	owe(table, Hash{Hi: 9}, at(40), 100)
	assert.Equal(t, at(430), owed(table, Hash{Hi: 10}, at(40)), "a new debt is added to one half only")
	assert.Equal(t, at(330), owed(table, Hash{Hi: 1<<63 + 10}, at(40)), "a new debt is not added to the other half")
}

func TestReconfigureConvertsWhatIsShared(t *testing.T) {
	double := func(_ Hash, s *debt, _ bool) { s.until = Start.Add(2 * s.until.Duration()) }

	table := filled(t, 20, at(1000))
	table.Reconfigure(&drain{2}, func(_ Hash, s *debt, _ bool) { *s = debt{at(7), 2} })
	assert.Zero(t, owed(table, Hash{Hi: 5}, at(0)), "a key that was never used is new under any rate")

	table = filled(t, 20, at(1000))
	owe(table, Hash{Hi: 5}, at(0), 300)
	table.Reconfigure(&drain{2}, double)
	assert.Equal(t, at(600), owed(table, Hash{Hi: 6}, at(0)), "the shared debt is converted as any other")
	assert.Equal(t, at(2000), owed(table, spread(4, 20), at(0)))
	table.check(t)

	table = filled(t, 1, at(40))
	owe(table, Hash{Hi: 5}, at(40), 100)
	table.Reconfigure(&drain{2}, func(_ Hash, s *debt, _ bool) { s.until = max(s.until, at(50)) + 5 })
	reset(table, Hash{Hi: 5})
	assert.Equal(t, at(55), owed(table, spread(0, 1), at(40)), "a key that was evicted is converted like one that was not")
}

func TestMaxKeysHoldsUnderConcurrentInserts(t *testing.T) {
	const maxKeys, callers, each = 300, 4, 2000
	table := newDebts(maxKeys)
	var wg sync.WaitGroup
	for c := range uint64(callers) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(c, 3))
			for i := range each {
				h := Hash{r.Uint64() | 1, r.Uint64()}
				owe(table, h, at(i), time.Duration(r.IntN(1000)))
				if i%8 == 0 {
					reset(table, h)
				}
				if n := table.Len(); n > maxKeys {
					t.Errorf("%d keys", n)
				}
			}
		})
	}
	wg.Wait()
	table.check(t)
	assert.NotZero(t, table.Counts().Evicted)
}

func TestReserveHoldsTheBound(t *testing.T) {
	const maxKeys, callers, each = 1, 4, 50_000
	table := newDebts(maxKeys)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				if !table.reserve() {
					continue
				}
				if n := table.Len(); n > maxKeys {
					t.Errorf("%d keys", n)
					return
				}
				table.keys.Add(-1)
			}
		})
	}
	wg.Wait()
	assert.Zero(t, table.Len())
}
