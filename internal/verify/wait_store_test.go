package verify

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A busyStore is a MemoryStore that counts its calls, takes time for each, and can be down.
type busyStore struct {
	*ratelimit.MemoryStore
	calls atomic.Int64
	takes atomic.Int64 // how many nanoseconds a call takes, half of them before it decides
	down  atomic.Bool
}

func (s *busyStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	s.calls.Add(1)
	if takes := time.Duration(s.takes.Load()); takes > 0 {
		time.Sleep(takes / 2)
		defer time.Sleep(takes / 2)
	}
	if s.down.Load() {
		return nil, errDead
	}
	return s.MemoryStore.Take(ctx, asks)
}

// ownAndAll are a rule with a budget for each client and a rule with a budget that all share.
func ownAndAll(own, all ratelimit.Rate) []ratelimit.Rule {
	return []ratelimit.Rule{
		{Name: "own", Endpoint: "/*", Rate: own},
		{Name: "all", Endpoint: "/*", Key: ratelimit.KeyGlobal, Rate: all},
	}
}

// overABusyStore returns a limiter of these rules over a busyStore. Both use the machine's clock.
func overABusyStore(t *testing.T, rules []ratelimit.Rule, opts ...ratelimit.Option) (*ratelimit.RateLimiter, *busyStore) {
	t.Helper()
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	store := &busyStore{MemoryStore: memory}
	l, err := ratelimit.New(rules, nil, append(opts, ratelimit.WithStore(store), ratelimit.WithName("busy"))...)
	require.NoError(t, err)
	return l, store
}

// A lineUp is one call of Wait in a test of this file.
type lineUp struct {
	cancel context.CancelFunc
	done   <-chan struct{}
	after  time.Duration // how long the call took
	res    ratelimit.Result
	err    error
}

// lineUpFor starts a Wait.
func lineUpFor(t *testing.T, l *ratelimit.RateLimiter, req ratelimit.Request) *lineUp {
	ctx, cancel := context.WithCancel(t.Context())
	done, start := make(chan struct{}), time.Now()
	w := &lineUp{cancel: cancel, done: done}
	go func() {
		defer close(done)
		w.res, w.err = l.Wait(ctx, req)
		w.after = time.Since(start)
	}()
	synctest.Wait()
	return w
}

// lasts waits for the end of w and requires that it was granted after this time.
func (w *lineUp) lasts(t *testing.T, want time.Duration, why string) {
	t.Helper()
	<-w.done
	require.NoError(t, w.err, why)
	require.True(t, w.res.Allowed, why)
	require.Equal(t, want, w.after, why)
}

func of(client string) ratelimit.Request { return ratelimit.Request{Client: client, Endpoint: "/a"} }

// TestWaitersOfASharedKeyAskAsOne has clients wait for a budget in a store that all share. It proves that
// the calls of the store grow with the units that are served and not with the clients that wait, and
// that all units are served, however slow the store is.
func TestWaitersOfASharedKeyAskAsOne(t *testing.T) {
	for _, row := range []struct {
		clients, rate int
		takes         time.Duration
	}{
		{10, 100, 0}, {100, 100, 0}, {1000, 100, 0}, {10_000, 100, 0}, {300, 300, time.Millisecond}, {300, 300, 40 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			if testing.Short() && row.clients > 1000 {
				return
			}
			l, store := overABusyStore(t, ownAndAll(ratelimit.PerSecond(1000), ratelimit.PerSecond(row.rate)))
			store.takes.Store(int64(row.takes))
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			var granted atomic.Int64
			for i := range row.clients {
				all.Go(func() {
					for ctx.Err() == nil {
						if _, err := l.Wait(ctx, of(fmt.Sprint(i))); err == nil {
							granted.Add(1)
						}
					}
				})
			}
			time.Sleep(2 * time.Second)
			calls, before := store.calls.Load(), granted.Load()
			time.Sleep(10 * time.Second)
			calls, before = store.calls.Load()-calls, granted.Load()-before
			why := fmt.Sprintf("%+v: %d calls, %d granted", row, calls, before)
			require.LessOrEqual(t, calls, int64(3*10*row.rate), why)
			require.GreaterOrEqual(t, before, int64(10*row.rate)*98/100, why)
			cancel()
			all.Wait()
		})
	}
}

