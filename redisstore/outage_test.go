package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// rules returns a RateLimiter on s with one rule by client.
func rules(t testing.TB, s *redisstore.Store, limit int, p ratelimit.FailurePolicy) *ratelimit.RateLimiter {
	t.Helper()
	l, err := ratelimit.New(nil, &ratelimit.Rule{Name: "rule", Rate: yearly(limit)},
		ratelimit.WithStore(s), ratelimit.WithName("test"), ratelimit.WithFailurePolicy(p))
	require.NoError(t, err)
	return l
}

// storedAs returns the ask that a limiter of rules makes for a client.
func storedAs(client string) ratelimit.Ask {
	return ratelimit.Ask{Rule: "test:rule", Key: client, Client: client, Algorithm: ratelimit.AlgorithmTokenBucket}
}

// TestPoisonedKey puts a foreign value into one key of ten, which gets half of the requests.
// It checks that the server decides about all the others, and that the key can be reset.
func TestPoisonedKey(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	l := rules(t, s, 1000, ratelimit.FailClosed)
	require.NoError(t, client.HSet(t.Context(), s.KeyOf(storedAs("bad")), "a", "b").Err())
	degraded, refused := 0, 0
	for i := range 4000 {
		if i/10%2 == 0 { // ten at a time: five failures in a row open a breaker
			if l.Allow("bad", "").Degraded {
				refused++
			}
		} else if l.Allow(fmt.Sprint("good", i%9), "").Degraded {
			degraded++
		}
	}
	assert.Zero(t, degraded, "of 2000 good calls")
	assert.Equal(t, 2000, refused, "the policy answers for the poisoned key")
	assert.Zero(t, l.StoreStats().Opened)
	t.Logf("one poisoned key in ten: %d of 2000 good calls degraded", degraded)

	require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Client: "bad", Endpoint: "/"}))
	assert.False(t, l.Allow("bad", "").Degraded, "a Reset clears the key")
}

// TestUsedUpKeyOutOfMemory fills the memory of the server. It checks that a used-up key is
// denied, as the server can still do, although other keys are answered by FailOpen.
func TestUsedUpKeyOutOfMemory(t *testing.T) {
	client := startReal(t).client(t)
	l := rules(t, newStore(t, client, redisstore.WithDenialCache(0)), 3, ratelimit.FailOpen)
	for range 3 {
		require.True(t, l.Allow("used", "").Allowed)
	}
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	denied := 0
	for i := range 200 {
		if i/10%2 == 0 { // ten at a time: five failures in a row open a breaker
			require.True(t, l.Allow(fmt.Sprint(i), "").Degraded, "a new key needs memory")
		} else if !l.Allow("used", "").Allowed {
			denied++
		}
	}
	assert.Equal(t, 100, denied)
	t.Logf("out of memory: a used-up key was denied %d of 100 times", denied)
}

// TestLostReplyCountsOnce swallows one reply while 40 callers wait, for one key or for one key
// each. It checks that no breaker opens.
func TestLostReplyCountsOnce(t *testing.T) {
	t.Parallel()
	p := startProxy(t, start(t).addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, redisstore.WithTimeout(300*time.Millisecond))
	require.NoError(t, err)
	for _, keys := range []int{1, 40} {
		var failed atomic.Int64
		opened := 0
		for range 8 {
			l := rules(t, s, 1_000_000, ratelimit.FailClosed)
			until(t, func(context.Context) error { _, err := l.Peek(t.Context(), ratelimit.Request{}); return err })
			p.will(drops, 1)
			var callers sync.WaitGroup
			for i := range 40 {
				callers.Go(func() {
					if l.Allow(fmt.Sprint(i%keys), "").Degraded {
						failed.Add(1)
					}
				})
			}
			callers.Wait()
			opened += int(l.StoreStats().Opened)
			idle(t, s)
		}
		assert.Zero(t, opened)
		t.Logf("one lost reply, 40 callers of %d keys: %d callers failed, the breaker opened in %d of 8 trials", keys, failed.Load(), opened)
		if keys == 1 {
			assert.Greater(t, failed.Load(), int64(8), "several callers have shared a lost call")
		}
	}
}

