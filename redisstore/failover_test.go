package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// A failover describes what happened to a key whose master was killed under load.
type failover struct {
	limit, granted              int
	elected, announced, answers time.Duration // time since the master was killed
	failed                      map[redisstore.Class]int
}

// String returns f as a line of figures.
func (f failover) String() string {
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("limit %d, %d granted, %d over the limit; master elected after %v, known after %v, "+
		"first answer after %v: %v after the election, %v after that was known; errors %v",
		f.limit, f.granted, max(f.granted-f.limit, 0), ms(f.elected), ms(f.announced), ms(f.answers),
		ms(f.answers-f.elected), ms(f.answers-f.announced), f.failed)
}

// failOver kills the master of a key under load, while units of the key are left, and waits
// until these are used up. Clients can know of the new master as soon as announced returns
// nil.
func failOver(
	t *testing.T, client redis.UniversalClient, key string, master, replica *server, announced func(context.Context) error,
) failover {
	t.Helper()
	const limit = 2000
	s, err := redisstore.New(client, frozen())
	require.NoError(t, err)
	l := startLoad(t, 8, limited(t, s, key, limit, ratelimit.FailClosed))
	observer, f := replica.client(t), failover{limit: limit}
	l.awaits(t, func() bool { return l.granted >= limit/4 })
	master.kill(t)
	killed := l.mark()
	until(t, func(ctx context.Context) error { return masters(ctx, observer) })
	f.elected = time.Since(killed)
	until(t, announced)
	f.announced = time.Since(killed)
	f.answers = l.answered(t).Sub(killed)
	l.awaits(t, func() bool { return l.denied > 0 })
	l.stop()
	idle(t, s)
	f.granted, f.failed = l.granted, l.failed
	assert.LessOrEqual(t, f.granted, 2*limit)
	assert.NotEmpty(t, f.failed)
	assert.Less(t, f.answers-f.elected, 10*time.Second)
	return f
}

// masters returns nil if the server of c is a master, and otherwise an error.
func masters(ctx context.Context, c *redis.Client) error {
	role, err := c.Do(ctx, "role").Slice()
	if err == nil && role[0] != "master" {
		err = errors.New("the server is a replica")
	}
	return err
}

// TestClusterFailover kills the master of a key. It checks that keys of the other masters
// are decided without an error in the meantime.
func TestClusterFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	servers, client := startReplicated(t)
	s := newStore(t, client, frozen())
	shard := serving(t, servers, s.Slot(askFor("a")))
	var others []ratelimit.Ask
	for i := range 50 {
		u := askFor(fmt.Sprint("other", i))
		if serving(t, servers, s.Slot(u))[0] != shard[0] {
			others = append(others, u)
		}
	}
	rest := startLoad(t, 2, taking(s, others...))
	other := serving(t, servers, s.Slot(others[0]))[0].client(t)
	f := failOver(t, client, "a", shard[0], shard[1], func(ctx context.Context) error {
		owner, _, err := ownerOf(ctx, other, s.Slot(askFor("a")))
		if err == nil && owner.addr != shard[1].addr {
			err = errors.New("another master does not know of the new master")
		}
		return err
	})
	rest.stop()
	assert.Empty(t, rest.failed)
	t.Logf("cluster, the master of a key killed: %v; other masters: %d decisions, %d errors",
		f, rest.granted+rest.denied, rest.errors())
}

// TestSentinelFailover kills the master of all keys.
func TestSentinelFailover(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several seconds")
	}
	master, replica, sentinel, client := startSentinel(t)
	f := failOver(t, client, "a", master, replica, func(ctx context.Context) error {
		addr, err := sentinel.GetMasterAddrByName(ctx, "it").Result()
		if err == nil && net.JoinHostPort(addr[0], addr[1]) != replica.addr {
			err = errors.New("the sentinel does not know of the new master")
		}
		return err
	})
	t.Logf("sentinel, the master killed: %v", f)
}
