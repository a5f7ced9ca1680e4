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

// TestRestart kills the server under load, and starts it again without data. It checks that
// the store then grants at most the limit once more, and that the failure policy answers in
// between.
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
	assert.Zero(t, settled(t, s, client, observer))
	t.Logf("policy %s, server killed after %d grants of %d and back empty: %d granted by the store in all, %d without it; "+
		"errors %v; it answers %v after the server; no connection and no goroutine left",
		p, had, limit, l.granted, l.local, l.failed, back.Round(time.Millisecond))
}

// TestScriptsFlushed makes the server forget its scripts every 50 ms under load.
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

// TestServerComesLater makes a store before its server runs.
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

// TestBecomesReplica makes the server a replica for a while, under load. It checks that the
// server refuses charges in that time, and afterwards has everything that it granted.
func TestBecomesReplica(t *testing.T) {
	const limit = 1 << 20
	client := startReal(t).client(t)
	s, err := redisstore.New(client, redisstore.WithTimeout(time.Second), frozen())
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
	idle(t, s)
	charged, late := limit-left(t, s, u), l.failed[redisstore.ClassTimeout] // the last try may still be under way when the timeout ends
	unsent := l.failed[redisstore.ClassBusy]                                // a repetition that had no time left
	assert.Equal(t, l.errors(), late+unsent+l.failed[redisstore.ClassReadOnly], "%v", l.failed)
	assert.GreaterOrEqual(t, charged, l.granted)
	assert.LessOrEqual(t, charged, l.granted+late, "a refused request is not charged")
	t.Logf("the server was a replica for a while: errors %v, %d granted, %d charged; it answers %v after it is a master",
		l.failed, l.granted, charged, back)
}

// TestLoading starts the server again with a dump that takes a while to read, until the test
// makes it faster. It checks that a call that can wait that long succeeds.
func TestLoading(t *testing.T) {
	srv := startReal(t, "--enable-debug-command", "yes", "--rdbcompression", "no")
	client := srv.client(t)
	s := newStore(t, client, frozen())
	u := ask(all[0], ratelimit.PerDay(10), 1)
	require.True(t, take(t, s, u).Allowed)
	require.NoError(t, client.Do(context.Background(), "debug", "populate", 10_000, "key", 1024).Err())
	require.NoError(t, client.Save(context.Background()).Err())
	srv.signal(t, syscall.SIGTERM)
	_ = srv.cmd.Wait()
	srv.run(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	until(t, func(ctx context.Context) error {
		if err := client.Ping(ctx).Err(); !redis.IsLoadingError(err) {
			return err
		}
		return nil
	})
	short, err := redisstore.New(client, redisstore.WithTimeout(100*time.Millisecond), frozen())
	require.NoError(t, err)
	// The last try may still be under way when the timeout ends.
	fails(t, short, []ratelimit.Ask{u}, 100*time.Millisecond, redisstore.ClassLoading, redisstore.ClassTimeout)
	began := time.Now()
	require.NoError(t, client.ConfigSet(context.Background(), "key-load-delay", "0").Err())
	assert.Equal(t, 8, take(t, s, u).Remaining, "the call that failed was not charged")
	t.Logf("while the server loads: a call with a timeout of 100 ms fails with loading, one with 10 s succeeds after %v, charged once",
		time.Since(began))
}
