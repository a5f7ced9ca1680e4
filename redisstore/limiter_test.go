package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer func() { _ = client.Close() }()
	store, err := redisstore.New(client)
	if err != nil {
		panic(err)
	}
	limiter, err := ratelimit.NewTokenBucket(ratelimit.PerMinute(100), ratelimit.WithStore(store), ratelimit.WithName("api"))
	if err != nil {
		panic(err)
	}
	if !limiter.Allow("alice").Allowed {
		fmt.Println("too many requests")
	}
}

// TestLimiters checks that the limiters of two processes share the states in the server.
func TestLimiters(t *testing.T) {
	srv := start(t)
	rules := []ratelimit.Rule{
		{Name: "user", Endpoint: "/search", Rate: ratelimit.PerDay(5)},
		{Name: "all", Endpoint: "/search", Key: ratelimit.KeyGlobal, Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.PerDay(8)},
		{
			Name: "seen", Endpoint: "/search", Mode: ratelimit.ModeShadow,
			Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerDay(1),
		},
	}
	var limiters []*ratelimit.RateLimiter
	for range 2 {
		l, err := ratelimit.New(rules, nil, ratelimit.WithStore(newStore(t, srv.client(t))), ratelimit.WithName("app"))
		require.NoError(t, err)
		limiters = append(limiters, l)
	}
	granted := map[string]int{}
	for i := range 24 {
		client := []string{"alice", "bob"}[i/2%2]
		res, err := limiters[i%2].Check(context.Background(), ratelimit.Request{Client: client, Endpoint: "/search"})
		require.NoError(t, err)
		assert.False(t, res.Degraded)
		if res.Allowed {
			granted[client]++
		}
	}
	assert.Equal(t, 8, granted["alice"]+granted["bob"], "the limit that both clients share: %v", granted)
	require.NoError(t, limiters[0].Reset(context.Background(), ratelimit.Request{Client: "alice", Endpoint: "/search"}))
}

// TestRefused checks that the constructor of a limiter refuses a rate that the store cannot
// decide exactly, with a readable reason.
func TestRefused(t *testing.T) {
	_, err := ratelimit.NewFixedWindow(ratelimit.Rate{Requests: 1, Per: 1500 * time.Nanosecond},
		ratelimit.WithStore(nowhere(t)), ratelimit.WithName("app"))
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	t.Log(err)
	assert.Contains(t, err.Error(), "per must be whole microseconds")
}

func BenchmarkTake(b *testing.B) {
	client := startReal(b).client(b)
	s := newStore(b, client)
	for _, a := range all {
		b.Run("algo="+string(a), func(b *testing.B) {
			asks := []ratelimit.Ask{ask(a, ratelimit.Rate{Requests: 50000, Per: time.Second}, 1)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Take(context.Background(), asks); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
