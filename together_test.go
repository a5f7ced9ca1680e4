package ratelimit_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestAReplayReservesNothing sends the request of a reservation again: what it then gets has
// nothing to give back, as it has charged nothing.
func TestAReplayReservesNothing(t *testing.T) {
	wherever(t, func(t *testing.T, _ *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/ask", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/ask", Cost: 4, ID: "7f3a"}
		first, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		again, each, err := l.ReserveAll(t.Context(), req, time.Hour, nil)
		require.NoError(t, err)
		require.Equal(t, by("/ask", yes(10, 6, 24*mins)), first.Result())
		require.Equal(t, first.Result(), again.Result())
		require.Equal(t, []ratelimit.Result{first.Result()}, each)

		require.NoError(t, again.Settle(0))
		require.Equal(t, 6, peek(t, l, req).Remaining, "nothing comes back")
		require.NoError(t, again.Cancel())
		require.NoError(t, first.Settle(1))
		require.Equal(t, 9, peek(t, l, req).Remaining)
		stats := l.Stats()[0]
		assert.EqualValues(t, 3, stats.GivenBack)
		assert.EqualValues(t, 1, stats.Replayed)
		assert.EqualValues(t, 1, stats.Allowed)
	})
}

// TestCancelRepeatsASettle defers Cancel, as programs do, and has the Settle before it fail: the
// units that were used stay charged.
func TestCancelRepeatsASettle(t *testing.T) {
	for _, f := range []fault{errsBefore, errsAfter} {
		clock := ratelimit.NewFakeClock(epoch)
		store := newSettlingStore(t, clock)
		l := newRules(t, []ratelimit.Rule{{Name: "ours", Endpoint: "/o", Rate: ratelimit.PerHour(10)}}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store))
		req := ratelimit.Request{Client: "a", Endpoint: "/o", Cost: 6}
		r, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		store.script = []fault{f, f}
		require.ErrorIs(t, r.Settle(2), ratelimit.ErrStore)
		require.ErrorIs(t, r.Cancel(), ratelimit.ErrStore, "it fails, too")
		require.NoError(t, r.Cancel())
		require.Equal(t, 8, peek(t, l, req).Remaining, "2 units were used")
		require.NoError(t, r.Cancel())
		require.Equal(t, ratelimit.ErrSettled, r.Settle(0))
	}
}

// TestExplainARecord explains a request that was granted by its ID: any number of explanations
// change nothing, and the record still answers a hundred times.
func TestExplainARecord(t *testing.T) {
	wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/pay", Rate: ratelimit.PerHour(10)}}, nil, append(opts, ids())...)
		req := ratelimit.Request{Client: "alice", Endpoint: "/pay", Cost: 4, ID: "7f3a"}
		e, err := l.Explain(t.Context(), req)
		require.NoError(t, err)
		require.False(t, e.Recorded)
		require.Equal(t, 6, e.Result.Remaining)
		check(t, l, req)
		clock.Advance(6 * mins)
		before := l.Stats()
		for range 150 {
			e, err = l.Explain(t.Context(), req)
			require.NoError(t, err)
			require.True(t, e.Recorded)
			require.Equal(t, by("/pay", yes(10, 6, 18*mins)), e.Result)
			require.Equal(t, "replay", e.Rules[0].State)
		}
		require.Equal(t, before, l.Stats())
		require.Contains(t, e.String(), `allowed, 6 left by rule "/pay" (exact "/pay"), as before by its ID`)
		text, err := json.Marshal(e)
		require.NoError(t, err)
		var read ratelimit.Explanation
		require.NoError(t, json.Unmarshal(text, &read))
		require.Equal(t, e, read)
		for range 100 {
			require.Equal(t, e.Result, check(t, l, req))
		}
		e, err = l.Explain(t.Context(), req)
		require.NoError(t, err)
		require.False(t, e.Recorded, "it has answered a hundred times")
		require.Equal(t, 3, check(t, l, req).Remaining, "so it is charged again")
	})
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/pay", Rate: ratelimit.PerHour(10)}}, nil)
	_, err := l.Explain(t.Context(), ratelimit.Request{Endpoint: "/pay", ID: "7f3a"})
	require.EqualError(t, err, `ratelimit: id is "7f3a": must be empty: the limiter has no WithRequestIDs`)
}

