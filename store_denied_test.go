package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A denyingStore is a MemoryStore that counts what it is asked, and denies some asks
// without that.
type denyingStore struct {
	*ratelimit.MemoryStore
	denies func(a ratelimit.Ask) bool
	asked  int
	seen   []ratelimit.Ask
}

func (s *denyingStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.asked++
	return s.MemoryStore.Take(ctx, asks)
}

func (s *denyingStore) Denied(a ratelimit.Ask) (ratelimit.Result, bool) {
	s.seen = append(s.seen, a)
	if s.denies == nil || !s.denies(a) {
		return ratelimit.Result{}, false
	}
	return ratelimit.Result{Limit: a.Rate.Requests, RetryAfter: time.Minute, ResetAfter: time.Hour}, true
}

func newDenyingStore(t *testing.T) *denyingStore {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	return &denyingStore{MemoryStore: memory}
}

// TestDeniedAtOnce has a store know of denials: requests of one plain rule are answered
// by that, and counted, without asking it.
func TestDeniedAtOnce(t *testing.T) {
	store := newDenyingStore(t)
	store.denies = func(a ratelimit.Ask) bool { return a.Key == "alice" }
	limiter, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/search", Rate: ratelimit.PerMinute(5)}}, nil, ratelimit.WithStore(store))
	require.NoError(t, err)
	want := ratelimit.Result{Limit: 5, RetryAfter: time.Minute, ResetAfter: time.Hour, Rule: "/search"}
	assert.Equal(t, want, limiter.Allow("alice", "/search"))
	res, err := limiter.Check(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/search", Cost: 3})
	assert.NoError(t, err)
	assert.Equal(t, want, res)
	assert.Zero(t, store.asked)
	assert.Equal(t, []int{1, 3}, []int{store.seen[0].N, store.seen[1].N})
	assert.Equal(t, "alice", store.seen[0].Client)

	assert.True(t, limiter.Allow("bob", "/search").Allowed)
	assert.Equal(t, 1, store.asked)
	assert.True(t, limiter.Allow("alice", "/other").Allowed, "no rule, no ask")
	stats := limiter.Stats()
	assert.EqualValues(t, 2, stats[0].Denied)
	assert.EqualValues(t, 1, stats[0].Allowed)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	res, err = limiter.Check(ctx, ratelimit.Request{Client: "alice", Endpoint: "/search"})
	assert.Equal(t, context.Canceled, err)
	assert.Zero(t, res)
}

// TestDeniedAtOnceAlone has one of the five limiters ask a store that knows of denials.
func TestDeniedAtOnceAlone(t *testing.T) {
	store := newDenyingStore(t)
	store.denies = func(a ratelimit.Ask) bool { return a.N == 4 || a.Key == "alice" }
	limiter, err := ratelimit.NewFixedWindow(ratelimit.PerDay(5), ratelimit.WithStore(store), ratelimit.WithName("api"))
	require.NoError(t, err)
	assert.Equal(t, time.Minute, limiter.Allow("alice").RetryAfter)
	res, err := limiter.Take(context.Background(), "bob", 4)
	assert.NoError(t, err)
	assert.Equal(t, time.Minute, res.RetryAfter)
	assert.Zero(t, store.asked)
	assert.True(t, limiter.Allow("bob").Allowed)
	assert.Equal(t, 1, store.asked)
}

// TestDeniedTheLongWay has rules that are not plain, or several of them, be asked of the
// store whatever it knows.
func TestDeniedTheLongWay(t *testing.T) {
	deny := func(ratelimit.Ask) bool { return true }
	rules := map[string][]ratelimit.Rule{
		"several": {{Name: "a", Endpoint: "/", Rate: ratelimit.PerMinute(5)}, {Name: "b", Endpoint: "/", Rate: ratelimit.PerMinute(5)}},
		"tiers":   {{Endpoint: "/", Rate: ratelimit.PerMinute(5), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerMinute(9)}}},
		"shadow":  {{Endpoint: "/", Rate: ratelimit.PerMinute(5), Mode: ratelimit.ModeShadow}},
	}
	for name, rules := range rules {
		store := newDenyingStore(t)
		store.denies = deny
		limiter, err := ratelimit.New(rules, nil, ratelimit.WithStore(store))
		require.NoError(t, err)
		assert.True(t, limiter.Allow("alice", "/").Allowed, name)
		assert.Equal(t, 1, store.asked, name)
		assert.Empty(t, store.seen, name)
	}
}
