package verify

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// TestDrainedBucketsAreAsNew raises the burst of a bucket that has drained, in each way in which the
// burst can change. The key must then have the whole new burst, as a key that was never used.
func TestDrainedBucketsAreAsNew(t *testing.T) {
	small, large := ratelimit.PerHour(10), ratelimit.PerHour(100)
	client := ratelimit.Request{Client: "c", Endpoint: "/"}
	ways := map[string]func(t *testing.T, a algorithm, clock *ratelimit.FakeClock) (used, unused ratelimit.Result){
		"SetRate": func(t *testing.T, a algorithm, clock *ratelimit.FakeClock) (used, unused ratelimit.Result) {
			l := a.start(t, small, ratelimit.WithClock(clock))
			l.Allow("c")
			clock.Advance(6 * time.Minute)
			require.NoError(t, l.SetRate(large))
			return l.Peek("c"), l.Peek("new")
		},
	}
	for _, way := range []string{"UpdateRate", "tier", "tier of a MemoryStore", "UpdateRate of a MemoryStore"} {
		ways[way] = func(t *testing.T, a algorithm, clock *ratelimit.FakeClock) (used, unused ratelimit.Result) {
			opts := []ratelimit.Option{ratelimit.WithClock(clock)}
			if len(way) > len("UpdateRate") {
				store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
				require.NoError(t, err)
				opts = append(opts, ratelimit.WithStore(store), ratelimit.WithName("n"))
			}
			l, err := ratelimit.New([]ratelimit.Rule{{
				Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name), Rate: small, Tiers: map[string]ratelimit.Rate{"large": large},
			}}, nil, opts...)
			require.NoError(t, err)
			require.True(t, l.Allow("c", "/").Allowed)
			clock.Advance(6 * time.Minute)
			req, other := client, ratelimit.Request{Client: "new", Endpoint: "/"}
			if way[0] == 'U' {
				require.NoError(t, l.UpdateRate("/", large))
			} else {
				req.Tier, other.Tier = "large", "large"
			}
			used, err = l.Check(t.Context(), req)
			require.NoError(t, err)
			unused, err = l.Check(t.Context(), other)
			require.NoError(t, err)
			return used, unused
		}
	}
	for _, a := range []algorithm{named("TokenBucket"), named("LeakyBucket")} {
		for way, play := range ways {
			t.Run(a.name+"/"+way, func(t *testing.T) {
				used, unused := play(t, a, ratelimit.NewFakeClock(starts[0]))
				require.Equal(t, unused, used)
			})
		}
	}
}

// TestSettleAfterSmallerBurst requires that a settlement after a cut of the burst does not return more
// than the cut has left of the debt.
func TestSettleAfterSmallerBurst(t *testing.T) {
	for _, a := range []algorithm{named("TokenBucket"), named("LeakyBucket")} {
		for i := range 4 * 5 * 5 {
			burst, before, used := 8+i/25, i/5%5, i%5
			left := func(reserves bool) int {
				clock := ratelimit.NewFakeClock(starts[0])
				l, err := ratelimit.New([]ratelimit.Rule{{
					Endpoint: "/", Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.PerSecond(1).WithBurst(12),
				}}, nil, ratelimit.WithClock(clock))
				require.NoError(t, err)
				charge(t, l, before)
				var held *ratelimit.Reservation
				if reserves {
					held, err = l.Reserve(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/", Cost: 4}, time.Minute)
					require.NoError(t, err)
				} else {
					charge(t, l, used)
				}
				charge(t, l, 4)
				require.NoError(t, l.UpdateRate("/", ratelimit.PerSecond(1).WithBurst(burst)))
				if reserves {
					require.NoError(t, held.Settle(used))
				}
				res, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/"})
				require.NoError(t, err)
				return res.Remaining
			}
			require.LessOrEqual(t, left(true), left(false),
				"%s: a burst of %d; %d charged, then 4 reserved of which %d were used", a.name, burst, before, used)
		}
	}
}

// TestQueueWithoutDebtIsUsed raises the burst of a leaky bucket that owes nothing because units were
// returned, but whose queue is as long as before. The key does not get the whole new burst.
func TestQueueWithoutDebtIsUsed(t *testing.T) {
	clock := ratelimit.NewFakeClock(starts[0])
	l, err := ratelimit.New([]ratelimit.Rule{{
		Endpoint: "/", Algorithm: ratelimit.AlgorithmLeakyBucket, Rate: ratelimit.PerSecond(1).WithBurst(5),
	}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	held, err := l.Reserve(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/", Cost: 3}, time.Minute)
	require.NoError(t, err)
	charge(t, l, 1)
	require.NoError(t, held.Cancel())
	clock.Advance(time.Second)
	require.NoError(t, l.UpdateRate("/", ratelimit.PerSecond(1).WithBurst(8)))
	res, err := l.Peek(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/"})
	require.NoError(t, err)
	want := ratelimit.Result{Allowed: true, Limit: 8, Remaining: 5, ResetAfter: 3 * time.Second, Delay: 3 * time.Second, Rule: "/"}
	require.Equal(t, want, res)
}

// charge charges n units of the endpoint / to the client c.
func charge(t *testing.T, l *ratelimit.RateLimiter, n int) {
	if n > 0 {
		res, err := l.Check(t.Context(), ratelimit.Request{Client: "c", Endpoint: "/", Cost: n})
		require.NoError(t, err)
		require.True(t, res.Allowed)
	}
}