// TestYoungKeysSettle settles reservations of keys that warm up, for fewer units and for more. The
// key is then as one that was charged so many at those times.
func TestYoungKeysSettle(t *testing.T) {
	for _, a := range algorithmsOfRules {
		for _, actual := range []int{0, 1, 2, 4} {
			t.Run(string(a), func(t *testing.T) {
				wherever(t, func(t *testing.T, clock *ratelimit.FakeClock, opts ...ratelimit.Option) {
					rule := ratelimit.Rule{Endpoint: "/", Algorithm: a, Rate: ratelimit.PerHour(100), Warmup: ratelimit.Warmup{From: 10, Over: time.Hour}}
					l := newRules(t, []ratelimit.Rule{rule}, nil, opts...)
					of := func(client string, n int) ratelimit.Request {
						return ratelimit.Request{Client: client, Endpoint: "/", Cost: n}
					}
					r, err := l.Reserve(t.Context(), of("settles", 2), time.Hour)
					require.NoError(t, err)
					require.True(t, r.Result().Allowed)
					if actual > 0 {
						check(t, l, of("knew", min(actual, 2)))
					}
					clock.Advance(7 * mins)
					require.NoError(t, r.Settle(actual))
					if actual > 2 {
						check(t, l, of("knew", actual-2))
					}
					for range 4 {
						require.Equal(t, peek(t, l, of("knew", 1)), peek(t, l, of("settles", 1)), "%d of 2 units", actual)
						require.Equal(t, check(t, l, of("knew", 3)), check(t, l, of("settles", 3)))
						clock.Advance(5 * mins)
					}
				})
			})
		}
	}
}

// TestASharedDebtDoesNotAge settles a key without a slot for more than was reserved. The debt that
// such keys share stays new: no key of its own has grown.
func TestASharedDebtDoesNotAge(t *testing.T) {
	for _, a := range algorithmsOfRules {
		t.Run(string(a), func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			rule := ratelimit.Rule{Endpoint: "/", Algorithm: a, Rate: ratelimit.PerHour(100), Warmup: ratelimit.Warmup{From: 10, Over: time.Hour}}
			l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithMaxKeys(1))
			of := func(client string, n int) ratelimit.Request {
				return ratelimit.Request{Client: client, Endpoint: "/", Cost: n}
			}
			require.True(t, check(t, l, of("first", 1)).Allowed)
			r, err := l.Reserve(t.Context(), of("second", 1), time.Hour)
			require.NoError(t, err)
			require.True(t, r.Result().Allowed)
			require.NoError(t, r.Settle(2))
			for i := range 120 {
				clock.Advance(mins)
				if i%10 == 0 {
					check(t, l, of("first", 1)) // stays in its slot
				}
				require.LessOrEqual(t, peek(t, l, of("third", 1)).Remaining, 10, "after %d min", i+1)
			}
		})
	}
}

// TestALookWithAnotherWarmup looks at a state of a MemoryStore with another Warmup than it was
// charged with, as a process does that has other rules. The state keeps its age.
func TestALookWithAnotherWarmup(t *testing.T) {
	for _, how := range []string{"none", "look", "zero", "denied", "once"} {
		t.Run(how, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(epoch)
			m, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			ask := ratelimit.Ask{
				Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(100), N: 1,
				Warmup: ratelimit.Warmup{From: 10, Over: time.Hour},
			}
			_, err = m.Take(t.Context(), []ratelimit.Ask{ask})
			require.NoError(t, err)
			clock.Advance(30 * mins)
			other := ask
			other.Warmup.Over = time.Minute
			switch how {
			case "look":
				other.Look = true
			case "zero":
				other.N = 0
			case "denied":
				other.N = 1000
			}
			switch how {
			case "none":
			case "once":
				_, _, err = m.Once(t.Context(), ratelimit.Once{ID: "x", TTL: time.Hour, Look: true}, []ratelimit.Ask{other})
			default:
				_, err = m.Take(t.Context(), []ratelimit.Ask{other})
			}
			require.NoError(t, err)
			res, err := m.Take(t.Context(), []ratelimit.Ask{ask})
			require.NoError(t, err)
			require.Equal(t, 53, res[0].Remaining)
		})
	}
}

// A failingOnce is a store whose Once can fail.
type failingOnce struct {
	*ratelimit.MemoryStore
	fails atomic.Bool
}

