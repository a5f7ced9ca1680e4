package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestWarmupInMemoryStore plays the same random schedule on a rule in this process and on one whose
// state is in a MemoryStore. They give the same answers.
func TestWarmupInMemoryStore(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for schedule := range soaked(50, 1000) {
			rng := rand.New(rand.NewPCG(40, uint64(schedule)))
			rule := drawWarmup(rng, a)
			here := startWarmup(t, rule)
			store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(here.clock))
			require.NoError(t, err)
			there := *here
			rule.Name = "warm"
			there.l = newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithStore(store), ratelimit.WithClock(here.clock))
			for step := range 60 {
				if rng.IntN(3) == 0 {
					here.clock.Advance(time.Duration(rng.IntN(2000) - 200))
				}
				client, n := []string{"a", "b"}[rng.IntN(2)], 1+rng.IntN(burstOf(rule.Rate))
				if rng.IntN(20) == 0 {
					require.NoError(t, here.l.Reset(t.Context(), ratelimit.Request{Client: client}))
					require.NoError(t, there.l.Reset(t.Context(), ratelimit.Request{Client: client}))
				}
				require.Equal(t, here.ask(client, n, true), there.ask(client, n, true), "schedule %d, step %d", schedule, step)
				require.Equal(t, here.ask(client, 1, false), there.ask(client, 1, false), "schedule %d, step %d", schedule, step)
			}
		}
	})
}

// TestMemoryStoreAcceptsWarmup has what a MemoryStore refuses of a Warmup, in all of its methods.
func TestMemoryStoreAcceptsWarmup(t *testing.T) {
	store, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	ask := ratelimit.Ask{Rule: "r", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: ratelimit.PerMinute(10).WithBurst(2), Warmup: ratelimit.Warmup{From: 5, Over: sec}}
	require.NoError(t, store.Accepts(ask))
	fits := ratelimit.Warmup{From: 4, Over: sec} // other rates
	for _, row := range []struct {
		w    ratelimit.Warmup
		want string
	}{
		{ratelimit.Warmup{From: 0, Over: sec}, "ratelimit: warmup.from is 0: must be at least 1"},
		{ratelimit.Warmup{From: 5}, "ratelimit: warmup.over is 0s: must be from a microsecond to 366 days"},
		{fits, "ratelimit: burst is 2: must be at least 3: with less, a warm-up from 4 of 10 grants a new key nothing"},
	} {
		ask.Warmup = row.w
		require.EqualError(t, store.Accepts(ask), row.want)
		_, err := store.Take(t.Context(), []ratelimit.Ask{ask})
		require.EqualError(t, err, row.want)
		more := ask
		more.Receipt, more.N, more.Was = 1, 3, 2
		require.EqualError(t, store.Settle(t.Context(), []ratelimit.Ask{more}), row.want)
		if more.N = 1; row.w != fits {
			require.EqualError(t, store.Settle(t.Context(), []ratelimit.Ask{more}), row.want)
		} else {
			require.NoError(t, store.Settle(t.Context(), []ratelimit.Ask{more}), "what comes back needs no rate")
		}
	}
}

// TestMemoryStoreChangesWarmup proves that state keeps its age when From and Over change, also where
// the rate of the first ask would not fit them, and that state without a Warmup is other state.
func TestMemoryStoreChangesWarmup(t *testing.T) {
	clock := ratelimit.NewFakeClock(epoch)
	store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
	require.NoError(t, err)
	take := func(r ratelimit.Rate, w ratelimit.Warmup, n int) ratelimit.Result {
		res, err := store.Take(t.Context(), []ratelimit.Ask{{Rule: "r", Key: "k", Algorithm: ratelimit.AlgorithmTokenBucket, Rate: r, N: n, Warmup: w}})
		require.NoError(t, err)
		return res[0]
	}
	require.True(t, take(ratelimit.PerSecond(10).WithBurst(2), ratelimit.Warmup{From: 5, Over: time.Hour}, 1).Allowed)
	clock.Advance(30 * mins)
	require.Equal(t, 50, take(ratelimit.PerSecond(100), ratelimit.Warmup{From: 20, Over: 80 * mins}, 0).Remaining, "20 + 80 * 3/8")
	require.Equal(t, 25, take(ratelimit.PerSecond(100), ratelimit.Warmup{From: 1, Over: 2 * time.Hour}, 0).Remaining)
	require.Equal(t, 100, take(ratelimit.PerSecond(100), ratelimit.Warmup{}, 0).Remaining)
}

// An oldStore is a Store that has none of the optional methods.
type oldStore struct{ store ratelimit.Store }

func (s oldStore) Take(ctx context.Context, asks []ratelimit.Ask) ([]ratelimit.Result, error) {
	return s.store.Take(ctx, asks)
}
func (s oldStore) Reset(ctx context.Context, asks []ratelimit.Ask) error {
	return s.store.Reset(ctx, asks)
}

// A pickyStore accepts no warm-up.
type pickyStore struct{ *ratelimit.MemoryStore }

func (s pickyStore) Accepts(a ratelimit.Ask) error {
	if a.Warmup != (ratelimit.Warmup{}) {
		return errors.New("no warm-up here")
	}
	return s.MemoryStore.Accepts(a)
}

