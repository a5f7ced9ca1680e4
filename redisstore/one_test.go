package redisstore_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/redisstore"
)

// A history is a random sequence of requests for one key, on a clock that moves only when
// told to.
type history struct {
	*testing.T
	rand   *rand.Rand
	client *redis.Client
	clock  *ratelimit.FakeClock
	store  *redisstore.Store
	rates  []ratelimit.Rate
	ask    ratelimit.Ask
	retry  time.Duration // the last RetryAfter, roughly
}

// histories calls do for each step of n histories of each algorithm.
func histories(t *testing.T, n int, do func(h *history, step int)) {
	client := startReal(t).client(t)
	usual := []ratelimit.Rate{
		ratelimit.PerMinute(100), ratelimit.PerSecond(3), {Requests: 7, Per: 3 * time.Second}, {Requests: 1000, Per: 24 * time.Hour},
		{Requests: 2, Per: 10 * time.Microsecond},
	}
	for _, a := range all {
		rates := append(append(usual[:0:0], usual...), usual...)
		rates = append(rates, extreme()[a]...)
		for i := range schedules(n) {
			clock := ratelimit.NewFakeClock(starts[i%len(starts)])
			opts := []redisstore.Option{redisstore.WithClock(clock)}
			if i%2 == 0 {
				opts = append(opts, redisstore.WithHealing())
			}
			h := &history{
				T: t, rand: rand.New(rand.NewPCG(uint64(i), 7)), client: client, clock: clock,
				store: newStore(t, client, opts...), rates: rates,
				ask: ratelimit.Ask{Rule: "one", Key: strconv.Itoa(i), Client: "c", Algorithm: a, Rate: rates[i%len(rates)]},
			}
			for step := range 30 {
				if do(h, step); t.Failed() {
					t.Logf("%s, history %d, step %d, %v", a, i, step, h.ask.Rate)
					return
				}
			}
		}
	}
}

// move sets the clock to another time, which is seldom earlier.
func (h *history) move() {
	per := min(h.ask.Rate.Per, 366*24*time.Hour).Truncate(time.Microsecond) + time.Microsecond
	each := min(per, 3*h.ask.Rate.Per/time.Duration(h.ask.Rate.Requests)) + time.Microsecond
	some := func(d time.Duration) time.Duration {
		return time.Duration(h.rand.Int64N(int64(d))).Truncate(time.Microsecond)
	}
	switch h.rand.IntN(10) {
	case 0:
		h.clock.Set(h.clock.Now().Add(-some(3 * per)))
	case 1:
		h.clock.Advance(some(3 * per))
	case 2:
		h.clock.Advance(time.Microsecond)
	case 3, 4:
		if h.retry != ratelimit.Never {
			h.clock.Advance(min(h.retry, per))
		}
	case 5, 6, 7:
		h.clock.Advance(some(each))
	}
}

// change sometimes changes the rate.
func (h *history) change() {
	if h.rand.IntN(12) == 0 {
		h.ask.Rate = h.rates[h.rand.IntN(len(h.rates))]
	}
}

// limit returns how many units may be granted at once.
func (h *history) limit() int64 {
	if h.ask.Rate.Burst > 0 {
		return int64(h.ask.Rate.Burst)
	}
	return int64(h.ask.Rate.Requests)
}

// cost returns how many units to ask for: at most one more than the limit.
func (h *history) cost() int64 {
	switch h.rand.IntN(6) {
	case 0:
		return 0
	case 1:
		return 1 + h.rand.Int64N(h.limit()+1)
	case 2:
		return 1 + h.rand.Int64N(h.limit()/4+1)
	}
	return 1
}

// one charges costs in one call for one key.
func (h *history) one(costs []int64, ahead, reserve int64) redisstore.Reply {
	r, err := h.store.One(context.Background(), h.ask, costs, ahead, reserve)
	require.NoError(h, err)
	for _, res := range r.Results {
		h.retry = max(res.RetryAfter, h.retry/2)
	}
	return r
}

// apart asks for n units of the second key, which gets the same requests one by one. It
// uses one of two scripts.
func (h *history) apart(n int64) ratelimit.Result {
	a := h.ask
	a.Rule, a.N = "two", int(n)
	if h.rand.IntN(2) == 0 {
		return take(h, h.store, a)
	}
	look := h.ask
	look.Rule, look.N, look.Shadow = "look", 0, true
	results, err := h.store.Take(context.Background(), []ratelimit.Ask{look, a})
	require.NoError(h, err)
	return results[1]
}

// held returns what the server stores for each of the two keys.
func (h *history) held() (one, two []string) {
	a, b, ctx := h.ask, h.ask, context.Background()
	b.Rule = "two"
	if a.Algorithm == ratelimit.AlgorithmSlidingWindowLog {
		return h.client.LRange(ctx, h.store.KeyOf(a), -2, -1).Val(), h.client.LRange(ctx, h.store.KeyOf(b), -2, -1).Val()
	}
	return []string{h.client.Get(ctx, h.store.KeyOf(a)).Val()}, []string{h.client.Get(ctx, h.store.KeyOf(b)).Val()}
}