// TestOrderAtASharedKeyInAStore has several clients wait for a key in a store. They are served in order
// of arrival, whatever their other keys are, and one that leaves holds up nobody.
func TestOrderAtASharedKeyInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := overABusyStore(t, ownAndAll(ratelimit.PerSecond(9), ratelimit.PerSecond(1).WithBurst(5)))
		_, err := l.Check(t.Context(), ratelimit.Request{Client: "x", Endpoint: "/", Cost: 5})
		require.NoError(t, err)
		big := of("a")
		big.Cost = 3
		var ws []*lineUp
		for _, req := range []ratelimit.Request{big, of("b"), of("c"), of("b"), of("d"), big, of("e")} {
			ws = append(ws, lineUpFor(t, l, req))
		}
		res := l.Allow("y", "/a")
		require.False(t, res.Allowed)
		require.Equal(t, 8*time.Second, res.RetryAfter, "behind the first of each client")
		require.EqualValues(t, 2, store.calls.Load(), "the first waits for more: a newcomer must not take less before it")
		ws[2].cancel()
		for i, after := range []int{3, 4, 0, 5, 6, 9, 10} {
			if i != 2 {
				ws[i].lasts(t, time.Duration(after)*time.Second, fmt.Sprint(i))
			}
		}
		for _, cost := range []int{5, 4} { // a bigger one leaves, and so does one that has asked with others behind it
			first := lineUpFor(t, l, ratelimit.Request{Client: "f", Endpoint: "/a", Cost: cost})
			next := lineUpFor(t, l, of("g"))
			time.Sleep(500 * time.Millisecond)
			first.cancel()
			next.lasts(t, time.Second, "the next waits for less")
		}
	})
}

// TestNobodyIsStoppedAtAKeyInAStore has the first at a shared key lack its own key when it asks. It
// goes to the queue of that key, and the next is served.
func TestNobodyIsStoppedAtAKeyInAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := overABusyStore(t, ownAndAll(ratelimit.PerHour(2).WithBurst(1), ratelimit.PerSecond(1)))
		require.True(t, l.Allow("x", "/a").Allowed)
		alice, bob := lineUpFor(t, l, of("alice")), lineUpFor(t, l, of("bob"))
		late := ratelimit.Request{Client: "carol", Endpoint: "/a"}
		_, err := l.Check(t.Context(), ratelimit.Request{Client: "alice", Rules: []string{"own"}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Wait(ctx, late)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, ctx.Err(), "it fails at once")
		bob.lasts(t, time.Second, "bob does not wait for alice's budget")
		lineUpFor(t, l, late).lasts(t, time.Second, "nor does carol")
		alice.lasts(t, 30*time.Minute, "alice is served when she has a unit")
	})
}

// TestWakingThoseAtAKeyInAStore changes what those who wait for a shared key in a store wait for.
func TestWakingThoseAtAKeyInAStore(t *testing.T) {
	hour := ownAndAll(ratelimit.PerSecond(9), ratelimit.PerHour(1))
	for _, row := range []struct {
		change func(l *ratelimit.RateLimiter, store *busyStore) error
		served []time.Duration // when each is served, after the change
		why    string
	}{
		{func(l *ratelimit.RateLimiter, _ *busyStore) error {
			return l.Reset(context.Background(), ratelimit.Request{Rules: []string{"all"}})
		}, []time.Duration{0, time.Hour, 2 * time.Hour}, "a Reset serves the first"},
		{func(l *ratelimit.RateLimiter, _ *busyStore) error {
			return l.UpdateRate("all", ratelimit.PerSecond(1).WithBurst(1))
		}, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, "the new rate is faster"},
		{func(l *ratelimit.RateLimiter, _ *busyStore) error {
			return l.AddRule(ratelimit.Rule{Endpoint: "/b", Rate: ratelimit.PerSecond(9)})
		}, []time.Duration{time.Hour, 0, 2 * time.Hour}, "bob's endpoint has a rule of its own"},
		{func(l *ratelimit.RateLimiter, _ *busyStore) error { return l.RemoveRule("all") }, []time.Duration{0, 0, 0}, "nobody has such a rule any more"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, store := overABusyStore(t, hour)
			require.True(t, l.Allow("x", "/a").Allowed)
			var ws []*lineUp
			for _, req := range []ratelimit.Request{of("alice"), {Client: "bob", Endpoint: "/b"}, of("carol")} {
				ws = append(ws, lineUpFor(t, l, req))
			}
			require.NoError(t, row.change(l, store))
			for i, w := range ws {
				<-w.done
				require.NoError(t, w.err)
				require.Equal(t, row.served[i], w.after, "%s: %d", row.why, i)
			}
		})
	}
}

