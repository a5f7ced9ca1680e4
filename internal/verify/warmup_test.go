package verify

import (
	"context"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/exact"
	"github.com/ratelimit-go/ratelimit/ratelimittest"
)

// A warmRule is a rule that warms up, on a clock of its own.
type warmRule struct {
	t     *testing.T
	rule  ratelimit.Rule
	clock *ratelimit.FakeClock
	*ratelimit.RateLimiter
}

func newWarmRule(t *testing.T, r ratelimit.Rule, opts ...ratelimit.Option) *warmRule {
	r.Name = "warm"
	clock := ratelimit.NewFakeClock(starts[0])
	l, err := ratelimit.New([]ratelimit.Rule{r}, nil, append([]ratelimit.Option{ratelimit.WithClock(clock)}, opts...)...)
	require.NoError(t, err)
	return &warmRule{t, r, clock, l}
}

// ask asks for n units of the key of client. 0 looks.
func (w *warmRule) ask(client string, n int) (res ratelimit.Result) {
	req, err := ratelimit.Request{Client: client, Rules: []string{"warm"}, Cost: n}, error(nil)
	if n == 0 {
		res, err = w.Peek(context.Background(), req)
	} else {
		res, err = w.Check(context.Background(), req)
	}
	require.NoError(w.t, err)
	res.Rule = ""
	return res
}

// drawWarm makes up a rule that warms up in a few microseconds.
func drawWarm(rng *rand.Rand, a algorithm) ratelimit.Rule {
	r := ratelimit.Rule{Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.Rate{Requests: 1 + rng.IntN(12), Per: time.Duration(1 + rng.IntN(900))}}
	least := 1
	if a.bucket {
		r.Rate.Burst = 1 + rng.IntN(2*r.Rate.Requests)
		least = (r.Rate.Requests-1)/r.Rate.Burst + 1
	}
	r.Warmup = ratelimit.Warmup{From: least + rng.IntN(r.Rate.Requests-least+1), Over: time.Duration(1000 + rng.IntN(1000))}
	return r
}

// TestWarmupModel compares rules that warm up with the model, while their rates change.
func TestWarmupModel(t *testing.T) {
	for i, a := range algorithms {
		for schedule := range 8 {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(schedule)))
			w := newWarmRule(t, drawWarm(rng, a))
			model, now := ratelimittest.WarmupModel(w.rule.Algorithm, starts[0], w.rule.Rate, w.rule.Warmup), time.Duration(0)
			next, rate := time.Duration(0), w.rule.Rate
			for step := range 50 {
				switch rng.IntN(10) {
				case 0:
					now = max(now-time.Duration(rng.IntN(300)), 0)
				case 1:
					now += w.rule.Warmup.Over - 1 + time.Duration(rng.IntN(3))
				case 2, 3:
					now += time.Duration(rng.IntN(int(rate.Per) * 2))
				case 4, 5, 6:
					now = max(next-1+time.Duration(rng.IntN(2)), 0)
				}
				at := starts[0].Add(now)
				w.clock.Set(at)
				if rng.IntN(10) == 0 {
					rate.Per = time.Duration(1 + rng.IntN(900))
					require.NoError(t, w.UpdateRate("warm", rate))
					model.SetRate(at, rate)
				}
				n := 1 + rng.IntN(max(rate.Burst, rate.Requests)+1)
				if rng.IntN(2) == 0 {
					n = 1
				}
				require.Equal(t, model.Ask(at, 0), w.ask("a", 0))
				want, got := model.Ask(at, n), w.ask("a", n)
				require.Equal(t, want, got, "%s, schedule %d, step %d: %d units at %d of %#v", a.name, schedule, step, n, now, w.rule)
				if next = now + got.ResetAfter; !got.Allowed && got.RetryAfter != ratelimit.Never {
					next = now + got.RetryAfter
				}
			}
		}
	}
}

