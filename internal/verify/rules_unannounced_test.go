package verify

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
)

// A switching client asks one key by two tiers, and is charged under some of them only.
type switching struct {
	limiter *ratelimit.RateLimiter
	clock   *manualClock
}

func newSwitching(t *testing.T, tiers map[string]ratelimit.Rate) *switching {
	clock := &manualClock{starts[0]}
	l, err := ratelimit.New([]ratelimit.Rule{{Endpoint: "/", Rate: ratelimit.PerDay(1), Tiers: tiers}}, nil, ratelimit.WithClock(clock))
	require.NoError(t, err)
	return &switching{l, clock}
}

// ask asks for n units by tier, or looks if n is 0. It returns how many were granted.
func (s *switching) ask(t *testing.T, tier string, n int) int {
	req := ratelimit.Request{Client: "c", Endpoint: "/", Tier: tier, Cost: n}
	if n == 0 {
		_, err := s.limiter.Peek(context.Background(), req)
		require.NoError(t, err)
		return 0
	}
	res, err := s.limiter.Check(context.Background(), req)
	require.NoError(t, err)
	if !res.Allowed {
		return 0
	}
	return n
}

// within requires that no interval holds more than burst and what perSecond earns in it.
func within(t *testing.T, at []time.Duration, n []int, burst, perSecond int) {
	for i := range at {
		taken := 0
		for j := i; j < len(at); j++ {
			taken += n[j]
			if most := int64(burst)*int64(time.Second) + int64(at[j]-at[i])*int64(perSecond); int64(taken)*int64(time.Second) > most {
				require.Failf(t, "bound", "%d units from %v to %v", taken, at[i], at[j])
			}
		}
	}
}

// TestBoundOfUnannouncedChanges lets one client ask by two tiers in turn. Its grants must keep
// the bound of a token bucket in every interval: with equal bursts, that of the burst and the
// faster rate; with different ones as long as it is charged under one tier only, the bound of
// that tier, whatever it is denied under the other, and however often it looks.
func TestBoundOfUnannouncedChanges(t *testing.T) {
	t.Run("tiers of equal bursts", func(t *testing.T) {
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 1))
			tiers := map[string]ratelimit.Rate{"a": ratelimit.PerSecond(1 + r.IntN(9)).WithBurst(10), "b": ratelimit.PerSecond(1 + r.IntN(9)).WithBurst(10)}
			s, at, n := newSwitching(t, tiers), []time.Duration(nil), []int(nil)
			for range 60 {
				s.clock.now = s.clock.now.Add(time.Duration(r.Int64N(int64(time.Second))))
				if got := s.ask(t, []string{"a", "b"}[r.IntN(2)], r.IntN(12)); got > 0 {
					at, n = append(at, s.clock.now.Sub(starts[0])), append(n, got)
				}
			}
			within(t, at, n, 10, max(tiers["a"].Requests, tiers["b"].Requests))
		}
	})
	t.Run("charged under one tier", func(t *testing.T) {
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 2))
			large, small := ratelimit.PerSecond(1+r.IntN(9)).WithBurst(10), ratelimit.PerSecond(1+r.IntN(9)).WithBurst(1+r.IntN(9))
			s, at, n := newSwitching(t, map[string]ratelimit.Rate{"large": large, "small": small}), []time.Duration(nil), []int(nil)
			for range 60 {
				s.clock.now = s.clock.now.Add(time.Duration(r.Int64N(int64(time.Second))))
				if got := s.ask(t, "large", r.IntN(12)); got > 0 {
					at, n = append(at, s.clock.now.Sub(starts[0])), append(n, got)
				}
				// One unit more than is left, so that it is denied.
				look, err := s.limiter.Peek(context.Background(), ratelimit.Request{Client: "c", Endpoint: "/", Tier: "small"})
				require.NoError(t, err)
				require.Zero(t, s.ask(t, "small", look.Remaining+1))
			}
			within(t, at, n, 10, large.Requests)
		}
	})
	t.Run("a client that cannot gain", func(t *testing.T) {
		s := newSwitching(t, map[string]ratelimit.Rate{"large": ratelimit.PerSecond(1).WithBurst(100), "small": ratelimit.PerSecond(1).WithBurst(50)})
		require.Equal(t, 100, s.ask(t, "large", 100))
		require.Zero(t, s.ask(t, "small", 1), "nothing is left, and the key stays as it is")
		s.clock.now = s.clock.now.Add(50 * time.Second)
		require.Zero(t, s.ask(t, "small", 51), "never fits")
		s.ask(t, "small", 0)
		require.Zero(t, s.ask(t, "large", 51), "full under the smaller burst is not full under the larger one")
		require.Equal(t, 50, s.ask(t, "large", 50))
	})
}