// TestOutageOfAStoreThatManyWaitFor has a store fail while clients wait for a shared key.
func TestOutageOfAStoreThatManyWaitFor(t *testing.T) {
	const clients = 200
	for _, row := range []struct {
		policy ratelimit.FailurePolicy
		within time.Duration // everybody is served so long after the first was due
		why    string
	}{
		{ratelimit.FailOpen, time.Second, "it grants every request"},
		{ratelimit.FailClosed, 40 * time.Second, "it denies them until the store answers"},
		{ratelimit.FailLocal(1), 40 * time.Second, "it grants as many as the store"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, store := overABusyStore(t, ownAndAll(ratelimit.PerSecond(9), ratelimit.PerSecond(10)), ratelimit.WithFailurePolicy(row.policy))
			for i := range 10 {
				require.True(t, l.Allow(fmt.Sprint(i), "/a").Allowed)
			}
			var ws []*lineUp
			for i := range clients {
				ws = append(ws, lineUpFor(t, l, of(fmt.Sprint(i))))
			}
			store.takes.Store(int64(100 * time.Millisecond))
			store.down.Store(true)
			asked := store.calls.Load()
			time.Sleep(250 * time.Millisecond)
			if row.policy == ratelimit.FailClosed {
				require.EqualValues(t, clients, store.calls.Load()-asked, "after the first has no answer, nobody waits for the others")
			}
			time.Sleep(10 * time.Second)
			store.down.Store(false)
			start := time.Now()
			asked = store.calls.Load()
			for _, w := range ws {
				<-w.done
				require.True(t, w.res.Allowed, row.why)
				if row.policy == ratelimit.FailOpen {
					require.LessOrEqual(t, w.after, row.within, row.why)
				}
			}
			require.LessOrEqual(t, time.Since(start), row.within, row.why)
			require.LessOrEqual(t, store.calls.Load()-asked, int64(4*clients))
		})
	}
}

// TestRetriesUnderNewRules adds a rule while two callers with the same ID wait. Both get their answer under the new
// rules, and are charged once: under the old rules, nothing is recorded.
func TestRetriesUnderNewRules(t *testing.T) {
	inBothPlaces(t, []ratelimit.Rule{{Name: "own", Endpoint: "/", Rate: ratelimit.PerMinute(1).WithBurst(2)}}, func(r *retrier) {
		_, _, _ = r.send(ratelimit.Request{Endpoint: "/", Cost: 2})
		var done [2]chan ratelimit.Result
		for i := range done {
			done[i] = make(chan ratelimit.Result, 1)
			go func() {
				res, err := r.l.Wait(r.t.Context(), ratelimit.Request{Endpoint: "/", ID: "1"})
				assert.NoError(r.t, err)
				done[i] <- res
			}()
			synctest.Wait()
		}
		require.NoError(r.t, r.l.AddRule(ratelimit.Rule{
			Name: "planned", Endpoint: "/", Key: ratelimit.KeyGlobal, Mode: ratelimit.ModeShadow, Rate: ratelimit.PerMinute(10),
		}))
		r.clock.Advance(time.Minute)
		synctest.Wait()
		require.Equal(r.t, <-done[0], <-done[1])
		stats := r.l.Stats()
		require.Equal(r.t, [4]uint64{2, 1, 1, 1}, [4]uint64{stats[0].Allowed, stats[0].Replayed, stats[1].Allowed, stats[1].Replayed})
	})
}
