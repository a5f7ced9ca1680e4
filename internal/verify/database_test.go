package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/dbstore/dbstoretest"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// TestDatabaseStore checks all promises of a store on rows in memory.
func TestDatabaseStore(t *testing.T) {
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			return dbstore.New(dbstoretest.NewMemory(clock), dbstore.WithClock(clock), dbstore.WithTimeout(5*time.Second))
		},
		Starts: []time.Time{begin, time.Unix(0, 0).UTC()}, Schedules: 25,
	})
}

// A leaky is a Backend that is slow, and loses calls and answers.
type leaky struct {
	*dbstoretest.Memory
	mu   sync.Mutex
	rand *rand.Rand
}

var errAnswerLost = errors.New("the answer is lost")

func (l *leaky) dice(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rand.IntN(n)
}

func (l *leaky) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	<-time.After(time.Duration(l.dice(2000)) * time.Microsecond)
	dice := l.dice(16)
	if dice == 0 {
		return time.Time{}, dbstore.NotDone(errAnswerLost)
	}
	at, err := l.Memory.Swap(ctx, now, groups)
	if dice == 1 {
		return time.Time{}, errAnswerLost
	}
	return at, err
}

// machineTime is the clock of the machine, or of the bubble of a test.
type machineTime struct{}

func (machineTime) Now() time.Time { return time.Now() }

// TestDatabaseIsExact lets callers of three processes take units of a few keys in the same rows, while transactions and answers are lost.
// What a key has charged is what was granted, and at most what failed besides.
func TestDatabaseIsExact(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			const keys, limit = 4, 600
			var granted, failed [keys]atomic.Int64
			var all sync.WaitGroup
			rows := dbstoretest.NewMemory(machineTime{})
			take := func(s *dbstore.Store, r *rand.Rand) {
				var asks []ratelimit.Ask
				for _, k := range r.Perm(keys)[:1+r.IntN(2)] {
					asks = append(asks, ratelimit.Ask{Rule: "r", Key: fmt.Sprint(k), Algorithm: ratelimit.AlgorithmFixedWindow,
						Rate: ratelimit.PerHour(limit), N: 1 + r.IntN(3)})
				}
				results, err := s.Take(t.Context(), asks)
				passes := err == nil
				for _, res := range results {
					passes = passes && res.Allowed
				}
				var failure *dbstore.Error
				for _, a := range asks {
					if k := a.Key[0] - '0'; passes {
						granted[k].Add(int64(a.N))
					} else if assert.True(t, err == nil || errors.As(err, &failure)); err != nil && !failure.NotDone() {
						failed[k].Add(int64(a.N))
					}
				}
			}
			for p := range 3 {
				s, err := dbstore.New(&leaky{Memory: rows, rand: rand.New(rand.NewPCG(seed, uint64(p)))}, dbstore.WithTimeout(time.Minute))
				require.NoError(t, err)
				for c := range 12 {
					all.Go(func() {
						for r := rand.New(rand.NewPCG(seed, uint64(100*p+c))); r.IntN(40) > 0; {
							take(s, r)
						}
					})
				}
			}
			all.Wait()
			reader, err := dbstore.New(rows)
			require.NoError(t, err)
			for k := range keys {
				look := ratelimit.Ask{Rule: "r", Key: fmt.Sprint(k), Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(limit)}
				results, err := reader.Take(t.Context(), []ratelimit.Ask{look})
				require.NoError(t, err)
				charged := int64(limit - results[0].Remaining)
				require.LessOrEqual(t, granted[k].Load(), charged)
				require.LessOrEqual(t, charged, granted[k].Load()+failed[k].Load())
			}
		})
	}
}

// TestDatabaseRowOfAnotherKey copies the value of a row to another key. It is broken there.
func TestDatabaseRowOfAnotherKey(t *testing.T) {
	clock := ratelimit.NewFakeClock(begin)
	rows := dbstoretest.NewMemory(clock)
	ask := ratelimit.Ask{Rule: "r", Key: "a", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerHour(5), N: 1}
	var value []byte
	for _, ask.Key = range []string{"a", "b"} {
		s, err := dbstore.New(rows, dbstore.WithClock(clock))
		require.NoError(t, err)
		_, err = s.Take(t.Context(), []ratelimit.Ask{ask})
		require.NoError(t, err)
		rows.Edit(func(key string, own []byte) []byte {
			if value == nil || key[len(key)-1] == 'a' {
				value = own
				return own
			}
			return value
		})
	}
	s, err := dbstore.New(rows, dbstore.WithClock(clock))
	require.NoError(t, err)
	_, err = s.Take(t.Context(), []ratelimit.Ask{ask})
	require.ErrorContains(t, err, "is broken: its checksum is wrong")
}

// TestDatabaseGoesOn lets two processes change a row by turns. Each sees what the other has charged.
func TestDatabaseGoesOn(t *testing.T) {
	clock := ratelimit.NewFakeClock(begin)
	rows := dbstoretest.NewMemory(clock)
	var stores []*dbstore.Store
	for range 2 {
		s, err := dbstore.New(rows, dbstore.WithClock(clock))
		require.NoError(t, err)
		stores = append(stores, s)
	}
	ask := ratelimit.Ask{Rule: "r", Key: "a", Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.Rate{Requests: 9, Per: 8760 * time.Hour}, N: 1}
	for i := range 9 {
		results, err := stores[i%2].Take(t.Context(), []ratelimit.Ask{ask})
		require.NoError(t, err)
		require.Equal(t, 8-i, results[0].Remaining)
		clock.Advance(time.Second)
	}
}
