package redisstore_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestSlowHandshake makes every reply come 200 ms later, so that setting up a connection takes
// longer than the timeout of 250 ms. It checks that the first call fails without being charged,
// and that the connection that was made for it serves the second.
func TestSlowHandshake(t *testing.T) {
	t.Parallel()
	const timeout, step = 250 * time.Millisecond, 200 * time.Millisecond
	srv := startReal(t)
	require.NoError(t, srv.client(t).ConfigSet(t.Context(), "requirepass", "secret").Err())
	direct := redis.NewClient(&redis.Options{Addr: srv.addr, Password: "secret"})
	defer func() { _ = direct.Close() }()
	for _, row := range []struct {
		name string
		db   int
		idle int
	}{{"AUTH", 0, 0}, {"AUTH and SELECT", 1, 0}, {"connections made in advance", 0, 1}} {
		require.NoError(t, direct.FlushAll(t.Context()).Err())
		p := startProxy(t, srv.addr)
		p.slow.Store(int64(step))
		client := redis.NewClient(&redis.Options{Addr: p.addr, Password: "secret", DB: row.db, MinIdleConns: row.idle})
		s, err := redisstore.New(client, redisstore.WithTimeout(timeout))
		require.NoError(t, err)
		u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: 100, Per: 366 * 24 * time.Hour}, 1)

		began := time.Now()
		_, err = s.Take(context.Background(), []ratelimit.Ask{u})
		first := time.Since(began)
		var failed *redisstore.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, redisstore.ClassTimeout, failed.Class, err)
		assert.True(t, failed.NotSent(), err)
		assert.Less(t, first, 10*timeout)

		idle(t, s) // until the connection is made
		p.slow.Store(0)
		made := p.conns.Load()
		assert.Equal(t, 99, take(t, s, u).Remaining, "%s: the first call was not charged, as it said", row.name)
		if row.idle == 0 {
			assert.Equal(t, made, p.conns.Load(), "%s: the connection serves the second call", row.name)
		}
		t.Logf("%s, steps of %v, a timeout of %v: the first call fails after %v, the next is answered",
			row.name, step, timeout, first.Round(time.Millisecond))
		require.NoError(t, client.Close())
	}
}

// TestSlowHandshakeOfMany is as TestSlowHandshake with callers of several keys, some of whom ask
// when others have left already. It checks that nobody who was told that the request was not
// sent is charged.
func TestSlowHandshakeOfMany(t *testing.T) {
	t.Parallel()
	srv := startReal(t)
	p := startProxy(t, srv.addr)
	p.slow.Store(int64(20 * time.Millisecond))
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, redisstore.WithTimeout(50*time.Millisecond))
	require.NoError(t, err)
	direct := newStore(t, srv.client(t))
	keys := apart(ratelimit.AlgorithmFixedWindow, ratelimit.Rate{Requests: 1000, Per: 366 * 24 * time.Hour}, 8)
	var charged, unknown [8]int
	for range 20 {
		outcomes := make([]error, 64)
		eachOf(64, 64, func(i int) {
			<-time.After(time.Duration(i) * time.Millisecond)
			_, outcomes[i] = s.Take(context.Background(), keys[i%8:i%8+1])
		})
		for i, err := range outcomes {
			var failed *redisstore.Error
			switch {
			case err == nil:
				charged[i%8]++
			case !errors.As(err, &failed) || !failed.NotSent():
				unknown[i%8]++
			}
		}
		idle(t, s)
		_ = client.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no").Err() // connections are made anew
	}
	for i, u := range keys {
		used := 1000 - left(t, direct, u)
		assert.GreaterOrEqual(t, used, charged[i], "key %d", i)
		assert.LessOrEqual(t, used, charged[i]+unknown[i], "key %d: what was not sent is not charged", i)
	}
	t.Logf("answered %v, perhaps charged %v", charged, unknown)
}

// A reason is a client that makes no connection, and what the errors of its store must say about that.
type reason struct {
	client *redis.Client
	class  redisstore.Class
	err    error
	text   string
}

