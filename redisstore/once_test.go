package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// hourly is the TTL of most requests here.
const hourly = time.Hour

// ownAndAll are asks for units of a client's own state and of one that all clients share, which are
// in two slots of a Cluster.
func ownAndAll(n int) []ratelimit.Ask {
	return []ratelimit.Ask{
		{Rule: "test:own", Key: "alice", Client: "alice", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerDay(1 << 20), N: n},
		{Rule: "test:all", Algorithm: ratelimit.AlgorithmSlidingWindowCounter, Rate: ratelimit.PerDay(1 << 20), N: n},
	}
}

// retrying are the rules that these asks come from.
var retrying = []ratelimit.Rule{
	{Name: "own", Endpoint: "/", Rate: ratelimit.PerDay(1 << 20)},
	{
		Name: "all", Endpoint: "/", Key: ratelimit.KeyGlobal,
		Algorithm: ratelimit.AlgorithmSlidingWindowCounter, Rate: ratelimit.PerDay(1 << 20),
	},
}

// retries returns a limiter of the retrying rules on s.
func retries(t *testing.T, s ratelimit.Store) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(retrying, nil, ratelimit.WithStore(s), ratelimit.WithName("test"), ratelimit.WithRequestIDs(hourly),
		ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	require.NoError(t, err)
	return l
}

// used returns how many units of ownAndAll are used.
func used(t *testing.T, s *redisstore.Store) (own, all int) {
	t.Helper()
	asks := ownAndAll(0)
	return 1<<20 - left(t, s, asks[0]), 1<<20 - left(t, s, asks[1])
}

// onServers runs test with clients of a single server, and with clients of a Cluster. Each call of
// connect makes another one.
func onServers(t *testing.T, test func(t *testing.T, connect func() redis.UniversalClient)) {
	t.Helper()
	t.Run("standalone", func(t *testing.T) {
		srv := startReal(t)
		test(t, func() redis.UniversalClient { return srv.client(t) })
	})
	t.Run("cluster", func(t *testing.T) {
		servers, _ := startCluster(t)
		test(t, func() redis.UniversalClient {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{servers[0].addr, servers[1].addr}})
			t.Cleanup(func() { _ = c.Close() })
			return c
		})
	})
}

// TestRetriesAtOnce sends each request from 64 goroutines, half of them by another client, as two
// processes do.
func TestRetriesAtOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		ls := []*ratelimit.RateLimiter{retries(t, newStore(t, connect(), frozen())), retries(t, newStore(t, connect(), frozen()))}
		rounds := soaked(20, 1000)
		for round := range rounds {
			req := ratelimit.Request{Client: "alice", Endpoint: "/", ID: fmt.Sprint(round)}
			var results [64]ratelimit.Result
			var ready, all sync.WaitGroup
			ready.Add(1)
			for g := range results {
				all.Go(func() {
					ready.Wait()
					var err error
					results[g], err = ls[g%2].Check(context.Background(), req)
					assert.NoError(t, err)
				})
			}
			ready.Done()
			all.Wait()
			require.True(t, results[0].Allowed)
			for _, res := range results {
				require.Equal(t, results[0], res, "round %d", round)
			}
		}
		own, all := used(t, newStore(t, connect(), frozen()))
		require.Equal(t, rounds, own, "one charge for each")
		require.Equal(t, rounds, all)
		replays := ls[0].Stats()[0].Replayed + ls[1].Stats()[0].Replayed
		require.EqualValues(t, 63*rounds, replays)
		t.Logf("%d rounds of 64 calls by two limiters: %d charges, %d replays, all answers of a round equal", rounds, own, replays)
	})
}

