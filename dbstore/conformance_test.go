package dbstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// starts are instants that are at least 100 years from the bounds of a row, which are in 1678 and 2262.
var starts = []time.Time{
	time.Date(2026, 3, 1, 12, 34, 56, 789012345, time.UTC),
	time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2100, 12, 31, 23, 59, 59, 999999999, time.UTC),
	time.Date(1800, 2, 3, 4, 5, 6, 7, time.UTC),
}

// TestStore checks all promises of a Store with rows in memory.
func TestStore(t *testing.T) {
	t.Parallel()
	var m *memory
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			m = newMemory(clock)
			return dbstore.New(m, dbstore.WithClock(clock), dbstore.WithTimeout(time.Minute))
		},
		Starts: starts,
	})
	t.Logf("%d calls, %d rows written, %d rows not as expected", m.Stats().Calls, m.Stats().Writes, m.Stats().Refused)
	require.NotZero(t, m.Stats().Refused)
}

// TestStoreOfARestlessBackend checks the same while other processes seem to change rows all the time.
func TestStoreOfARestlessBackend(t *testing.T) {
	t.Parallel()
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			b := &restless{memory: newMemory(clock), rand: rand.New(rand.NewPCG(1, 2))}
			return dbstore.New(b, dbstore.WithClock(clock), dbstore.WithTimeout(time.Minute))
		},
		Starts: starts, Schedules: 40,
	})
}