// TestWarmupWeights compares the arithmetic of what a young bucket charges with big integers.
func TestWarmupWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	upTo := func(most int64) int64 { return 1 + rng.Int64N(min(most, 1<<rng.IntN(62))) }
	for range 20_000 {
		b := exact.Bucket{Burst: upTo(exact.MaxBurst), Gain: 1, Unit: upTo(1 << 55)}
		of := upTo(1 << 31)
		units := upTo(of)
		p := exact.Portion{Units: units, Of: of}
		w := b.CostDown(p)
		parts := func(l exact.Level) *big.Int {
			p := new(big.Int).Mul(big.NewInt(l.Whole), big.NewInt(b.Unit))
			return p.Add(p, big.NewInt(l.Frac))
		}
		all := new(big.Int).Mul(big.NewInt(b.Unit), big.NewInt(of)) // what one unit costs is all/units parts
		weight := new(big.Int).Div(all, big.NewInt(units))
		require.Zero(t, parts(w).Cmp(weight), "the weight of %d of %d", units, of)
		require.Less(t, w.Frac, b.Unit)
		debt := exact.Level{Whole: rng.Int64N(b.Burst + 2), Frac: rng.Int64N(b.Unit)}
		if rng.IntN(3) == 0 { // exactly some of them fit, or a part less
			some := b.Cost(p, rng.Int64N(b.Burst/(w.Whole+1)+1))
			debt = b.Minus(b.Minus(exact.Level{Whole: b.Burst}, some), exact.Level{Frac: 1 - rng.Int64N(2)})
		}
		fit := b.Fit(debt, p, b.Burst)
		room := new(big.Int).Sub(new(big.Int).Mul(big.NewInt(b.Burst), big.NewInt(b.Unit)), parts(debt))
		if room.Sign() < 0 {
			room.SetInt64(0)
		}
		require.Equal(t, room.Div(room.Mul(room, big.NewInt(units)), all).Int64(), fit, "%v of %v in %+v", p, debt, b)
		cost, up := b.Cost(p, fit), new(big.Int).Mul(all, big.NewInt(fit))
		up.Div(up.Add(up, big.NewInt(units-1)), big.NewInt(units))
		require.Zero(t, parts(cost).Cmp(up))
		sum := b.Plus(debt, cost)
		require.Less(t, sum.Frac, b.Unit)
		require.Zero(t, parts(sum).Cmp(new(big.Int).Add(parts(debt), parts(cost))))
	}
}

// tenIn is a rule of 10 units that warms up from 2 in an hour.
func tenIn(a algorithm, per time.Duration) ratelimit.Rule {
	return ratelimit.Rule{Algorithm: ratelimit.Algorithm(a.name), Rate: ratelimit.Rate{Requests: 10, Per: per}, Warmup: ratelimit.Warmup{From: 2, Over: time.Hour}}
}

// TestWarmupOverflow proves that keys that share a debt do not age.
func TestWarmupOverflow(t *testing.T) {
	for _, a := range algorithms {
		w := newWarmRule(t, tenIn(a, 10*time.Minute), ratelimit.WithMaxKeys(1))
		require.True(t, w.ask("resident", 1).Allowed)
		require.True(t, w.ask("other", 1).Allowed)
		for range 5 {
			w.clock.Advance(9 * time.Minute)
			require.True(t, w.ask("resident", 1).Allowed)
			w.ask("other", 1)
			require.Equal(t, ratelimit.Never, w.ask("other", 3).RetryAfter, a.name)
		}
	}
}

// TestWarmupChange proves that a change of Over leaves a key its age, and that one that is new by
// the Over of before is new.
func TestWarmupChange(t *testing.T) {
	for _, a := range algorithms {
		for _, idle := range []time.Duration{30 * time.Minute, 2 * time.Hour} {
			w := newWarmRule(t, tenIn(a, time.Second))
			require.True(t, w.ask("a", 1).Allowed)
			w.clock.Advance(idle)
			r := w.rule
			r.Warmup.Over = 4 * time.Hour
			require.NoError(t, w.SetRule(r))
			left := 2
			if idle < time.Hour {
				w.clock.Advance(time.Hour) // three eighths of the new Over
				left = 5
			}
			require.Equal(t, left, w.ask("a", 0).Remaining, a.name)
		}
	}
}

