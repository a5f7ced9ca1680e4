package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestDirectCalls makes a few callers ask at the same time, when the client has a connection for
// each. It checks that the callers of one key share a call, and the caller of another does not wait,
// whether or not their contexts can end.
func TestDirectCalls(t *testing.T) {
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancelable": t.Context()} {
		t.Run(name, func(t *testing.T) {
			srv := startReal(t)
			store := newStore(t, srv.client(t))
			asks := apart(ratelimit.AlgorithmTokenBucket, ratelimit.PerDay(100), redisstore.MaxDirect)
			take(t, store, asks[0])
			c := gather(t, srv, store, len(asks)) // connects
			for i := range asks {
				c.asks(ctx, i, asks[i])
			}
			c.goes()
			take(t, store, asks[0]) // the server is quick again
			c = gather(t, srv, store, len(asks))
			for i := range asks {
				c.asks(ctx, i, asks[i])
			}
			until(t, func(context.Context) error {
				if n := store.CallsUnderWay(); n != len(asks) {
					return fmt.Errorf("%d calls are under way: only direct calls can be more than %d", n, redisstore.MaxPipelines)
				}
				return nil
			})
			c.goes()
			require.NoError(t, errors.Join(c.errs...))
			take(t, store, asks[0])
			before := store.Stats()
			c = gather(t, srv, store, redisstore.MaxDirect)
			for i := range redisstore.MaxDirect {
				c.asks(ctx, i, asks[i/(redisstore.MaxDirect-1)])
			}
			c.goes()
			after := store.Stats()
			assert.EqualValues(t, 3, after.RoundTrips-before.RoundTrips, "a direct call of each key, and one for those who came later")
			assert.EqualValues(t, redisstore.MaxDirect-3, after.Coalesced-before.Coalesced)
			for _, err := range c.errs {
				assert.NoError(t, err)
			}
			assert.Equal(t, 100-5-(redisstore.MaxDirect-1), left(t, store, asks[0]))
		})
	}
}

// leave makes a call with ctx and calls the function cancel while the call is under way. It returns the error of
// the call.
func leave(ctx context.Context, t *testing.T, s *redisstore.Store, cancel func(), u ratelimit.Ask) error {
	t.Helper()
	left := make(chan error)
	go func() {
		_, err := s.Take(ctx, []ratelimit.Ask{u})
		left <- err
	}()
	until(t, func(context.Context) error {
		if n := s.Waiting(); n != 1 {
			return fmt.Errorf("%d callers wait", n)
		}
		return nil
	})
	cancel()
	err := <-left
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ratelimit.ErrStore)
	return err
}

// TestLeftDirectCall cancels the context of a caller that makes a direct call, whose reply is lost. It checks that
// the caller gets the error of its context, and that the error tells later what has become of the call.
func TestLeftDirectCall(t *testing.T) {
	p := startProxy(t, start(t).addr)
	client := redis.NewClient(&redis.Options{Addr: p.addr})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, redisstore.WithTimeout(short))
	require.NoError(t, err)
	u := ask(all[0], yearly(100_000), 1)
	for { // until the server has been quick: the next call is then a direct one
		ctx, cancel := context.WithCancel(t.Context())
		until(t, func(context.Context) error { _, err := s.Take(ctx, []ratelimit.Ask{u}); return err })
		idle(t, s)
		p.will(drops, 1)
		err := leave(ctx, t, s, cancel, u)
		direct := s.CallsUnderWay() == 0
		idle(t, s)
		if !direct {
			continue
		}
		var later ratelimit.StoreErrorLater
		require.ErrorAs(t, err, &later)
		var failed *redisstore.Error
		later.Later(func(err error) { require.ErrorAs(t, err, &failed) })
		require.NotNil(t, failed, "the call has ended")
		assert.Equal(t, redisstore.ClassTimeout, failed.Class)
		assert.False(t, failed.NotSent())
		return
	}
}

// TestLeftSlowServer cancels the contexts of callers that must not make direct calls: the server is slow, or the
// context has a deadline that is near. It checks that the callers return although the server does not answer.
func TestLeftSlowServer(t *testing.T) {
	srv := startReal(t)
	for name, row := range map[string]struct{ slow, deadline time.Duration }{
		"slow":     {1100 * time.Millisecond, time.Hour},
		"deadline": {0, 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, srv.addr)
			client := redis.NewClient(&redis.Options{Addr: p.addr})
			defer func() { _ = client.Close() }()
			s := newStore(t, client) // with a timeout of 10 s
			u := ask(all[0], yearly(100_000), 1)
			take(t, s, u)
			p.slow.Store(int64(row.slow))
			take(t, s, u)
			p.slow.Store(0)
			srv.signal(t, syscall.SIGSTOP)
			ctx, cancel := context.WithTimeout(t.Context(), row.deadline)
			err := leave(ctx, t, s, cancel, u)
			under := s.CallsUnderWay()
			srv.signal(t, syscall.SIGCONT)
			require.Equal(t, 1, under, "the caller has returned, and its call goes on")
			told := make(chan error, 1)
			var later ratelimit.StoreErrorLater
			require.ErrorAs(t, err, &later)
			later.Later(func(err error) { told <- err })
			require.NoError(t, <-told, "the server has answered")
			idle(t, s)
		})
	}
}
