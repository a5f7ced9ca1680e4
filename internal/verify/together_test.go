package verify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestASharedDebtDoesNotAge settles a key without a slot for more than was reserved. The debt that
// such keys share stays new: no key of its own has grown.
func TestASharedDebtDoesNotAge(t *testing.T) {
	each(t, func(t *testing.T, a algorithm) {
		w := newWarmRule(t, ratelimit.Rule{
			Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.PerHour(100), Warmup: ratelimit.Warmup{From: 10, Over: time.Hour},
		}, ratelimit.WithMaxKeys(1))
		require.True(t, w.ask("first", 1).Allowed)
		r, err := w.Reserve(t.Context(), ratelimit.Request{Client: "second", Rules: []string{"warm"}}, time.Hour)
		require.NoError(t, err)
		require.True(t, r.Result().Allowed)
		require.NoError(t, r.Settle(2))
		for i := range 120 {
			w.clock.Advance(time.Minute)
			if i%10 == 0 {
				w.ask("first", 1) // stays in its slot
			}
			require.LessOrEqual(t, w.ask("third", 0).Remaining, 10, "after %d min", i+1)
		}
	})
}

// TestALookWithAnotherWarmup looks at a state of a MemoryStore with another Warmup than it was
// charged with, as a process does that has other rules. The state keeps its age.
func TestALookWithAnotherWarmup(t *testing.T) {
	for _, how := range []string{"none", "look", "zero", "denied", "once"} {
		t.Run(how, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(starts[0])
			m, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			ask := ratelimit.Ask{
				Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerSecond(100), N: 1,
				Warmup: ratelimit.Warmup{From: 10, Over: time.Hour},
			}
			_, err = m.Take(t.Context(), []ratelimit.Ask{ask})
			require.NoError(t, err)
			clock.Advance(30 * time.Minute)
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
				_, _, err = m.Once(t.Context(), ratelimit.Attempt{ID: "x", TTL: time.Hour, Look: true}, []ratelimit.Ask{other})
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

// besideFlaky returns a RateLimiter of rule whose state is in the store that it returns, and their
// clock.
func besideFlaky(t *testing.T, rule ratelimit.Rule, opts ...ratelimit.Option) (*ratelimit.RateLimiter, *flakyStore, *ratelimit.FakeClock) {
	clock := ratelimit.NewFakeClock(starts[0])
	m, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	store := &flakyStore{MemoryStore: m, knows: true}
	opts = append(opts, ratelimit.WithClock(clock), ratelimit.WithStore(store), ratelimit.WithName("verify"))
	l, err := ratelimit.New([]ratelimit.Rule{rule}, nil, opts...)
	require.NoError(t, err)
	return l, store, clock
}

// TestExplanationsOpenNoBreaker explains requests with an ID at a key that somebody waits for, while
// the store fails. It is asked again as soon as it is back.
func TestExplanationsOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, _ := besideFlaky(t, ratelimit.Rule{Endpoint: "/", Rate: ratelimit.PerHour(1)}, ratelimit.WithRequestIDs(time.Hour))
		req := ratelimit.Request{Client: "a", Endpoint: "/"}
		_, err := l.Check(t.Context(), req)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = l.Wait(ctx, req) }()
		synctest.Wait()
		store.down = true
		req.ID = "x"
		for range 20 {
			e, err := l.Explain(t.Context(), req)
			require.NoError(t, err)
			require.False(t, e.Result.Allowed)
		}
		store.down = false
		req.Client = "b" // for whom nobody waits
		res, err := l.Check(t.Context(), req)
		require.NoError(t, err)
		require.False(t, res.Degraded)
		cancel()
		synctest.Wait()
	})
}

// TestExplainAnInvalidRateWithAnID has Resolve return an invalid rate for a client with a tier. The
// rule's own rate applies, for Explain too.
func TestExplainAnInvalidRateWithAnID(t *testing.T) {
	rule := ratelimit.Rule{
		Endpoint: "/", Rate: ratelimit.PerHour(10), Tiers: map[string]ratelimit.Rate{"paid": ratelimit.PerHour(1000)},
		Resolve: func(ratelimit.Request) (ratelimit.Rate, bool) { return ratelimit.PerHour(-1), true },
	}
	inBothPlaces(t, []ratelimit.Rule{rule}, func(r *retrier) {
		for _, id := range []string{"", "id"} {
			req := ratelimit.Request{Client: "a", Endpoint: "/", Tier: "paid", ID: id}
			e, err := r.l.Explain(r.t.Context(), req)
			require.ErrorIs(r.t, err, ratelimit.ErrInvalidConfig)
			res, err := r.l.Check(r.t.Context(), req)
			require.ErrorIs(r.t, err, ratelimit.ErrInvalidConfig)
			require.Equal(r.t, 10, res.Limit)
			require.Equal(r.t, res, e.Result)
		}
	})
}

// TestAGrownKeyStaysSoInAnOutage uses much of a key that has grown, and then takes the store away: in
// its share, too, the key has grown.
func TestAGrownKeyStaysSoInAnOutage(t *testing.T) {
	rule := ratelimit.Rule{Endpoint: "/", Rate: ratelimit.PerHour(100), Warmup: ratelimit.Warmup{From: 10, Over: 10 * time.Minute}}
	l, store, clock := besideFlaky(t, rule)
	req := ratelimit.Request{Client: "a", Endpoint: "/"}
	_, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	clock.Advance(11 * time.Minute)
	req.Cost = 60
	res, err := l.Check(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, 40, res.Remaining)
	store.down = true
	req.Cost = 1
	res, err = l.Check(t.Context(), req)
	require.ErrorIs(t, err, ratelimit.ErrStore)
	require.True(t, res.Degraded)
	require.Equal(t, 39, res.Remaining)
}