func (s *failingOnce) Once(ctx context.Context, once ratelimit.Once, asks []ratelimit.Ask) ([]ratelimit.Result, bool, error) {
	if s.fails.Load() {
		return nil, false, errFault
	}
	return s.MemoryStore.Once(ctx, once, asks)
}

// TestExplanationsOpenNoBreaker explains requests with an ID at a key that somebody waits for, while
// the store fails. It is asked again as soon as it is back.
func TestExplanationsOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := ratelimit.NewFakeClock(epoch)
		m, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		store := &failingOnce{MemoryStore: m}
		l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(1)}}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store), ids())
		req := ratelimit.Request{Client: "a", Endpoint: "/"}
		check(t, l, req)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = l.Wait(ctx, req) }()
		synctest.Wait()
		store.fails.Store(true)
		req.ID = "x"
		for range 20 {
			e, err := l.Explain(t.Context(), req)
			require.NoError(t, err)
			require.False(t, e.Result.Allowed)
		}
		store.fails.Store(false)
		req.Client = "b" // for whom nobody waits
		require.False(t, check(t, l, req).Degraded)
		cancel()
		synctest.Wait()
	})
}

// TestExplainAnInvalidRateWithAnID has Resolve return an invalid rate for a client with a tier. The
// rule's own rate applies, for Explain too.
func TestExplainAnInvalidRateWithAnID(t *testing.T) {
	for _, id := range []string{"", "id"} {
		wherever(t, func(t *testing.T, _ *ratelimit.FakeClock, opts ...ratelimit.Option) {
			rule := ratelimit.Rule{
				Endpoint: "/", Rate: ratelimit.PerHour(10), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(1000)},
				Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(-1), true },
			}
			l := newRules(t, []ratelimit.Rule{rule}, nil, append(opts, ids())...)
			req := ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid", ID: id}
			e, err := l.Explain(t.Context(), req)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			res, err := l.Check(t.Context(), req)
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.Equal(t, 10, res.Limit)
			require.Equal(t, res, e.Result)
		})
	}
}

// TestAGrownKeyStaysSoInAnOutage uses much of a key that has grown, and then takes the store away: in
// its share, too, the key has grown.
func TestAGrownKeyStaysSoInAnOutage(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store := newSettlingStore(t, clock)
	rule := ratelimit.Rule{Endpoint: "/", Rate: ratelimit.PerHour(100), Warmup: ratelimit.Warmup{From: 10, Over: 10 * mins}}
	l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock), ratelimit.WithStore(store))
	req := ratelimit.Request{Client: "a", Endpoint: "/"}
	check(t, l, req)
	clock.Advance(11 * mins)
	req.Cost = 60
	require.Equal(t, 40, check(t, l, req).Remaining)
	store.then = errsBefore
	req.Cost = 1
	res, err := l.Check(t.Context(), req)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.True(t, res.Degraded)
	require.Equal(t, 39, res.Remaining)
}

// TestWaitsByAnInvalidRate has Resolve return an invalid rate for a client with a tier, and waits for
// a store that is asked again. Each try is by the rule's own rate, and says why.
func TestWaitsByAnInvalidRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := ratelimit.NewMemoryStore()
		require.NoError(t, err)
		rule := ratelimit.Rule{
			Endpoint: "/", Rate: ratelimit.PerHour(1), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(1000)},
			Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(-1), true },
		}
		l := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(m), ids())
		for i, id := range []string{"", "", "a", "b"} {
			start := time.Now()
			res, err := l.Wait(t.Context(), ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid", ID: id})
			require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
			require.True(t, res.Allowed)
			require.Equal(t, 1, res.Limit)
			if i > 0 {
				require.Equal(t, time.Hour, time.Since(start))
			}
		}
	})
}

// TestReserveAllocatesItself counts the allocations of a reservation that is settled: the Reservation
// is the only one.
func TestReserveAllocatesItself(t *testing.T) {
	l := newRules(t, []ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerHour(10)}}, nil)
	ctx, req := t.Context(), ratelimit.Request{Client: "a", Endpoint: "/"}
	each := testing.AllocsPerRun(1000, func() {
		r, err := l.Reserve(ctx, req, time.Minute)
		if err != nil || r.Settle(0) != nil {
			t.Error("reserve and settle")
		}
	})
	require.LessOrEqual(t, each, 1.0)
}
