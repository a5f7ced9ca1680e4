package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// pair returns two asks of one decision, by two rules about one client: two keys in one
// slot.
func pair(a ratelimit.Algorithm, limit int) []ratelimit.Ask {
	one := ask(a, ratelimit.PerDay(limit), 1)
	two := one
	one.Rule, two.Rule = "one", "two"
	return []ratelimit.Ask{one, two}
}

// TestSlotMoves moves a slot back and forth under load. It checks that single asks are
// granted exactly up to the limit, and that two asks together are always charged both.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	const few, many = 100, 60_000
	servers, client := startCluster(t)
	s, err := redisstore.New(client, redisstore.WithTimeout(10*time.Second), frozen())
	require.NoError(t, err)
	m := newMove(t, servers, s.Slot(ask(all[0], ratelimit.PerDay(few), 1)))
	var loads []*load
	for _, a := range all {
		loads = append(loads, startLoad(t, 1, taking(s, ask(a, ratelimit.PerDay(few), 1))))
		loads = append(loads, startLoad(t, 1, func(int) (ratelimit.Result, error) { return together(s, pair(a, many)) }))
	}
	moves := 0
	for began := time.Now(); time.Since(began) < 1500*time.Millisecond || moves < 4; moves++ {
		m.begin(t)
		m.end(t)
		m = m.back()
	}
	asked, denied := 0, 0
	for i, l := range loads {
		l.stop()
		assert.Empty(t, l.failed)
		asked, denied = asked+l.granted+l.denied, denied+l.denied
		if a := all[i/2]; i%2 == 0 {
			assert.Equal(t, few, l.granted+left(t, s, ask(a, ratelimit.PerDay(few), 1)), a)
			assert.Equal(t, min(few, l.granted+l.denied), l.granted, a)
		} else {
			assert.Zero(t, l.denied, a)
			for _, u := range pair(a, many) {
				assert.Equal(t, many, l.granted+left(t, s, u), "%s: both asks are charged, or none", a)
			}
		}
	}
	moved, sent, again := refusals(t, servers, "MOVED"), refusals(t, servers, "ASK"), refusals(t, servers, "TRYAGAIN")
	assert.Positive(t, moved)
	assert.Positive(t, sent)
	t.Logf("slot moved %d times under load: %d decisions, %d denied, 0 errors, counts exact; the servers said %d MOVED, %d ASK, %d TRYAGAIN",
		moves, asked, denied, moved, sent, again)
}

// refusals returns how many commands the servers have refused with an error of this kind.
func refusals(t testing.TB, servers []*server, kind string) (n int) {
	t.Helper()
	for _, srv := range servers {
		info, err := srv.client(t).Info(context.Background(), "errorstats").Result()
		require.NoError(t, err)
		for line := range strings.SplitSeq(info, "\r\n") {
			if count, ok := strings.CutPrefix(line, "errorstat_"+kind+":count="); ok {
				n += atoi(t, count)
			}
		}
	}
	return n
}

// TestRedirected takes a slot away from where the client looks for it: the slot is with
// another master, is being moved, or is with no master. A call that can wait until that is
// over succeeds and is charged once. A call that cannot wait fails and is not charged.
func TestRedirected(t *testing.T) {
	t.Parallel()
	servers, client := startCluster(t)
	s := newStore(t, client, frozen())
	asks := pair(all[0], 100)
	m := newMove(t, servers, s.Slot(asks[0]))
	alone := newStoreFor(t, m.from) // its client knows one master and follows no redirection
	one, two := s.KeyOf(asks[0]), s.KeyOf(asks[1])
	charge := func(n int) {
		t.Helper()
		for _, u := range asks {
			assert.Equal(t, 100-n, left(t, s, u), "each decision is charged once")
		}
	}
	both := func() {
		_, err := together(s, asks)
		assert.NoError(t, err)
	}
	both()
	m.begin(t)
	m.carry(t, one, two)
	both()
	assert.Positive(t, refusals(t, servers, "ASK"))
	failsForNow(t, alone, asks, redisstore.ClassClusterDown)
	charge(2)
	m.end(t)
	failsForNow(t, alone, asks, redisstore.ClassClusterDown)
	both()
	assert.Positive(t, refusals(t, servers, "MOVED"))
	charge(3)

	m = m.back()
	m.begin(t)
	m.carry(t, one)
	failsForNow(t, newStoreFor(t, client), asks, redisstore.ClassClusterDown)
	meanwhile(t, servers, "TRYAGAIN", both, func() { m.end(t) })
	charge(4)

	ctx := context.Background()
	require.NoError(t, m.to.ClusterDelSlots(ctx, m.slot).Err())
	failsForNow(t, newStoreFor(t, client), asks, redisstore.ClassClusterDown)
	meanwhile(t, servers, "CLUSTERDOWN", both, func() { require.NoError(t, m.to.ClusterAddSlots(ctx, m.slot).Err()) })
	charge(5)
	t.Log("MOVED, ASK, TRYAGAIN, CLUSTERDOWN: each decision that can wait until it is over is charged once, " +
		"each other one fails with clusterdown")
}

// short is a timeout that ends before the test repairs the cluster.
const short = 200 * time.Millisecond

// newStoreFor returns a store on client with a short timeout.
func newStoreFor(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, redisstore.WithTimeout(short), frozen())
	require.NoError(t, err)
	return s
}

// meanwhile calls do in a goroutine, and calls end as soon as the servers have refused
// another command with an error of this kind.
func meanwhile(t testing.TB, servers []*server, kind string, do, end func()) {
	t.Helper()
	before, done := refusals(t, servers, kind), make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	until(t, func(context.Context) error {
		if refusals(t, servers, kind) == before {
			return errors.New("the servers have not yet refused a command with " + kind)
		}
		return nil
	})
	end()
	<-done
}