// TestWarmupSettles settles reservations of young buckets, whose cost was rounded up. The key is then as if the units
// that stay had been charged.
func TestWarmupSettles(t *testing.T) {
	for _, a := range algorithms {
		if !a.bucket {
			continue
		}
		for charged := 1; charged <= 6; charged++ {
			for stay := range charged + 1 {
				r := tenIn(a, time.Second)
				r.Warmup.From = 6
				w := newWarmRule(t, r)
				res, err := w.Reserve(context.Background(), ratelimit.Request{Client: "settled", Rules: []string{"warm"}, Cost: charged}, time.Minute)
				require.NoError(t, err)
				require.NoError(t, res.Settle(stay))
				if stay > 0 {
					w.ask("charged", stay)
				}
				require.Equal(t, w.ask("charged", 0), w.ask("settled", 0), "%s: %d of %d stay", a.name, stay, charged)
			}
		}
	}
}

// TestWarmupReceipts gives back charges of young keys. What a unit had cost comes back, and if it was
// the first charge, the key is as old as the next one.
func TestWarmupReceipts(t *testing.T) {
	for _, a := range algorithms {
		clock := ratelimit.NewFakeClock(starts[0])
		store, err := ratelimit.NewMemoryStore(ratelimit.WithClock(clock))
		require.NoError(t, err)
		r := tenIn(a, 24*time.Hour)
		ask := func(n int, id uint64) ratelimit.Ask {
			return ratelimit.Ask{Rule: "r", Key: "k", Algorithm: r.Algorithm, Rate: r.Rate, Warmup: r.Warmup, N: n, Receipt: id, HoldFor: 24 * time.Hour}
		}
		take := func(n int, id uint64) ratelimit.Result {
			res, err := store.Take(context.Background(), []ratelimit.Ask{ask(n, id)})
			require.NoError(t, err)
			return res[0]
		}
		settle := func(id uint64, was, n int) {
			back := ask(n, id)
			back.Charged = was
			require.NoError(t, store.Settle(context.Background(), []ratelimit.Ask{back}))
		}
		reset := func() { require.NoError(t, store.Reset(context.Background(), []ratelimit.Ask{ask(0, 0)})) }

		require.Equal(t, 0, take(2, 1).Remaining)
		settle(1, 2, 1)
		require.Equal(t, 1, take(0, 0).Remaining, "%s: one of two comes back", a.name)
		reset()

		take(1, 2)
		settle(2, 1, 0)
		clock.Advance(time.Minute)
		require.Equal(t, ratelimit.Never, take(3, 0).RetryAfter, "%s: the key is new", a.name)

		take(1, 3)
		clock.Advance(30 * time.Minute)
		take(1, 0)
		settle(3, 1, 0)
		clock.Advance(59 * time.Minute)
		require.NotZero(t, take(9, 0).RetryAfter, "%s: it grows from the second charge on", a.name)
		require.LessOrEqual(t, take(9, 0).RetryAfter, 24*time.Hour)
		clock.Advance(time.Minute)
		res := take(0, 0)
		require.GreaterOrEqual(t, res.Remaining, 7, a.name)
		reset()

		take(1, 4)
		clock.Advance(30 * time.Minute)
		take(1, 5)
		settle(4, 1, 0)
		clock.Advance(30 * time.Minute)
		require.Less(t, take(0, 0).Remaining, 7, "%s: it is half as old as the hour", a.name)
		settle(5, 1, 0)
		require.Equal(t, ratelimit.Never, take(3, 0).RetryAfter, "%s: nothing is left of its charges", a.name)
	}
}
