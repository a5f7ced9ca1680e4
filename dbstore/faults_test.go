package dbstore_test

import (
	"context"
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
)

// A shaky is a Backend that loses answers and calls at random, that is slow, and that other processes use at the same time.
type shaky struct {
	*memory
	mu   sync.Mutex
	rand *rand.Rand
}

func (s *shaky) dice(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *shaky) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	<-time.After(time.Duration(s.dice(2000)) * time.Microsecond)
	switch s.dice(20) {
	case 0:
		return time.Time{}, dbstore.NotDone(errLost)
	case 1: // the transaction fails in the middle
		if len(groups) > 1 {
			_, _ = s.memory.Swap(ctx, now, groups[:len(groups)/2])
		}
		return time.Time{}, errLost
	case 2:
		_, _ = s.memory.Swap(ctx, now, groups)
		return time.Time{}, errLost
	case 3: // the row has another value, and gets the old one back
		groups[s.dice(len(groups))].Changes[0].Read = true
	}
	at, err := s.memory.Swap(ctx, now, groups)
	<-time.After(time.Duration(s.dice(1000)) * time.Microsecond)
	return at, err
}

// TestExact lets three processes, with 16 callers each, take units of few keys, by calls of one and of two asks, while transactions and
// answers are lost. No key gets more than its limit. What is charged is at least what was granted, and at most that and what failed.
func TestExact(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { exact(t, seed) })
		})
	}
}

func exact(t *testing.T, seed uint64) {
	const keys, limit, processes, callers, calls = 5, 1000, 3, 16, 60
	m := newMemory(realClock{})
	var granted, failed, denied [keys]atomic.Int64
	var all sync.WaitGroup
	for p := range processes {
		s := newStore(t, &shaky{memory: m, rand: rand.New(rand.NewPCG(seed, uint64(p)))}, dbstore.WithTimeout(time.Minute))
		for c := range callers {
			all.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(100*p+c)))
				for range calls {
					var asks []ratelimit.Ask
					for _, k := range r.Perm(keys)[:1+r.IntN(2)] {
						a := ask(fmt.Sprint(k), limit)
						a.N = 1 + r.IntN(3)
						asks = append(asks, a)
					}
					results, err := s.Take(t.Context(), asks)
					passes := err == nil
					for _, res := range results {
						passes = passes && res.Allowed
					}
					for _, a := range asks {
						k := a.Key[0] - '0'
						switch {
						case passes:
							granted[k].Add(int64(a.N))
						case err != nil:
							assert.ErrorIs(t, err, ratelimit.ErrStore)
							var failure *dbstore.Error
							if assert.ErrorAs(t, err, &failure); !failure.NotDone() {
								failed[k].Add(int64(a.N))
							}
						default:
							denied[k].Add(1)
						}
					}
				}
			})
		}
	}
	all.Wait()
	reader, lost, refused, unsure := newStore(t, m), int64(0), int64(0), int64(0)
	for k := range keys {
		look := ask(fmt.Sprint(k), limit)
		look.N = 0
		charged := limit - int64(one(t, reader, look).Remaining)
		g, f := granted[k].Load(), failed[k].Load()
		require.LessOrEqual(t, g, int64(limit))
		require.LessOrEqual(t, g, charged, "what was granted is charged")
		require.LessOrEqual(t, charged, g+f, "what was charged was granted, or its answer is lost")
		lost, refused, unsure = lost+charged-g, refused+denied[k].Load(), unsure+f
	}
	require.NotZero(t, lost)
	require.NotZero(t, refused, "of one key there may be none: callers share calls, so the failures of a run are few")
	require.NotZero(t, unsure)
}

// TestFair lets eight processes take units of one key at the same time. None gets more than twice as many turns as another.
func TestFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(realClock{})
		const processes = 8
		var granted [processes]int
		var all sync.WaitGroup
		end := time.Now().Add(10 * time.Second)
		for p := range processes {
			s := newStore(t, &slow{m, rand.New(rand.NewPCG(7, uint64(p)))}, dbstore.WithTimeout(5*time.Second))
			all.Go(func() {
				for time.Now().Before(end) {
					results, err := s.Take(t.Context(), []ratelimit.Ask{ask("hot", 1<<30)})
					if assert.NoError(t, err) && results[0].Allowed {
						granted[p]++
					}
				}
			})
		}
		all.Wait()
		least, most := granted[0], granted[0]
		for _, n := range granted {
			least, most = min(least, n), max(most, n)
		}
		t.Logf("%v", granted)
		require.LessOrEqual(t, most, 2*least)
	})
}

// A slow is a Backend that takes between 200 and 600 microseconds.
type slow struct {
	*memory
	rand *rand.Rand
}

func (s *slow) Swap(ctx context.Context, now time.Time, groups []dbstore.Group) (time.Time, error) {
	<-time.After(time.Duration(100+s.rand.IntN(200)) * time.Microsecond)
	at, err := s.memory.Swap(ctx, now, groups)
	<-time.After(time.Duration(100+s.rand.IntN(200)) * time.Microsecond)
	return at, err
}
