package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// wrapped hides the type of a client.
type wrapped struct{ redis.UniversalClient }

// TestUnknownClient checks all promises of a Store on a client of an unknown kind. Such a
// store runs one script for each hash tag.
func TestUnknownClient(t *testing.T) {
	t.Parallel()
	client := startReal(t).client(t)
	conform(t, wrapped{client}, ratelimittest.StoreConfig{Schedules: schedules(30), Steps: 40, Seed: 3})
}

// apart returns n asks for one unit at r, each in another slot.
func apart(a ratelimit.Algorithm, r ratelimit.Rate, n int) []ratelimit.Ask {
	var asks []ratelimit.Ask
	for i := range n {
		name := fmt.Sprintf("%s%d", a, i)
		asks = append(asks, ratelimit.Ask{Rule: "rule", Key: name, Client: name, Algorithm: a, Rate: r, N: 1})
	}
	return asks
}

// TestGivenBack makes a decision that is denied in one slot. It checks that the charges in
// the other slots are given back, to the byte, and that each ask is answered as if it were
// the only one.
func TestGivenBack(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, wrapped{client}, redisstore.WithClock(clock))
	for _, a := range all {
		asks := apart(a, ratelimit.PerMinute(3), 3)
		_, err := s.Take(context.Background(), asks[:2])
		require.NoError(t, err)
		clock.Advance(time.Second) // so that a log gets a second entry
		used := asks[1]
		used.N = 2
		require.True(t, take(t, s, used).Allowed)
		want := take(t, s, func() ratelimit.Ask { look := asks[0]; look.N = 0; return look }())
		held := dump(t, client)
		results, err := s.Take(context.Background(), asks)
		require.NoError(t, err)
		assert.Equal(t, want, results[0], "%s: would fit if it were the only ask", a)
		assert.False(t, results[1].Allowed, "%s: has no unit left", a)
		assert.Equal(t, 3, results[2].Remaining, "%s: a new key", a)
		assert.Equal(t, held, dump(t, client), a)
	}
}

// TestHungPart stops one of three masters. It checks that decisions that need that master
// fail in time, and that the charges at the other masters are given back.
func TestHungPart(t *testing.T) {
	t.Parallel()
	servers, client := startNodes(t, 3, "--cluster-node-timeout", "60000") // longer than the test, so that the others go on
	const timeout = time.Second
	s, err := redisstore.New(client, redisstore.WithTimeout(timeout))
	require.NoError(t, err)
	asks := apart(ratelimit.AlgorithmTokenBucket, ratelimit.PerDay(10), 12)
	until(t, func(ctx context.Context) error {
		_, err := s.Take(ctx, asks)
		return err
	})
	var before []int
	for _, a := range asks {
		a.N = 0
		before = append(before, take(t, s, a).Remaining)
	}
	servers[0].signal(t, syscall.SIGSTOP)
	fails(t, s, asks, 2*timeout, redisstore.ClassTimeout)
	_, err = s.Take(context.Background(), asks)
	var failed interface{ Parts() []int }
	require.ErrorAs(t, err, &failed)
	reached := 0
	for i, a := range asks {
		a.N = 0
		results, err := s.Take(context.Background(), []ratelimit.Ask{a})
		assert.Equal(t, err != nil, slices.Contains(failed.Parts(), s.Part(a)), "ask %d", i)
		if err == nil {
			reached++
			assert.Equal(t, before[i], results[0].Remaining, "ask %d", i)
		}
	}
	assert.Positive(t, reached, "the other masters answer")
	assert.Less(t, reached, len(asks), "some asks were on the master that hangs")
	servers[0].signal(t, syscall.SIGCONT)
	until(t, func(ctx context.Context) error {
		if s.CallsUnderWay() > 0 {
			return assert.AnError
		}
		_, err := s.Take(ctx, asks)
		return err
	})
	t.Logf("%d of %d asks were on masters that answered, and were given back", reached, len(asks))
}

// TestDeadPart stops one of three masters. It checks that a limiter answers for the keys of
// that master by its failure policy, without a call, and for no other keys.
func TestDeadPart(t *testing.T) {
	t.Parallel()
	servers, client := startNodes(t, 3, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
	s, err := redisstore.New(client, redisstore.WithTimeout(600*time.Millisecond))
	require.NoError(t, err)
	limiter, err := ratelimit.New([]ratelimit.Rule{{Name: "rule", Rate: ratelimit.PerDay(1000)}}, nil,
		ratelimit.WithStore(s), ratelimit.WithName("test"), ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	check := func(i int) (ratelimit.Result, error) {
		req := ratelimit.Request{Client: fmt.Sprint("client", i), Rules: []string{"rule"}}
		return limiter.Check(context.Background(), req)
	}
	const clients = 12
	dead := make(map[int]bool)
	for i := range clients {
		until(t, func(context.Context) error {
			_, err := check(i)
			return err
		})
		ask := ratelimit.Ask{Rule: "test:rule", Key: fmt.Sprint("client", i), Client: fmt.Sprint("client", i), Algorithm: all[0]}
		master, err := client.MasterForKey(context.Background(), s.KeyOf(ask))
		require.NoError(t, err)
		dead[i] = master.Options().Addr == servers[0].addr
	}
	servers[0].signal(t, syscall.SIGSTOP)
	for i := range clients {
		calls := 1
		if dead[i] && limiter.StoreStats().Open < 2 {
			calls = 5 // failures in a row, which open the breaker of a part
		}
		for range calls {
			res, err := check(i)
			assert.Equal(t, dead[i], res.Degraded, "client %d", i)
			assert.Equal(t, dead[i], err != nil, "client %d", i)
		}
	}
	stats := limiter.StoreStats()
	assert.Positive(t, stats.Open)
	assert.ErrorIs(t, stats.LastError, ratelimit.ErrStore)
	hits := s.Stats().Errors[redisstore.ClassTimeout]
	for i := range clients {
		_, err := check(i)
		assert.Equal(t, dead[i], err != nil, "client %d", i)
	}
	t.Logf("%d of %d parts are not asked; %d timeouts in all", stats.Open, stats.Parts, hits)
	servers[0].signal(t, syscall.SIGCONT)
	until(t, func(context.Context) error {
		for i := range clients {
			if _, err := check(i); err != nil {
				return err
			}
		}
		return nil
	})
	assert.Zero(t, limiter.StoreStats().Open)
}