// TestOnceRepliesLost loses replies to requests with an ID, and sends them again.
func TestOnceRepliesLost(t *testing.T) {
	t.Parallel()
	throughProxies(t, func(t *testing.T, s, direct *redisstore.Store, proxies ...*proxy) {
		l := retries(t, s)
		check := func(id string) (ratelimit.Result, error) {
			return l.Check(t.Context(), ratelimit.Request{Client: "alice", Endpoint: "/", ID: id})
		}
		_, err := check("first")
		require.NoError(t, err, "the servers know the scripts")
		for i, p := range proxies {
			p.will(loses, 1)
			res, err := check(fmt.Sprint(i))
			p.will(loses, 0)
			own, all := used(t, direct)
			if err == nil { // neither key is there
				require.True(t, res.Allowed)
				continue
			}
			require.ErrorIs(t, err, ratelimit.ErrStore)
			require.False(t, res.Allowed)
			require.LessOrEqual(t, own, i+2)
			t.Logf("proxy %d lost a reply: %d units of the client and %d of all are used", i, own, all)
			res, err = check(fmt.Sprint(i))
			require.NoError(t, err)
			require.True(t, res.Allowed)
			again, err := check(fmt.Sprint(i))
			require.NoError(t, err)
			require.Equal(t, res, again)
			own, all = used(t, direct)
			require.Equal(t, i+2, own, "the client is charged once")
			require.GreaterOrEqual(t, all, own, "and nobody less")
		}
		own, all := used(t, direct)
		require.Equal(t, len(proxies)+1, own)
		require.GreaterOrEqual(t, all, own, "never less than what was granted")
		require.LessOrEqual(t, all, own+1, "a lost reply of another slot leaves its charge")
		if len(proxies) == 1 {
			require.Equal(t, own, all, "on one server both are charged by one script")
		}
	})
}

// TestOnceInOtherSlots proves that charges in other slots are given back when the request was granted
// before, and when it is denied on either side, and that a record answers also when they have no
// units left.
func TestOnceInOtherSlots(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, connect func() redis.UniversalClient) {
		s, ctx := newStore(t, connect(), frozen()), t.Context()
		once := ratelimit.Attempt{Client: "alice", ID: "1", TTL: hourly}
		asks := ownAndAll(5)
		first, replayed, err := s.Once(ctx, once, asks)
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, []int{1<<20 - 5, 1<<20 - 5}, []int{first[0].Remaining, first[1].Remaining})
		for range 10 {
			again, replayed, err := s.Once(ctx, once, []ratelimit.Ask{asks[1], asks[0]})
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, []ratelimit.Result{first[1], first[0]}, again)
		}
		own, all := used(t, s)
		require.Equal(t, []int{5, 5}, []int{own, all})

		for i := range asks { // the one is used up, then the other
			rest := asks[i]
			rest.N = left(t, s, rest)
			require.True(t, take(t, s, rest).Allowed)
			other := once
			other.ID = "2"
			results, replayed, err := s.Once(ctx, other, asks)
			require.NoError(t, err)
			require.False(t, replayed)
			require.False(t, results[i].Allowed)
			if i == 0 {
				require.True(t, results[1].Allowed)
				require.Equal(t, 1<<20-5, results[1].Remaining, "as if it were the only one")
			}
			again, replayed, err := s.Once(ctx, once, asks)
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, first, again)
			own, all := used(t, s)
			want := [][]int{{1 << 20, 5}, {1 << 20, 1 << 20}}[i]
			require.Equal(t, want, []int{own, all})
			if i == 1 {
				require.NoError(t, s.Reset(ctx, asks[:1]))
				other.ID = "3"
				for range 2 {
					results, replayed, err = s.Once(ctx, other, asks)
					require.NoError(t, err)
					require.False(t, replayed, "what another slot denies is not recorded")
					require.Equal(t, []bool{true, false}, []bool{results[0].Allowed, results[1].Allowed})
					require.Equal(t, 1<<20, results[0].Remaining)
				}
				own, _ = used(t, s)
				require.Zero(t, own)
			} else {
				require.NoError(t, s.Reset(ctx, asks[:1]))
				ofAlice := asks[0]
				ofAlice.Key, ofAlice.Client, ofAlice.N = "alice", "alice", 1<<20
				require.True(t, take(t, s, ofAlice).Allowed)
			}
		}
	})
}

