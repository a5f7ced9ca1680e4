package redisstore_test

import (
	"context"
	"errors"
	"math"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// throughProxies runs test with a store whose connections go through proxies, which one of a server
// and one of a Cluster have, and with one whose connections do not.
func throughProxies(t *testing.T, test func(t *testing.T, s, direct *redisstore.Store, proxies ...*proxy)) {
	t.Helper()
	t.Run("standalone", func(t *testing.T) {
		srv := start(t)
		p := startProxy(t, srv.addr)
		client := redis.NewClient(&redis.Options{Addr: p.addr})
		defer func() { _ = client.Close() }()
		test(t, newStore(t, client, frozen()), newStore(t, srv.client(t), frozen()), p)
	})
	t.Run("cluster", func(t *testing.T) {
		servers, direct := startCluster(t)
		var proxies []*proxy
		by := make(map[string]*proxy)
		for _, srv := range servers {
			by[srv.addr] = startProxy(t, srv.addr)
			proxies = append(proxies, by[srv.addr])
		}
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{servers[0].addr},
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, by[addr].addr)
			},
		})
		defer func() { _ = client.Close() }()
		test(t, newStore(t, client, frozen()), newStore(t, direct, frozen()), proxies...)
	})
}

// TestReplyLost loses replies to decisions. It checks that each decision is charged once,
// and returns an error.
func TestReplyLost(t *testing.T) { throughProxies(t, loseReplies) }

// loseReplies makes the proxies of s lose so many replies in a row, for each algorithm, and
// checks by direct, which has no proxy, what was charged.
func loseReplies(t *testing.T, s, direct *redisstore.Store, proxies ...*proxy) {
	for _, lose := range []int{1, 2, 3, 10} {
		calls, charges := 0, 0
		for _, a := range all {
			u := ask(a, ratelimit.PerDay(100), 1)
			require.NoError(t, direct.Reset(context.Background(), []ratelimit.Ask{u}))
			require.Equal(t, 99, take(t, s, u).Remaining, "the server knows the script, and a connection is open")
			for _, p := range proxies {
				p.will(loses, lose)
			}
			for i := range lose {
				fails(t, s, []ratelimit.Ask{u}, time.Second, redisstore.ClassConnection)
				calls++
				assert.Equal(t, i+1, met(proxies), "%s: a call has one reply", a)
				assert.Equal(t, 98-i, left(t, direct, u), "%s: call %d is charged once", a, i+1)
			}
			charges += 99 - left(t, direct, u)
			for _, p := range proxies {
				p.will(loses, 0)
			}
			assert.Equal(t, 98-lose, take(t, s, u).Remaining, "%s: the next one succeeds", a)
		}
		t.Logf("replies lost %d in a row: %d calls, %d charges", lose, calls, charges)
	}
}

// met returns how many replies have got a fault at proxies.
func met(proxies []*proxy) (n int) {
	for _, p := range proxies {
		n += int(p.met.Load())
	}
	return n
}

// TestRepliesLate makes replies come too late, never, or in part. It checks that a call
// fails by its deadline, and is charged once.
func TestRepliesLate(t *testing.T) {
	t.Parallel()
	const timeout, calls = 500 * time.Millisecond, 3
	srv := start(t)
	p := startProxy(t, srv.addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, redisstore.WithTimeout(timeout), frozen())
	require.NoError(t, err)
	direct := newStore(t, srv.client(t), frozen())
	u := ask(all[0], ratelimit.PerDay(100), 1)
	for _, row := range []struct {
		name  string
		fault fault
		class redisstore.Class
	}{
		{"delayed by 1 s", delays, redisstore.ClassTimeout},
		{"swallowed, the connection open", drops, redisstore.ClassTimeout},
		{"cut in half by a reset", resets, redisstore.ClassConnection},
	} {
		var longest time.Duration
		for range calls {
			p.will(drops, 0)
			until(t, func(ctx context.Context) error { return warm(ctx, s, u) })
			p.will(row.fault, math.MaxInt)
			before, began := left(t, direct, u), time.Now()
			fails(t, s, []ratelimit.Ask{u}, timeout, row.class)
			longest = max(longest, time.Since(began))
			assert.Equal(t, 1, met([]*proxy{p}), row.name)
			assert.Equal(t, before-1, left(t, direct, u), "%s: one charge", row.name)
		}
		idle(t, s)
		t.Logf("replies %s, a timeout of %v: %d calls, %d charges, the longest call took %v",
			row.name, timeout, calls, calls, longest)
	}
}

// warm makes a look, so that a connection is open and the server knows the script. It
// returns an error while earlier calls are under way.
func warm(ctx context.Context, s *redisstore.Store, u ratelimit.Ask) error {
	if s.CallsUnderWay() > 0 {
		return errors.New("calls are under way")
	}
	u.N = 0
	_, err := s.Take(ctx, []ratelimit.Ask{u})
	return err
}

// A broken connection looks as if the server had closed it.
type broken struct{ net.Conn }

func (b broken) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
}

// TestGreetingFails breaks connections while the client sets them up, and checks the class
// of the error.
func TestGreetingFails(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
		end, _ := net.Pipe()
		return broken{end}, nil
	}})
	defer func() { _ = client.Close() }()
	fails(t, newStore(t, client), []ratelimit.Ask{ask(all[0], rate5, 1)}, time.Second, redisstore.ClassConnection)
}
