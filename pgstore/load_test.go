package pgstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/pgstore"
)

func ask(key string, requests int) ratelimit.Ask {
	year := ratelimit.Rate{Requests: requests, Per: 8760 * time.Hour}
	return ratelimit.Ask{Rule: "r", Key: key, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: year, N: 1}
}

// A load lets callers of several processes take units of a few keys, by calls of one and of two asks, and counts what each key gets.
type load struct {
	keys, limit int
	calls       int // of each caller; 0 until the context ends

	granted, failed []atomic.Int64 // units, by key; failed has those that may have been charged without an answer
	errors, grants  atomic.Int64
	longest         atomic.Int64 // the longest time that a caller has waited, in nanoseconds; it is only logged
	other           sync.Map     // the texts of errors
}

func newLoad(keys, limit, calls int) *load {
	return &load{keys: keys, limit: limit, calls: calls, granted: make([]atomic.Int64, keys), failed: make([]atomic.Int64, keys)}
}

// run runs the load on the stores, with so many callers for each, until all calls are made or ctx ends.
func (l *load) run(ctx context.Context, t *testing.T, stores []*pgstore.Store, callers int) {
	t.Helper()
	var all sync.WaitGroup
	for p, s := range stores {
		for c := range callers {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(p), uint64(c)))
				for n := 0; ctx.Err() == nil && (l.calls == 0 || n < l.calls); n++ {
					l.one(t, s, r)
				}
			})
		}
	}
	all.Wait()
}

func (l *load) one(t *testing.T, s *pgstore.Store, r *rand.Rand) {
	var asks []ratelimit.Ask
	for _, k := range r.Perm(l.keys)[:min(1+r.IntN(2), l.keys)] {
		asks = append(asks, ask(fmt.Sprint(k), l.limit))
	}
	began := time.Now()
	results, err := s.Take(context.Background(), asks)
	for took, longest := int64(time.Since(began)), l.longest.Load(); took > longest && !l.longest.CompareAndSwap(longest, took); {
		longest = l.longest.Load()
	}
	passes := err == nil
	for _, res := range results {
		passes = passes && res.Allowed
	}
	if passes {
		l.grants.Add(1)
	}
	for _, a := range asks {
		var k int
		_, _ = fmt.Sscan(a.Key, &k)
		var failure *dbstore.Error
		switch {
		case passes:
			l.granted[k].Add(1)
		case err != nil:
			assert.ErrorIs(t, err, ratelimit.ErrStore)
			l.other.Store(err.Error(), true)
			l.errors.Add(1)
			if assert.ErrorAs(t, err, &failure); !failure.NotDone() {
				l.failed[k].Add(1)
			}
		}
	}
}

// check compares what was charged with what was granted. It returns how many units were granted and are not charged, and how many
// were charged without an answer.
func (l *load) check(t *testing.T, s *pgstore.Store) (forgotten, lost int64) {
	t.Helper()
	for k := range l.keys {
		look := ask(fmt.Sprint(k), l.limit)
		look.N = 0
		results, err := s.Take(t.Context(), []ratelimit.Ask{look})
		require.NoError(t, err)
		charged, granted := int64(l.limit-results[0].Remaining), l.granted[k].Load()
		require.LessOrEqual(t, charged, granted+l.failed[k].Load(), "what was charged was granted, or its answer is lost")
		forgotten += max(granted-charged, 0)
		lost += max(charged-granted, 0)
	}
	return forgotten, lost
}

// texts returns the errors that the callers got.
func (l *load) texts() (all []string) {
	l.other.Range(func(text, _ any) bool { all = append(all, text.(string)); return true })
	return all
}

// processes returns n stores on one table, each with a pool of its own.
func processes(t *testing.T, url string, n int, opts ...pgstore.Option) (stores []*pgstore.Store) {
	t.Helper()
	for range n {
		stores = append(stores, newStore(t, poolOf(t, url, 4, func(c *pgxpool.Config) { c.ConnConfig.ConnectTimeout = time.Second }), opts...))
	}
	return stores
}

// patient makes a Store wait long, so that a slow machine fails no test.
func patient() pgstore.Option { return pgstore.WithStoreOptions(dbstore.WithTimeout(time.Minute)) }

// TestThreeProcesses lets three processes with 64 callers each use up keys that they share. Each key gets exactly its limit.
func TestThreeProcesses(t *testing.T) {
	for _, keys := range []int{1, 2, 50} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			stores := processes(t, sharedServer(t).url(), 3, pgstore.WithTable(table(t)), patient())
			limit := 4000 / keys
			l := newLoad(keys, limit, 60)
			l.run(t.Context(), t, stores, 64)
			require.Empty(t, l.texts())
			for k := range keys {
				require.EqualValues(t, limit, l.granted[k].Load())
			}
			forgotten, lost := l.check(t, stores[0])
			require.Zero(t, forgotten)
			require.Zero(t, lost)
			for _, s := range stores {
				t.Logf("%+v", s.Stats())
			}
		})
	}
}
