package redisstore_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestRestart has the server be killed under load, and start again with nothing. The
// store grants no more than the limit once more, and the policy what it says.
func TestRestart(t *testing.T) {
	program(t, "redis-server")
	for _, p := range []ratelimit.FailurePolicy{ratelimit.FailClosed, ratelimit.FailLocal(1)} {
		t.Run(p.String(), func(t *testing.T) { restart(t, p) })
	}
}

func restart(t *testing.T, p ratelimit.FailurePolicy) {
	const limit = 400
	srv := startReal(t)
	observer := srv.client(t)
	before := goleak.IgnoreCurrent()
	client := redis.NewClient(&redis.Options{Addr: srv.addr})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, frozen())
	require.NoError(t, err)
	l := startLoad(t, 4, limited(t, s, "a", limit, p))
	l.awaits(t, func() bool { return l.granted >= limit/4 })
	srv.kill(t)
	var had int
	l.awaits(t, func() bool {
		had = l.granted
		return len(l.failed) > 0
	})
	srv.run(t)
	l.mark()
	up := srv.await(t)
	back := l.answered(t).Sub(up)
	l.awaits(t, func() bool { return l.denied > 0 })
	l.stop()

	assert.LessOrEqual(t, l.granted, 2*limit)
	assert.Less(t, back, 10*time.Second)
	if p == ratelimit.FailClosed {
		assert.Zero(t, l.local)
	} else {
		assert.LessOrEqual(t, l.local, limit)
	}
	idle(t, s)
	require.NoError(t, client.Close())
	goleak.VerifyNone(t, before)
	settled(t, s, client, observer, 0, 1)
	t.Logf("policy %s, server killed after %d grants of %d and back empty: %d granted by the store in all, %d without it; "+
		"errors %v; it answers %v after the server; no connection and no goroutine left", p, had, limit, l.granted, l.local, l.failed, back.Round(time.Millisecond))
}

// TestScriptsFlushed has the server forget its scripts every 50 ms under load.
func TestScriptsFlushed(t *testing.T) {
	client := startReal(t).client(t)
	s := newStore(t, client)
	var asks []ratelimit.Ask
	for _, a := range all {
		asks = append(asks, ask(a, ratelimit.PerSecond(50), 1))
	}
	l := startLoad(t, 16, taking(s, asks...))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	flushes := 0
	for range 20 {
		<-tick.C
		require.NoError(t, client.ScriptFlush(context.Background()).Err())
		flushes++
	}
	l.stop()
	assert.Empty(t, l.failed)
	assert.Positive(t, l.granted)
	t.Logf("%d flushes of the scripts, %d decisions: %d errors", flushes, l.granted+l.denied, l.errors())
}

// TestServerComesLater has a store be made before there is a server.
func TestServerComesLater(t *testing.T) {
	srv := startReal(t)
	srv.kill(t)
	s, err := redisstore.New(srv.client(t))
	require.NoError(t, err)
	u := ask(all[0], ratelimit.PerDay(5), 1)
	fails(t, s, []ratelimit.Ask{u}, 50*time.Millisecond, redisstore.ClassDial, redisstore.ClassTimeout)
	srv.run(t)
	up := srv.await(t)
	until(t, func(ctx context.Context) error { return warm(ctx, s, u) })
	assert.Equal(t, 4, take(t, s, u).Remaining)
	t.Logf("a store made without a server: answers %v after there is one", time.Since(up))
}

// TestBecomesReplica has the server be a replica for a while, under load: it refuses
// what is to be charged, and goes on as a master with all that it has granted.
func TestBecomesReplica(t *testing.T) {
	const limit = 1 << 20
	client := startReal(t).client(t)
	s, err := redisstore.New(client, redisstore.WithTimeout(500*time.Millisecond), frozen())
	require.NoError(t, err)
	u := ask(all[0], ratelimit.PerDay(limit), 1)
	l := startLoad(t, 4, taking(s, u))
	l.awaits(t, func() bool { return l.granted > 100 })
	require.NoError(t, client.ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
	l.awaits(t, func() bool { return l.failed[redisstore.ClassReadOnly] > 0 })
	require.NoError(t, client.ReplicaOf(context.Background(), "NO", "ONE").Err())
	master := l.mark()
	back := l.answered(t).Sub(master)
	l.stop()
	assert.Len(t, l.failed, 1, "%v", l.failed)
	assert.Equal(t, limit-l.granted, left(t, s, u), "what was refused was not charged")
	t.Logf("a replica for a while: errors %v, %d granted, %d charged; it answers %v after it is a master",
		l.failed, l.granted, limit-left(t, s, u), back)
}

// TestLoading has the server start again with a dump, which takes it a while to read:
// a call that can wait for it does.
func TestLoading(t *testing.T) {
	srv := startReal(t, "--enable-debug-command", "yes")
	client := srv.client(t)
	s := newStore(t, client, frozen())
	u := ask(all[0], ratelimit.PerDay(10), 1)
	require.True(t, take(t, s, u).Allowed)
	require.NoError(t, client.Do(context.Background(), "debug", "populate", 3000).Err())
	require.NoError(t, client.Save(context.Background()).Err())
	srv.signal(t, syscall.SIGTERM)
	_ = srv.cmd.Wait()
	srv.run(t, "--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024")
	until(t, func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); !redis.IsLoadingError(err) {
			return err
		}
		return nil
	})
	short, err := redisstore.New(client, redisstore.WithTimeout(100*time.Millisecond), frozen())
	require.NoError(t, err)
	// The last try may be under way when time is over.
	fails(t, short, []ratelimit.Ask{u}, 100*time.Millisecond, redisstore.ClassLoading, redisstore.ClassTimeout)
	began := time.Now()
	assert.Equal(t, 8, take(t, s, u).Remaining, "the call that failed was not charged")
	t.Logf("while the server loads: a call with 100 ms fails by loading, one with 10 s succeeds after %v, charged once", time.Since(began))
}