// TestStoreWithoutWarmup proves that a rule cannot warm up on a store that does not know it.
func TestStoreWithoutWarmup(t *testing.T) {
	memory, err := ratelimit.NewMemoryStore()
	require.NoError(t, err)
	warm := anHour(ratelimit.AlgorithmTokenBucket, ratelimit.PerMinute(10))
	warm.Name = "warm"
	cold := ratelimit.Rule{Name: "warm", Rate: warm.Rate}
	for _, row := range []struct {
		store ratelimit.Store
		want  string
	}{
		{oldStore{memory}, `ratelimit: rules[0].warmup is {2 1h0m0s}: must be left out: the store has no Accepts, to say that it knows warm-up`},
		{pickyStore{memory}, `ratelimit: rules[0].rate is 10/m: is not supported by the store: no warm-up here`},
	} {
		opts := []ratelimit.Option{ratelimit.WithStore(row.store), ratelimit.WithName("n")}
		_, err := ratelimit.New([]ratelimit.Rule{warm}, nil, opts...)
		require.ErrorIs(t, err, ratelimit.ErrInvalidConfig)
		require.EqualError(t, err, row.want)
		l, err := ratelimit.New([]ratelimit.Rule{cold}, nil, opts...)
		require.NoError(t, err)
		require.EqualError(t, l.Replace([]ratelimit.Rule{warm}, nil), row.want, "in a change")
	}
}

// TestWarmupOfAShare takes the store away. The keys of this process warm up with the share of the
// limit, and are as old as the store has said.
func TestWarmupOfAShare(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		clock := ratelimit.NewFakeClock(epoch)
		store := newSettlingStore(t, clock)
		r := ratelimit.Rule{Name: "warm", Algorithm: a, Rate: ratelimit.Rate{Requests: 40, Per: mins}, Warmup: ratelimit.Warmup{From: 8, Over: time.Hour}, OnStoreError: ratelimit.FailLocal(4)}
		l := newRules(t, []ratelimit.Rule{r}, nil, ratelimit.WithStore(store), ratelimit.WithClock(clock))
		ask := func(client string, n int) ratelimit.Result {
			res, _ := l.Check(t.Context(), ratelimit.Request{Client: client, Rules: []string{"warm"}, Cost: n})
			res.Rule = ""
			return res
		}
		left := func(client string) int {
			res, _ := l.Peek(t.Context(), ratelimit.Request{Client: client, Rules: []string{"warm"}})
			require.True(t, res.Degraded)
			return res.Remaining
		}
		ask("grown", 1)
		clock.Advance(30 * mins)
		ask("half", 1)
		clock.Advance(30 * mins)
		ask("grown", 1)
		ask("half", 1)
		require.Equal(t, 4, ask("young", 4).Remaining)
		store.from(errsBefore)
		require.Equal(t, ratelimit.Never, ask("new", 3).RetryAfter, "a share of From")
		require.Equal(t, []int{2, 1, 5, 9}, []int{left("new"), left("young"), left("half"), left("grown")})
		clock.Advance(30 * mins)
		require.Equal(t, []int{2, 10, 10}, []int{left("new"), left("half"), left("grown")})
		require.Equal(t, 6, left("young"), "24 of 40")
	})
}

// TestWarmupGivesBack has a custom limiter deny beside a rule that warms up. All that was charged
// comes back: also the age, if it was the key's first charge.
func TestWarmupGivesBack(t *testing.T) {
	eachWarm(t, func(t *testing.T, a ratelimit.Algorithm) {
		for _, stored := range []bool{false, true} {
			for schedule := range soaked(20, 500) {
				rng := rand.New(rand.NewPCG(50, uint64(schedule)))
				clock := ratelimit.NewFakeClock(epoch)
				rule := drawWarmup(rng, a)
				rule.Name, rule.Endpoint, rule.Warmup.Over = "warm", "/e", 20_000 // it is not forgotten
				deny := false
				gate := ratelimit.Rule{Name: "gate", Endpoint: "/e", Limiter: custom(func(_ context.Context, _ string, n int) (ratelimit.Result, error) {
					if deny {
						return ratelimit.Result{Limit: 1, RetryAfter: 1}, nil
					}
					return ratelimit.Result{Allowed: true, Limit: 1 << 30, Remaining: 1 << 30}, nil
				})}
				opts := []ratelimit.Option{ratelimit.WithClock(clock)}
				if stored {
					store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
					require.NoError(t, err)
					opts = append(opts, ratelimit.WithStore(store))
				}
				l := newRules(t, []ratelimit.Rule{rule, gate}, nil, opts...)
				alone := newRules(t, []ratelimit.Rule{rule}, nil, ratelimit.WithClock(clock))
				for step := range 40 {
					if rng.IntN(3) == 0 {
						clock.Advance(time.Duration(rng.IntN(2000)))
					}
					n := 1 + rng.IntN(burstOf(rule.Rate))
					if deny = rng.IntN(2) == 0; !deny {
						want := check(t, alone, ratelimit.Request{Client: "a", Endpoint: "/e", Cost: n})
						got := check(t, l, ratelimit.Request{Client: "a", Endpoint: "/e", Cost: n})
						require.Equal(t, want, got, "schedule %d, step %d: %d of %#v", schedule, step, n, rule)
					} else {
						require.False(t, check(t, l, ratelimit.Request{Client: "a", Endpoint: "/e", Cost: n}).Allowed)
					}
				}
			}
		}
	})
}
