package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// starts are after 1970, and at least 100 years before the last microsecond that a double
// holds, which is in 2255.
var starts = []time.Time{
	time.Date(2026, 3, 1, 12, 34, 56, 789012000, time.UTC),
	time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
	time.Date(2100, 12, 31, 23, 59, 59, 999999000, time.UTC),
	time.Unix(0, 0).UTC().AddDate(1, 0, 0),
}

// A counted is a store that counts what it is asked.
type counted struct {
	*redisstore.Store
	calls, several atomic.Int64
	asks           map[ratelimit.Algorithm]*atomic.Int64
}

func count(s *redisstore.Store) *counted {
	c := &counted{Store: s, asks: make(map[ratelimit.Algorithm]*atomic.Int64)}
	for _, a := range all {
		c.asks[a] = new(atomic.Int64)
	}
	return c
}

func (c *counted) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	c.calls.Add(1)
	if len(asks) > 1 {
		c.several.Add(1)
	}
	for _, a := range asks {
		c.asks[a.Algorithm].Add(1)
	}
	return c.Store.Take(ctx, asks)
}

// figures returns what c was asked, as text.
func (c *counted) figures() string {
	text := fmt.Sprintf("%d calls, %d of several asks", c.calls.Load(), c.several.Load())
	for _, a := range all {
		text += fmt.Sprintf("; %s %d steps", a, c.asks[a].Load())
	}
	return text
}

// conform checks the store on client against the models of the kit.
func conform(t *testing.T, client redis.UniversalClient, c ratelimittest.StoreConfig) *counted {
	var store *counted
	c.New = func(clock ratelimit.Clock) (ratelimit.Store, error) {
		store = count(newStore(t, client, redisstore.WithClock(clock)))
		return store, nil
	}
	c.Starts, c.Resolution = starts, time.Microsecond
	ratelimittest.TestStore(t, c)
	mismatches := "0 mismatches"
	if t.Failed() {
		mismatches = "with mismatches"
	}
	t.Logf("%s: %s", store.figures(), mismatches)
	return store
}

// TestStandalone checks all promises of a Store on a single server.
func TestStandalone(t *testing.T) {
	t.Parallel()
	client := startReal(t).client(t)
	enough(t, conform(t, client, ratelimittest.StoreConfig{Schedules: soaked(160, 500), Steps: 40}))
}

// TestCluster checks the same on three masters with a replica each, where the asks of one
// call are in several slots.
func TestCluster(t *testing.T) {
	t.Parallel()
	_, client := startReplicated(t)
	enough(t, conform(t, client, ratelimittest.StoreConfig{Schedules: soaked(100, 500), Steps: 40, Seed: 1}))
}

// enough checks that a full run asked each algorithm at least 20,000 times.
func enough(t *testing.T, c *counted) {
	if testing.Short() || raceEnabled || t.Failed() {
		return
	}
	for a, n := range c.asks {
		if n.Load() < 20_000 {
			t.Errorf("%s was asked only %d times, at least 20,000 are required", a, n.Load())
		}
	}
}

// schedules returns n, or a fifth of it under the race detector and with -short.
func schedules(n int) int {
	if testing.Short() || raceEnabled {
		return n / 5
	}
	return n
}