// causes are reasons why a call is not sent, with the default retries of the client.
func causes(t *testing.T) map[string]reason {
	srv := start(t)
	dials := func(dial func(context.Context) (net.Conn, error)) *redis.Client {
		c := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	refused := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + freePort(t)})
	t.Cleanup(func() { _ = refused.Close() })
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	unknown := &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "cache", IsNotFound: true}}
	full := redis.NewClient(&redis.Options{Addr: srv.addr, PoolSize: 1})
	t.Cleanup(func() { _ = full.Close() })
	held := full.Conn()
	require.NoError(t, held.Ping(t.Context()).Err())
	t.Cleanup(func() { _ = held.Close() })
	return map[string]reason{
		"refused":        {refused, redisstore.ClassDial, syscall.ECONNREFUSED, "connection refused"},
		"no such host":   {dials(func(context.Context) (net.Conn, error) { return nil, unknown }), redisstore.ClassDial, unknown, "no such host"},
		"pool exhausted": {full, redisstore.ClassPool, nil, "all connections of the client are in use"},
		"timed out": {dials(func(ctx context.Context) (net.Conn, error) {
			select {
			case <-ctx.Done():
			case <-over: // the client goes on to try after it was closed
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
		}), redisstore.ClassDial, nil, "context deadline exceeded"},
	}
}

// TestCauses checks that an error says why a call was not sent.
func TestCauses(t *testing.T) {
	t.Parallel()
	for name, row := range causes(t) {
		t.Run(name, row.check)
	}
}

// check makes calls with the client until an error names the reason.
func (row reason) check(t *testing.T) {
	s, err := redisstore.New(row.client, redisstore.WithTimeout(200*time.Millisecond))
	require.NoError(t, err)
	var failed *redisstore.Error
	until(t, func(ctx context.Context) error { // on a busy machine, the cause may be found too late for the first call
		_, err := s.Take(context.Background(), []ratelimit.Ask{askFor("a")})
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the caller's context has not ended")
		require.True(t, failed.NotSent(), err)
		if failed.Class != row.class || !strings.Contains(failed.Error(), row.text) {
			return err
		}
		return nil
	})
	assert.ErrorContains(t, failed, row.text)
	if row.err != nil {
		assert.ErrorIs(t, failed, row.err)
	}
	t.Log(failed)
	_ = row.client.Close() // with TLS, it fails if the server has closed the connection
	idle(t, s)
}

// TestPing checks what Ping says of a server that answers, and of one that does not.
func TestPing(t *testing.T) {
	t.Parallel()
	srv := startReal(t)
	admin := srv.client(t)
	require.NoError(t, newStore(t, admin).Ping(t.Context()))
	assert.Zero(t, admin.DBSize(t.Context()).Val(), "it writes nothing")
	_, cluster := startCluster(t)
	require.NoError(t, newStore(t, cluster).Ping(t.Context()))

	pings := func(s *redisstore.Store, class redisstore.Class, text string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := s.Ping(ctx)
		require.ErrorIs(t, err, ratelimit.ErrStore)
		var failed *redisstore.Error
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, class, failed.Class, err)
		assert.ErrorContains(t, err, text)
	}
	pings(nowhere(t), redisstore.ClassDial, "connection refused")
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "bob", "on", ">secret", "~other:*", "+@all").Err())
	bob := redis.NewClient(&redis.Options{Addr: srv.addr, Username: "bob", Password: "secret"})
	defer func() { _ = bob.Close() }()
	pings(newStore(t, bob), redisstore.ClassAuth, "NOPERM")
	require.NoError(t, newStore(t, bob, redisstore.WithPrefix("other")).Ping(t.Context()))
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "bob", "-evalsha").Err())
	pings(newStore(t, bob, redisstore.WithPrefix("other")), redisstore.ClassAuth, "NOPERM")
	eve := redis.NewClient(&redis.Options{Addr: srv.addr, Username: "eve", Password: "secret"})
	defer func() { _ = eve.Close() }()
	pings(newStore(t, eve), redisstore.ClassAuth, "WRONGPASS")

	srv.signal(t, syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := newStore(t, srv.client(t)).Ping(ctx)
	srv.signal(t, syscall.SIGCONT)
	assert.ErrorIs(t, err, ratelimit.ErrStore)
	require.ErrorIs(t, new(redisstore.Store).Ping(t.Context()), ratelimit.ErrInvalidConfig)
}
