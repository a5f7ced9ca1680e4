package redisstore_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// TestUnitsAreConserved draws requests, reservations and settlements of three units, on a server and on a cluster, where
// the keys are in several slots. It compares with a model: what is denied has charged nothing, and what is settled is
// what was used. In the end, a MemoryStore that has seen the same requests has the same units left.
func TestUnitsAreConserved(t *testing.T) {
	t.Parallel()
	steps := soaked(5000, 20_000)
	_, cluster := startReplicated(t)
	for name, client := range map[string]redis.UniversalClient{"standalone": startReal(t).client(t), "cluster": cluster} {
		t.Run(name, func(t *testing.T) {
			clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
			memory, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
			require.NoError(t, err)
			b := &budgets{used: map[string]int{}, limits: map[string]int{"": 60, "tokens": 3000, "bytes": 30_000}}
			for _, s := range []ratelimit.Store{newStore(t, client, redisstore.WithClock(clock)), memory} {
				var rules []ratelimit.Rule
				for _, unit := range slices.Sorted(maps.Keys(b.limits)) {
					rules = append(rules, ratelimit.Rule{Name: "all " + unit, Endpoint: "*", Additional: true, Key: ratelimit.KeyGlobal, Unit: unit,
						Algorithm: ratelimit.AlgorithmFixedWindow, Rate: ratelimit.Rate{Requests: b.limits[unit], Per: 24 * time.Hour}})
				}
				l, err := ratelimit.New(rules, nil, ratelimit.WithStore(s), ratelimit.WithName("units"), ratelimit.WithClock(clock))
				require.NoError(t, err)
				b.limiters = append(b.limiters, l)
			}
			r := rand.New(rand.NewPCG(3, 4))
			for step := range steps {
				if len(b.open) > 0 && r.IntN(2) == 0 {
					b.settle(t, r)
				} else {
					b.reserve(t, r, step)
				}
				if step%97 == 96 {
					b.reset(t)
				}
			}
			require.Greater(t, b.denied, steps/50)
		})
	}
}

// budgets are limiters that get the same requests, and a model of what these use.
type budgets struct {
	limiters     []*ratelimit.RateLimiter
	limits, used map[string]int // by unit
	open         []openCosts
	denied       int
}

// openCosts is a reservation by each limiter that is not settled yet.
type openCosts struct {
	by    []*ratelimit.Reservation
	costs map[string]int
}

func (b *budgets) reserve(t *testing.T, r *rand.Rand, step int) {
	costs := map[string]int{"": r.IntN(4), "tokens": r.IntN(200), "bytes": r.IntN(2000)}
	if r.IntN(3) == 0 {
		delete(costs, "bytes")
	}
	if r.IntN(4) == 0 {
		costs["tokens"] = 0
	}
	var req ratelimit.Request
	fits := true
	for _, unit := range slices.Sorted(maps.Keys(costs)) {
		n := costs[unit]
		req.Costs = append(req.Costs, ratelimit.Cost{Unit: unit, N: n})
		if unit == "" && n == 0 {
			delete(costs, unit)
			continue
		}
		fits = fits && b.used[unit]+max(n, 1) <= b.limits[unit]
	}
	o := openCosts{costs: costs}
	for _, l := range b.limiters {
		res, err := l.Reserve(t.Context(), req, time.Hour)
		require.NoError(t, err)
		require.Equal(t, fits, res.Result().Allowed, "step %d", step)
		o.by = append(o.by, res)
	}
	require.Equal(t, o.by[1].Results(), o.by[0].Results(), "step %d", step)
	if !fits {
		b.denied++
		return
	}
	for unit, n := range costs {
		b.used[unit] += n
	}
	b.open = append(b.open, o)
}

func (b *budgets) settle(t *testing.T, r *rand.Rand) {
	i := r.IntN(len(b.open))
	o := b.open[i]
	b.open = slices.Delete(b.open, i, i+1)
	var actual []ratelimit.Cost
	for _, unit := range slices.Sorted(maps.Keys(o.costs)) {
		if r.IntN(3) > 0 {
			c := ratelimit.Cost{Unit: unit, N: r.IntN(2*o.costs[unit] + 2)}
			actual = append(actual, c)
			b.used[unit] += c.N - o.costs[unit]
		}
	}
	for _, res := range o.by {
		require.NoError(t, res.SettleCosts(actual...))
		require.NoError(t, res.Done())
	}
}

func (b *budgets) reset(t *testing.T) {
	for _, l := range b.limiters {
		for unit := range b.limits {
			require.NoError(t, l.Reset(t.Context(), ratelimit.Request{Rules: []string{"all " + unit}}))
		}
	}
	clear(b.used)
	b.open = nil
}
