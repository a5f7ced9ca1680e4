package redisstore_test

import (
	"context"
	"fmt"
	"net"
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

// A crowd is a number of callers that wait at the same time for a server that is stopped.
type crowd struct {
	t       *testing.T
	srv     *server
	store   *redisstore.Store
	all     sync.WaitGroup
	answers []ratelimit.Result
	errs    []error
}

func gather(t *testing.T, srv *server, store *redisstore.Store, size int) *crowd {
	srv.signal(t, syscall.SIGSTOP)
	return &crowd{t: t, srv: srv, store: store, answers: make([]ratelimit.Result, size), errs: make([]error, size)}
}

// asks starts the i-th caller, and returns when that caller waits.
func (c *crowd) asks(ctx context.Context, i int, a ratelimit.Ask) {
	before := c.store.Waiting()
	c.all.Go(func() {
		var results []ratelimit.Result
		if results, c.errs[i] = c.store.Take(ctx, []ratelimit.Ask{a}); len(results) == 1 {
			c.answers[i] = results[0]
		}
	})
	c.until(before + 1)
}

// until waits until exactly so many callers wait.
func (c *crowd) until(waiting int) {
	until(c.t, func(context.Context) error {
		if c.store.Waiting() != waiting {
			return fmt.Errorf("%d callers wait, not %d", c.store.Waiting(), waiting)
		}
		return nil
	})
}

// goes starts the server again, and waits for all answers.
func (c *crowd) goes() {
	c.srv.signal(c.t, syscall.SIGCONT)
	c.all.Wait()
}

// TestJoined makes callers of one key wait at the same time. It checks that two calls
// decide for all, with the answers that the callers would get one after the other.
func TestJoined(t *testing.T) {
	srv := startReal(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 250))
	store := newStore(t, srv.client(t), redisstore.WithClock(clock), redisstore.WithDenialCache(0))
	costs := []int{1, 3, 0, 2, 9, 1, 1, 20, 1, 0, 5, 1, 1, 1, 1}
	for _, a := range all {
		rate := ratelimit.PerMinute(10)
		first := ask(a, rate, 1)
		take(t, store, first)
		clock.Advance(7 * time.Second)
		before := store.Stats()
		c := gather(t, srv, store, len(costs))
		for i, n := range costs {
			c.asks(context.Background(), i, ask(a, rate, n))
		}
		c.goes()
		after := store.Stats()
		assert.EqualValues(t, 2, after.Calls-before.Calls, a)
		assert.EqualValues(t, len(costs)-2, after.Coalesced-before.Coalesced, a)
		clock.Advance(-7 * time.Second)
		other := first
		other.Key, other.Client = "b", "b"
		take(t, store, other)
		clock.Advance(7 * time.Second)
		for i, n := range costs {
			other.N = n
			require.NoError(t, c.errs[i])
			assert.Equal(t, take(t, store, other), c.answers[i], "%s, caller %d, %d units", a, i, n)
		}
		clock.Advance(time.Hour)
	}
}

// TestRatesNotJoined makes callers ask for one key under two rates, alternately. It checks
// that each is answered by its own rate.
func TestRatesNotJoined(t *testing.T) {
	srv := startReal(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	store := newStore(t, srv.client(t), redisstore.WithClock(clock))
	c := gather(t, srv, store, 12)
	rates := []ratelimit.Rate{ratelimit.PerMinute(100), ratelimit.PerMinute(50)}
	for i := range c.answers {
		c.asks(context.Background(), i, ask(ratelimit.AlgorithmTokenBucket, rates[i/2%2], 1))
	}
	c.goes()
	for i, res := range c.answers {
		require.NoError(t, c.errs[i])
		assert.Equal(t, rates[i/2%2].Requests, res.Limit, i)
	}
	assert.Equal(t, 50-10, c.answers[11].Remaining, "of the 98 that the first two leave, 50 fit under the smaller burst")
}

// TestLeftWhileJoined ends the contexts of some callers before their call is sent. It
// checks that they return at once and are not charged.
func TestLeftWhileJoined(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t))
	day := ratelimit.PerDay(100)
	u := ask(ratelimit.AlgorithmTokenBucket, day, 1)
	take(t, store, u)
	c := gather(t, srv, store, 20)
	ctx, cancel := context.WithCancel(context.Background())
	c.asks(context.Background(), 0, u)
	for i := 1; i < 20; i++ {
		leaves := context.Background()
		if i%2 == 0 {
			leaves = ctx
		}
		c.asks(leaves, i, u)
	}
	cancel()
	c.until(11)
	c.goes()
	for i := 1; i < 20; i++ {
		if i%2 == 0 {
			assert.ErrorIs(t, c.errs[i], context.Canceled)
		} else {
			assert.True(t, c.answers[i].Allowed)
		}
	}
	assert.Equal(t, 100-1-11, take(t, store, ask(u.Algorithm, day, 0)).Remaining)
}

// TestAllLeft ends the contexts of all callers of a call before it is sent, and checks that
// the call is not made.
func TestAllLeft(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t))
	u := ask(ratelimit.AlgorithmFixedWindow, ratelimit.PerDay(100), 1)
	take(t, store, u)
	c := gather(t, srv, store, 3)
	ctx, cancel := context.WithCancel(context.Background())
	c.asks(context.Background(), 0, u)
	c.asks(ctx, 1, u)
	c.asks(ctx, 2, u)
	cancel()
	c.until(1)
	before := store.Stats().Calls
	c.goes()
	idle(t, store)
	assert.Equal(t, before, store.Stats().Calls)
	assert.Equal(t, 97, take(t, store, u).Remaining)
}