// TestOnceStored looks at what the server keeps, and at what it keeps it for.
func TestOnceStored(t *testing.T) {
	client := startReal(t).client(t)
	s, ctx := newStore(t, client), t.Context()
	keys := func() []string {
		all, err := client.Keys(ctx, "*:1i*").Result()
		require.NoError(t, err)
		return all
	}
	for _, row := range []struct {
		client, prefix string
		id             string
	}{
		{"alice", "ratelimit:{calice}:1i:", "1"},
		{"a b", "ratelimit:{ca%20b}:1i:", strings.Repeat("x", 1<<20)},
		{strings.Repeat("y", 1000), "ratelimit:{c#", "1"},
		{"", "ratelimit:{", "1"},
	} {
		require.NoError(t, client.FlushDB(ctx).Err())
		u := ask(all[0], ratelimit.PerMinute(60), 1)
		_, _, err := s.Once(ctx, ratelimit.Attempt{Client: row.client, ID: row.id, TTL: 1500 * time.Microsecond}, []ratelimit.Ask{u})
		require.NoError(t, err)
		found := keys()
		require.Len(t, found, 1)
		assert.True(t, strings.HasPrefix(found[0], row.prefix), found[0])
		assert.Less(t, len(found[0]), 130)
		if row.client == "" {
			assert.True(t, strings.HasSuffix(found[0], "}:1i"), found[0])
		}
	}
	u := ask(all[0], ratelimit.PerMinute(60), 1)
	require.NoError(t, client.FlushDB(ctx).Err())
	_, _, err := s.Once(ctx, ratelimit.Attempt{Client: strings.Repeat("a", 24), ID: "1", TTL: hourly}, []ratelimit.Ask{u})
	require.NoError(t, err)
	bytes, err := client.MemoryUsage(ctx, keys()[0]).Result()
	require.NoError(t, err)
	t.Logf("a record of one rule, of a client whose name has 24 bytes, takes %d bytes", bytes)
	once := ratelimit.Attempt{Client: "alice", ID: "1", TTL: hourly}
	require.NoError(t, client.FlushDB(ctx).Err())
	for replay := range 3 {
		_, _, err := s.Once(ctx, once, []ratelimit.Ask{u})
		require.NoError(t, err)
		text, err := client.Get(ctx, keys()[0]).Result()
		require.NoError(t, err)
		at, kept, _ := strings.Cut(text, " ")
		require.Len(t, at, 16)
		require.Equal(t, fmt.Sprintf("3600000000 %d 60 1 59 0 1000000 0", replay), kept)
		ends, err := client.PTTL(ctx, keys()[0]).Result()
		require.NoError(t, err)
		require.Greater(t, ends, hourly-time.Minute)
		require.LessOrEqual(t, ends, hourly+time.Second, "a replay does not make it last longer")
	}
	wantForeign(t, client, s, once, u, keys()[0])
	require.Equal(t, 59, left(t, s, u), "and nothing was charged")
}

// wantForeign stores values of another program under record, and requires that the request fails.
func wantForeign(t *testing.T, client *redis.Client, s *redisstore.Store, once ratelimit.Attempt, u ratelimit.Ask, record string) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, client.Set(ctx, record, "of another program", 0).Err())
	for _, want := range []redisstore.Class{redisstore.ClassCorrupt, redisstore.ClassWrongType} {
		_, _, err := s.Once(ctx, once, []ratelimit.Ask{u})
		var e *redisstore.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, want, e.Class)
		require.True(t, e.Answered())
		require.NoError(t, client.Del(ctx, record).Err())
		require.NoError(t, client.RPush(ctx, record, "x").Err())
	}
}

