package ratelimit_test

import (
	"encoding/json"
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
