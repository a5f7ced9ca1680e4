package redisstore_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// look returns the answer to a if nothing is taken.
func look(t testing.TB, s *redisstore.Store, a ratelimit.Ask) ratelimit.Result {
	t.Helper()
	a.Look = true
	return take(t, s, a)
}

// storedIn returns all that a server has, and when it expires.
func storedIn(t testing.TB, c *redis.Client) map[string]string {
	t.Helper()
	ctx, all := context.Background(), make(map[string]string)
	for _, key := range c.Keys(ctx, "*").Val() {
		all[key] = c.Dump(ctx, key).Val() + c.PExpireTime(ctx, key).String()
	}
	return all
}

// TestLook checks that a look says what is then answered, and that it writes nothing, also of a key
// at another rate and of one with receipts. It counts in the Stats only as a call.
func TestLook(t *testing.T) {
	client := startReal(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	for _, a := range all {
		first, other := ask(a, ratelimit.PerMinute(7), 3), ask(a, ratelimit.PerMinute(4), 2)
		require.Equal(t, 4, look(t, s, first).Remaining, "%s: an unseen key", a)
		require.Empty(t, storedIn(t, client), a)
		take(t, s, first)
		receipt := first
		receipt.Receipt, receipt.HoldFor = 9, time.Minute
		for _, u := range []ratelimit.Ask{first, other, receipt, first, other} {
			before, stats := storedIn(t, client), s.Stats()
			want := look(t, s, u)
			require.Equal(t, want, look(t, s, u))
			require.Equal(t, before, storedIn(t, client), a)
			require.Equal(t, stats.Decisions, s.Stats().Decisions)
			require.Equal(t, want, take(t, s, u), a)
			clock.Advance(3 * time.Second)
		}
		require.NoError(t, client.FlushAll(t.Context()).Err())
	}
	mixed := []ratelimit.Ask{ask(all[0], ratelimit.PerMinute(7), 1), ask(all[1], ratelimit.PerMinute(7), 1)}
	mixed[1].Look = true
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	for _, s := range []ratelimit.Store{s, memory} {
		_, err = s.Take(t.Context(), mixed)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, "ratelimit: look is true and false: must be the same in all asks of one call")
	}
}

// TestLookAtLease checks that a look says what is granted from units taken ahead, and spends none.
func TestLookAtLease(t *testing.T) {
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, startReal(t).client(t), redisstore.WithClock(clock), redisstore.WithLeases(20))
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerDay(1000), 1)
	for range 2000 {
		if s.Stats().LeaseHits > 0 {
			break
		}
		take(t, s, u)
	}
	before := s.Stats()
	require.NotZero(t, before.LeaseHits)
	for range 50 { // more than there is
		want := look(t, s, u)
		for range 30 {
			require.Equal(t, want.Remaining, look(t, s, u).Remaining)
		}
		require.Equal(t, want.Remaining, take(t, s, u).Remaining)
	}
	require.NoError(t, s.Close())
}

// TestLookAtDenial checks that a look is answered from the denial cache as a take is, so that the two
// agree even if another process has reset the key, and that it is not counted.
func TestLookAtDenial(t *testing.T) {
	s := newStore(t, startReal(t).client(t))
	u := ask(ratelimit.AlgorithmTokenBucket, ratelimit.PerHour(1), 1)
	take(t, s, u)
	require.False(t, take(t, s, u).Allowed)
	calls, hits := s.Stats().Calls, s.Stats().CacheHits
	require.False(t, look(t, s, u).Allowed)
	assert.Equal(t, calls, s.Stats().Calls)
	assert.Equal(t, hits, s.Stats().CacheHits)
}

// TestExplainInRedis explains requests to random rules, and then makes them, on a server and on a
// Cluster, where the rules of one request are in several slots.
func TestExplainInRedis(t *testing.T) {
	t.Parallel()
	single := startReal(t).client(t)
	_, cluster := startReplicated(t)
	for name, client := range map[string]redis.UniversalClient{"server": single, "cluster": cluster} {
		clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
		l, err := ratelimit.New([]ratelimit.Rule{
			{
				Name: "user", Endpoint: "/a", Rate: ratelimit.PerSecond(5),
				Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerSecond(9).WithBurst(3)},
			},
			{
				Name: "all", Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal,
				Algorithm: ratelimit.AlgorithmSlidingWindowCounter, Rate: ratelimit.PerSecond(9),
			},
			{
				Name: "trial", Endpoint: "/a", Mode: ratelimit.ModeShadow, Key: ratelimit.KeyEndpoint,
				Algorithm: ratelimit.AlgorithmSlidingWindowLog, Rate: ratelimit.PerSecond(3),
			},
			{Endpoint: "/b", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(4)},
			{Endpoint: "/c", Algorithm: ratelimit.AlgorithmFixedWindow, Key: ratelimit.KeyGlobal, Rate: ratelimit.PerSecond(4)},
		}, nil, ratelimit.WithStore(newStore(t, client, redisstore.WithClock(clock), redisstore.WithDenialCache(0))),
			ratelimit.WithName("shop"), ratelimit.WithClock(clock))
		require.NoError(t, err)
		r, denied := rand.New(rand.NewPCG(12, 5)), 0
		for range schedules(1500) {
			clock.Advance(time.Duration(max(r.IntN(400)-200, 0)) * time.Millisecond) // often none
			req := ratelimit.Request{
				Client: []string{"a", "b", "c"}[r.IntN(3)], Endpoint: []string{"/a", "/b", "/c"}[r.IntN(3)],
				Tier: []string{"", "paid"}[r.IntN(2)], Cost: r.IntN(5),
			}
			e, err := l.Explain(t.Context(), req)
			require.NoError(t, err)
			res, each, err := l.CheckAll(t.Context(), req, nil)
			require.NoError(t, err)
			require.Equal(t, res, e.Result, "%s: %+v\n%v", name, req, e)
			if !res.Allowed {
				denied++
			}
			for _, x := range e.Rules {
				require.EqualValues(t, "store", x.AnsweredBy)
				if x.Mode != ratelimit.ModeShadow {
					require.Equal(t, each[0], x.Result, "%s: %+v\n%v", name, req, e)
					each = each[1:]
				}
			}
		}
		t.Logf("%s: %d of %d denied", name, denied, schedules(1500))
	}
}