// TestSentTogether makes callers of different keys wait at the same time, and checks that
// their calls are sent together.
func TestSentTogether(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t))
	day := ratelimit.PerDay(100)
	const callers = 3*redisstore.MaxPipelineCalls + redisstore.MaxPipelines
	named := func(i int) ratelimit.Ask {
		name := fmt.Sprint("client", i)
		return ratelimit.Ask{Rule: "rule", Key: name, Client: name, Algorithm: all[i%len(all)], Rate: day, N: 1}
	}
	for i := range all {
		take(t, store, named(i)) // so that the server knows the scripts
	}
	before := store.Stats()
	c := gather(t, srv, store, callers)
	for i := range callers {
		c.asks(context.Background(), i, named(i))
	}
	c.goes()
	after := store.Stats()
	assert.EqualValues(t, 1+redisstore.MaxPipelines+3, after.RoundTrips-before.RoundTrips,
		"a direct call by the only connection, then calls one by one, and the others together as soon as a reply comes")
	assert.Less(t, after.Calls-before.Calls, uint64(callers/2), "one script decides all keys of one rate, except logs")
	for i := range callers {
		require.NoError(t, c.errs[i])
		left := 99
		if i < len(all) {
			left = 98
		}
		assert.Equal(t, left, c.answers[i].Remaining, i)
	}
}

// TestForgottenScripts makes the server forget its scripts while calls wait to be sent
// together. It checks that each call is charged once.
func TestForgottenScripts(t *testing.T) {
	srv := startReal(t)
	client := srv.client(t)
	store := newStore(t, client)
	require.NoError(t, client.ScriptFlush(context.Background()).Err())
	c := gather(t, srv, store, 40)
	for i := range c.answers {
		a := ask(all[i%len(all)], ratelimit.PerDay(100), 1)
		a.Key, a.Client = fmt.Sprint(i), ""
		c.asks(context.Background(), i, a)
	}
	c.goes()
	for i := range c.answers {
		require.NoError(t, c.errs[i])
		assert.Equal(t, 99, c.answers[i].Remaining)
	}
	assert.Positive(t, store.Stats().NoScripts)
	assert.Zero(t, store.Stats().Retries)
}

// TestBatchUndecided makes callers of different keys wait at the same time, under two
// rates. Some of the keys have a state of a third rate. It checks that each key is charged
// by its own rate.
func TestBatchUndecided(t *testing.T) {
	srv := startReal(t)
	store := newStore(t, srv.client(t), frozen())
	asks := apart(ratelimit.AlgorithmFixedWindow, ratelimit.PerHour(10), 3*redisstore.MaxPipelines)
	for i := range asks {
		if i%4 < 2 {
			take(t, store, asks[i])
		}
		asks[i].Rate, asks[i].N = ratelimit.PerDay(100), 50
		if i%2 == 0 {
			asks[i].Rate, asks[i].N = ratelimit.PerDay(3), 1
		}
	}
	c := gather(t, srv, store, len(asks))
	for i := range asks {
		c.asks(context.Background(), i, asks[i])
	}
	c.goes()
	for i, res := range c.answers {
		require.NoError(t, c.errs[i])
		want := []int{1, 49, 2, 50}[i%4]
		assert.Equal(t, want, res.Remaining, i)
		assert.Equal(t, want, left(t, store, asks[i]), i)
	}
}

// A hanging connection ignores deadlines while on is true, until ends is closed.
type hanging struct {
	net.Conn
	on   *atomic.Bool
	ends chan struct{}
}

func (h hanging) Write(b []byte) (int, error) {
	if h.on.Load() {
		<-h.ends
	}
	return h.Conn.Write(b)
}

// TestHungPipeline makes calls hang that the client does not end, and checks that other
// calls are made in their place.
func TestHungPipeline(t *testing.T) {
	t.Parallel()
	on, ends := new(atomic.Bool), make(chan struct{})
	client := redis.NewClient(&redis.Options{Addr: start(t).addr, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return hanging{conn, on, ends}, err
	}})
	defer func() { _ = client.Close() }()
	s, err := redisstore.New(client, redisstore.WithTimeout(time.Second))
	require.NoError(t, err)
	ctx := t.Context() // it can end, and the server has answered no call yet: so no caller makes a direct call
	asks := apart(all[0], ratelimit.PerDay(5), redisstore.MaxPipelines+1)
	on.Store(true)
	for i := range redisstore.MaxPipelines {
		_, err := s.Take(ctx, asks[i:i+1])
		assert.ErrorIs(t, err, ratelimit.ErrStore)
	}
	on.Store(false)
	_, err = s.Take(ctx, asks[redisstore.MaxPipelines:])
	assert.NoError(t, err)
	until(t, func(context.Context) error { // the last pipeline ends after its caller is answered
		if n := s.CallsUnderWay(); n != redisstore.MaxPipelines {
			return fmt.Errorf("%d calls are under way", n)
		}
		return nil
	})
	close(ends)
	idle(t, s)
}