// TestTogether checks that callers that ask at the same time get the answers that they
// would get one after the other at that instant, and that the same holds for units taken
// ahead.
func TestTogether(t *testing.T) {
	steps, fast, callers, ahead := map[ratelimit.Algorithm]int{}, map[ratelimit.Algorithm]int{}, 0, 0
	histories(t, 60, func(h *history, _ int) {
		h.move()
		h.change()
		costs := make([]int64, 1+h.rand.IntN(5))
		for i := range costs {
			costs[i] = h.cost()
		}
		var more, reserve int64
		if h.rand.IntN(2) == 0 {
			more, reserve = 1+h.rand.Int64N(h.limit()), h.rand.Int64N(h.limit()/2+1)
		}
		r := h.one(costs, more, reserve)
		var want []ratelimit.Result
		granted := true
		for i, n := range costs {
			want = append(want, h.apart(n))
			granted = granted && (n == 0 || want[i].Allowed)
		}
		var taken int64
		if granted {
			taken = max(0, min(more, int64(h.apart(0).Remaining)-reserve))
		}
		if taken > 0 {
			assert.True(h, h.apart(taken).Allowed)
			ahead++
		}
		assert.Equal(h, want, r.Results, "%v", costs)
		assert.Equal(h, taken, r.Taken, "%v, %d ahead, %d left", costs, more, reserve)
		one, two := h.held()
		assert.Equal(h, two, one, "%v", costs)
		steps[h.ask.Algorithm]++
		callers += len(costs)
		if r.Fast {
			fast[h.ask.Algorithm]++
		}
	})
	t.Logf("steps %v, of which by the fast path %v; %d callers, %d times units ahead, mismatches 0", steps, fast, callers, ahead)
	for _, a := range all {
		assert.Greater(t, fast[a], steps[a]/5, "%s: the fast path must decide often", a)
	}
}

// denials counts what TestDenial has seen.
type denials struct{ certain, uncertain, granted, whole, partly int }

// TestDenial checks that what a reply calls a certain denial is what the server would
// answer: it denies too, with the same result.
func TestDenial(t *testing.T) {
	var seen denials
	histories(t, 60, func(h *history, _ int) {
		h.move()
		h.change()
		r, began := h.one([]int64{h.cost(), 1, h.cost(), h.cost()}, 0, 0), h.clock.Now()
		if all, one := r.Knows(); all {
			seen.whole++
		} else if one {
			seen.partly++
		}
		for range 3 {
			h.retry = min(h.retry, h.ask.Rate.Per).Truncate(time.Microsecond)
			if h.rand.IntN(2) == 0 {
				h.move()
			}
			if h.clock.Now().Before(began) || !seen.same(h, &r, began) {
				return
			}
		}
	})
	t.Logf("%d denials were certain, %d were not, mismatches 0; %d were granted; %d replies said everything, %d only about one unit",
		seen.certain, seen.uncertain, seen.granted, seen.whole, seen.partly)
	assert.Greater(t, seen.certain, seen.uncertain)
}

// same compares the denial that r makes certain with the answer of the server, at two
// estimates of the time since began. It returns false if units were granted, because r is
// then out of date.
func (d *denials) same(h *history, r *redisstore.Reply, began time.Time) bool {
	longest := h.clock.Now().Sub(began)
	shortest, n := longest, max(h.cost(), 1)
	if h.rand.IntN(2) == 0 {
		shortest = time.Duration(h.rand.Int64N(int64(longest) + 1)).Truncate(time.Microsecond)
	}
	got, ok := r.Deny(n, longest, shortest)
	h.clock.Set(began.Add(shortest))
	want := h.one([]int64{n}, 0, 0).Results[0]
	if want.Allowed {
		d.granted++
		return assert.False(h, ok, "%d units, %v later: %+v", n, shortest, r) && false
	}
	h.clock.Set(began.Add(longest))
	then := h.one([]int64{n}, 0, 0).Results[0]
	all, _ := r.Knows()
	switch {
	case ok:
		d.certain++
		assert.False(h, then.Allowed, "%d units, %v later: %+v", n, longest, r)
		want.Remaining = then.Remaining
		assert.Equal(h, want, got, "%d units, between %v and %v later: %+v", n, shortest, longest, r)
	case then.Allowed:
		d.granted++
	default:
		d.uncertain++
		assert.False(h, all, "%d units, %v later: %v", n, longest, then)
	}
	return !then.Allowed && !h.Failed()
}

// TestSeveralFast checks that the fast path also decides several keys, unless one of their
// states needs the general code.
func TestSeveralFast(t *testing.T) {
	client := start(t).client(t)
	clock := ratelimit.NewFakeClock(time.Unix(1772323200, 0))
	s := newStore(t, client, redisstore.WithClock(clock))
	var asks []ratelimit.Ask
	for _, a := range all[:4] {
		asks = append(asks, ask(a, ratelimit.PerMinute(5), 2))
	}
	goes := func() bool {
		fast, err := s.Fast(context.Background(), asks)
		require.NoError(t, err)
		return fast
	}
	for i := range 4 { // granted twice, then denied
		assert.True(t, goes(), "time %d", i)
		clock.Advance(time.Second)
	}
	clock.Advance(-time.Minute)
	assert.False(t, goes(), "a state is ahead of now")
	clock.Advance(time.Minute)
	assert.True(t, goes())
	asks[2].Rate = ratelimit.PerHour(5)
	assert.False(t, goes(), "a state has another rate")
	asks[0].Rate.Burst = 7
	assert.False(t, goes(), "a state has another burst")
	asks = append(asks, ask(all[4], ratelimit.PerMinute(5), 2))
	assert.False(t, goes(), "one of the keys is a log")
}