// TestOnceThatFailsInTheSlotOfTheRecord proves that the other slots are given back what was charged
// there if the last script has certainly changed nothing.
func TestOnceThatFailsInTheSlotOfTheRecord(t *testing.T) {
	t.Parallel()
	_, client := startCluster(t)
	s, ctx := newStore(t, client, frozen()), t.Context()
	once, asks := ratelimit.Attempt{Client: "alice", ID: "1", TTL: hourly}, ownAndAll(1)
	require.NoError(t, client.RPush(ctx, s.KeyOf(asks[0]), "x").Err())
	for range 3 {
		_, _, err := s.Once(ctx, once, asks)
		var e *redisstore.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, redisstore.ClassWrongType, e.Class)
		var parts interface{ Parts() []int }
		require.ErrorAs(t, err, &parts)
		require.Equal(t, []int{s.Part(asks[0])}, parts.Parts())
	}
	require.NoError(t, client.Del(ctx, s.KeyOf(asks[0])).Err())
	own, all := used(t, s)
	require.Equal(t, []int{0, 0}, []int{own, all})

	require.NoError(t, s.Reset(ctx, asks))
	require.NoError(t, client.RPush(ctx, s.KeyOf(asks[1]), "x").Err())
	_, _, err := s.Once(ctx, once, asks)
	require.Error(t, err)
	require.NoError(t, client.Del(ctx, s.KeyOf(asks[1])).Err())
	first, replayed, err := s.Once(ctx, once, asks)
	require.NoError(t, err)
	require.False(t, replayed, "what has failed is not recorded")
	require.NoError(t, client.Del(ctx, s.KeyOf(asks[1])).Err())
	require.NoError(t, client.RPush(ctx, s.KeyOf(asks[1]), "x").Err())
	again, replayed, err := s.Once(ctx, once, asks)
	require.NoError(t, err, "a record answers although another slot fails")
	require.True(t, replayed)
	require.Equal(t, first, again)
}

// TestOnceAsksTheServer proves that what this process remembers of a state hides no record, and that
// units taken ahead are not spent.
func TestOnceAsksTheServer(t *testing.T) {
	client := startReal(t).client(t)
	s, ctx := newStore(t, client, redisstore.WithLeases(10)), t.Context()
	u := ask(all[0], ratelimit.PerDay(100), 1)
	once := ratelimit.Attempt{Client: "alice", ID: "1", TTL: hourly}
	_, _, err := s.Once(ctx, once, []ratelimit.Ask{u})
	require.NoError(t, err)
	for range 30 {
		take(t, s, u)
	}
	hits := s.Stats().LeaseHits
	require.Positive(t, hits)
	_, replayed, err := s.Once(ctx, once, []ratelimit.Ask{u})
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, hits, s.Stats().LeaseHits)
	require.NoError(t, s.Close())
	rest := u
	rest.N = left(t, s, u)
	take(t, s, rest)
	require.False(t, take(t, s, u).Allowed)
	known, denied := s.Denied(u)
	require.True(t, denied && !known.Allowed, "this process remembers the denial")
	results, replayed, err := s.Once(ctx, once, []ratelimit.Ask{u})
	require.NoError(t, err)
	require.True(t, replayed)
	require.True(t, results[0].Allowed)
}

// TestOnceRefuses lists what is refused before a server is asked.
func TestOnceRefuses(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	s := newStore(t, client)
	u := ask(all[0], ratelimit.PerDay(100), 1)
	none, bad := u, u
	none.N, bad.Algorithm = -1, "Guess"
	once, ended := ratelimit.Attempt{Client: "alice", ID: "1", TTL: hourly}, func() context.Context {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx
	}()
	for _, row := range []struct {
		ctx  context.Context
		s    *redisstore.Store
		once ratelimit.Attempt
		ask  ratelimit.Ask
		want string
	}{
		{t.Context(), s, ratelimit.Attempt{TTL: hourly}, u, `ratelimit: id is "": must not be empty`},
		{t.Context(), s, ratelimit.Attempt{ID: "1"}, u, "ratelimit: ttl is 0s: must be from a microsecond to 366 days"},
		{t.Context(), s, ratelimit.Attempt{ID: "1", TTL: 8785 * time.Hour}, u,
			"ratelimit: ttl is 8785h0m0s: must be from a microsecond to 366 days"},
		{t.Context(), s, once, none, ratelimit.ErrInvalidCount.Error()},
		{t.Context(), s, once, bad, "ratelimit: algorithm is Guess: must be one of the five, or InFlight"},
		{ended, s, once, u, context.Canceled.Error()},
		{t.Context(), new(redisstore.Store), once, u, "ratelimit: store is the zero value: must be made by New"},
	} {
		results, replayed, err := row.s.Once(row.ctx, row.once, []ratelimit.Ask{u, row.ask})
		require.EqualError(t, err, row.want)
		require.Nil(t, results)
		require.False(t, replayed)
	}
	results, replayed, err := s.Once(t.Context(), once, nil)
	require.NoError(t, err)
	require.Empty(t, results)
	require.False(t, replayed)
}