// TestShortContexts stops the server, and asks with contexts that end before the timeout of
// the store. It checks that the failure policy soon answers.
func TestShortContexts(t *testing.T) {
	t.Parallel()
	srv := startReal(t)
	servers, cluster := startCluster(t)
	for _, row := range []struct {
		name    string
		servers []*server
		client  redis.UniversalClient
		callers int
		keys    int
		within  time.Duration
	}{
		{"a key each", []*server{srv}, srv.client(t), 16, 16, 300 * time.Millisecond},
		{"one key", []*server{srv}, srv.client(t), 16, 1, 500 * time.Millisecond},
		{"one caller", []*server{srv}, srv.client(t), 1, 1, 500 * time.Millisecond},
		{"one key of a cluster", servers, cluster, 16, 1, 500 * time.Millisecond},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := redisstore.New(row.client)
			require.NoError(t, err)
			l := rules(t, s, 1_000_000, ratelimit.FailOpen)
			until(t, func(context.Context) error { _, err := l.Peek(t.Context(), ratelimit.Request{}); return err })
			for _, srv := range row.servers {
				srv.signal(t, syscall.SIGSTOP)
			}
			began := time.Now()
			var took, left atomic.Int64
			until(t, func(context.Context) error {
				eachOf(row.callers, row.callers, func(i int) {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
					defer cancel()
					res, err := l.Check(ctx, ratelimit.Request{Client: fmt.Sprint(i % row.keys)})
					if res.Degraded {
						assert.ErrorIs(t, err, ratelimit.ErrStore)
						assert.True(t, res.Allowed)
						took.CompareAndSwap(0, int64(time.Since(began)))
						return
					}
					left.Add(1)
				})
				if took.Load() == 0 {
					return assert.AnError
				}
				return nil
			})
			for _, srv := range row.servers {
				srv.signal(t, syscall.SIGCONT)
			}
			assert.Less(t, time.Duration(took.Load()), 10*row.within)
			t.Logf("%s: after %d calls that ended with their contexts of 20 ms, FailOpen answered %v after the first call",
				row.name, left.Load(), time.Duration(took.Load()).Round(time.Millisecond))
			until(t, func(ctx context.Context) error {
				_, err := l.Check(ctx, ratelimit.Request{Client: "0"})
				return err
			})
			idle(t, s)
		})
	}
}

// TestShortContextsHung is TestShortContexts for a client that ignores every deadline.
func TestShortContextsHung(t *testing.T) {
	t.Parallel()
	on, ends := new(atomic.Bool), make(chan struct{})
	client := redis.NewClient(&redis.Options{Addr: start(t).addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return hanging{conn, on, ends}, err
	}})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, redisstore.WithTimeout(time.Second)) // so that callers have left for long
	require.NoError(t, err)
	l := rules(t, s, 1_000_000, ratelimit.FailOpen)
	on.Store(true)
	until(t, func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if res, _ := l.Check(ctx, ratelimit.Request{Client: "c"}); !res.Degraded {
			return assert.AnError
		}
		return nil
	})
	close(ends)
	idle(t, s)
}

// TestShortContextsOfParts is TestShortContexts for a decision in several slots of a Cluster.
func TestShortContextsOfParts(t *testing.T) {
	t.Parallel()
	servers, cluster := startCluster(t)
	s, err := redisstore.New(cluster)
	require.NoError(t, err)
	l, err := ratelimit.New([]ratelimit.Rule{
		{Name: "client", Endpoint: "/", Rate: yearly(1_000_000)},
		{Name: "endpoint", Endpoint: "/", Rate: yearly(1_000_000), Key: ratelimit.KeyEndpoint},
	}, nil, ratelimit.WithStore(s), ratelimit.WithName("test"), ratelimit.WithFailurePolicy(ratelimit.FailOpen))
	require.NoError(t, err)
	req := ratelimit.Request{Client: "c", Endpoint: "/"}
	until(t, func(ctx context.Context) error { _, err := l.Check(ctx, req); return err })
	for _, srv := range servers {
		srv.signal(t, syscall.SIGSTOP)
	}
	until(t, func(context.Context) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if res, _ := l.Check(ctx, req); !res.Degraded {
			return assert.AnError
		}
		return nil
	})
	assert.NotZero(t, l.StoreStats().Opened)
	for _, srv := range servers {
		srv.signal(t, syscall.SIGCONT)
	}
	until(t, func(ctx context.Context) error { _, err := l.Check(ctx, req); return err })
	idle(t, s)
}

