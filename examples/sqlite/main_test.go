package main

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/dbstore"
	"github.com/ratelimit-go/ratelimit/dbstore/dbstoretest"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

func opened(t *testing.T, path string) *backend {
	t.Helper()
	b, err := open(context.Background(), path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.db.Close() })
	return b
}

// TestRun runs the program twice. The second process finds what the first has used.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, path))
	require.Contains(t, out.String(), "request 5: allowed, 0 left\nrequest 6: denied, retry in ")
	out.Reset()
	require.NoError(t, run(t.Context(), &out, path))
	require.NotContains(t, out.String(), "allowed")
	require.NotContains(t, out.String(), "decided in this process")
}

// TestStore checks all promises of a store on the file.
func TestStore(t *testing.T) {
	schedules := 6
	if testing.Short() {
		schedules = 2
	}
	ratelimittest.TestStore(t, ratelimittest.StoreConfig{
		New: func(clock ratelimit.Clock) (ratelimit.Store, error) {
			b := opened(t, filepath.Join(t.TempDir(), "limits.db"))
			b.now = clock.Now
			return dbstore.New(b, dbstore.WithClock(clock), dbstore.WithTimeout(time.Minute))
		},
		Starts:    []time.Time{time.Date(2026, 3, 1, 12, 34, 56, 789012345, time.UTC), time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)},
		Schedules: schedules,
	})
}

// TestBackend checks what package dbstore needs of the file.
func TestBackend(t *testing.T) {
	dbstoretest.TestBackend(t, opened(t, filepath.Join(t.TempDir(), "limits.db")))
}

// TestProcesses lets three stores, each with connections of its own, use up a key of the file. It gets exactly its limit.
func TestProcesses(t *testing.T) {
	path, limit := filepath.Join(t.TempDir(), "limits.db"), 500
	var granted atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		s, err := dbstore.New(opened(t, path), dbstore.WithTimeout(time.Minute))
		require.NoError(t, err)
		for range 16 {
			all.Go(func() {
				for range 30 {
					results, err := s.Take(t.Context(), []ratelimit.Ask{{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmFixedWindow,
						Rate: ratelimit.Rate{Requests: limit, Per: 8760 * time.Hour}, N: 1}})
					if assert.NoError(t, err) && results[0].Allowed {
						granted.Add(1)
					}
				}
			})
		}
	}
	all.Wait()
	require.EqualValues(t, limit, granted.Load())
}