// TestRing checks that a Ring is refused, and that the error says why.
func TestRing(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	_, err := redisstore.New(ring)
	require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
	require.ErrorContains(t, err, "client is a *redis.Ring: must not be a Ring: when it drops a server")
}

// TestAccessList makes the server accept nothing but the commands that docs/redis.md lists, and
// checks that everything works.
func TestAccessList(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/redis.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "\nACL SETUSER limiter ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n")
	command := []any{"ACL", "SETUSER", "limiter"}
	for word := range strings.FieldsSeq(list) {
		command = append(command, word)
	}
	srv := startReal(t)
	servers, _ := startCluster(t)
	for _, s := range append(servers, srv) {
		require.NoError(t, s.client(t).Do(t.Context(), command...).Err())
	}
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.addr)
	}
	one := redis.NewClient(&redis.Options{Addr: srv.addr, Username: "limiter", Password: "secret"})
	defer func() { _ = one.Close() }()
	many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "limiter", Password: "secret"})
	defer func() { _ = many.Close() }()
	for _, client := range []redis.UniversalClient{one, many} {
		store := newStore(t, client, redisstore.WithLeases(10))
		require.NoError(t, store.Ping(t.Context()))
		var asks []ratelimit.Ask
		for i, a := range all {
			u := ask(a, ratelimit.Rate{Requests: 1000, Per: 200 * time.Millisecond}, 1)
			u.Rule = fmt.Sprint("rule", i)
			asks = append(asks, u)
		}
		for range 3 { // windows end, entries leave
			for range 30 {
				_, err := store.Take(t.Context(), asks)
				require.NoError(t, err)
				for _, u := range asks {
					take(t, store, u)
				}
			}
			<-time.After(250 * time.Millisecond)
		}
		for i := range asks { // reservations: some end early, others late, one is used for more than was reserved
			u := asks[i]
			u.Rate = ratelimit.Rate{Requests: 1000, Per: time.Second}
			for receipt := range uint64(12) {
				u.Receipt, u.HoldFor, u.N = 1000*uint64(i+1)+receipt, 100*time.Millisecond+time.Hour*time.Duration(receipt%2), 2
				take(t, store, u)
				u.Rate.Requests++ // which converts the receipts
			}
			<-time.After(150 * time.Millisecond)
			for receipt := range uint64(12) {
				u.Receipt, u.Charged, u.N = 1000*uint64(i+1)+receipt, 2, int(receipt%4)
				if receipt == 5 {
					u.N = 0 // an entry in the middle of a log goes
				}
				require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{u}))
			}
		}
		for id := range uint64(4) { // what is in flight: it ends, goes on, or is over
			u := held(100, 2, id+1)
			u.Rate.Per = 100 * time.Millisecond * time.Duration(1+id%2*10)
			take(t, store, u)
			require.True(t, extend(t, store, u))
			asks = append(asks, u)
		}
		<-time.After(150 * time.Millisecond)
		for _, u := range asks[len(all):] {
			settle(t, store, u, 0)
		}
		apart := apart(all[0], ratelimit.PerDay(1), 3)
		for range 2 { // the second is denied, and gives back
			_, err := store.Take(t.Context(), apart[:2])
			require.NoError(t, err)
			_, err = store.Take(t.Context(), apart)
			require.NoError(t, err)
		}
		for range 4 { // a key is blocked, and pardoned
			take(t, store, penalized(1))
		}
		require.NoError(t, store.Pardon(t.Context(), []ratelimit.Ask{penalized(1)}))
		once := penalized(1)
		_, _, err := store.Once(t.Context(), ratelimit.Attempt{Client: "b", ID: "x", TTL: time.Hour}, append(apart, once))
		require.NoError(t, err)
		last := blockOf("last")
		last.Until = time.Now().Add(time.Hour)
		set(t, store, blockOf("a"), blockOf("b"), last)
		v := since(t, store, ratelimit.OverrideVersion{}).Version
		set(t, store, ratelimit.Override{Client: "a"}, ratelimit.Override{Client: "b"})
		require.Len(t, since(t, store, v).Lifted, 2)
		set(t, store, ratelimit.Override{Client: "last"})
		require.NoError(t, store.Close())
		require.NoError(t, store.Reset(t.Context(), asks))
		assert.Empty(t, store.Stats().Errors)
	}
}
